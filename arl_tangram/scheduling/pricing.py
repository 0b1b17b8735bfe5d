"""Say how many units an action takes when unit-seconds have a price, and whether it waits for them.

With unit-seconds at a price, an action costs

    price(units) = duration(units) · (1 + lambda · units)

: its own seconds, and those that others lose by the unit-seconds it holds. Each second of one of C units
that is taken from n actions who wait makes each of them wait 1/C second longer, so lambda is about n/C. The
price uses each action's own speed-up: one that scales well takes many units, one that scales badly few, and
with nobody else about everybody takes what makes it fastest.

Units that are not free yet can be waited for. That costs the action its wait, and the others what lies
idle meanwhile:

    wait · (1 + idle · lambda · free) + price(units)

so it starts on what there is unless the wait is worth it. An action in progress cannot grow, which is why a start on
too little can be worse than a wait.

As a function of lambda each option is a straight line; their lower envelope says, by one binary search, what is
wanted at any price.

Sources: prices as multipliers of a capacity constraint are Everett's (1963); the envelope is the standard
upper-hull construction. The wait term and the choice of n (see `rollout`) are this project's own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from arl_tangram.scheduling.policy import Candidate

NEVER = float("inf")
"""`Pricing.idle` of who never waits for units that are not free yet."""

_MOST_REMEMBERED = 4096
_MOST_OPTIONS = 16


@dataclass(frozen=True, slots=True)
class Pricing:
    """How the price follows from what goes on.

    Attributes:
        waiting: weight of each action that waits behind; more than 1 stands for those that are still to come.
        running: weight of each action that runs; makes actions share, so that a long one holds up fewer.
        idle: weight of what lies idle while an action waits for units; `NEVER` if it never waits.
    """

    waiting: float
    running: float
    idle: float


class Supply(NamedTuple):
    """Units that an action may start on.

    Attributes:
        now_s: the time.
        free: units at once.
        ends: (expected end, units) of what runs, ascending.
        over: how many of `ends` to leave out: their units are free already.
    """

    now_s: float
    free: int
    ends: Sequence[tuple[float, int]]
    over: int = 0


class Curve:
    """What an action wants at any price: the lower envelope of its options.

    Attributes:
        units: its options, ascending; a selection of them if there are many.
        durations_s: expected seconds at each.
        prices: where what it wants changes, ascending.
        wanted: index of the option that it wants from each of `prices` on, after the one that it wants at price 0.
    """

    __slots__ = ("durations_s", "prices", "units", "wanted")

    def __init__(self, candidate: Candidate) -> None:
        units, durations_s = candidate.units, candidate.durations_s
        if len(units) > _MOST_OPTIONS:
            kept = _spread(units)
            units, durations_s = tuple(units[i] for i in kept), tuple(durations_s[i] for i in kept)
        self.units = units
        self.durations_s = durations_s
        self.prices, self.wanted = _envelope(units, durations_s)

    def at(self, price: float) -> int:
        """Index of the option that it wants at this price."""
        return self.wanted[bisect_right(self.prices, price)]

    def affordable(self, price: float, supply: Supply, idle: float) -> int:
        """Index of the option that it starts with though what it wants is not free; -1 less that for which it waits.

        Args:
            price: of a unit-second.
            supply: units; at least its least are free.
            idle: as in `Pricing`.
        """
        now_s, free, ends, at = supply
        units, durations_s = self.units, self.durations_s
        fit = bisect_right(units, free)
        best, best_cost = 0, NEVER
        for option in range(fit):
            cost = durations_s[option] * (1 + price * units[option])
            if cost < best_cost:
                best, best_cost = option, cost
        if idle == NEVER:
            return best
        coming, wait_s, rate = free, 0.0, 1 + idle * price * free
        for option in range(fit, len(units)):
            wanted = units[option]
            while coming < wanted:
                if at == len(ends) or wait_s * rate >= best_cost:
                    return best
                end_s, back = ends[at]
                wait_s = max(wait_s, end_s - now_s)
                coming += back
                at += 1
            if wait_s * rate + durations_s[option] * (1 + price * wanted) < best_cost:
                return -1 - option
        return best


class Curves:
    """The curves of candidates, worked out once for each that differs."""

    def __init__(self) -> None:
        self._curves: dict[Candidate, Curve] = {}

    def of(self, candidate: Candidate) -> Curve:
        """Return the curve of a candidate."""
        curve = self._curves.get(candidate)
        if curve is None:
            if len(self._curves) >= _MOST_REMEMBERED:
                self._curves.clear()
            curve = self._curves[candidate] = Curve(candidate)
        return curve


def _spread(units: Sequence[int]) -> list[int]:
    """Indices of options that are far enough apart, the least and the most among them."""
    ratio = (units[-1] / units[0]) ** (1 / _MOST_OPTIONS)
    kept = [0]
    while kept[-1] < len(units) - 1:
        kept.append(min(len(units) - 1, max(kept[-1] + 1, bisect_left(units, units[kept[-1]] * ratio))))
    return kept


def _envelope(units: Sequence[int], durations_s: Sequence[float]) -> tuple[list[float], list[int]]:
    """Lower envelope of the lines duration + price · (units · duration), from price 0 up."""
    work = [u * d for u, d in zip(units, durations_s, strict=True)]
    order = sorted(range(len(work)), key=lambda i: (durations_s[i], work[i]))
    wanted = [order[0]]
    prices: list[float] = []
    for option in order[1:]:
        if work[option] >= work[wanted[-1]]:
            continue  # slower and no cheaper
        while True:
            last = wanted[-1]
            price = (durations_s[option] - durations_s[last]) / (work[last] - work[option])
            if not prices or price > prices[-1]:
                break
            prices.pop()
            wanted.pop()
        prices.append(price)
        wanted.append(option)
    return prices, wanted
