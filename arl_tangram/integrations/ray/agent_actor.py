"""The agent of a node as a Ray actor: it only unpacks what comes, hands it over, and packs the answer."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle

from arl_tangram.errors import NodeLostError, OwnerLostError
from arl_tangram.integrations.ray.answers import raised, unreadable, valued
from arl_tangram.integrations.ray.handles import OwnerHandle
from arl_tangram.integrations.ray.installed import Library, connected, off_loop
from arl_tangram.integrations.ray.naming import named
from arl_tangram.integrations.ray.node.agent import NodeAgent
from arl_tangram.integrations.ray.placing import Pools
from arl_tangram.integrations.ray.wire import AgentReply, CallId

_LONGEST_PAUSE_S = 10.0
_logger = logging.getLogger(__name__)


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
        self._trouble: Exception | None = None
        self._start = asyncio.get_running_loop().create_task(self._started(node, pools, owner))

    async def _started(self, node: str, pools: Pools, owner: str) -> NodeAgent:
        """Start the agent; after the death of one before, until that succeeds: nobody else would try it again."""
        library = connected(start=False)
        is_again = library.was_restarted()
        pause_s = 1.0
        while True:
            try:
                self._agent = await self._made(library, node, pools, owner)
                return self._agent
            except Exception as error:
                if not is_again:
                    raise
                self._trouble = error
                _logger.warning("the agent of %s could not be started again: %r", named(node), error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    @staticmethod
    async def _made(library: Library, node: str, pools: Pools, owner: str) -> NodeAgent:
        actor = await off_loop(lambda: library.find(owner))
        if actor is None:
            raise OwnerLostError(f"the shared runtime has no actor {owner!r} any more")
        agent = NodeAgent(node, pools(), OwnerHandle(library, actor), node_id=library.node_id)
        await agent.start()
        return agent

    async def started(self) -> bytes:
        """Wait until its pools are open and its owner knows of them; return the pickled reply."""
        await asyncio.wait([self._start])
        error = None if self._start.cancelled() else self._start.exception()
        return pickle.dumps(valued(None) if error is None else raised(error), pickle.HIGHEST_PROTOCOL)

    async def call(self, request: bytes) -> bytes:
        """Do something for a client."""
        return pickle.dumps(await self._called(request), pickle.HIGHEST_PROTOCOL)

    async def _called(self, request: bytes) -> AgentReply:
        if self._agent is None and self._trouble is not None:
            return raised(NodeLostError(f"its agent could not be started again yet: {self._trouble}"))
        agent = await asyncio.shield(self._start) if self._agent is None else self._agent
        try:
            told = pickle.loads(request)
        except Exception as error:  # noqa: BLE001 - whatever the classes of the user raise
            return unreadable(error, f"what was asked of {named(agent.node)} cannot be read there")
        return await agent.call(told)

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
