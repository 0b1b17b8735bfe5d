"""The ways to the owner and to the agents, over the handles of their Ray actors."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

from arl_tangram.integrations.ray.installed import Handle, Library, off_loop
from arl_tangram.integrations.ray.lines import LineError
from arl_tangram.integrations.ray.wire import AgentCall, AgentReply, CallId, ClientFrame, OwnerFrame


class OwnerHandle:
    """An `OwnerLine`. Frames are pickled here: Ray passes bytes on as they are, in a third of the time."""

    def __init__(self, library: Library, actor: Handle) -> None:
        self._library = library
        self._actor = actor

    async def hello(self, greeting: Mapping[str, Any]) -> Mapping[str, Any]:
        """Begin, or resume, a session."""
        told = await self._library.answer(lambda: self._actor.hello.remote(dict(greeting)))
        return cast("Mapping[str, Any]", told)

    async def exchange(self, frame: ClientFrame) -> OwnerFrame:
        """Send a frame."""
        packed = pickle.dumps(frame, pickle.HIGHEST_PROTOCOL)
        answer = await self._library.answer(lambda: self._actor.exchange.remote(packed))
        return cast(OwnerFrame, pickle.loads(answer))

    async def ask(self, session: str, what: str, arguments: Mapping[str, Any]) -> AgentReply:
        """Let the owner do or look up something."""
        answer = await self._library.answer(lambda: self._actor.ask.remote(session, what, dict(arguments)))
        return cast(AgentReply, pickle.loads(answer))

    def ask_now(self, session: str, what: str, arguments: Mapping[str, Any], limit_s: float) -> AgentReply:
        """Do the same, and block for it."""
        answer = self._library.answer_now(lambda: self._actor.ask.remote(session, what, dict(arguments)), limit_s)
        return cast(AgentReply, pickle.loads(answer))


class AgentHandle:
    """An `AgentLine`. Its actor is looked up when it is first needed, off the loop; restarted, it has the same handle.

    Args:
        library: Ray.
        name: of the actor.
        actor: its handle, if it is known.
    """

    def __init__(self, library: Library, name: str, actor: Handle | None = None) -> None:
        self._library = library
        self._name = name
        self._actor = actor
        self._later: set[asyncio.Task[None]] = set()

    async def call(self, request: AgentCall) -> AgentReply:
        """Let the agent do something."""
        actor = self._actor or await self._found()
        packed = pickle.dumps(request, pickle.HIGHEST_PROTOCOL)
        return cast(AgentReply, pickle.loads(await self._library.answer(lambda: actor.call.remote(packed))))

    def cancel(self, id: CallId) -> None:  # noqa: A002 - as in the protocol
        """Cancel a call there."""
        self._tell(lambda actor: actor.cancel.remote(*id))

    def _tell(self, say: Callable[[Handle], object]) -> None:
        if self._actor is None:
            task = asyncio.get_running_loop().create_task(self._tell_later(say))
            self._later.add(task)
            task.add_done_callback(self._later.discard)
        else:
            with suppress(Exception):  # it is gone, or this process is no longer connected: so is what was to be ended
                say(self._actor)

    async def _tell_later(self, say: Callable[[Handle], object]) -> None:
        with suppress(Exception):
            say(await self._found())

    async def _found(self) -> Handle:
        self._actor = cast("Handle | None", await off_loop(lambda: self._library.find(self._name)))
        if self._actor is None:
            raise LineError(f"there is no actor {self._name!r}", gone=True, for_good=True)
        return self._actor
