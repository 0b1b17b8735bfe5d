"""One sliding window of a rate: what was granted comes back one window later, and not before.

Grants at one moment are one entry. Where there are many within one window, those of a small part of it become one,
which comes back when the last of them does: never too early, at most that part too late. So a window costs bounded
memory.

A grant can be reduced afterwards. Its entry is not looked for: the correction waits until the entry comes back.
"""

from __future__ import annotations

import heapq
import math
from collections import deque


class Window:
    """The grants of a rate whose window is not over.

    Args:
        length_s: seconds from a grant until it comes back.
        most: from so many entries on, and in so many parts of the window, grants are put together.
    """

    __slots__ = ("_corrections", "_from_s", "_grain_s", "_most", "_returned_s", "entries", "length_s")

    def __init__(self, length_s: float, most: int = 4096) -> None:
        self.length_s = length_s
        self.entries: deque[tuple[float, int]] = deque()
        self._corrections: list[tuple[float, int]] = []
        self._most = most
        self._grain_s = length_s / most
        self._from_s = -math.inf  # when the first grant of the last entry would come back by itself
        self._returned_s = -math.inf

    def add(self, units: int, now_s: float) -> float:
        """Take a grant; return when it comes back, which names it in `reduce`."""
        at_s = now_s + self.length_s
        entries = self.entries
        if entries:
            last_s, before = entries[-1]
            if at_s <= last_s or (len(entries) >= self._most and at_s - self._from_s < self._grain_s):
                at_s = max(at_s, last_s)
                entries[-1] = at_s, before + units
                return at_s
        entries.append((at_s, units))
        self._from_s = at_s
        return at_s

    def undo(self, units: int) -> None:
        """Forget a grant of this moment, after which nothing else was added but grants of this moment."""
        at_s, before = self.entries.pop()
        if before > units:
            self.entries.append((at_s, before - units))
        else:
            self._from_s = -math.inf

    def reduce(self, at_s: float, units: int) -> int:
        """Return how much of `units` that would come back at `at_s` is free at once: none if they came back."""
        if at_s <= self._returned_s:
            return 0
        heapq.heappush(self._corrections, (at_s, units))
        return units

    def due(self, now_s: float) -> int:
        """Return the units that come back by now, once."""
        units = 0
        entries, corrections = self.entries, self._corrections
        while entries and entries[0][0] <= now_s:
            self._returned_s, returned = entries.popleft()
            units += returned
            while corrections and corrections[0][0] <= self._returned_s:
                units -= heapq.heappop(corrections)[1]
        return units
