"""Who has which bytes of a device: best fit, neighbouring holes merge. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort

from arl_tangram.managers.gpu.devices.device import Region

ALIGNMENT = 512
"""What a region takes is a multiple of it, so that tensors of every type can begin where it begins."""


def rounded(size: int) -> int:
    """Return how many bytes of an arena a region of this size takes."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Arena:
    """The regions that are taken and the holes between them.

    Invariants: regions do not overlap; two holes never touch; free bytes + taken bytes == capacity.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes // ALIGNMENT * ALIGNMENT
        self._holes = [Region(0, self._capacity)] if self._capacity else []
        self._taken: dict[int, Region] = {}
        self._free = self._capacity

    @property
    def capacity_bytes(self) -> int:
        """What there is: what was asked for, rounded down to a multiple of 512."""
        return self._capacity

    @property
    def free_bytes(self) -> int:
        """Bytes in no region."""
        return self._free

    @property
    def largest_hole(self) -> int:
        """The most bytes that `allocate` can give."""
        return max((hole.size for hole in self._holes), default=0)

    @property
    def holes(self) -> tuple[Region, ...]:
        """What is free, by address; holes do not touch each other."""
        return tuple(self._holes)

    @property
    def regions(self) -> tuple[Region, ...]:
        """What is taken, by address; without regions of no bytes."""
        return tuple(sorted(self._taken.values()))

    def has(self, region: Region) -> bool:
        """Tell whether exactly this region is taken."""
        return not region.size or self._taken.get(region.offset) == region

    def allocate(self, size: int) -> Region | None:
        """Take a region from the smallest hole that is large enough, the first of several; None if there is none.

        Raises:
            ValueError: the size is negative.
        """
        if size < 0:
            raise ValueError(f"a region cannot have {size} bytes")
        if not size:
            return Region(0, 0)
        need = rounded(size)
        fitting = [hole for hole in self._holes if hole.size >= need]
        if not fitting:
            return None
        region = Region(min(fitting, key=lambda hole: hole.size).offset, size)
        self.take(region)
        return region

    def take(self, region: Region) -> None:
        """Take a region at a given place.

        Raises:
            ValueError: it is not aligned, or not all of it is free.
        """
        if not region.size:
            return
        taken = Region(region.offset, rounded(region.size))
        number = self._hole_at(taken)
        if region.offset % ALIGNMENT or number is None:
            raise ValueError(f"{region.size:,} bytes at {region.offset:,} are not free")
        hole = self._holes.pop(number)
        before = Region(hole.offset, taken.offset - hole.offset)
        after = Region(end(taken), end(hole) - end(taken))
        self._holes[number:number] = [rest for rest in (before, after) if rest.size]
        self._taken[region.offset] = region
        self._free -= taken.size

    def free(self, region: Region) -> None:
        """Give a region back.

        Raises:
            ValueError: it is not taken.
        """
        if not self.has(region):
            raise ValueError(f"{region.size:,} bytes at {region.offset:,} are no region that is taken")
        if not region.size:
            return
        del self._taken[region.offset]
        hole = Region(region.offset, rounded(region.size))
        self._free += hole.size
        number = bisect_left(self._holes, hole)
        if number < len(self._holes) and self._holes[number].offset == end(hole):
            hole = joined(hole, self._holes.pop(number))
        if number and end(self._holes[number - 1]) == hole.offset:
            hole = joined(self._holes.pop(number - 1), hole)
        insort(self._holes, hole)

    def begin_move(self, source: Region, target: Region) -> None:
        """Take both places of a region that moves.

        Raises:
            ValueError: the sizes differ, the source is not taken, or the target is neither free nor in the source.
        """
        if source.size != target.size:
            raise ValueError(f"a region of {source.size:,} bytes cannot move to one of {target.size:,}")
        self.free(source)
        try:
            if target.offset % ALIGNMENT:
                raise ValueError(f"a region cannot begin at {target.offset:,}")
            for place in _while_moving(source, target):
                self.take(place)
        except ValueError:
            self.take(source)
            raise

    def end_move(self, source: Region, target: Region, *, stays: bool = False) -> None:
        """Give back what the moved region takes no longer; `stays`: it is still where it was."""
        for place in _while_moving(source, target):
            self.free(place)
        self.take(source if stays else target)

    def _hole_at(self, taken: Region) -> int | None:
        """Return the number of the hole that a region is in."""
        number = bisect_left(self._holes, Region(taken.offset + 1, 0)) - 1
        if number < 0 or end(self._holes[number]) < end(taken):
            return None
        return number


def end(region: Region) -> int:
    """Return the offset behind its last byte."""
    return region.offset + region.size


def joined(first: Region, second: Region) -> Region:
    """Return the region that two neighbours are together."""
    return Region(first.offset, first.size + second.size)


def _while_moving(source: Region, target: Region) -> tuple[Region, ...]:
    """Return what a region takes while it moves: both places, or what they cover together if they overlap."""
    apart = abs(source.offset - target.offset)
    if apart >= rounded(source.size):
        return target, source
    return (Region(min(source.offset, target.offset), rounded(source.size) + apart),)
