"""Learn how long actions take: a running estimate per (action, key), projected to one unit.

The estimate is a mean that forgets: the n-th run weighs 1/n until n reaches `_MEMORY`, then 1/`_MEMORY`.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from arl_tangram.model.lifecycle import Demand
from arl_tangram.scheduling.feasibility import LONGEST_S

_MEMORY = 16
_MOST_KEYS = 10_000
_UNKNOWN_S = 1.0
_SHORTEST_S = 1e-6


class Durations:
    """Expected durations in seconds; of more than 10,000 keys, the one least recently learned from is forgotten."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], _Mean] = OrderedDict()
        self._all = _Mean()

    def expected_s(self, demand: Demand, key: str) -> float:
        """Expected seconds at one unit: what was learned, else the prior, else the mean of all actions, else 1."""
        known = self._known.get((demand.name, key))
        if known is not None:
            return known.mean_s
        if demand.duration_s is not None:
            return demand.duration_s
        return self._all.mean_s if self._all.runs else _UNKNOWN_S

    def curve(self, demand: Demand, key: str) -> tuple[float, ...]:
        """Expected seconds at each option of a demand; finite and above 0 whatever was declared or seen."""
        base = self.expected_s(demand, key)
        return tuple(_bounded(base * relative) for relative in demand.relative)

    def at(self, demand: Demand, key: str, units: int) -> float:
        """Expected seconds at `units` of the elastic dimension."""
        expected_s = self.expected_s(demand, key)
        if demand.elastic is not None:
            expected_s *= demand.relative[demand.options.index(units)]
        return _bounded(expected_s)

    def observe(self, demand: Demand, key: str, units: int, duration_s: float) -> None:
        """Learn from a run that ended well; a duration that is not finite or is negative is ignored."""
        if not 0 <= duration_s < math.inf:
            return
        if demand.elastic is not None:
            duration_s /= demand.relative[demand.options.index(units)]
        duration_s = min(duration_s, LONGEST_S)
        name = (demand.name, key)
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = _Mean()
            if len(self._known) > _MOST_KEYS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(name)
        known.add(duration_s)
        self._all.add(duration_s)


class _Mean:
    """A running mean of durations that forgets."""

    __slots__ = ("mean_s", "runs")

    def __init__(self) -> None:
        self.mean_s = 0.0
        self.runs = 0

    def add(self, duration_s: float) -> None:
        if self.runs < _MEMORY:
            self.runs += 1
        self.mean_s += (duration_s - self.mean_s) / self.runs


def _bounded(duration_s: float) -> float:
    if _SHORTEST_S <= duration_s <= LONGEST_S:
        return duration_s
    return _SHORTEST_S if duration_s < _SHORTEST_S else LONGEST_S
