"""Blocking work of a device, one at a time and in the order in which it was asked for, on threads of the library."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import anyio

from arl_tangram.managers.threads import BodyThreads
from arl_tangram.uninterrupted import finish_anyway

T = TypeVar("T")

CLOSE_S = 10.0
"""How long closing waits for the piece that is being copied: a driver may hang."""


class Line:
    """Works for one event loop, as the copy engine of a GPU does: copies wait for each other, first come first served.

    The threads are daemons: a driver that hangs cannot keep the process from exiting.
    """

    def __init__(self) -> None:
        self._turn = anyio.CapacityLimiter(1)
        self._threads = BodyThreads()
        self._stop: threading.Event | None = None
        self._closed = False

    async def run(self, work: Callable[[threading.Event], T]) -> T:
        """Do it when it is its turn, and return what it returns.

        Cancelled while it waits, it is not begun. Cancelled later, the event that `work` was given is set, so that it
        can end early; what is cancelled is cancelled when it has ended.

        Raises:
            OSError: the line is closed.
        """
        async with self._turn:
            if self._closed:
                raise OSError("the device is closed")
            self._stop = stop = threading.Event()
            try:
                return await finish_anyway(self._run(work, stop), on_cancel=stop.set)
            finally:
                self._stop = None

    async def aclose(self, last: Callable[[], None] | None = None) -> None:
        """Tell what runs to end early, wait for it, but not for ever, and let in nobody else; never raises.

        Args:
            last: blocking work to be done in the end.
        """
        self._closed = True
        if self._stop is not None:
            self._stop.set()
        with anyio.move_on_after(CLOSE_S):
            async with self._turn:
                if last is not None:
                    await self._threads.run(last, ())  # how it ended, nobody needs to know
        self._threads.close()

    async def _run(self, work: Callable[[threading.Event], T], stop: threading.Event) -> T:
        returned = await self._threads.run(lambda: work(stop), ())
        result: T = returned.result()
        return result
