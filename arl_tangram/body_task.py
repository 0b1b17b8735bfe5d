"""The task that runs a body, and what it belongs to."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Any, Protocol


class Answered(Protocol):
    """The call that a run of a body belongs to."""

    @property
    def ended(self) -> bool:
        """Whether its caller has its answer."""
        ...

    def answer(self, value: Any, error: BaseException | None, body_s: float, now_s: float) -> None:
        """Give the caller its answer: a value, or an error; the body has run for `body_s`."""
        ...

    def send_back(self, error: Exception, context: Context) -> bool:
        """Let the call wait once more, as its service could not be restored; return whether it does."""
        ...


class _Over:
    """A call that has been answered."""

    ended = True

    def answer(self, value: Any, error: BaseException | None, body_s: float, now_s: float) -> None:
        """Do nothing: it has been."""

    def send_back(self, error: Exception, context: Context) -> bool:
        """It does not wait any more."""
        return False


OVER: Answered = _Over()


class Cancelled(Protocol):
    """What is told when the task of a body is cancelled."""

    @property
    def has_begun(self) -> bool:
        """Whether the task has made its first step."""
        ...

    def never_began(self, task: asyncio.Task[None], /) -> None:
        """The task has ended without a step."""
        ...

    def loop_ends(self) -> None:
        """Somebody ends the loop."""
        ...


class BodyTask(asyncio.Task[None]):
    """Runs a body; tells the run if it is cancelled before its first step, or because the loop is ended.

    A callback for every task that is done would say so too, at the cost of a turn of the loop for every call.
    """

    run: Cancelled

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel it; see `asyncio.Task.cancel`."""
        if not self.run.has_begun:
            self.add_done_callback(self.run.never_began)
        elif not self.get_loop().is_running():  # whoever ends the loop, as asyncio.run does, waits for every task
            self.run.loop_ends()
        return super().cancel(msg)
