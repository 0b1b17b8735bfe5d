"""The mean of durations, one run at a time: heavy tails count, outliers hardly do, and a step is believed soon.

The n-th run weighs 1/n, down to 1/`_MEMORY`. It is a mean, not a median, because the scheduler adds durations up.
The rules, on the logarithm of a duration against the typical logarithm so far, in units of the typical distance
from that (the mean absolute deviation; for log-normal work 0.8 standard deviations):

1. The first `_FIRST` runs are looked at together, against the lower median of their logarithms, because there is no
   typical one yet.
2. A run further off than `_ODD` distances is odd, and counts as if it were just so far off. For log-normal work that is
   one run in eighty. Should more than one in `1 / _BELIEVED` be odd, the tail is real, and the bound moves out.
3. `_ALL_ODD` odd runs in succession are a step: the mean starts anew from the last one. (Whatever rule 5 says, if they
   are `_CERTAINLY_ODD`.)
4. If the recent runs lie two thirds of a standard deviation off, they are a step too: the mean moves along and learns
   fast again. (An exponentially weighted control chart: S. W. Roberts, Technometrics 1959.)
5. Runs that started together end in order of their durations. So it is no step unless runs in succession differ from
   each other as those of old do. (The mean of successive differences: J. von Neumann, Annals of Mathematical
   Statistics 1941.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log

from arl_tangram.scheduling.relative import LONGEST_S

SHORTEST_S = 1e-6
"""The least that a duration counts as."""

_MEMORY = 512
_ODD = 3.2
_NEVER_ODD = 0.2
_BELIEVED = 0.02
_REACH = 0.5
_ALL_ODD = 4
_CERTAINLY_ODD = 16
_RECENT = 1 / 16
_SHIFTED = 0.8
_NEVER_SHIFTED = 0.1
_LEAST_GAIN = 1 / _MEMORY
_FAST_GAIN = 1 / 8
_SORTED = 0.5
_NEVER_SORTED = 0.02
_FEWEST = 4
_FIRST = 8
_FIRST_SPREAD = 1.0


class RunningMean:
    """The mean of the durations that were added, in seconds.

    Args:
        duration_s: the first one, from 1e-6 to 1e7, as all others.

    Attributes:
        runs: how many were added.
        mean_s: their mean.
        level: the typical logarithm of a duration.
        spread: the typical distance from it.
        gain: what the next run weighs, from 1/2 down to 1/512.
        steps: how many steps were believed.
    """

    __slots__ = (
        "_first", "_odd", "_odd_last", "_reach", "_recent",
        "gain", "level", "mean_s", "runs", "spread", "steps",
    )  # fmt: skip

    def __init__(self, duration_s: float) -> None:
        self.runs = 1
        self.mean_s = duration_s
        self.level = log(duration_s)
        self.spread = _FIRST_SPREAD
        self.gain = 0.5
        self.steps = 0
        self._first: list[float] | None = [self.level]
        self._recent = 0.0
        self._reach = _NEVER_ODD
        self._odd: list[float] = []
        self._odd_last = 0

    def add(self, durations_s: Sequence[float]) -> None:
        """Count runs, the oldest first.

        Several at once are cheaper, because nothing is stored in between; smaller steps are looked for from four on.
        """
        if self._first is not None:
            self._begin(self._first, durations_s)
            return
        runs, gain, mean_s, level, spread = self.runs, self.gain, self.mean_s, self.level, self.spread
        recent = self._recent
        for seen_s in durations_s:
            duration_s = seen_s
            residual = log(duration_s) - level
            distance = residual if residual >= 0 else -residual
            runs += 1
            if distance > _ODD * spread + _NEVER_ODD:
                if self._begins_anew(runs, duration_s):
                    self.steps += 1
                    mean_s, level = duration_s, level + residual
                    spread, gain, recent = max(spread, distance / 2), 0.5, 0.0
                    continue
                most = _ODD * spread + self._reach
                if distance > most:
                    duration_s = exp(level + (most if residual > 0 else -most))
                distance = _ODD * spread + _NEVER_ODD
                residual = distance if residual > 0 else -distance
            mean_s += gain * (duration_s - mean_s)
            level += gain * residual
            spread += gain * (distance - spread)
            recent += _RECENT * (residual - recent)
            if gain > _LEAST_GAIN:
                gain /= 1 + gain
        if abs(recent) > _SHIFTED * spread + _NEVER_SHIFTED and _unsorted(durations_s, spread):
            self.steps += 1
            mean_s, level = bounded(mean_s * exp(recent)), level + recent
            gain, recent = max(gain, _FAST_GAIN), 0.0
        self.runs, self.gain, self.mean_s, self.level, self.spread = runs, gain, mean_s, level, spread
        self._recent = recent

    def project(self, logarithm: float) -> None:
        """Multiply all durations so far by the exponential of something: they turn out to mean something else."""
        self.level += logarithm
        self.mean_s = bounded(self.mean_s * exp(logarithm))
        if self._first is not None:
            self._first = [level + logarithm for level in self._first]

    def _begin(self, first: list[float], durations_s: Sequence[float]) -> None:
        first += map(log, durations_s)
        runs = self.runs = len(first)
        median = sorted(first)[(runs - 1) // 2]
        most = _ODD * _FIRST_SPREAD + _NEVER_ODD
        self.spread = (_FIRST_SPREAD + sum([min(abs(level - median), most) for level in first])) / runs
        most = _ODD * self.spread + _NEVER_ODD
        levels = [min(median + most, max(median - most, level)) for level in first]
        self.level = sum(levels) / runs
        self.mean_s = bounded(sum(map(exp, levels)) / runs)
        self.gain = 1 / (runs + 1)
        if runs >= _FIRST:
            self._first = None

    def _begins_anew(self, run: int, duration_s: float) -> bool:
        """Take note of an odd run, and say whether there were enough of them in succession."""
        since = run - self._odd_last
        self._odd_last = run
        if since > 1:
            self._odd.clear()
        self._odd.append(duration_s)
        self._reach = max(_NEVER_ODD, self._reach + _REACH * (1 - since * _BELIEVED))
        certain = len(self._odd) >= _CERTAINLY_ODD
        if not certain and (len(self._odd) < _ALL_ODD or not _unsorted(self._odd[-_ALL_ODD:], self.spread)):
            return False
        self._odd.clear()
        self._reach = _NEVER_ODD
        return True


def _unsorted(durations_s: Sequence[float], spread: float) -> bool:
    """Whether runs differ from each other about as much as runs did before: some three at least, in order.

    Those that started together end in the order of their durations: the last ones of a burst are all long, and no step.
    """
    if len(durations_s) < _FEWEST:
        return False
    levels = list(map(log, durations_s))
    differences = sorted([abs(level - before) for before, level in pairwise(levels)])
    return differences[len(differences) // 2] > _SORTED * spread - _NEVER_SORTED


def bounded(duration_s: float) -> float:
    """Return a duration that is finite, above 0 and not absurd, whatever was expected."""
    if SHORTEST_S <= duration_s <= LONGEST_S:
        return duration_s
    return SHORTEST_S if duration_s < SHORTEST_S else LONGEST_S
