"""Run the cases in trainers of their own, bounded, and see what is left when these have ended; blocks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from arl_tangram.bench.faults_cases import Case, batches
from arl_tangram.bench.faults_left import behind
from arl_tangram.bench.faults_trainer import Row
from arl_tangram.bench.faults_watch import Ending, TrainerProcess

RUINED_AT_ONCE = 4
"""Trainers that only wait for their end: nothing is timed in them."""


@dataclass(frozen=True, slots=True)
class Results:
    """What came of all cases.

    Attributes:
        rows: one for each case, in their order.
        endings: one for each trainer.
        enforced: what enforces grants here.
        unswept: folders and cgroups that were there after the last start.
    """

    rows: tuple[Row, ...]
    endings: tuple[Ending, ...]
    enforced: str
    unswept: int


def run_cases(cases: Sequence[Case], tell: Callable[[str], None]) -> Results:
    """Try cases; `tell` hears the name of each one that begins, on some thread.

    Raises:
        RuntimeError: a trainer does not start.
    """
    timed = [batch for batch in batches(cases) if not batch[0].is_ruin]
    ruined = [batch for batch in batches(cases) if batch[0].is_ruin]
    with tempfile.TemporaryDirectory(prefix="arl_tangram-") as folder, ThreadPoolExecutor(RUINED_AT_ONCE) as pool:
        root = Path(folder, "sandboxes")
        done = [_run_batch(root, tell, batch) for batch in timed]
        done += pool.map(partial(_run_batch, root, tell), ruined)
        last = TrainerProcess(root, (), tell)  # the next start, which removes what is left
        enforced = last.wait_open()
        last.end()
        rows = {row.name: row for some, _ in done for row in some}
        endings = tuple(ending for _, some in done for ending in some)
        unswept = sum(len(behind(root, pid)) for pid in [last.pid, *(ending.pid for ending in endings)])
    return Results(tuple(rows[case.name] for case in cases), endings, enforced, unswept)


def _run_batch(root: Path, tell: Callable[[str], None], batch: Sequence[Case]) -> tuple[list[Row], list[Ending]]:
    """Try the cases of one trainer, with another one for the rest if it does not survive one of them."""
    rows: list[Row] = []
    endings: list[Ending] = []
    while len(rows) < len(batch):
        trainer = TrainerProcess(root, batch[len(rows) :], tell)
        try:
            trainer.wait_open()
            rows += trainer.rows()
        finally:
            endings.append(trainer.end())
    return rows, endings
