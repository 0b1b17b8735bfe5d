"""Pages of freed regions of a CPU device: kept for the next one, dropped after a while or when memory is short."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from arl_tangram.managers.gpu.devices.arena import Arena, end
from arl_tangram.managers.gpu.devices.cpu.ranges import Ranges
from arl_tangram.managers.gpu.devices.cpu.upkeep import Upkeep
from arl_tangram.managers.gpu.host.pages import Pages

PIECE_BYTES = 64 << 20
"""What is dropped at once: whoever takes a region there waits for one piece at most, a few milliseconds."""


class FreedPages:
    """The pages that are filled and free. Those that nobody took again are dropped after one to two times a delay.

    Args:
        arena: whose holes they are in.
        pages: the memory.
        upkeep: does the work.
        drop_after_s: the delay, at least 0.
        available: returns how many bytes the machine has left; it may block.
    """

    def __init__(
        self, arena: Arena, pages: Pages, upkeep: Upkeep, *, drop_after_s: float, available: Callable[[], int]
    ) -> None:
        self._arena = arena
        self._pages = pages
        self._upkeep = upkeep
        self._drop_after_s = drop_after_s
        self._available = available
        self._young = Ranges()
        self._old = Ranges()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def total(self) -> int:
        """How many bytes are filled and free."""
        return self._young.total + self._old.total

    def add(self, start: int, stop: int) -> None:
        """A range was freed."""
        if self._is_closed:
            return
        self._young.add(start, stop)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._drop_after_s, self._grow_old)
        if self.total >= PIECE_BYTES:
            self._begin(self._drop_if_short())

    def remove(self, start: int, stop: int) -> None:
        """A range is taken again."""
        self._young.remove(start, stop)
        self._old.remove(start, stop)

    async def drop(self) -> None:
        """Drop all of them now, and wait until they are."""
        young, self._young = self._young, Ranges()
        old, self._old = self._old, Ranges()
        await self._drop([*young, *old])
        await self._upkeep.done(0, self._arena.capacity_bytes)

    async def aclose(self) -> None:
        """Begin no more work, and wait for what has begun."""
        self._is_closed = True
        self._young, self._old = Ranges(), Ranges()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()  # what works is not cancelled by that
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _grow_old(self) -> None:
        old, self._old, self._young = self._old, self._young, Ranges()
        self._timer = None
        if self._old:
            self._timer = asyncio.get_running_loop().call_later(self._drop_after_s, self._grow_old)
        if old:
            self._begin(self._drop(list(old)))

    async def _drop_if_short(self) -> None:
        """Drop everything if less is available than there is to drop."""
        if await self._upkeep.look(self._available) < self.total:
            await self.drop()

    async def _drop(self, ranges: list[tuple[int, int]]) -> None:
        for start, stop in ranges:
            for piece in range(start, stop, PIECE_BYTES):
                begin, until = piece, min(piece + PIECE_BYTES, stop)
                while found := self._free_pages(begin, until):
                    self._upkeep.begin(*found, partial(self._pages.drop, *found))
                    await self._upkeep.done(*found)  # meanwhile, others take what was free
                    begin = found[1]

    def _free_pages(self, start: int, stop: int) -> tuple[int, int] | None:
        """Return the first run of whole pages that are free now and have bytes of a range; None if there is none."""
        page = mmap.PAGESIZE
        for hole in self._arena.holes:
            first, last = max(start, hole.offset), min(stop, end(hole))
            if first < last:
                first = max(first // page * page, -(-hole.offset // page) * page)
                last = min(-(-last // page) * page, end(hole) // page * page)
                if first < last:
                    return first, last
        return None

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
