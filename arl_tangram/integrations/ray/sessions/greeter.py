"""Greet an owner, from a client or an agent, until it answers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from arl_tangram.errors import LeaseLostError, OwnerLostError
from arl_tangram.integrations.ray.lines import LineError, OwnerLine, pause_s
from arl_tangram.integrations.ray.sessions.greeting import NotYetError, greeting, read_answer, with_kept
from arl_tangram.integrations.ray.wire import Kept, Resume, Shape, Welcome

PATIENCE_S = 10.0
"""For how long an answer to one greeting is waited for."""


class Greeter:
    """Greets an owner.

    Attributes:
        known: what there is, as it was told last; an owner that was started again may know of nothing.
        kept: returns what it was to remember, as of now.
        trouble: why there was no answer last.

    Args:
        line: the way to the owner.
        about: who greets, in builtins.
        now: tells the time in seconds, monotonic.
    """

    def __init__(self, line: OwnerLine, about: Mapping[str, Any], now: Callable[[], float]) -> None:
        self.known: Shape | None = None
        self.kept: Callable[[], Kept | None] = lambda: None
        self.trouble = "no answer"
        self._line = line
        self._about = about
        self._now = now
        self._turn = 0

    async def begin(self, on_wait: Callable[[NotYetError], None] | None = None) -> tuple[Welcome, float]:
        """Greet, to begin anew, until there is an answer; return it, and when what it answers was sent.

        Args:
            on_wait: is told, each time, that the owner lets nobody begin yet.

        Raises:
            TangramError: the owner will have none of us, or there is none any more.
        """
        message = self._greeting()
        failures = 0
        while True:
            sent_s = self._now()
            if (answer := await self._answer(message, PATIENCE_S)) is None:
                await asyncio.sleep(pause_s(failures))
                failures += 1
                continue
            try:
                welcome = read_answer(answer)
            except LeaseLostError:  # the answer before was so late that the session has ended already
                message = self._greeting()
                continue
            except NotYetError as error:
                self.trouble = str(error)
                if on_wait is not None:
                    on_wait(error)
                continue
            if self._is_early(welcome, sent_s):
                return welcome, sent_s

    async def resume(self, epoch: str, session: str, resume: Resume, lease_s: float) -> tuple[Welcome, float]:
        """Greet an owner that was started again, to go on with a session of the one before; see `begin`.

        Raises:
            LeaseLostError: it cannot be resumed.
            TangramError: the owner will have none of us, or there is none any more.
        """
        message = self._greeting(epoch=epoch, session=session, resume=resume)
        failures = 0
        while True:
            sent_s = self._now()
            if (answer := await self._answer(message, min(PATIENCE_S, lease_s / 3))) is None:
                await asyncio.sleep(pause_s(failures))
                failures += 1
                continue
            welcome = read_answer(answer)
            if self._is_early(welcome, sent_s):
                return welcome, sent_s

    def _greeting(self, **resumed: Any) -> dict[str, Any]:
        self._turn += 1
        return greeting(self._about, uuid.uuid4().hex, turn=self._turn, known=self.known, **resumed)

    async def _answer(self, message: Mapping[str, Any], patience_s: float) -> Mapping[str, Any] | None:
        """Send a greeting; return None if there is no answer."""
        try:
            async with asyncio.timeout(patience_s):
                return await self._line.hello(with_kept(message, self.kept()))
        except (LineError, TimeoutError) as error:
            if isinstance(error, LineError) and error.for_good:
                raise no_owner(error) from error
            self.trouble = str(error) or "no answer"
            return None

    def _is_early(self, welcome: Welcome, sent_s: float) -> bool:
        """Whether a welcome has come before much of its lease was over."""
        return self._now() < sent_s + welcome.lease_s / 2


def no_owner(error: LineError) -> OwnerLostError:
    """Return the error of those who want something of an owner that is dead for good."""
    return OwnerLostError(f"the shared runtime has no owner any more: {error}")
