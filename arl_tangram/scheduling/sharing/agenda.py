"""Keep in mind which nodes are to be looked at: those where something changed, and those whose time has come.

So a decision costs the nodes that it is about, not those that there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf


class Agenda:
    """The nodes of one core object, by the dimensions of their cores.

    Attributes:
        changed: bits of those for which something happened since their cores were shared out.
    """

    def __init__(self) -> None:
        self.changed = 0
        self._at_s: dict[int, float] = {}
        self._due: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def look_at(self, cpu: int, at_s: float) -> None:
        """Look at a node at a time though nothing happens, and not at the one that was said before; infinite: never."""
        was_due = self._due.pop(cpu, None) is not None
        if self._at_s.get(cpu, inf) == at_s and not was_due:
            return
        self._at_s[cpu] = at_s
        if at_s < inf:
            heappush(self._heap, (at_s, cpu))
        if len(self._heap) > 64 + 2 * len(self._at_s):
            self._heap = [(at_s, cpu) for cpu, at_s in self._at_s.items() if at_s < inf and cpu not in self._due]
            heapify(self._heap)

    def due(self, now_s: float) -> int:
        """Return the bits of the nodes whose time has come; they are due until another time is said."""
        while (at_s := self._first_s()) is not None and at_s <= now_s:
            _, cpu = heappop(self._heap)
            self._due[cpu] = at_s
        return sum([1 << cpu for cpu in self._due])

    def next_s(self) -> float | None:
        """When the next node is to be looked at though nothing happens; None for never."""
        first_s = self._first_s()
        if not self._due:
            return first_s
        return min(self._due.values() if first_s is None else [*self._due.values(), first_s])

    def _first_s(self) -> float | None:
        heap = self._heap
        while heap and self._at_s[heap[0][1]] != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None


def nodes_of(bits: int) -> Iterator[int]:
    """Yield the dimensions of some bits, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
