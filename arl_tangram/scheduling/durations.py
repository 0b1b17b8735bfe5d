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
        self._known: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        self._all = (0, 0.0)

    def expected_s(self, demand: Demand, key: str) -> float:
        """Expected seconds at one unit: what was learned, else the prior, else the mean of all actions, else 1."""
        known = self._known.get((demand.name, key))
        if known is not None:
            return known[1]
        if demand.duration_s is not None:
            return demand.duration_s
        return self._all[1] if self._all[0] else _UNKNOWN_S

    def curve(self, demand: Demand, key: str) -> tuple[float, ...]:
        """Expected seconds at each option of a demand; finite and above 0 whatever was declared or seen."""
        base = self.expected_s(demand, key)
        return tuple(_bounded(base * relative) for relative in demand.relative)

    def at(self, demand: Demand, key: str, units: int) -> float:
        """Expected seconds at `units` of the elastic dimension."""
        base = self.expected_s(demand, key)
        if demand.elastic is not None:
            base *= demand.relative[demand.options.index(units)]
        return _bounded(base)

    def observe(self, demand: Demand, key: str, units: int, duration_s: float) -> None:
        """Learn from a run that ended well; a duration that is not finite or is negative is ignored."""
        if not (math.isfinite(duration_s) and duration_s >= 0):
            return
        if demand.elastic is not None:
            duration_s /= demand.relative[demand.options.index(units)]
        duration_s = min(duration_s, LONGEST_S)
        name = (demand.name, key)
        self._known[name] = _updated(self._known.get(name, (0, 0.0)), duration_s)
        self._known.move_to_end(name)
        if len(self._known) > _MOST_KEYS:
            self._known.popitem(last=False)
        self._all = _updated(self._all, duration_s)


def _updated(known: tuple[int, float], duration_s: float) -> tuple[int, float]:
    runs, mean = known
    runs = min(runs + 1, _MEMORY)
    return runs, mean + (duration_s - mean) / runs


def _bounded(duration_s: float) -> float:
    return LONGEST_S if math.isnan(duration_s) else min(max(duration_s, _SHORTEST_S), LONGEST_S)
