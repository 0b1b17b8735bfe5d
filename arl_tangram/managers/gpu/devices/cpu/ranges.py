"""Sets of bytes, as disjoint ranges: which free pages are still filled, and what is being worked on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Ranges:
    """Bytes of an arena; ranges are pairs of first and last + 1, sorted, and never touch each other."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._ranges: list[tuple[int, int]] = []
        for start, stop in ranges:
            self.add(start, stop)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(tuple(self._ranges))

    def __bool__(self) -> bool:
        return bool(self._ranges)

    @property
    def total(self) -> int:
        """How many bytes there are."""
        return sum(stop - start for start, stop in self._ranges)

    def add(self, start: int, stop: int) -> None:
        """Put bytes in; those that are in stay in."""
        if start >= stop:
            return
        touching = [one for one in self._ranges if one[0] <= stop and start <= one[1]]
        rest = [one for one in self._ranges if one not in touching]
        start, stop = min([start, *(one[0] for one in touching)]), max([stop, *(one[1] for one in touching)])
        self._ranges = sorted([*rest, (start, stop)])

    def remove(self, start: int, stop: int) -> None:
        """Take bytes out; those that are not in do not matter."""
        if start >= stop:
            return
        left: list[tuple[int, int]] = []
        for first, last in self._ranges:
            left += [one for one in ((first, min(last, start)), (max(first, stop), last)) if one[0] < one[1]]
        self._ranges = left
