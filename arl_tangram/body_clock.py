"""The clock of a body's timeout, which stands still while the body waits for what it called, or is suspended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from arl_tangram.workshop import Workshop


class BodyClock:
    """Runs from when it is made; it can be stopped for several reasons at once, and goes on when all are gone.

    Args:
        workshop: sets timers.
        timeout: seconds to run.
        when_over: called when it has run for as long.
    """

    __slots__ = ("_left_s", "_reasons", "_timer", "_when_over", "_workshop")

    def __init__(self, workshop: Workshop, timeout: float, when_over: Callable[[], None]) -> None:
        self._workshop = workshop
        self._when_over = when_over
        self._left_s = timeout
        self._reasons = 0
        self._timer: asyncio.TimerHandle | None = workshop.call_later(timeout, when_over)

    def stop(self) -> None:
        """Stand still, for one reason more."""
        self._reasons += 1
        if self._timer is not None:
            self._left_s = self._timer.when() - self._workshop.time()
            self._timer.cancel()
            self._timer = None

    def go_on(self) -> None:
        """Run again, unless there is another reason to stand still."""
        self._reasons -= 1
        if self._reasons == 0:
            self._timer = self._workshop.call_later(self._left_s, self._when_over)
