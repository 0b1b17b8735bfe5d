"""Roll a queue and a likely future forward under a pricing, and say what it costs all of them.

The queue is served in order, each action deciding as `pricing` says, at the price of the moment it is
served:

    lambda = (waiting · actions that wait behind it + running · actions that run) / capacity

The future is a bootstrap: the last arrivals come once more, with the gaps that they had, so that bursts stay
bursts. They begin after the mean of what was left of those gaps that were at least as long as the present one.

What is left at the end of that horizon must count, or the dearest habit looks the best under overload. Work
beyond what is usually in progress, and beyond what the next gap clears, delays whoever comes later: at r arrivals
a second and load rho the backlog B (in seconds of all units) is gone after B/(1 - rho), meanwhile r·B/(1 - rho)
actions come, and they wait B/2 on average. Under overload that never ends; it is taken to last for as many arrivals as
there have been.

Sources: rollout of a heuristic by simulation, Bertsekas and Castañon (1999); the block of arrivals replayed as
one, Künsch (1989); the drain of a backlog is the fluid limit of a single-server queue.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from arl_tangram.scheduling.policy import Candidate, Group
from arl_tangram.scheduling.pricing import Curve, Curves, Pricing, Supply

_MOST_ROLLED = 192
_MOST_ARRIVALS = 128
_LEAST_SLACK = 0.1
_LEAST_LATER = 128
_TOGETHER_S = 1e-9


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pricing comes to.

    Attributes:
        total_s: seconds from arrival to end, summed over all whose service was rolled forward.
        backlog_s: unit-seconds before and behind the last of them as it arrives, over the capacity.
        load: unit-seconds that arrive per second, over the capacity.
        usual_s: unit-seconds that actions in progress have left on average, over the capacity.
    """

    total_s: float
    backlog_s: float
    load: float
    usual_s: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """The present and a likely future.

    Attributes:
        now_s: the time.
        free: units.
        capacity: units, free or not.
        ends: (expected end, units) of what runs, ascending.
        times_s: when each action comes, ascending; now for those who wait.
        curves: what each of them wants whose service is rolled forward; the others only press from behind.
        hidden: how many wait behind these, and are not seen.
        rate: arrivals per second in the long run; 0 if not known.
        gap_s: mean time from a random moment to the next arrival; 0 if not known.
        later: how many may come after the last of `times_s` before an overload ends.
    """

    now_s: float
    free: int
    capacity: int
    ends: Sequence[tuple[float, int]]
    times_s: Sequence[float]
    curves: Sequence[Curve]
    hidden: int
    rate: float
    gap_s: float
    later: float

    @property
    def options(self) -> int:
        """How many options there are in all, which is what a roll costs."""
        return sum(len(curve.units) for curve in self.curves)

    def roll(self, pricing: Pricing) -> Outcome:
        """Serve everybody at these prices."""
        times_s, capacity, idle = self.times_s, self.capacity, pricing.idle
        per_waiting, per_running = pricing.waiting / capacity, pricing.running / capacity
        ends, over = list(self.ends), 0
        free, at_s = self.free, self.now_s
        come, coming = 0, len(times_s)
        total_s = work = squares = 0.0
        for index, curve in enumerate(self.curves):
            arrived_s = times_s[index]
            at_s = max(at_s, arrived_s)
            while over < len(ends) and ends[over][0] <= at_s:
                free += ends[over][1]
                over += 1
            needed, option = curve.units[0], -1
            while option < 0:
                while free < needed and over < len(ends):
                    at_s = max(at_s, ends[over][0])
                    free += ends[over][1]
                    over += 1
                if free < needed:
                    option = 0  # more than there is: whoever sees this, all pricings see it
                    break
                while come < coming and times_s[come] <= at_s:
                    come += 1
                price = per_waiting * (come - index - 1 + self.hidden) + per_running * (len(ends) - over)
                option = curve.wanted[bisect_right(curve.prices, price)]
                if curve.units[option] > free:
                    option = curve.affordable(price, Supply(at_s, free, ends, over), idle)
                    if option < 0:
                        needed = curve.units[-1 - option]
            units, duration_s = curve.units[option], curve.durations_s[option]
            free -= units
            total_s += at_s - arrived_s + duration_s
            work += units * duration_s
            squares += units * duration_s * duration_s
            insort(ends, (at_s + duration_s, units), over)
        held = sum((end_s - at_s) * units for end_s, units in ends[over:] if end_s > at_s)
        since_s = self.now_s if self.hidden else times_s[len(self.curves) - 1]
        share = self.rate / len(self.curves) / capacity
        load = work * share
        return Outcome(total_s, at_s - since_s + held / capacity, load, squares / 2 * share / max(1.0, load))

    def costs_s(self, outcomes: Sequence[Outcome]) -> list[float]:
        """Expected seconds of each outcome, with what those lose that are not seen or come later."""
        cleared_s = self.gap_s + min(outcome.usual_s for outcome in outcomes)
        return [
            o.total_s + self.hidden * o.backlog_s + self._later_s(o.backlog_s - cleared_s, o.load) for o in outcomes
        ]

    def _later_s(self, backlog_s: float, load: float) -> float:
        """What a backlog costs those who come after the horizon."""
        if backlog_s <= 0:
            return 0.0
        return backlog_s * min(self.later, self.rate * backlog_s / (2 * max(1 - load, _LEAST_SLACK)))


def outlook(group: Group, curves: Curves, rate: float) -> Outlook:
    """Return what is to be expected for a group.

    Args:
        group: the present.
        curves: where curves are remembered.
        rate: arrivals per second in the long run; 0 if not known.
    """
    present = [*group.candidates, *group.waiting]
    hidden = max(0, group.backlog - len(group.waiting))
    past = group.arrivals[-_MOST_ARRIVALS:]
    gaps_s = [gap_s for (before_s, _), (after_s, _) in pairwise(past) if (gap_s := after_s - before_s) > _TOGETHER_S]
    future = past[: max(0, _MOST_ROLLED - len(present))] if gaps_s else ()
    ahead_s = _ahead_s(past, gaps_s, group.now_s) if gaps_s else 0.0
    return Outlook(
        now_s=group.now_s,
        free=group.free,
        capacity=max(1, group.capacity),
        ends=tuple(group.running),
        times_s=[group.now_s] * len(present) + [at_s + ahead_s for at_s, _ in future],
        curves=[curves.of(candidate) for candidate in (*present, *(() if hidden else (c for _, c in future)))],
        hidden=hidden,
        rate=rate,
        gap_s=sum(gap_s * gap_s for gap_s in gaps_s) / sum(gaps_s) / 2 if gaps_s else 0.0,
        later=max(_LEAST_LATER, group.arrived),
    )


def _ahead_s(past: Sequence[tuple[float, Candidate]], gaps_s: Sequence[float], now_s: float) -> float:
    """How much later than they came they come again."""
    since_s = max(0.0, now_s - past[-1][0])
    left_s = [gap_s - since_s for gap_s in gaps_s if gap_s > since_s + _TOGETHER_S]
    return now_s + (sum(left_s) / len(left_s) if left_s else since_s) - past[0][0]
