"""What the calls of a client took of rates and budgets that do not run any more, for an owner that is started again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from arl_tangram.model.topology import Dimension

_PARTS = 256


class Charges:
    """Units by dimension, and when they were taken; of windows that are over nothing is kept for long.

    Each window has so many parts. All that was taken in one of them counts from the last of it, so that memory is
    bounded, and nothing is free again too early.
    """

    def __init__(self) -> None:
        self._taken: dict[int, dict[int, tuple[float, int]]] = {}
        self._windows: dict[int, float] = {}

    def add(self, index: int, dimension: Dimension, units: int, at_s: float, now_s: float) -> None:
        """Take note of what an ended call has taken.

        Args:
            index: of the dimension.
            dimension: the dimension; nothing is kept of what is neither a rate nor a budget.
            units: integer units.
            at_s: when they were taken.
            now_s: the time.
        """
        window_s = dimension.window_s
        if not units or window_s is None:
            return
        self._windows[index] = window_s
        taken = self._taken.setdefault(index, {})
        part = 0 if math.isinf(window_s) else math.floor(at_s / window_s * _PARTS)
        last_s, before = taken.get(part, (at_s, 0))
        taken[part] = max(at_s, last_s), before + units
        if len(taken) > 2 * _PARTS:
            self._taken[index] = self._live(index, now_s)

    def told(self, now_s: float) -> Iterator[tuple[int, int, float]]:
        """Return what counts still: dimensions, units, and how many seconds ago these were taken."""
        for index in self._taken:
            for at_s, units in self._live(index, now_s).values():
                yield index, units, now_s - at_s

    def clear(self) -> None:
        """Forget all."""
        self._taken.clear()

    def move(self, to: Callable[[int, int, float], None], now_s: float) -> None:
        """Tell somebody all that counts still, as dimensions, units and when these were taken, and forget it."""
        for index, units, age_s in self.told(now_s):
            to(index, units, now_s - age_s)
        self.clear()

    def __len__(self) -> int:
        return sum(map(len, self._taken.values()))

    def _live(self, index: int, now_s: float) -> dict[int, tuple[float, int]]:
        taken: Mapping[int, tuple[float, int]] = self._taken[index]
        return {part: entry for part, entry in taken.items() if entry[0] + self._windows[index] > now_s}


def counted(granted: Mapping[int, int], settled: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Return what a call counts for: a dimension, units of its grant, and those that it has settled beyond these."""
    return [
        (dimension, min(units, granted.get(dimension, 0)), max(0, units - granted.get(dimension, 0)))
        for dimension, units in {**granted, **settled}.items()
    ]
