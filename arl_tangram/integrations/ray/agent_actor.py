"""The agent of a node as a Ray actor: it only unpacks what comes, hands it over, and packs the answer."""

from __future__ import annotations

import asyncio
import os
import pickle

from arl_tangram.errors import OwnerLostError
from arl_tangram.integrations.ray.agent import NodeAgent
from arl_tangram.integrations.ray.answers import raised, unreadable, valued
from arl_tangram.integrations.ray.handles import OwnerHandle
from arl_tangram.integrations.ray.library import connected, off_loop
from arl_tangram.integrations.ray.placing import Pools
from arl_tangram.integrations.ray.wire import CallId


class AgentActor:
    """The actor of the agent of a node; the pools are made here, on the node.

    Args:
        node: its name; empty for the only one.
        pools: returns the pools of the node.
        owner: the name of the owner's actor. Its handle as an argument would be kept in Ray's store of objects, where
            it may be lost, and then the actor could not be started again.
    """

    def __init__(self, node: str, pools: Pools, owner: str) -> None:
        self._agent: NodeAgent | None = None
        self._start = asyncio.get_running_loop().create_task(self._started(node, pools, owner))

    async def _started(self, node: str, pools: Pools, owner: str) -> NodeAgent:
        library = connected(start=False)
        actor = await off_loop(lambda: library.find(owner))
        if actor is None:
            raise OwnerLostError(f"the shared runtime has no actor {owner!r} any more")
        agent = NodeAgent(node, pools(), OwnerHandle(library, actor), node_id=library.node_id)
        await agent.start()
        self._agent = agent
        return agent

    async def started(self) -> bytes:
        """Wait until its pools are open and its owner knows of them; return the pickled reply."""
        await asyncio.wait([self._start])
        error = None if self._start.cancelled() else self._start.exception()
        return pickle.dumps(valued(None) if error is None else raised(error), pickle.HIGHEST_PROTOCOL)

    async def call(self, request: bytes) -> bytes:
        """Do something for a client."""
        agent = await asyncio.shield(self._start) if self._agent is None else self._agent
        try:
            told = pickle.loads(request)
        except Exception as error:  # noqa: BLE001 - whatever the classes of the user raise
            reply = unreadable(error, f"what was asked of node {agent.node!r} cannot be read there")
        else:
            reply = await agent.call(told)
        return pickle.dumps(reply, pickle.HIGHEST_PROTOCOL)

    async def cancel(self, session: str, number: int) -> None:
        """Cancel a call that goes on here."""
        if self._agent is not None:
            await self._agent.cancel(CallId(session, number))

    async def pid(self) -> int:
        """Return the number of this process."""
        return os.getpid()

    async def aclose(self) -> None:
        """Remove everything that was created on the node; bounded."""
        if self._agent is None:
            self._start.cancel()
            await asyncio.wait([self._start])
        if self._agent is not None:
            await self._agent.aclose()
