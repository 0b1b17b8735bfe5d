"""What a client asks its owner beside its calls: to look at the runtime, and to steer it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any

from arl_tangram.errors import OwnerLostError, TangramError
from arl_tangram.integrations.ray.answers import result_of
from arl_tangram.integrations.ray.lines import LineError, OwnerLine
from arl_tangram.integrations.ray.wire import AgentReply

LOOK_S = 5.0
"""For how long a look at the owner may block."""


class Questions:
    """The questions of one client.

    Args:
        line: to the owner.
        name: of the runtime, for messages.
        session: returns the name of the present session.
    """

    def __init__(self, line: OwnerLine, name: str, session: Callable[[], str]) -> None:
        self._line = line
        self._name = name
        self._session = session
        self._going: dict[asyncio.Task[AgentReply], TangramError | None] = {}

    async def ask(self, what: str, arguments: Mapping[str, Any]) -> Any:
        """Ask, and wait for the answer for as long as the session lasts.

        Raises:
            OwnerLostError: no answer.
            TangramError: what `lost` was given, or what the owner says.
        """
        task = asyncio.get_running_loop().create_task(self._asked(what, arguments), context=Context())
        self._going[task] = None
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            lost = self._going.pop(task)
        if lost is not None:  # an owner that is silent may be so for ever
            raise type(lost)(str(lost))
        return result_of(task.result(), what)

    def look(self, what: str, arguments: Mapping[str, Any]) -> Any:
        """Ask, and block for the answer.

        Raises:
            OwnerLostError: no answer in time.
            TangramError: what the owner says.
        """
        try:
            reply = self._line.ask_now(self._session(), what, arguments, LOOK_S)
        except LineError as error:
            raise self._unanswered(error) from error
        return result_of(reply, what)

    def lost(self, error: TangramError) -> None:
        """The session is over: end what goes on with an error."""
        for task in self._going:
            self._going[task] = error
            task.cancel()

    async def _asked(self, what: str, arguments: Mapping[str, Any]) -> AgentReply:
        try:
            return await self._line.ask(self._session(), what, arguments)
        except LineError as error:
            raise self._unanswered(error) from error

    def _unanswered(self, error: LineError) -> OwnerLostError:
        return OwnerLostError(f"the owner of the shared runtime {self._name!r} does not answer: {error}")
