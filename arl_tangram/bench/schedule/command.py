"""The command `bench schedule`: policies over a grid of workloads in virtual time; options, running, judging.

With `--resize` the contenders are those that change the cores of running calls, and those that do not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from arl_tangram.bench import show
from arl_tangram.bench.gates import Gate
from arl_tangram.bench.schedule import resize_show
from arl_tangram.bench.schedule import show as schedule_show
from arl_tangram.bench.schedule.grid import Outcome, Table, Task, grid, run_task
from arl_tangram.bench.schedule.ratios import KnownRow, LearnedRow, known_gates, known_rows, learned_gates, learned_rows
from arl_tangram.bench.schedule.resize_ratios import ResizeRow, resize_gates, resize_rows
from arl_tangram.bench.schedule.resize_runs import ResizeOutcome, run_resize_task
from arl_tangram.side_by_side import side_by_side

SEEDS = (6, 7, 8, 9, 10)
"""Those on which results are published; the policies were tuned on 1 to 5."""

MOST_WORKERS = 2

_O = TypeVar("_O", Outcome, ResizeOutcome)


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        seeds: of the workloads.
        tables: which are run.
        quick: two small points, which judge nothing.
        workers: processes that run at once; 1 runs all in this one.
        resize: whether the contenders are those that change the cores of running calls.
        json: file for all figures, or None.
    """

    seeds: tuple[int, ...] = SEEDS
    tables: tuple[Table, ...] = tuple(Table)
    quick: bool = False
    workers: int = 1
    resize: bool = False
    json: Path | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), metavar="N", help="default: 6 to 10")
    parser.add_argument("--table", choices=list(Table), help="only the one with durations known, or learned")
    parser.add_argument("--quick", action="store_true", help="two small points, which judge nothing")
    parser.add_argument(
        "--resize",
        action="store_true",
        help="compare policies that change the cores of running calls, and those that do not",
    )
    parser.add_argument("--workers", type=int, choices=range(1, MOST_WORKERS + 1), help="processes at once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def read(found: argparse.Namespace) -> Options:
    """Return the options that were given."""
    return Options(
        seeds=tuple(found.seeds),
        tables=tuple(Table) if found.table is None else (Table(found.table),),
        quick=found.quick,
        workers=found.workers or min(MOST_WORKERS, len(os.sched_getaffinity(0))),
        resize=found.resize,
        json=found.json,
    )


def run(options: Options) -> int:
    """Run the grid, print the tables and the promises, and return the exit code."""
    points = grid(quick=options.quick)
    tasks = [Task(t, point, seed, options.quick) for t in options.tables for point in points for seed in options.seeds]
    record, judged = (_resized if options.resize else _compared)(options, tasks)
    print(show.gate_lines(judged) if judged else "A quick run is too short to judge by: no promises.\n", end="")
    if options.json is not None:
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if any(gate.passed is False for gate in judged) else 0


def _compared(options: Options, tasks: Sequence[Task]) -> tuple[dict[str, object], list[Gate]]:
    """Run the policies that leave running calls as they are; print the tables, return all figures and the promises."""
    print(schedule_show.introduction(options.seeds), flush=True)
    outcomes = _told(tasks, options.workers, run_task)
    known, learned = known_rows(outcomes), learned_rows(outcomes)
    judged: list[Gate] = []
    if known:
        print(schedule_show.known_table(known))
        judged += known_gates(known)
    if learned:
        print(schedule_show.learned_table(learned))
        judged += learned_gates(learned)
    if options.quick:
        judged = []
    return summary(options, outcomes, known, learned, judged), judged


def _resized(options: Options, tasks: Sequence[Task]) -> tuple[dict[str, object], list[Gate]]:
    """The same with the policies that change the cores of running calls."""
    print(resize_show.introduction(options.seeds), flush=True)
    outcomes = _told(tasks, options.workers, run_resize_task)
    known, learned = (resize_rows(outcomes, table) for table in (Table.KNOWN, Table.LEARNED))
    for rows in (known, learned):
        if rows:
            print(resize_show.resize_table(rows))
    judged = [] if options.quick else resize_gates(known, learned)
    return summary(options, outcomes, known, learned, judged), judged


def summary(
    options: Options,
    outcomes: Sequence[Outcome] | Sequence[ResizeOutcome],
    known: Sequence[KnownRow] | Sequence[ResizeRow],
    learned: Sequence[LearnedRow] | Sequence[ResizeRow],
    judged: Sequence[Gate],
) -> dict[str, object]:
    """Return everything that was run and decided, for a file."""
    return {
        "seeds": options.seeds,
        "quick": options.quick,
        "runs": [asdict(outcome) for outcome in outcomes],
        "known": [asdict(row) for row in known],
        "learned": [asdict(row) for row in learned],
        "gates": [asdict(gate) | {"passed": gate.passed} for gate in judged],
    }


def _told(tasks: Sequence[Task], workers: int, run_one: Callable[[Task], _O]) -> list[_O]:
    """Run the tasks, say how far it is, and return their outcomes in the order of the tasks."""
    began_s = time.monotonic()
    found: dict[Task, _O] = {}
    step = max(1, len(tasks) // 20)
    for outcome in side_by_side(tasks, workers, run_one):
        found[outcome.task] = outcome
        if len(found) % step == 0 or len(found) == len(tasks):
            print(
                f"{len(found)} of {len(tasks)} tasks, {time.monotonic() - began_s:.0f} s", file=sys.stderr, flush=True
            )
    return [found[task] for task in tasks]
