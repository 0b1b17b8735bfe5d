"""What recorded trajectories take under each contender of `bench replay`, and what is promised about that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arl_tangram.bench.gates import Gate
from arl_tangram.model.sharing import Sharing
from arl_tangram.replay.variants import SWITCH_S
from arl_tangram.scheduling.policies import elastic, least_attained, reserved, size_aware
from arl_tangram.simulate.calls import Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.results import Result
from arl_tangram.simulate.workloads import pool

CORES = (8, 16, 32, 64)

RESERVED = "reserved(1)"
IN_ORDER = "elastic"
FREE = "least_attained, free"
SIZE_AWARE = "size_aware"
MOST_OF_FREE = 1.05


@dataclass(frozen=True, slots=True)
class Row:
    """One contender on so many cores; seconds.

    Attributes:
        cores: of the pool.
        contender: who.
        act_s: mean action completion time; the wait of a trajectory for its reservation counts for its first call.
        act_p50_s: the median of these.
        act_p99_s: the one that one call in a hundred exceeds.
        span_s: mean time of a trajectory from the wish to begin to its end.
        step_s: until the last trajectory has ended.
        switches: how often cores of a running call were changed, per call.
    """

    cores: int
    contender: str
    act_s: float
    act_p50_s: float
    act_p99_s: float
    span_s: float
    step_s: float
    switches: float


CONTENDERS: Mapping[str, Callable[[Workload, int], Result]] = {
    RESERVED: lambda workload, cores: simulate(workload, pool(cores), reserved(1)),
    IN_ORDER: lambda workload, cores: simulate(workload, pool(cores), elastic()),
    FREE: lambda workload, cores: simulate(workload, pool(cores), elastic(), sharing=Sharing(least_attained())),
    SIZE_AWARE: lambda workload, cores: simulate(
        workload, pool(cores), elastic(), sharing=Sharing(size_aware(), SWITCH_S)
    ),
}


def measure(workload: Workload, sizes: Iterable[int], tell: Callable[[int, str], None]) -> list[Row]:
    """Return a row for each size of the pool and contender; `tell` is called before each."""
    rows: list[Row] = []
    for cores in sizes:
        for contender, run in CONTENDERS.items():
            tell(cores, contender)
            rows.append(row_of(cores, contender, run(workload, cores)))
    return rows


def row_of(cores: int, contender: str, result: Result) -> Row:
    """Return the figures of a run."""
    acts_s = acts_with_reservations(result)
    p50_s, p99_s = np.quantile(acts_s, (0.5, 0.99))
    return Row(
        cores,
        contender,
        float(np.mean(acts_s)),
        float(p50_s),
        float(p99_s),
        float(np.mean([rollout.span_s for rollout in result.rollouts])),
        result.step_s,
        sum(call.switches for call in result.calls) / len(result.calls),
    )


def acts_with_reservations(result: Result) -> list[float]:
    """Return the completion times of all calls; the first of each rollout waits for its admission, too."""
    admitted: set[int] = set()
    acts_s: list[float] = []
    for call in result.calls:
        act_s = call.act_s
        if call.rollout is not None and call.rollout not in admitted:
            admitted.add(call.rollout)
            act_s += result.rollouts[call.rollout].waited_s
        acts_s.append(act_s)
    return acts_s


def gates(rows: Sequence[Row]) -> list[Gate]:
    """Return the promises about the policy that runs with `share="resize"`."""
    by_place = {(row.cores, row.contender): row for row in rows}
    pairs = [(row, by_place[row.cores, FREE]) for row in rows if row.contender == SIZE_AWARE]
    return [
        _gate("mean ACT", [(own.act_s / free.act_s, own.cores) for own, free in pairs]),
        _gate("step", [(own.step_s / free.step_s, own.cores) for own, free in pairs]),
    ]


def _gate(figure: str, ratios: Sequence[tuple[float, int]]) -> Gate:
    value, cores = max(ratios)
    return Gate(
        f"{figure} of {SIZE_AWARE} at most {MOST_OF_FREE:g} times that of least attained service without switch costs",
        MOST_OF_FREE,
        value,
        f"{cores} cores",
    )
