"""The command `bench orders`: who comes first, on rollouts that think between their calls, in virtual time.

Two kinds of training: synchronous, where all trajectories start together and the step ends with the last of them, and
asynchronous, where they come one after the other and each should be done soon. Cores are scarce in both: the rollouts
would keep more busy than there are.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np

from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies.elastic import elastic
from arl_tangram.simulate.calls import Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.results import Result
from arl_tangram.simulate.workloads import Coding, coding_rollouts, pool

SEEDS = (6, 7, 8, 9, 10)
CORES = (8, 16)
ASYNCHRONOUS_LOAD = 0.9
"""Work of all calls per core and second while trajectories arrive."""


@dataclass(frozen=True, slots=True)
class Row:
    """One order on one workload: means over the seeds, in seconds.

    Attributes:
        training: `synchronous` or `asynchronous`.
        cores: of the pool.
        order: who comes first.
        act_s: mean action completion time.
        act_p99_s: the completion time that one action in a hundred exceeds.
        span_s: mean time of a trajectory from its start to its end.
        step_s: from the beginning to the end of the last trajectory.
    """

    training: str
    cores: int
    order: str
    act_s: float
    act_p99_s: float
    span_s: float
    step_s: float


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), metavar="N", help="default: 6 to 10")
    parser.add_argument("--rollouts", type=int, default=64, metavar="N", help="trajectories of a run; default: 64")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def run(found: argparse.Namespace) -> int:
    """Run all orders, print the table and return the exit code."""
    print(
        "Rollouts of a coding agent that thinks between its commands and ends with a test suite, in virtual time;\n"
        f"policy elastic, nothing known beforehand; means over the seeds {', '.join(map(str, found.seeds))}.\n"
    )
    rows = measure(found.seeds, found.rollouts)
    print(_table(rows))
    if found.json is not None:
        found.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return 0


def measure(seeds: Sequence[int], rollouts: int) -> list[Row]:
    """Return a row for each kind of training, number of cores and order."""
    rows: list[Row] = []
    for training in ("synchronous", "asynchronous"):
        for cores in CORES:
            workloads = [_workload(training, cores, rollouts, seed) for seed in seeds]
            for order in get_args(Order):
                results = [simulate(workload, pool(cores), elastic(), order=order) for workload in workloads]
                rows.append(_row(training, cores, order, results))
    return rows


def _workload(training: str, cores: int, rollouts: int, seed: int) -> Workload:
    coding = Coding(rollouts=rollouts)
    together = coding_rollouts(coding, seed)
    if training == "synchronous":
        return together
    work_s = sum(call.work_s for rollout in together.rollouts for turn in rollout.turns for call in turn.calls)
    return coding_rollouts(replace(coding, every_s=work_s / rollouts / cores / ASYNCHRONOUS_LOAD), seed)


def _row(training: str, cores: int, order: str, results: Sequence[Result]) -> Row:
    return Row(
        training,
        cores,
        order,
        _mean(result.mean_act_s for result in results),
        _mean(result.p99_act_s for result in results),
        _mean(rollout.span_s for result in results for rollout in result.rollouts),
        _mean(result.step_s for result in results),
    )


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _table(rows: Sequence[Row]) -> str:
    heads = ("ACT", "p99", "trajectory", "step")
    lines = [f"{'training':<14}{'cores':>6}  {'order':<12}" + "".join(f"{head:>20}" for head in heads)]
    for row in rows:
        first = next(r for r in rows if (r.training, r.cores, r.order) == (row.training, row.cores, "fcfs"))
        pairs = zip(_figures(row), _figures(first), strict=True)
        cells = "".join(f"{f'{own:,.1f} s {own / base:7.3f}x':>20}" for own, base in pairs)
        lines.append(f"{row.training:<14}{row.cores:>6}  {row.order:<12}{cells}")
    return "\n".join(lines) + "\n"


def _figures(row: Row) -> tuple[float, float, float, float]:
    return row.act_s, row.act_p99_s, row.span_s, row.step_s
