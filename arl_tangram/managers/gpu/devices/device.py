"""A device that services are restored to, and its memory: the protocol behind CPU and CUDA devices."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch


class Region(NamedTuple):
    """A part of the arena of a device, in bytes.

    Attributes:
        offset: of its first byte; a multiple of 512.
        size: as it was asked for. What it takes of the arena is rounded up to a multiple of 512.
    """

    offset: int
    size: int


class Move(NamedTuple):
    """One step of a compaction: a region goes to another place, which may overlap the one where it was."""

    source: Region
    target: Region


class Device(Protocol):
    """One device with one arena, allocated once; for one event loop.

    Bookkeeping is synchronous and done on the loop; copies and whatever else takes long are done off it. A region is
    written by `copy_in` and `move` only.
    """

    @property
    def name(self) -> str:
        """By which it is known outside: a GPU's UUID, or `cpu:0`."""
        ...

    @property
    def torch_name(self) -> str:
        """What torch calls it: `cuda:0`, or `cpu`."""
        ...

    @property
    def capacity_bytes(self) -> int:
        """The size of its arena."""
        ...

    @property
    def holds_all(self) -> bool:
        """Whether it has the memory of all its arena, used or not, so that others get none of it before `vacate`."""
        ...

    @property
    def free_bytes(self) -> int:
        """Bytes in no region."""
        ...

    @property
    def largest_hole(self) -> int:
        """The most bytes that `allocate` can give."""
        ...

    def allocate(self, size: int) -> Region | None:
        """Take a region, best fit, aligned to 512 bytes; None if there is no hole that is large enough.

        A region of no bytes takes nothing, and there is always room for it.
        """
        ...

    def free(self, region: Region) -> None:
        """Give a region back. It can be taken again and written at once: nothing that used it computes any more.

        Raises:
            ValueError: it is not taken.
        """
        ...

    def view(self, region: Region) -> torch.Tensor:
        """Return its bytes as a tensor of `uint8`, which shares the arena's memory.

        Each has a storage of its own, so that who holds a part of it can be counted.
        """
        ...

    async def copy_in(self, region: Region, source: torch.Tensor) -> None:
        """Copy bytes of the host (`uint8`, contiguous, as many as the region has) to it, in pieces, off the event loop.

        Cancelled, it stops at the next piece, and returns when nothing is written any more.

        Raises:
            OSError: the copy failed; nothing is written any more.
            ValueError: source and region do not have the same size, or the region is not taken.
        """
        ...

    def make_room(self, size: int, movable: Collection[Region]) -> tuple[Move, ...] | None:
        """Return what to move, one after the other, so that a region of this size can be taken.

        Args:
            size: in bytes.
            movable: the regions that nobody uses now; all others stay where they are.

        Returns:
            Few bytes to move, none if there is room already; None if no moves can make it.
        """
        ...

    async def move(self, source: Region, target: Region) -> None:
        """Copy a region to where nothing else is: a place of the same size that is free, or overlaps it.

        From the first moment both places are taken, afterwards the target alone: it was not allocated before. Views of
        the source are of no use any more. Cancelled, it goes to its end first.

        Raises:
            OSError: the copy failed; the source is still taken, and what is in it may be damaged.
            ValueError: the source is not taken, or the target is not free.
        """
        ...

    async def vacate(self) -> None:
        """Give the memory of the arena, which must be empty, back to the device, for others to use.

        Raises:
            ValueError: there are regions.
        """
        ...

    async def occupy(self) -> None:
        """Take it again, after `vacate`; until then nothing can be allocated.

        Raises:
            OSError: others have it now; the device stays vacated, and it can be tried again.
        """
        ...

    async def aclose(self) -> None:
        """Wait for what is on its way, and give the arena back; bounded, never raises."""
        ...
