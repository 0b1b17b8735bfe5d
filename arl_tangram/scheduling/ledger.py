"""Count the units of every dimension: free + used == capacity after every step.

Units of a rate are used for a window of time that starts with the grant, those of a budget for ever, and all others
until they are given back. A promised unit counts as used from the promise on. Nothing is granted that is not free, so
free >= 0; only a call that says afterwards that it used more of a rate or a budget than it was granted, or less
capacity of either, can overdraw it.

The capacity of what is held is never below what is in use: less takes effect as units return.
"""

from __future__ import annotations

import math

from arl_tangram.model.lifecycle import Demand, RunningAction
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.windows import Window


class Ledger:
    """The free units of a topology.

    Attributes:
        free: integer units of each dimension.
        target: the capacity of each dimension once what is used beyond it has returned.
        changed: bits of the dimensions of which something returned, or may be granted again, since this was cleared.
        budgets: bits of the dimensions of which nothing ever returns.
        rates: bits of those of which units return by time.
        charged: what calls that run have settled: by call and dimension, when each part comes back, and its units.
    """

    def __init__(self, topology: Topology) -> None:
        self.free = [dimension.capacity for dimension in topology.dimensions]
        self.target = list(self.free)
        self._capacity = list(self.free)
        self._shrinking = 0
        lengths = {i: d.window_s for i, d in enumerate(topology.dimensions) if d.window_s is not None}
        self._windows = {i: Window(length_s) for i, length_s in lengths.items() if math.isfinite(length_s)}
        self._in_budget = {i: 0 for i, length_s in lengths.items() if math.isinf(length_s)}
        self._stays = frozenset(lengths)
        self.charged: dict[int, dict[int, list[tuple[float, int]]]] = {}
        self._paused_until: dict[int, float] = {}
        self._paused = 0
        self.changed = 0
        self.budgets = sum(1 << dimension for dimension in self._in_budget)
        self.rates = sum(1 << dimension for dimension in self._windows)

    def capacity(self, dimension: int) -> int:
        """Units of a dimension, free or used."""
        return self._capacity[dimension]

    def used(self, dimension: int) -> int:
        """Units of a dimension in use."""
        return self._capacity[dimension] - self.free[dimension]

    def is_spent(self, dimension: int) -> bool:
        """Whether units of a dimension stay in use when their call ends: those of a rate or a budget."""
        return dimension in self._stays

    def lacking(self, demand: Demand) -> int:
        """Bit mask of the dimensions in which the minimum of a demand does not fit what is free now."""
        lacking = demand.dimensions & self._paused
        free = self.free
        for dimension, units in demand.fixed:
            if units > free[dimension]:
                lacking |= 1 << dimension
        if demand.elastic is not None and demand.options[0] > free[demand.elastic]:
            lacking |= 1 << demand.elastic
        return lacking

    def can_be_free(self, budget: int) -> int:
        """Units of a budget that are free, or become free if all that run settle for nothing."""
        return self.free[budget] + self._in_budget[budget]

    def charged_for(self, running: RunningAction) -> list[tuple[int, int]]:
        """Pairs of a budget and the units that a running call counts for."""
        charged = self.charged.get(running.pending.id, {})
        return [
            (dimension, sum([units for _, units in charged[dimension]]) if dimension in charged else granted)
            for dimension, granted in running.pending.demand.fixed
            if dimension in self._in_budget
        ]

    def exhausted(self, demand: Demand) -> int | None:
        """Return a budget of which a demand can never get enough, because too little can still come back of it."""
        for dimension, units in demand.fixed:
            if dimension in self._in_budget and units > self.free[dimension] + self._in_budget[dimension]:
                return dimension
        return None

    def take(self, demand: Demand, units: int, now_s: float) -> None:
        """Use a demand's units, `units` of its elastic dimension."""
        for dimension, amount in demand.fixed:
            self.free[dimension] -= amount
            if dimension in self._stays:
                if dimension in self._in_budget:
                    self._in_budget[dimension] += amount
                elif amount:
                    self._windows[dimension].add(amount, now_s)
        if demand.elastic is not None:
            self.free[demand.elastic] -= units

    def give_back(self, demand: Demand, units: int) -> None:
        """Return what a demand held; units of a rate return by themselves, those of a budget never."""
        self.changed |= demand.dimensions
        for dimension, amount in demand.fixed:
            if dimension not in self._stays:
                self.free[dimension] += amount
            elif dimension in self._in_budget:
                self._in_budget[dimension] -= amount
        if demand.elastic is not None:
            self.free[demand.elastic] += units
        if self._shrinking:
            self._shrink()

    def lend(self, dimension: int, units: int) -> None:
        """Return units that are held, until `regain`."""
        self.free[dimension] += units
        self.changed |= 1 << dimension
        if self._shrinking:
            self._shrink()

    def regain(self, dimension: int, units: int) -> None:
        """Use units again that were lent, also where there are less by now than were lent."""
        self.free[dimension] -= units
        if self.free[dimension] < 0:
            self._capacity[dimension] -= self.free[dimension]
            self.free[dimension] = 0
            self._shrinking |= 1 << dimension

    def resize(self, dimension: int, units: int) -> None:
        """Let a dimension have so many units; of what is held, less than are used takes effect as they return."""
        used = self.used(dimension)
        self.target[dimension] = units
        capacity = units if dimension in self._stays else max(units, used)
        self._capacity[dimension] = capacity
        self.free[dimension] = capacity - used
        self.changed |= 1 << dimension
        if capacity > units:
            self._shrinking |= 1 << dimension
        else:
            self._shrinking &= ~(1 << dimension)

    def _shrink(self) -> None:
        """Take what is free of the dimensions that have more than they are to have."""
        for dimension, target in enumerate(self.target):
            if self._shrinking >> dimension & 1:
                less = min(self.free[dimension], self._capacity[dimension] - target)
                self.free[dimension] -= less
                self._capacity[dimension] -= less
                if self._capacity[dimension] == target:
                    self._shrinking &= ~(1 << dimension)

    def undo(self, demand: Demand, units: int) -> None:
        """Take back a `take` of the same decision, units of rates and budgets included."""
        for dimension, amount in demand.fixed:
            if dimension in self._stays:
                self.free[dimension] += amount
                if dimension in self._windows and amount:
                    self._windows[dimension].undo(amount)
        changed = self.changed
        self.give_back(demand, units)
        self.changed = changed

    def settle(self, running: RunningAction, dimension: int, units: int, now_s: float) -> None:
        """Count `units` of a rate or a budget for a running call, instead of what it was granted or settled before.

        What is less than before is free at once, unless its window is over. What is more counts from now on, whether it
        is there or not; then nobody is granted any before enough has returned.
        """
        charges = self._charges(running, dimension)
        more = units - sum([amount for _, amount in charges])
        if more > 0:
            window = self._windows.get(dimension)
            charges.append((math.inf if window is None else window.add(more, now_s), more))
            self._charge(dimension, more)
        while more < 0:
            at_s, amount = charges.pop()
            less = min(amount, -more)
            more += less
            if less < amount:
                charges.append((at_s, amount - less))
            window = self._windows.get(dimension)
            self._charge(dimension, -(less if window is None else window.reduce(at_s, less)))
            self.changed |= 1 << dimension

    def conclude(self, running: RunningAction) -> None:
        """A call that settled something has ended; what it settled last stands."""
        for dimension, charges in self.charged.pop(running.pending.id, {}).items():
            if dimension in self._in_budget:
                granted = dict(running.pending.demand.fixed)[dimension]
                self._in_budget[dimension] -= sum([amount for _, amount in charges]) - granted

    def pause(self, dimension: int, until_s: float) -> None:
        """Grant nothing of a dimension before `until_s`; the latest such time counts."""
        self._paused_until[dimension] = max(until_s, self._paused_until.get(dimension, until_s))
        self._paused |= 1 << dimension

    def lift(self, dimension: int) -> None:
        """End the pause of a dimension, if there is one, with the next `advance`."""
        if dimension in self._paused_until:
            self._paused_until[dimension] = -math.inf

    def advance(self, now_s: float) -> None:
        """Return the units of windows that have passed, and lift pauses that are over."""
        for dimension, window in self._windows.items():
            if window.entries and window.entries[0][0] <= now_s:
                self.free[dimension] += window.due(now_s)
                self.changed |= 1 << dimension
        for dimension, until_s in list(self._paused_until.items()) if self._paused_until else ():
            if until_s <= now_s:
                del self._paused_until[dimension]
                self._paused &= ~(1 << dimension)
                self.changed |= 1 << dimension

    def next_change_s(self) -> float | None:
        """When units return or a pause ends by time alone; None if nothing does."""
        if not self._windows and not self._paused_until:
            return None
        times = [window.entries[0][0] for window in self._windows.values() if window.entries]
        times += self._paused_until.values()
        return min(times, default=None)

    def _charges(self, running: RunningAction, dimension: int) -> list[tuple[float, int]]:
        """Return what a call is charged for: when each part comes back, and its units."""
        charged = self.charged.setdefault(running.pending.id, {})
        if dimension not in charged:
            granted = dict(running.pending.demand.fixed)[dimension]
            window = self._windows.get(dimension)
            at_s = math.inf if window is None else running.started_at_s + window.length_s
            charged[dimension] = [(at_s, granted)] if granted else []
        return charged[dimension]

    def _charge(self, dimension: int, units: int) -> None:
        self.free[dimension] -= units
        if dimension in self._in_budget:
            self._in_budget[dimension] += units
