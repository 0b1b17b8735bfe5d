"""The workloads on which `bench schedule` compares policies, and what each of them is run with.

The grid is that of loads and bursts, of how many calls are elastic and of how well they scale. A `Task` is all
runs of one point and seed: every contender sees the same calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from arl_tangram.scheduling.policies import Policy, fixed, paper
from arl_tangram.scheduling.policies.elastic import elastic
from arl_tangram.simulate.calls import Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.results import Result, SimulatedCall
from arl_tangram.simulate.workloads import Kinds, Mix, kinds_of_calls, open_calls, pool

CORES = 64
LOADS = (0.3, 0.6, 0.9, 1.1, 1.3)
BURSTS = (16, 64, 256, 1024)
BURST_LOAD = 0.5
"""What bursts amount to in the long run: each meets a pool that is idle, or busy with the one before."""

ELASTIC_SHARES = (0.3, 1.0)
EXPONENTS = ((0.5, 0.9), (0.9, 1.0))
DOPS = (1, 2, 4, 8, 16)

PAPER = "paper"
ELASTIC = "elastic"
FIXED = tuple(f"fixed({dop})" for dop in DOPS)

INFORMED = "informed"
LEARNED = "learned"
DECLARED = "declared"
WRONG = "wrong priors"
KINDS = 8
LEARNED_AFTER = 200
WRONG_BY = 3.0
"""A prior is the true mean times this or divided by it."""

UNDECLARED = Kinds(KINDS)


class Table(StrEnum):
    """What the scheduler knows."""

    KNOWN = "known"
    LEARNED = "learned"


@dataclass(frozen=True, slots=True)
class Point:
    """One place of the grid.

    Attributes:
        elastic: share of calls, or of kinds of calls, that are elastic.
        exponents: range of the exponent of their speed-up.
        load: work that arrives per second and core.
        burst: calls that arrive at once.
    """

    elastic: float
    exponents: tuple[float, float]
    load: float
    burst: int = 1

    @property
    def arrivals(self) -> str:
        """How the calls arrive, in words."""
        return f"load {self.load:g}" if self.burst == 1 else f"burst {self.burst:,}"

    @property
    def name(self) -> str:
        """All of it, in words."""
        least, most = self.exponents
        return f"{self.arrivals}, elastic {self.elastic:g}, exponents {least:g}-{most:g}"


@dataclass(frozen=True, slots=True)
class Task:
    """All runs of one point and seed in one table; `quick` makes them small."""

    table: Table
    point: Point
    seed: int
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the contenders of a task took.

    Attributes:
        task: the task.
        act_s: mean action completion time by contender.
        later_s: the same over the calls before which 200 of the same action were made; only of what is learned.
    """

    task: Task
    act_s: Mapping[str, float]
    later_s: Mapping[str, float]


def grid(*, quick: bool = False) -> list[Point]:
    """Return the points in the order of the tables; two of them for a quick run."""
    if quick:
        return [Point(1.0, (0.9, 1.0), 0.6), Point(0.3, (0.5, 0.9), BURST_LOAD, 16)]
    arrivals = [(load, 1) for load in LOADS] + [(BURST_LOAD, burst) for burst in BURSTS]
    return [
        Point(share, exponents, load, burst)
        for share in ELASTIC_SHARES
        for exponents in EXPONENTS
        for load, burst in arrivals
    ]


def contenders() -> dict[str, Policy]:
    """Return the policies that are compared while the durations are known, by name."""
    found: dict[str, Policy] = {name: fixed(dop) for name, dop in zip(FIXED, DOPS, strict=True)}
    return found | {PAPER: paper(best_prefix=True), ELASTIC: elastic()}


def run_task(task: Task) -> Outcome:
    """Run all contenders of a task."""
    if task.table is Table.KNOWN:
        return Outcome(task, known_acts(task, contenders()), {})
    results = _learning(task)
    after = LEARNED_AFTER if not task.quick else 10
    return Outcome(
        task,
        {name: result.mean_act_s for name, result in results.items()},
        {name: _mean_act_s(result.after(after)) for name, result in results.items()},
    )


def known_acts(task: Task, policies: Mapping[str, Policy]) -> dict[str, float]:
    """Return the mean action completion time under each policy, with the durations known."""
    workload = workload_of(task)
    return {name: simulate(workload, pool(CORES), policy, known=True).mean_act_s for name, policy in policies.items()}


def workload_of(task: Task, kinds: Kinds = UNDECLARED) -> Workload:
    """Return the calls of a task; of what is learned, `kinds` says what is declared."""
    point = task.point
    if task.table is Table.KNOWN:
        return open_calls(_mix(task, 2_000 if point.burst == 1 else max(512, 2 * point.burst)), task.seed)
    mix = _mix(task, max(2 * KINDS * LEARNED_AFTER, 4 * point.burst))
    return kinds_of_calls(mix, kinds, task.seed)


def _learning(task: Task) -> dict[str, Result]:
    declared = {
        INFORMED: UNDECLARED,
        LEARNED: UNDECLARED,
        WRONG: Kinds(KINDS, prior=WRONG_BY),
        DECLARED: Kinds(KINDS, prior=1.0, speedups=True),
    }
    return {
        name: simulate(workload_of(task, kinds), pool(CORES), elastic(), known=name == INFORMED)
        for name, kinds in declared.items()
    }


def _mix(task: Task, actions: int) -> Mix:
    point = task.point
    actions = 320 if task.quick else actions
    return Mix(actions, point.load, point.burst, point.elastic, point.exponents, CORES)


def _mean_act_s(calls: Iterable[SimulatedCall]) -> float:
    return float(np.mean([call.act_s for call in calls]))
