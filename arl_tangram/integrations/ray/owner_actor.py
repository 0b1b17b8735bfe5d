"""The owner as a Ray actor: it only unpacks what comes, hands it over, and packs the answer."""

from __future__ import annotations

import asyncio
import os
import pickle
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from arl_tangram.errors import LeaseLostError
from arl_tangram.integrations.ray.configuration import describe, fingerprint
from arl_tangram.integrations.ray.greeting import NotYetError, not_yet_answer
from arl_tangram.integrations.ray.installed import connected
from arl_tangram.integrations.ray.owner import NOT_YET_S, Owner, OwnerSettings
from arl_tangram.integrations.ray.wire import OwnerFrame
from arl_tangram.runtime import Tangram

_NODE = "node"


class OwnerActor:
    """The actor of an owner. Started again after its death, it is an owner of a new epoch.

    Args:
        factory: returns what the user declares.
        nodes: lines about the nodes, if they are declared.
        lease_s: what is held without a word for so long is lost.
    """

    def __init__(self, factory: Callable[[], Tangram], nodes: Sequence[str], lease_s: float) -> None:
        restarted = connected(start=False).was_restarted()
        setup = factory().setup
        lines = describe(setup, nodes)
        settings = OwnerSettings(setup=setup, fingerprint=fingerprint(lines), lines=lines, lease_s=lease_s)
        self._epoch = secrets.token_hex(8)
        self._owner = Owner(settings, epoch=self._epoch, restarted=restarted)
        self._ready = asyncio.Event()
        if restarted:
            self._ready.set()

    async def ready(self) -> None:
        """Let clients in: all agents are up."""
        self._ready.set()

    async def hello(self, greeting: Mapping[str, Any]) -> Mapping[str, Any]:
        """Begin, or resume, a session; a client's waits until the agents are up."""
        if greeting.get("kind") != _NODE and not self._ready.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ready.wait(), NOT_YET_S)
            if not self._ready.is_set():
                return not_yet_answer(NotYetError("its agents are starting", 0.0))
        return await self._owner.hello(greeting)

    async def exchange(self, frame: bytes) -> bytes:
        """Take a frame, and answer with another; one that cannot be read ends its session, as it would come again."""
        try:
            told = pickle.loads(frame)
        except Exception as error:  # noqa: BLE001 - whatever the classes of the user raise
            ended = LeaseLostError(f"what was said cannot be read by the owner of the shared runtime: {error!r}")
            answer = OwnerFrame(self._epoch, 1, (), 0, ended)
        else:
            answer = await self._owner.exchange(told)
        return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)

    async def ask(self, session: str, what: str, arguments: Mapping[str, Any]) -> bytes:
        """Do or look up something that is no part of a call."""
        return pickle.dumps(await self._owner.ask(session, what, arguments), pickle.HIGHEST_PROTOCOL)

    async def pid(self) -> int:
        """Return the number of this process."""
        return os.getpid()

    async def aclose(self) -> None:
        """Call off all that waits and runs; bounded."""
        await self._owner.aclose()
