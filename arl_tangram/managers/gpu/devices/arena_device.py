"""What devices with an arena have in common: the books, the checks, and the order of steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import TYPE_CHECKING

from arl_tangram.managers.gpu.devices.arena import Arena, rounded
from arl_tangram.managers.gpu.devices.compaction import plan_moves
from arl_tangram.managers.gpu.devices.device import Move, Region
from arl_tangram.uninterrupted import finish_anyway

if TYPE_CHECKING:
    import torch


class ArenaDevice(ABC):
    """A device whose books are kept here; what becomes of the bytes, its kind says.

    Args:
        name: by which it is known outside.
        torch_name: what torch calls it.
        capacity_bytes: of its arena; rounded down to a multiple of 512.
    """

    def __init__(self, name: str, torch_name: str, capacity_bytes: int) -> None:
        self._name = name
        self._torch_name = torch_name
        self._arena = Arena(capacity_bytes)
        self._is_vacated = False

    @property
    def name(self) -> str:
        """By which it is known outside."""
        return self._name

    @property
    def torch_name(self) -> str:
        """What torch calls it."""
        return self._torch_name

    @property
    def capacity_bytes(self) -> int:
        """The size of its arena."""
        return self._arena.capacity_bytes

    @property
    def holds_all(self) -> bool:
        """Only what is used is taken from others."""
        return False

    @property
    def free_bytes(self) -> int:
        """Bytes in no region."""
        return self._arena.free_bytes

    @property
    def largest_hole(self) -> int:
        """The most bytes that `allocate` can give."""
        return self._arena.largest_hole

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}: {self.free_bytes:,} of {self.capacity_bytes:,} bytes free>"

    def allocate(self, size: int) -> Region | None:
        """Take a region; see `Device.allocate`."""
        if size and self._is_vacated:
            return None
        region = self._arena.allocate(size)
        if region is not None and region.size:
            self._taken(region.offset, region.offset + rounded(size))
        return region

    def free(self, region: Region) -> None:
        """Give a region back; see `Device.free`."""
        self._arena.free(region)
        if region.size:
            self._freed(region.offset, region.offset + rounded(region.size))

    def make_room(self, size: int, movable: Collection[Region]) -> tuple[Move, ...] | None:
        """Return what to move so that there is a hole of this size; see `Device.make_room`."""
        return plan_moves(self._arena, size, movable)

    async def copy_in(self, region: Region, source: torch.Tensor) -> None:
        """Copy from the host; see `Device.copy_in`."""
        self._check_taken(region)
        if source.numel() != region.size:
            raise ValueError(f"{source.numel():,} bytes do not fit a region of {region.size:,}")
        if region.size:
            await self._copy_in(region, source)

    async def move(self, source: Region, target: Region) -> None:
        """Copy a region to another place; see `Device.move`."""
        self._check_taken(source)
        self._arena.begin_move(source, target)
        await finish_anyway(self._finish_move(source, target))

    async def vacate(self) -> None:
        """Give the memory of the arena back; see `Device.vacate`."""
        if self._arena.regions:
            raise ValueError(f"{self._name} has regions: its memory cannot be given back")
        self._is_vacated = True
        await self._vacate()

    async def occupy(self) -> None:
        """Take it again; see `Device.occupy`."""
        await self._occupy()
        self._is_vacated = False

    @abstractmethod
    def view(self, region: Region) -> torch.Tensor:
        """Return the bytes of a region as a tensor."""

    @abstractmethod
    async def aclose(self) -> None:
        """Wait for what is on its way, and give the arena back."""

    @abstractmethod
    async def _copy_in(self, region: Region, source: torch.Tensor) -> None:
        """Copy from the host to a region that has bytes."""

    @abstractmethod
    async def _move(self, source: Region, target: Region) -> None:
        """Copy the bytes of a region to another one, which may overlap it."""

    @abstractmethod
    async def _vacate(self) -> None:
        """Give the memory of the arena back, if it was not yet."""

    @abstractmethod
    async def _occupy(self) -> None:
        """Take it again, if it was given back."""

    @abstractmethod
    def _taken(self, start: int, stop: int) -> None:
        """Bytes are in use from now on."""

    @abstractmethod
    def _freed(self, start: int, stop: int) -> None:
        """Bytes are free from now on."""

    async def _finish_move(self, source: Region, target: Region) -> None:
        places = (target, source)
        if not source.size or source == target:
            self._arena.end_move(source, target)
            return
        self._taken(target.offset, target.offset + rounded(target.size))
        try:
            await self._move(source, target)
        except BaseException:
            places = (source, target)
            raise
        finally:
            kept, left = places
            self._arena.end_move(source, target, stays=kept is source)
            for start, stop in _without(left, kept):
                self._freed(start, stop)

    def _check_taken(self, region: Region) -> None:
        if not self._arena.has(region):
            raise ValueError(f"{region.size:,} bytes at {region.offset:,} of {self._name} are no region that is taken")


def _without(left: Region, kept: Region) -> list[tuple[int, int]]:
    """Return the bytes of one place that are not in another one of the same size."""
    size = rounded(left.size)
    parts = (
        (left.offset, min(left.offset + size, kept.offset)),
        (max(left.offset, kept.offset + size), left.offset + size),
    )
    return [part for part in parts if part[0] < part[1]]
