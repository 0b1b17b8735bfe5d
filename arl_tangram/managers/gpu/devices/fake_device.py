"""A device without bytes: the books are real, copies only last as long as they would. For tests in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from arl_tangram.managers.gpu.devices.arena_device import ArenaDevice
from arl_tangram.managers.gpu.devices.device import Region
from arl_tangram.managers.gpu.extra import need_torch

if TYPE_CHECKING:
    import torch

LINK_BYTES_PER_S = 50e9
"""Of PCIe 5.0 with 16 lanes, about."""

MOVE_BYTES_PER_S = 2e12
"""Of copies within an H200, about."""


class FakeDevice(ArenaDevice):
    """A device of any size that takes no memory; what is in a region is known by the source it was copied from.

    Args:
        name: by which it is known.
        capacity_bytes: the size of its arena.
        bytes_per_s: of copies from the host, one after the other.
        move_bytes_per_s: of copies within it.
        fault: called in the middle of each copy and move; the OSError that it raises fails it.
    """

    def __init__(
        self,
        name: str,
        capacity_bytes: int,
        *,
        bytes_per_s: float = LINK_BYTES_PER_S,
        move_bytes_per_s: float = MOVE_BYTES_PER_S,
        fault: Callable[[Region], None] | None = None,
    ) -> None:
        super().__init__(name, "meta", capacity_bytes)
        self._bytes_per_s = bytes_per_s
        self._move_bytes_per_s = move_bytes_per_s
        self._fault = fault
        self._turn = anyio.CapacityLimiter(1)
        self._contents: dict[int, torch.Tensor] = {}
        self._closed = False

    def view(self, region: Region) -> torch.Tensor:
        """Return a tensor of the same size on torch's device for tensors without bytes."""
        self._check_taken(region)
        need_torch()
        import torch  # noqa: PLC0415 - an extra

        return torch.empty(region.size, dtype=torch.uint8, device="meta")

    def content(self, region: Region) -> torch.Tensor | None:
        """Return what a region was filled with; None if it is not filled, or only in part."""
        self._check_taken(region)
        return self._contents.get(region.offset)

    async def aclose(self) -> None:
        """Let no more copies begin."""
        self._closed = True
        self._contents.clear()

    async def _copy_in(self, region: Region, source: torch.Tensor) -> None:
        async with self._turn:
            self._contents.pop(region.offset, None)
            await self._last(region, region.size / self._bytes_per_s)
            self._contents[region.offset] = source

    async def _move(self, source: Region, target: Region) -> None:
        async with self._turn:
            content = self._contents.pop(source.offset, None)
            await self._last(target, source.size / self._move_bytes_per_s)
            if content is not None:
                self._contents[target.offset] = content

    async def _vacate(self) -> None:
        """It has no memory."""

    async def _occupy(self) -> None:
        """Nobody else has it."""

    def _taken(self, start: int, stop: int) -> None:
        """Nothing becomes of bytes that are not there."""

    def _freed(self, start: int, stop: int) -> None:
        for offset in [offset for offset in self._contents if start <= offset < stop]:
            del self._contents[offset]

    async def _last(self, region: Region, seconds: float) -> None:
        if self._closed:
            raise OSError("the device is closed")
        await asyncio.sleep(seconds / 2)
        if self._fault is not None:
            self._fault(region)
        await asyncio.sleep(seconds / 2)
