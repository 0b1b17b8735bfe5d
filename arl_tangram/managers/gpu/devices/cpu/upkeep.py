"""What is done to free memory of a device off the event loop, beside the copies: poisoning, and dropping its pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from arl_tangram.managers.threads import BodyThreads
from arl_tangram.uninterrupted import unstoppable

T = TypeVar("T")


class Upkeep:
    """Works on ranges of bytes that are free now; whoever takes a range and writes to it first waits for `done`."""

    def __init__(self) -> None:
        self._threads = BodyThreads()
        self._works: dict[asyncio.Task[None], tuple[int, int]] = {}

    def begin(self, start: int, stop: int, work: Callable[[], None]) -> None:
        """Begin blocking work on a range, after what else is being done to it; nobody can cancel it."""
        task = unstoppable(self._work(self._on(start, stop), work))
        self._works[task] = (start, stop)
        task.add_done_callback(self._works.pop)

    async def done(self, start: int, stop: int) -> None:
        """Wait until nothing is being done to a range."""
        if works := self._on(start, stop):
            await asyncio.wait(works)

    async def look(self, work: Callable[[], T]) -> T:
        """Do blocking work that changes nothing; cancelling gives up its result."""
        result: T = (await self._threads.run(work, ())).result()
        return result

    async def aclose(self) -> None:
        """Wait for everything."""
        if self._works:
            await asyncio.wait(self._works)
        self._threads.close()

    def _on(self, start: int, stop: int) -> Sequence[asyncio.Task[None]]:
        return [task for task, (first, last) in self._works.items() if first < stop and start < last]

    async def _work(self, before: Sequence[asyncio.Task[None]], work: Callable[[], None]) -> None:
        if before:
            await asyncio.wait(before)
        (await self._threads.run(work, ())).result()
