"""The time in which a sandbox runs: it stands still, and with it the deadlines of commands, while that is suspended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any


class RunningTime:
    """A clock of one sandbox that can stand still; made within the event loop, for callers on its thread.

    It runs from the beginning on.
    """

    __slots__ = ("_calls", "_going_on", "_loop", "_stood_s", "_stopped_at_s")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stood_s = 0.0
        self._stopped_at_s = 0.0
        self._going_on: asyncio.Future[None] | None = None  # done when it goes on; None while it runs
        self._calls = 0

    @property
    def is_busy(self) -> bool:
        """Whether somebody is within `call`."""
        return self._calls > 0

    def stop(self) -> None:
        """Stand still from now on; idempotent."""
        if self._going_on is None:
            self._going_on = self._loop.create_future()
            self._stopped_at_s = self._loop.time()

    def go_on(self) -> None:
        """Run from now on, and wake up who waits for that; idempotent."""
        if self._going_on is not None:
            self._stood_s += self._loop.time() - self._stopped_at_s
            self._going_on.set_result(None)
            self._going_on = None

    def stood_s(self) -> float:
        """Return for how many seconds it has stood still until now."""
        return self._loop.time() - self._now_s()

    async def until_running(self) -> None:
        """Wait while it stands still; at once if it runs."""
        while self._going_on is not None:
            await asyncio.wait([self._going_on])

    @contextlib.asynccontextmanager
    async def call(self) -> AsyncGenerator[None]:
        """Wait while it stands still, and do what needs the cores of the action that has them now.

        It counts from the beginning of the wait on, so that this action does not lend them meanwhile.
        """
        self._calls += 1
        try:
            await self.until_running()
            yield
        finally:
            self._calls -= 1

    async def wait(self, future: asyncio.Future[Any], limit_s: float | None, *ends: asyncio.Future[Any]) -> bool:
        """Wait for a future, for so many seconds of this clock at most; return whether it is done.

        Cancelling ends the wait, and does not cancel the future.

        Args:
            future: of the same loop.
            limit_s: None for no limit.
            ends: others that end the wait as well.
        """
        waited = (future, *ends)
        if limit_s is None:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            return future.done()
        end_s = self._now_s() + limit_s
        while not any(each.done() for each in waited) and (left_s := end_s - self._now_s()) > 0:
            if self._going_on is None:
                await asyncio.wait(waited, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.wait((*waited, self._going_on), return_when=asyncio.FIRST_COMPLETED)
        return future.done()

    def _now_s(self) -> float:
        now_s = self._loop.time() if self._going_on is None else self._stopped_at_s
        return now_s - self._stood_s
