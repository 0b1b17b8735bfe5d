"""Count the units of every dimension: free + used == capacity after every step, free >= 0 always.

Units of a rate are used for a window of time that starts with the grant; all others until they are
given back. A promised unit counts as used from the promise on.
"""

from __future__ import annotations

from collections import deque

from arl_tangram.model.lifecycle import Demand
from arl_tangram.model.topology import Topology


class Ledger:
    """The free units of a topology.

    Attributes:
        free: integer units of each dimension.
        changed: bits of the dimensions of which something returned, or may be granted again, since this was cleared.
    """

    def __init__(self, topology: Topology) -> None:
        self.free = [dimension.capacity for dimension in topology.dimensions]
        self._capacity = tuple(self.free)
        self._windows = {i: d.window_s for i, d in enumerate(topology.dimensions) if d.window_s is not None}
        self._returning: dict[int, deque[tuple[float, int]]] = {i: deque() for i in self._windows}
        self._paused_until: dict[int, float] = {}
        self.changed = 0

    def used(self, dimension: int) -> int:
        """Units of a dimension in use."""
        return self._capacity[dimension] - self.free[dimension]

    def lacking(self, demand: Demand) -> int:
        """Bit mask of the dimensions in which the minimum of a demand does not fit what is free now."""
        lacking = 0
        free = self.free
        for dimension, units in demand.fixed:
            if units > free[dimension]:
                lacking |= 1 << dimension
        if demand.elastic is not None and demand.options[0] > free[demand.elastic]:
            lacking |= 1 << demand.elastic
        if self._paused_until:
            for dimension in self._paused_until:
                lacking |= demand.dimensions & (1 << dimension)
        return lacking

    def take(self, demand: Demand, units: int, now_s: float) -> None:
        """Use a demand's units, `units` of its elastic dimension."""
        for dimension, amount in demand.fixed:
            self.free[dimension] -= amount
            if dimension in self._windows:
                self._returning[dimension].append((now_s + self._windows[dimension], amount))
        if demand.elastic is not None:
            self.free[demand.elastic] -= units

    def give_back(self, demand: Demand, units: int) -> None:
        """Return what a demand held; units of a rate return by themselves."""
        self.changed |= demand.dimensions
        for dimension, amount in demand.fixed:
            if dimension not in self._windows:
                self.free[dimension] += amount
        if demand.elastic is not None:
            self.free[demand.elastic] += units

    def undo(self, demand: Demand, units: int, now_s: float) -> None:
        """Take back a `take` of the same decision, units of rates included."""
        for dimension, amount in demand.fixed:
            if dimension in self._windows:
                self._returning[dimension].remove((now_s + self._windows[dimension], amount))
                self.free[dimension] += amount
        changed = self.changed
        self.give_back(demand, units)
        self.changed = changed

    def pause(self, dimension: int, until_s: float) -> None:
        """Grant nothing of a dimension before `until_s`; the latest such time counts."""
        self._paused_until[dimension] = max(until_s, self._paused_until.get(dimension, until_s))

    def advance(self, now_s: float) -> None:
        """Return the units of windows that have passed, and lift pauses that are over."""
        for dimension, returning in self._returning.items():
            while returning and returning[0][0] <= now_s:
                self.free[dimension] += returning.popleft()[1]
                self.changed |= 1 << dimension
        for dimension, until_s in list(self._paused_until.items()) if self._paused_until else ():
            if until_s <= now_s:
                del self._paused_until[dimension]
                self.changed |= 1 << dimension

    def next_change_s(self) -> float | None:
        """When units return or a pause ends by time alone; None if nothing does."""
        if not self._returning and not self._paused_until:
            return None
        times = [returning[0][0] for returning in self._returning.values() if returning]
        times += self._paused_until.values()
        return min(times, default=None)
