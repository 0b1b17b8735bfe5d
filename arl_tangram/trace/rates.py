"""Integrate over time how much of rates and budgets is used: what is granted counts for its window, or for ever."""

from __future__ import annotations

import math
from collections import deque

from arl_tangram.model.lifecycle import RunningAction
from arl_tangram.model.topology import Topology

Charge = tuple[float, float, int]
"""From when, until when, and how many units count; less than none of what was settled away before its window ended.

A plain tuple, because one is made for every call.
"""


class Rates:
    """Unit-seconds of the dimensions of which units return by themselves, or never.

    Memory: an entry per grant whose window is not over, and per call that settled and still runs.

    Attributes:
        dimensions: their indices.
        settled: what counts now for each running call that has settled, by its id and the dimension.
    """

    def __init__(self, topology: Topology) -> None:
        lengths = {i: d.window_s for i, d in enumerate(topology.dimensions) if d.window_s is not None}
        self.dimensions = frozenset(lengths)
        self._windows = {i: length_s for i, length_s in lengths.items() if math.isfinite(length_s)}
        self._charges: dict[int, deque[Charge]] = {i: deque() for i in self._windows}
        self._over = dict.fromkeys(self._windows, 0.0)
        # Nothing of a budget ever leaves: units, and units times the moment at which they were granted.
        self._budgets = {i: [0.0, 0.0] for i in lengths if i not in self._windows}
        self.settled: dict[int, dict[int, list[Charge]]] = {}

    def start(self, action: RunningAction) -> None:
        """A call was granted its units."""
        at_s = action.started_at_s
        for dimension, units in action.pending.demand.fixed:
            if dimension in self.dimensions:
                self._charge(dimension, at_s, at_s + self._windows.get(dimension, math.inf), units)

    def settle(self, action: RunningAction, dimension: int, units: int, at_s: float) -> None:
        """A running call counts for other units than before: more count from now on, fewer are free at once."""
        if dimension not in self.dimensions:
            return
        window_s = self._windows.get(dimension, math.inf)
        charges = self._charges_of(action, dimension, window_s)
        more = units - sum(charge[2] for charge in charges)
        if more > 0:
            charges.append((at_s, at_s + window_s, more))
            self._charge(dimension, at_s, at_s + window_s, more)
        while more < 0 and charges:
            since_s, until_s, amount = charges.pop()
            less = min(amount, -more)
            more += less
            if less < amount:
                charges.append((since_s, until_s, amount - less))
            if at_s < until_s:
                self._charge(dimension, at_s, until_s, -less)

    def stop(self, id_: int) -> None:
        """A call has ended: what it settled last stands."""
        self.settled.pop(id_, None)

    def add(self, unit_s: list[float], until_s: float) -> None:
        """Add the unit-seconds up to now."""
        for dimension, charges in self._charges.items():
            used = sum(units * max(0.0, min(until_s, end_s) - at_s) for at_s, end_s, units in charges)
            unit_s[dimension] += self._over[dimension] + used
        for dimension, (units, moments) in self._budgets.items():
            unit_s[dimension] += units * until_s - moments

    def _charges_of(self, action: RunningAction, dimension: int, window_s: float) -> list[Charge]:
        """Return what counts for a call now; what it was granted, if it has not settled yet."""
        settled = self.settled.setdefault(action.pending.id, {})
        if dimension not in settled:
            granted = dict(action.pending.demand.fixed).get(dimension, 0)
            at_s = action.started_at_s
            settled[dimension] = [(at_s, at_s + window_s, granted)] if granted else []
        return settled[dimension]

    def _charge(self, dimension: int, at_s: float, until_s: float, units: int) -> None:
        charges = self._charges.get(dimension)
        if charges is None:
            self._budgets[dimension][0] += units
            self._budgets[dimension][1] += units * at_s
            return
        while charges and charges[0][1] <= at_s:
            began_s, ended_s, over = charges.popleft()
            self._over[dimension] += over * (ended_s - began_s)
        charges.append((at_s, until_s, units))
