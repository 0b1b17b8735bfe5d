"""Learn how much work calls are, per action and key: what is expected to remain of one after so much was done.

What decides about the turn of a call is not the mean of what remains, but the best bargain there is: over all d, the
least quotient of the work that is spent on it until it ends, or d at most, and the chance that it ends by then. For
calls that are all alike that is what is left of them; where a few are far longer than most, it grows with what was
done. (J. C. Gittins, Journal of the Royal Statistical Society B 1979; for queues: S. Aalto, U. Ayesta and R. Righter,
Queueing Systems 2009.)

- The distribution is that of the last 128 works of the key, or, while there are fewer than eight, of all keys of the
  action. No quotient rests on fewer than √n of n works.
- Before there are eight, a declared duration is believed; when it is over, as much is taken to remain as was done.
- Where nothing is declared, as much remains as is expected of the action, and at least as much as was done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from math import inf, isqrt

import numpy as np

from arl_tangram.model.lifecycle import Demand
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.relative import LONGEST_S
from arl_tangram.scheduling.running_mean import bounded

_MOST_KEYS = 10_000
_WORKS = 128
_FEWEST = 8
_GROWTH = 1.25
_MOST_STEPS = 48
_SAME = 1.1


class Works:
    """The last works of each key; of more than 10,000 keys, the one least recently learned from is forgotten.

    Args:
        durations: what is expected of a key of which too few works are known.
    """

    def __init__(self, durations: Durations) -> None:
        self._durations = durations
        self._known: OrderedDict[tuple[str, str | None], _Known] = OrderedDict()

    def observe(self, demand: Demand, key: str, work_s: float) -> bool:
        """Learn from a run that ended well: what it did in seconds of one core; what is no such number is ignored.

        Returns:
            Whether those of that action that wait are to be ranked anew: when twice as much is known as the last time.
        """
        if not 0 <= work_s < inf:
            return False
        for name in ((demand.name, None), (demand.name, key)):
            known = self._known.get(name)
            if known is None:
                known = self._known[name] = _Known()
                if len(self._known) > 2 * _MOST_KEYS:
                    self._known.popitem(last=False)
            known.add(bounded(work_s))
            self._known.move_to_end(name)
        runs = self._known[demand.name, None].runs
        return runs & (runs - 1) == 0

    def of(self, demand: Demand, key: str) -> Remaining:
        """Return what is expected of a call that joins, to be kept while it is here: it follows what is learned."""
        return Remaining(self, demand, key)

    def outlook(self, demand: Demand, key: str) -> Outlook:
        """Return what is expected now."""
        for name in ((demand.name, key), (demand.name, None)):
            known = self._known.get(name)
            if known is not None and known.runs >= _FEWEST:
                return known.outlook()
        return Expected(self._durations.expected_s(demand, key), believed=demand.duration_s is not None)


class Remaining:
    """What is expected of a call, in seconds of one core's work.

    Args:
        works: what is known.
        demand: of the call.
        key: of the call.
    """

    __slots__ = ("_demand", "_key", "_works")

    def __init__(self, works: Works, demand: Demand, key: str) -> None:
        self._works = works
        self._demand = demand
        self._key = key

    def remaining_s(self, attained_s: float) -> float:
        """Return the work to do that decides about its turn after so much was done; finite, above 0."""
        return self._works.outlook(self._demand, self._key).remaining_s(attained_s)

    def next_s(self, attained_s: float) -> float:
        """Return the work done, above `attained_s`, at which that is to be asked for again; infinite for never."""
        return self._works.outlook(self._demand, self._key).next_s(attained_s)


class Expected:
    """One number, declared or guessed.

    Args:
        expected_s: seconds on one core.
        believed: whether it falls as work is done, until it is over; a guess does not.
    """

    __slots__ = ("_believed", "_expected_s")

    def __init__(self, expected_s: float, *, believed: bool) -> None:
        self._expected_s = bounded(expected_s)
        self._believed = believed

    def remaining_s(self, attained_s: float) -> float:
        """See `Remaining`."""
        if attained_s >= self._expected_s:
            return min(attained_s, LONGEST_S)
        return bounded(self._expected_s - attained_s) if self._believed else self._expected_s

    def next_s(self, attained_s: float) -> float:
        """See `Remaining`."""
        if attained_s >= self._expected_s:
            return attained_s * _GROWTH if attained_s < LONGEST_S else inf
        if not self._believed:
            return self._expected_s
        left_s = self._expected_s - attained_s
        return attained_s + left_s / 2 if left_s > self._expected_s / 100 else self._expected_s


class Learned:
    """The quotients of a distribution, by steps of the work done.

    Args:
        works_s: some works, at least one.
    """

    __slots__ = ("_changes_s", "_longest_s", "_remaining_s", "_steps_s")

    def __init__(self, works_s: list[float]) -> None:
        works = np.sort(np.array(works_s))
        self._longest_s = float(works[-1])
        least_s = float(works[0]) / 2
        growth = max(_GROWTH, (self._longest_s / least_s) ** (1 / _MOST_STEPS))
        count = int(np.ceil(np.log(self._longest_s / least_s) / np.log(growth)))
        self._steps_s: list[float] = [0.0, *[least_s * growth**step for step in range(count)]]
        self._remaining_s = [_quotient_s(works, step_s) for step_s in self._steps_s]
        self._changes_s = _changes_s(self._steps_s, self._remaining_s, self._longest_s)

    def remaining_s(self, attained_s: float) -> float:
        """See `Remaining`."""
        if attained_s >= self._longest_s:
            return min(attained_s, LONGEST_S)
        return self._remaining_s[bisect_right(self._steps_s, attained_s) - 1]

    def next_s(self, attained_s: float) -> float:
        """See `Remaining`."""
        if attained_s >= self._longest_s:
            return attained_s * _GROWTH if attained_s < LONGEST_S else inf
        return self._changes_s[bisect_right(self._steps_s, attained_s) - 1]


Outlook = Expected | Learned


class _Known:
    """The last works of a key, or of all keys of an action.

    Attributes:
        runs: how many there were.
    """

    __slots__ = ("_due", "_outlook", "_works_s", "runs")

    def __init__(self) -> None:
        self.runs = 0
        self._works_s: deque[float] = deque(maxlen=_WORKS)
        self._outlook: Learned | None = None
        self._due = 0

    def add(self, work_s: float) -> None:
        """Learn from a run."""
        self.runs += 1
        self._works_s.append(work_s)

    def outlook(self) -> Learned:
        """Return what the works amount to, found anew when there is an eighth more of them."""
        if self._outlook is None or self.runs >= self._due:
            self._outlook = Learned(list(self._works_s))
            self._due = self.runs + max(1, min(self.runs, _WORKS) // 8)
        return self._outlook


def _quotient_s(works: np.ndarray, attained_s: float) -> float:
    """Return the least quotient after so much was done, of works in ascending order."""
    left = works[works > attained_s] - attained_s
    if not left.size:
        return bounded(attained_s)
    ended = np.arange(1, left.size + 1)
    quotients = (np.cumsum(left) + (left.size - ended) * left) / ended
    fewest = min(isqrt(works.size), left.size)
    return bounded(float(quotients[fewest - 1 :].min()))


def _changes_s(steps_s: list[float], remaining_s: list[float], longest_s: float) -> list[float]:
    """Return for each step the next one at which what remains is another."""
    changes_s = [longest_s] * len(steps_s)
    for at in range(len(steps_s) - 2, -1, -1):
        now_s, then_s = remaining_s[at], remaining_s[at + 1]
        alike = now_s / _SAME <= then_s <= now_s * _SAME
        changes_s[at] = changes_s[at + 1] if alike else steps_s[at + 1]
    return changes_s
