"""A device made of host memory: the arena of services on a machine without a GPU, with the same code as on one."""

from __future__ import annotations

import itertools
import mmap
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from arl_tangram.managers.gpu.devices.arena import end
from arl_tangram.managers.gpu.devices.arena_device import ArenaDevice
from arl_tangram.managers.gpu.devices.cpu.freed_pages import FreedPages
from arl_tangram.managers.gpu.devices.cpu.upkeep import Upkeep
from arl_tangram.managers.gpu.devices.device import Region
from arl_tangram.managers.gpu.devices.off_loop import Line
from arl_tangram.managers.gpu.host.free_memory import available_bytes
from arl_tangram.managers.gpu.host.pages import Pages

if TYPE_CHECKING:
    import torch

PIECE_BYTES = 256 << 20
"""What is copied at once, at least: some 25 ms. From about this size on, glibc writes past the caches, which does not
read what it overwrites; with pieces of 64 MiB a copy was a quarter slower."""

POISON = 0xFF
"""As floats of every precision it is not a number."""

DROP_AFTER_S = 5.0


class CpuDevice(ArenaDevice):
    """Host memory as a device. Pages are filled when they are first written, and dropped some time after they are free.

    Args:
        name: by which it is known, like `cpu:0`.
        capacity_bytes: the size of the arena.
        drop_after_s: for how long pages of free regions are kept, at least; up to twice as long.
        delay_s_per_gib: what copying a GiB lasts at least, for tests: a link that is slower than memory.
        poison: whether free memory is overwritten, for tests.
        fault: called before each piece of a copy, off the loop, for tests; the OSError that it raises fails the copy.
    """

    def __init__(
        self,
        name: str,
        capacity_bytes: int,
        *,
        drop_after_s: float = DROP_AFTER_S,
        delay_s_per_gib: float = 0.0,
        poison: bool = False,
        fault: Callable[[Region], None] | None = None,
    ) -> None:
        super().__init__(name, "cpu", capacity_bytes)
        self._delay_s_per_byte = delay_s_per_gib / (1 << 30)
        self._poison = poison
        self._fault = fault
        self._pages = Pages(self._arena.capacity_bytes)
        self._line = Line()
        self._upkeep = Upkeep()
        self._free_pages = FreedPages(
            self._arena, self._pages, self._upkeep, drop_after_s=drop_after_s, available=available_bytes
        )

    def view(self, region: Region) -> torch.Tensor:
        """Return the bytes of a region as a tensor."""
        self._check_taken(region)
        return self._pages.tensor(region.offset, end(region))

    async def drop_free_pages(self) -> None:
        """Give the pages of all free regions back to the machine now."""
        await self._free_pages.drop()

    async def aclose(self) -> None:
        """Wait for what is on its way, and give the arena back."""
        await self._line.aclose()
        await self._free_pages.aclose()
        self._upkeep.begin(0, self._pages.size, lambda: self._pages.drop(0, self._pages.size))
        await self._upkeep.aclose()

    async def _copy_in(self, region: Region, source: torch.Tensor) -> None:
        if not source.is_contiguous() or source.element_size() != 1 or source.device.type != "cpu":
            raise ValueError("what is copied must be contiguous bytes on the host")
        await self._upkeep.done(region.offset, end(region))
        await self._line.run(lambda stop: self._copy(region, source, stop))

    async def _move(self, source: Region, target: Region) -> None:
        await self._upkeep.done(target.offset, end(target))
        await self._line.run(lambda _: self._copy_within(source, target))

    async def _vacate(self) -> None:
        await self._free_pages.drop()

    async def _occupy(self) -> None:
        """Pages come back when they are written."""

    def _taken(self, start: int, stop: int) -> None:
        self._free_pages.remove(start, stop)

    def _freed(self, start: int, stop: int) -> None:
        if self._poison:
            self._upkeep.begin(start, stop, lambda: self._pages.write(start, stop, POISON))
        self._free_pages.add(start, stop)

    def _copy(self, region: Region, source: torch.Tensor, stop: threading.Event) -> None:
        """Copy piece by piece; on a thread. It refers to the source until it has ended."""
        address = source.data_ptr()
        for start, size in pieces(region.size):
            if stop.is_set():
                raise OSError(f"a copy to {self._name} was ended after {start:,} bytes")
            if self._fault is not None:
                self._fault(region)
            began_s = time.monotonic()
            first = region.offset + start
            self._pages.copy(first, first + size, address + start)
            if self._delay_s_per_byte:
                stop.wait(max(0.0, size * self._delay_s_per_byte - (time.monotonic() - began_s)))

    def _copy_within(self, source: Region, target: Region) -> None:
        if self._fault is not None:
            self._fault(target)
        self._pages.copy(target.offset, end(target), self._pages.address + source.offset)


def pieces(size: int) -> Iterator[tuple[int, int]]:
    """Yield the starts and sizes of about equal pieces: no small one is left over."""
    count = max(1, size // PIECE_BYTES)
    borders = [*(size * number // count // mmap.PAGESIZE * mmap.PAGESIZE for number in range(count)), size]
    for start, stop in itertools.pairwise(borders):
        yield start, stop - start
