"""Who may burden a daemon now: a few at a time, the more urgent first."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from enum import IntEnum


class Urgency(IntEnum):
    """What goes first when several wait for the same lane: what ends things, then what others wait for."""

    REMOVE = 0
    START = 1
    CREATE = 2
    NORMAL = 3


class Lane:
    """Lets `width` calls through at a time; of those that wait, the most urgent, then the first."""

    def __init__(self, width: int) -> None:
        self._free = width
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def turn(self, urgency: Urgency = Urgency.NORMAL) -> AsyncGenerator[None]:
        """Wait for a turn and have it inside the block; cancelling leaves the queue."""
        await self.enter(urgency)
        try:
            yield
        finally:
            self.leave()

    async def enter(self, urgency: Urgency = Urgency.NORMAL) -> None:
        """Wait for a turn; each must be ended by one `leave`."""
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (urgency, next(self._order), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # it came in the same turn of the loop: the next one gets it
            raise

    def leave(self) -> None:
        """End a turn."""
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)  # handed on: it never becomes free in between, so nobody overtakes
                return
        self._free += 1

    async def take(self, limit_s: float) -> Callable[[], None]:
        """Wait for a turn and return what ends it, which may be called again; it also ends after this time."""
        await self.enter()
        return _Turn(self, limit_s).end


class _Turn:
    """A turn that is ended by whoever comes first."""

    def __init__(self, lane: Lane, limit_s: float) -> None:
        self._lane: Lane | None = lane
        self._timer = asyncio.get_running_loop().call_later(limit_s, self.end)

    def end(self) -> None:
        lane, self._lane = self._lane, None
        if lane is not None:
            self._timer.cancel()
            lane.leave()
