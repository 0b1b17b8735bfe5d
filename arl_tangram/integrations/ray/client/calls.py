"""The calls of one session to the agent of one node: each ends in bounded time, whatever becomes of the node."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any

from arl_tangram.errors import NodeLostError, TangramError
from arl_tangram.integrations.ray.answers import result_of
from arl_tangram.integrations.ray.lines import AgentLine, LineError, pause_s
from arl_tangram.integrations.ray.naming import named
from arl_tangram.integrations.ray.wire import AgentCall, AgentReply, CallId
from arl_tangram.uninterrupted import settled

_numbers = itertools.count(1)  # of this process, so that no two calls of a session have the same

CANCEL_S = 15.0
"""Seconds that an agent has to end a call that was cancelled; killing commands takes a few."""


class AgentCalls:
    """The calls of one session to the agent of one node.

    Args:
        session: whose calls they are.
        node: the name of the node, for messages.
        line: to its agent.
        on_lost: is told when the agent does not answer.
    """

    def __init__(
        self,
        session: str,
        node: str,
        line: AgentLine,
        on_lost: Callable[[NodeLostError], None] | None = None,
    ) -> None:
        self.node = node
        self._session = session
        self._line = line
        self._on_lost = on_lost
        self._ended: TangramError | None = None
        self._going: set[asyncio.Task[AgentReply]] = set()
        self._settling: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def ask(
        self,
        what: str,
        arguments: Mapping[str, Any],
        *,
        load: bytes = b"",
        limit_s: float | None = None,
        heard: Callable[[AgentReply], None] | None = None,
    ) -> AgentReply:
        """Let the agent do something, and return its reply, which may tell of an error.

        Cancelled, it is cancelled there, and its end is awaited.

        Args:
            what: one of `agent.CALLS`.
            arguments: of that.
            load: pickled arguments of the user.
            limit_s: the most seconds to wait; None for as long as the node lives.
            heard: is given the reply, whichever it is, also if the call was cancelled.

        Raises:
            NodeLostError: no answer.
            TangramError: what `end` was given.
        """
        self.check()
        self._loop = asyncio.get_running_loop()
        request = AgentCall(CallId(self._session, next(_numbers)), what, arguments, load)
        task = self._loop.create_task(self._line.call(request))
        self._going.add(task)
        task.add_done_callback(self._done)
        try:
            await asyncio.wait([task], timeout=limit_s)
        except asyncio.CancelledError:
            self._line.cancel(request.id)
            await _settled_within(task, CANCEL_S)
            if heard is not None and not task.cancelled() and task.exception() is None:
                heard(task.result())
            raise
        reply = self._reply(task, what)
        if heard is not None:
            heard(reply)
        return reply

    async def do(
        self,
        what: str,
        arguments: Mapping[str, Any],
        *,
        limit_s: float | None = None,
        heard: Callable[[AgentReply], None] | None = None,
    ) -> Any:
        """Let the agent do something, and return the value; see `ask`, and it raises what was raised there, too."""
        return result_of(await self.ask(what, arguments, limit_s=limit_s, heard=heard), what)

    def new_number(self) -> int:
        """Return a number that no other call of this process has: the name of something that calls are about."""
        return next(_numbers)

    def settle(self, what: str, arguments: Mapping[str, Any]) -> None:
        """Let the agent end or give back something, which is not to be left undone while it lives.

        It is asked again until there is an answer, whichever it is, or the session is over. Where nothing was asked
        before, there is nothing to end.
        """
        if self._loop is not None and not self._loop.is_closed():
            self._settling.add(self._begin(self._loop, what, arguments))

    async def settle_within(self, what: str, arguments: Mapping[str, Any], limit_s: float) -> None:
        """Do the same, and wait for it, but not for long."""
        settling = self._begin(asyncio.get_running_loop(), what, arguments)
        self._settling.add(settling)
        await asyncio.wait([settling], timeout=limit_s)

    def end(self, error: TangramError) -> None:
        """End all calls with an error, those that come later, too: the session is over. The first error counts."""
        if self._ended is None:
            self._ended = error
            for task in [*self._going, *self._settling]:
                task.cancel()

    async def aclose(self) -> None:
        """Ask for nothing again, as the session ends, and with it what is left there."""
        tasks = list(self._settling)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def check(self) -> None:
        """Raise the error that `end` was given, one of its own for each who hears it."""
        if self._ended is not None:
            raise type(self._ended)(str(self._ended)) from self._ended

    def _reply(self, task: asyncio.Task[AgentReply], what: str) -> AgentReply:
        if not task.done():
            task.cancel()
            raise self._lost(f"its agent has not answered in time ({what})")
        if task.cancelled():
            self.check()
            raise asyncio.CancelledError  # somebody ends all tasks of the loop
        if isinstance(error := task.exception(), LineError):
            raise self._lost(str(error)) from error
        return task.result()

    def _begin(self, loop: asyncio.AbstractEventLoop, what: str, arguments: Mapping[str, Any]) -> asyncio.Task[None]:
        request = AgentCall(CallId(self._session, next(_numbers)), what, arguments)
        task = loop.create_task(self._settle(request), context=Context())
        task.add_done_callback(self._settled)
        return task

    async def _settle(self, request: AgentCall) -> None:
        for failures in itertools.count():
            if self._ended is not None:
                return
            try:
                await self._line.call(request)
                return
            except LineError as error:
                if error.gone:  # and whoever comes after it removes what it had
                    return
                if not failures:
                    self._lost(str(error))
            await asyncio.sleep(pause_s(failures))

    def _lost(self, reason: str) -> NodeLostError:
        error = NodeLostError(f"{named(self.node)} is lost: {reason}")
        if self._on_lost is not None:
            self._on_lost(error)
        return error

    def _settled(self, task: asyncio.Task[None]) -> None:
        self._settling.discard(task)
        if not task.cancelled():
            task.exception()  # heard: an answer that cannot be read is one

    def _done(self, task: asyncio.Task[AgentReply]) -> None:
        self._going.discard(task)
        if not task.cancelled():
            task.exception()  # heard, though nobody may wait any more


async def _settled_within(task: asyncio.Task[AgentReply], limit_s: float) -> None:
    """Wait until a task is done, for so long, and then give it up; further cancelling changes nothing."""
    timer = asyncio.get_running_loop().call_later(limit_s, task.cancel)
    try:
        await settled(task)
    except asyncio.CancelledError:
        pass
    finally:
        timer.cancel()
