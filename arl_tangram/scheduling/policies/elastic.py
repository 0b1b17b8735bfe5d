"""The default: each action takes what it is worth at the price of a core-second, which is learned by looking ahead.

At a price each action takes the units that its own speed-up justifies, or waits a moment for them (`pricing`).
How the price follows from those who wait and those who run depends on the load, on bursts and on how well actions
scale, which nobody declares. So a handful of pricings are rolled forward, each through the same queue and the same
likely future (`rollout`), and what each costs relative to the best is averaged over time: the one with the
least regret sets the price.

Looking ahead costs milliseconds, so it is done when many more wait than before, all pricings at once if that is
short, and otherwise every few dozen calls, one pricing a call. A call in between costs microseconds, and looks at what
runs only if that can change what it answers. Nobody waits deliberately for longer than what ran at the beginning of the
wait was expected to run.

Sources: ARL-Tangram (arXiv 2603.13019) for candidates in order, units at the start and deferral; `pricing` and
`rollout` name theirs; averaging the regret of all alternatives is "follow the leader" with full information and
forgetting (Cesa-Bianchi and Lugosi 2006). The set of pricings is this project's own, found on simulated workloads.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from dataclasses import dataclass
from math import isfinite

from arl_tangram.scheduling.policy import Group, Plan
from arl_tangram.scheduling.pricing import NEVER, Curves, Pricing, Supply
from arl_tangram.scheduling.rollout import Outcome, Outlook, outlook

_PRICINGS = (
    Pricing(waiting=1, running=0, idle=2),
    Pricing(waiting=4, running=0, idle=2),
    Pricing(waiting=4, running=1, idle=2),
    Pricing(waiting=16, running=1, idle=2),
    Pricing(waiting=32, running=1, idle=NEVER),
)
_FIRST = 2
_EVERY_CALLS = 64
_EVERY_ARRIVALS = 32
_SURGE = 8
_MOST_AT_ONCE = 1200
_FORGETTING = 0.2
_RATE_OVER = 1024


@dataclass(frozen=True, slots=True)
class Elastic:
    """Everybody takes what they are worth; see `elastic`."""

    @property
    def name(self) -> str:
        """How reports call it."""
        return "elastic"

    @property
    def reserved_cores(self) -> int:
        """Nothing is reserved."""
        return 0

    def planner(self) -> Plan:
        """Return what plans one dimension, and learns its price."""
        return _Planner().plan


class _Planner:
    """Plans one dimension."""

    def __init__(self) -> None:
        self._curves = Curves()
        self._prices = _Prices(self._curves)
        self._patient_until_s: float | None = None

    def plan(self, group: Group) -> list[int]:
        """Return the units for the candidates that start; none if the first waits for units that are coming."""
        candidates, now_s, free, capacity = group.candidates, group.now_s, group.free, max(1, group.capacity)
        behind = len(candidates) + group.backlog
        pricing = self._prices.look(group, behind)
        per_waiting, per_running = pricing.waiting / capacity, pricing.running / capacity
        patient = self._patient_until_s is None or now_s <= self._patient_until_s
        ends: list[tuple[float, int]] | None = None
        plan: list[int] = []
        started: list[tuple[float, int]] = []
        for candidate in candidates:
            curve = self._curves.of(candidate)
            if curve.units[0] > free:
                break
            behind -= 1
            price = per_waiting * behind
            option = curve.at(price)
            if curve.units[option] > free or (per_running and option != curve.wanted[-1]):
                if ends is None:  # what runs can change the answer
                    ends = sorted((*group.running, *started))
                price += per_running * len(ends)
                option = curve.at(price)
                if curve.units[option] > free:
                    idle = pricing.idle if plan or patient else NEVER
                    option = curve.affordable(price, Supply(now_s, free, ends), idle)
                if option < 0:
                    break
            units = curve.units[option]
            plan.append(units)
            free -= units
            if ends is None:
                started.append((now_s + curve.durations_s[option], units))
            else:
                insort(ends, (now_s + curve.durations_s[option], units))
        self._note_wait(plan, ends)
        return plan

    def _note_wait(self, plan: list[int], ends: list[tuple[float, int]] | None) -> None:
        """Bound the wait of the first: until what runs as it begins to wait should have ended."""
        if plan:
            self._patient_until_s = None
        elif self._patient_until_s is None and ends:
            self._patient_until_s = ends[-1][0]


class _Prices:
    """Learns which pricing serves one dimension best."""

    def __init__(self, curves: Curves) -> None:
        self._curves = curves
        self._regrets = [0.0] * len(_PRICINGS)
        self._best = _FIRST
        self._calls = _EVERY_CALLS
        self._present = 0
        self._arrived = 0
        self._outlook: Outlook | None = None
        self._outcomes: list[Outcome] = []
        self._marks: deque[tuple[float, int]] = deque()

    def look(self, group: Group, present: int) -> Pricing:
        """Return the pricing of now.

        Args:
            group: read closely only if the prices are due for a review.
            present: how many wait, candidates and others.
        """
        self._calls += 1
        if present > 2 * self._present + _SURGE:
            expected = self._begin(group, present)
            while self._outlook is not None and expected.options <= _MOST_AT_ONCE:
                self._try_next(expected)
        elif self._outlook is not None:
            self._try_next(self._outlook)
        elif self._calls > _EVERY_CALLS or group.arrived - self._arrived >= _EVERY_ARRIVALS:
            self._begin(group, present)
        return _PRICINGS[self._best]

    def _begin(self, group: Group, present: int) -> Outlook:
        self._calls, self._present, self._arrived = 0, present, group.arrived
        self._outcomes = []
        self._outlook = outlook(group, self._curves, self._rate(group))
        return self._outlook

    def _rate(self, group: Group) -> float:
        """Arrivals per second over about the last thousand of them; 0 if all came at once."""
        if not self._marks and group.arrivals:
            self._marks.append((group.arrivals[0][0], group.arrived - len(group.arrivals)))
        self._marks.append((group.now_s, group.arrived))
        while len(self._marks) > 2 and group.arrived - self._marks[1][1] >= _RATE_OVER:
            self._marks.popleft()
        since_s, before = self._marks[0]
        return (group.arrived - before) / (group.now_s - since_s) if group.now_s > since_s else 0.0

    def _try_next(self, expected: Outlook) -> None:
        self._outcomes.append(expected.roll(_PRICINGS[len(self._outcomes)]))
        if len(self._outcomes) == len(_PRICINGS):
            self._settle(expected.costs_s(self._outcomes))
            self._outlook = None

    def _settle(self, costs_s: list[float]) -> None:
        least_s = min(costs_s)
        if not (least_s > 0 and isfinite(max(costs_s))):
            return
        for index, cost_s in enumerate(costs_s):
            self._regrets[index] += _FORGETTING * (cost_s / least_s - 1 - self._regrets[index])
        lowest = min(self._regrets)
        if lowest < self._regrets[self._best]:
            self._best = self._regrets.index(lowest)


def elastic() -> Elastic:
    """Return the default policy: nothing to declare, nothing to set."""
    return Elastic()
