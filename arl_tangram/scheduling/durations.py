"""Learn how long actions take, per action and key: what is expected at each number of units.

- The runs, projected to one unit, give a running mean per key (`running_mean`).
- What is expected before that weighs as much as up to three runs, in the geometric mean: the mean of the action's
  other keys, or its `duration_s`. The steadier the runs, the less it weighs. Where there is neither, a guess, the mean
  of other actions, or one second, is used until the first run and then forgotten.
- A declared speed-up is believed. Without one, it is learned (`speedups`).

A policy is shown curves. A curve stays the same object until what is expected has changed by 3 %, or the speed-up
has been fitted anew, so that whoever works with it may keep what was derived from it.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from heapq import nsmallest

from arl_tangram.model.estimates import Estimate, Learned, SpeedupSource
from arl_tangram.model.lifecycle import Demand
from arl_tangram.scheduling.relative import LONGEST_S
from arl_tangram.scheduling.running_mean import SHORTEST_S, RunningMean, bounded
from arl_tangram.scheduling.speedups import KeySpeedup, SpeedupFit

_MOST_KEYS = 10_000
_MOST_UNSEEN = 10_000
_UNKNOWN_S = 1.0
_PRIOR_RUNS = 3.0
_PRIOR_FORGOTTEN = 128
_TOLERANCE = 1.03
_MOST_AT_ONCE = 8
_OTHERS = 16
_FAR = 8.0


class Durations:
    """Expected durations in seconds; of more than 10,000 keys, the one least recently learned from is forgotten."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], _Key] = OrderedDict()
        self._actions: dict[str, _Action] = {}
        self._unseen: dict[str, _Action] = {}
        self._all = _Others()

    def expected_s(self, demand: Demand, key: str) -> float:
        """Expected seconds at one unit: what was learned, else the other keys, else the prior, else a guess."""
        known = self._known.get((demand.name, key))
        return self._guess_s(demand) if known is None else known.expected_s

    def curve(self, demand: Demand, key: str) -> tuple[float, ...]:
        """What a policy is shown: expected seconds at each option; finite and above 0 whatever was declared or seen.

        While a speed-up is unknown, it is shown in a light in which other units than usual look best.
        """
        known = self._known.get((demand.name, key))
        return (self._guessed(demand) if known is None else known.drawn(demand)).shown

    def expected_curve(self, demand: Demand, key: str) -> tuple[float, ...]:
        """Expected seconds at each option, in no other light than they are seen in; finite and above 0."""
        known = self._known.get((demand.name, key))
        return (self._guessed(demand) if known is None else known.drawn(demand)).expected_s

    def at(self, demand: Demand, key: str, units: int) -> float:
        """Expected seconds at `units` of a run that starts; asked once for each, because it counts what is explored."""
        known = self._known.get((demand.name, key))
        options = demand.options
        if known is None:
            expected_s = self._guessed(demand).expected_s[options.index(units)] if options else self._guess_s(demand)
        elif len(options) > 1:
            expected_s = known.drawn(demand).expected_s[options.index(units)]
        else:
            expected_s = known.expected_s
            if options and demand.relative[0] != 1.0:
                return bounded(expected_s * demand.relative[0])
            return expected_s
        if demand.learns and (action := self._actions.get(demand.name)) is not None and action.fit.exploring:
            action.fit.started()
        return expected_s

    def observe(self, demand: Demand, key: str, units: int, duration_s: float) -> None:
        """Learn from a run that ended well; a duration that is not finite or is negative is ignored."""
        if not SHORTEST_S <= duration_s <= LONGEST_S:
            if not 0 <= duration_s < math.inf:
                return
            duration_s = bounded(duration_s)
        name = (demand.name, key)
        known = self._known.get(name)
        if known is None:
            self._meet(name, demand, units, duration_s)
            return
        learns = demand.learns
        if learns is not known.learns:
            known.turn(demand, units)
        if learns:
            known.units.append(units)
        elif demand.options:
            relative = demand.relative[demand.options.index(units)]
            if relative != 1.0:
                duration_s = bounded(duration_s / relative)
        pending = known.pending
        pending.append(duration_s)
        if len(pending) < known.at_once:
            return
        known.take_in()
        self._known.move_to_end(name)
        self._all.changes += 1

    def learned(self, most: int = 20) -> Learned:
        """Return what was learned, for a report: at most so many keys, those with the most runs first."""
        first = nsmallest(most, self._known.items(), key=lambda item: (-item[1].runs, item[0]))
        return Learned(tuple(known.estimate(*name) for name, known in first), len(self._known) - len(first))

    def _meet(self, name: tuple[str, str], demand: Demand, units: int, duration_s: float) -> None:
        """Learn from the first run of a key."""
        action = self._actions.get(demand.name)
        if action is None:
            action = self._unseen.pop(demand.name) if demand.name in self._unseen else _Action()
            self._actions[demand.name] = action
        if action.others.keys:
            prior_s: float | None = action.others.mean_s()
        else:
            prior_s = None if demand.duration_s is None else bounded(demand.duration_s)
        known = self._known[name] = _Key(action, demand, units, duration_s, prior_s)
        action.keys += 1
        action.others.add(known)
        self._all.add(known)
        if len(self._known) > _MOST_KEYS:
            (forgotten, _), old = self._known.popitem(last=False)
            old.action.keys -= 1
            if not old.action.keys:
                del self._actions[forgotten]

    def _guess_s(self, demand: Demand) -> float:
        action = self._actions.get(demand.name)
        if action is not None:
            return action.others.mean_s()
        if demand.duration_s is not None:
            return bounded(demand.duration_s)
        return self._all.mean_s() if self._all.keys else _UNKNOWN_S

    def _guessed(self, demand: Demand) -> _Curve:
        """Return the curve of a key that has not run."""
        action = self._actions.get(demand.name) or self._unseen.get(demand.name)
        if action is None:
            if len(self._unseen) >= _MOST_UNSEEN:
                del self._unseen[next(iter(self._unseen))]
            action = self._unseen[demand.name] = _Action()
        return action.guessed.drawn(demand, self._guess_s(demand), action.fit, action.fit.exponent)


class _Curve:
    """The curve of a key, drawn when it is asked for and has changed.

    Attributes:
        demand: whose options it is for.
        low_s, high_s: while what is expected at one unit is between these, it need not be drawn anew.
        version: of the fit.
        expected_s: expected seconds at each option.
        shown: the same, or what is to be explored.
    """

    __slots__ = ("demand", "expected_s", "high_s", "low_s", "shown", "version")

    def __init__(self) -> None:
        self.demand: Demand | None = None
        self.low_s = self.high_s = 0.0
        self.version = -1
        self.expected_s: tuple[float, ...] = ()
        self.shown: tuple[float, ...] = ()

    def drawn(self, demand: Demand, one_s: float, fit: SpeedupFit, exponent: float) -> _Curve:
        """Return it as of now."""
        if self.demand is not demand and _alike(self.demand, demand):
            self.demand = demand
        if self.demand is not demand or not self.low_s <= one_s <= self.high_s or self.version != fit.version:
            self.demand, self.version = demand, fit.version
            self.low_s, self.high_s = one_s / _TOLERANCE, one_s * _TOLERANCE
            if demand.learns:
                self.expected_s = fit.curve(one_s, exponent, demand.options)
                self.shown = fit.exploring_curve(one_s, demand.options) if fit.exploring else self.expected_s
            else:
                self.expected_s = self.shown = tuple([bounded(one_s * relative) for relative in demand.relative])
        return self


class _Key:
    """What is known about one key of an action.

    Attributes:
        action: what its keys have in common.
        curve: as it was last drawn.
        expected_s: expected seconds at one unit.
        learns: whether the speed-up is learned.
        pending: durations of runs that nothing was learned from yet: at one unit, unless the speed-up is learned.
        units: then, their integer units.
        at_once: how many of these are taken in together: up to 8, but no more than a sixteenth of the runs so far.
    """

    __slots__ = (
        "_guessed",
        "_mean",
        "_prior_s",
        "_speedup",
        "action",
        "at_once",
        "curve",
        "expected_s",
        "learns",
        "pending",
        "units",
    )

    def __init__(self, action: _Action, demand: Demand, units: int, duration_s: float, prior_s: float | None) -> None:
        self.action = action
        self._prior_s = prior_s
        self._guessed = bool(action.others.keys)
        self.learns = demand.learns
        self._speedup: KeySpeedup | None = None
        self.curve = _Curve()
        self.curve.demand = demand
        self.pending: list[float] = []
        self.units: list[int] = []
        self.at_once = 1
        if demand.learns:
            self._speedup = KeySpeedup(action.fit, units)
            one_s = self._speedup.first(units, duration_s, prior_s if self._guessed else None)
        elif demand.options:
            one_s = bounded(duration_s / demand.relative[demand.options.index(units)])
        else:
            one_s = duration_s
        self._mean = RunningMean(one_s)
        self.expected_s = self._expected_s()

    @property
    def runs(self) -> int:
        """How many runs there were."""
        return self._mean.runs + len(self.pending)

    @property
    def own_s(self) -> float:
        """Seconds at one unit as its own runs say, or the declared duration; not what other keys made expect."""
        return self._mean.mean_s if self._guessed else self.expected_s

    def take_in(self) -> None:
        """Learn from the runs that are pending."""
        mean = self._mean
        if self._speedup is None:
            mean.add(self.pending)
        else:
            self._speedup.learn(mean, self.units, self.pending)
            self._speedup.follow(mean, alone=self.action.keys == 1)
            self.units.clear()
        self.pending.clear()
        self.at_once = min(1 + mean.runs // 16, _MOST_AT_ONCE)
        self.expected_s = mean.mean_s if self._prior_s is None else self._expected_s()
        self.action.others.changes += 1

    def turn(self, demand: Demand, units: int) -> None:
        """A demand of the same name declares a speed-up, and the one before did not, or the other way round."""
        if self.pending:
            self.take_in()
        self.learns = demand.learns
        self._speedup = KeySpeedup(self.action.fit, units) if demand.learns else None

    def drawn(self, demand: Demand) -> _Curve:
        """Return the curve as of now."""
        fit, curve, exponent = self.action.fit, self.curve, 0.0
        if curve.demand is demand and curve.version == fit.version and curve.low_s <= self.expected_s <= curve.high_s:
            return curve
        if self._speedup is not None:
            self._speedup.follow(self._mean, alone=self.action.keys == 1)
            self.expected_s = self._expected_s()
            exponent = self._speedup.exponent
        elif demand.learns:
            exponent = fit.exponent
        return curve.drawn(demand, self.expected_s, fit, exponent)

    def estimate(self, name: str, key: str) -> Estimate:
        """Return what a report tells."""
        demand, fit = self.curve.demand, self.action.fit
        source, exponent, runs = SpeedupSource.NONE, None, 0
        if demand is not None and demand.learns and self._speedup is not None:
            source = SpeedupSource.LEARNED if fit.learned else SpeedupSource.ASSUMED
            exponent, runs = self._speedup.exponent, fit.runs
        elif demand is not None and len(demand.options) > 1:
            source = SpeedupSource.DECLARED
        return Estimate(name, key, self.runs, self.expected_s, source, exponent, runs)

    def _expected_s(self) -> float:
        mean = self._mean
        if self._prior_s is None:
            return mean.mean_s
        if mean.runs > _PRIOR_FORGOTTEN:
            self._prior_s = None
            return mean.mean_s
        weight = _PRIOR_RUNS * min(1.0, mean.spread**2)
        return bounded(mean.mean_s * (self._prior_s / mean.mean_s) ** (weight / (weight + mean.runs)))


class _Others:
    """The keys that were last met, from which a new one is guessed.

    Attributes:
        keys: up to 16 of them.
        changes: how often something was learned about any.
    """

    __slots__ = ("_due", "_mean_s", "changes", "keys")

    def __init__(self) -> None:
        self.keys: deque[_Key] = deque(maxlen=_OTHERS)
        self.changes = 0
        self._due = 0
        self._mean_s = _UNKNOWN_S

    def add(self, key: _Key) -> None:
        """A key was met."""
        self.keys.append(key)
        self._due = 0

    def mean_s(self) -> float:
        """Return the mean of what is expected of them, those that are far longer than the others cut down."""
        if self.changes >= self._due:
            self._due = self.changes + 1 + min(self.changes // 8, 15)
            means = [key.own_s for key in self.keys]
            most = _FAR * math.exp(sum(map(math.log, means)) / len(means))
            self._mean_s = sum(min(mean_s, most) for mean_s in means) / len(means)
        return self._mean_s


class _Action:
    """What the keys of an action have in common.

    Attributes:
        keys: how many of them are known.
        others: those from which a new one is guessed.
        fit: how it speeds up.
        guessed: the curve of a key that has not run.
    """

    __slots__ = ("fit", "guessed", "keys", "others")

    def __init__(self) -> None:
        self.keys = 0
        self.others = _Others()
        self.fit = SpeedupFit()
        self.guessed = _Curve()


def _alike(one: Demand | None, other: Demand) -> bool:
    return (
        one is not None
        and one.relative == other.relative
        and one.options == other.options
        and one.learns == other.learns
    )
