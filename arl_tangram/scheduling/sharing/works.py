"""Learn how much work calls are, per action and key: what is expected to remain after so much was done."""

from __future__ import annotations

from collections import OrderedDict, deque
from math import inf
from typing import Protocol

from arl_tangram.model.lifecycle import Demand
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.relative import LONGEST_S
from arl_tangram.scheduling.running_mean import bounded

_MOST_KEYS = 10_000
_WORKS = 128
_GROWTH = 1.25


class Remaining(Protocol):
    """What is expected of a call of one key, in seconds of one core's work."""

    def remaining_s(self, attained_s: float) -> float:
        """Return the work to do that decides about its turn after so much was done; finite, above 0."""
        ...

    def next_s(self, attained_s: float) -> float:
        """Return the work done, above `attained_s`, at which that is to be asked for again; infinite for never."""
        ...


class Works:
    """The last works of each key; of more than 10,000 keys, the one least recently learned from is forgotten.

    Args:
        durations: what is expected of a key of which too few works are known.
    """

    def __init__(self, durations: Durations) -> None:
        self._durations = durations
        self._known: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def observe(self, demand: Demand, key: str, work_s: float) -> None:
        """Learn from a run that ended well: what it did in seconds of one core's work."""
        name = (demand.name, key)
        self._known.setdefault(name, deque(maxlen=_WORKS)).append(bounded(work_s))
        self._known.move_to_end(name)
        if len(self._known) > _MOST_KEYS:
            self._known.popitem(last=False)

    def of(self, demand: Demand, key: str) -> Remaining:
        """Return what is expected of a call that joins now, to be kept while it is here."""
        return _Believed(self._durations.expected_s(demand, key))


class _Believed:
    """A duration that is believed until it is over; from then on, as much remains as was done."""

    __slots__ = ("_expected_s",)

    def __init__(self, expected_s: float) -> None:
        self._expected_s = bounded(expected_s)

    def remaining_s(self, attained_s: float) -> float:
        """Return what is left, or what was done."""
        if attained_s < self._expected_s:
            return bounded(self._expected_s - attained_s)
        return min(attained_s, LONGEST_S)

    def next_s(self, attained_s: float) -> float:
        """Return when a tenth of it is done, or, once it is over, a quarter more."""
        if attained_s < self._expected_s:
            return attained_s + max(0.1 * (self._expected_s - attained_s), 0.01 * self._expected_s)
        return attained_s * _GROWTH if attained_s < LONGEST_S else inf
