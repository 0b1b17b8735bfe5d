"""Run the cases in trainers of their own, bounded, and see what is left when these have ended; blocks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from arl_tangram.bench.faults.cases import Case, batches
from arl_tangram.bench.faults.trainer import Row
from arl_tangram.bench.faults.watch import Ending, TrainerProcess
from arl_tangram.bench.faults.where import Where

RUINED_AT_ONCE = 4
"""Trainers that only wait for their end: nothing is timed in them."""


@dataclass(frozen=True, slots=True)
class Results:
    """What came of all cases.

    Attributes:
        rows: one for each case, in their order.
        endings: one for each trainer.
        enforced: what enforces grants here.
        unswept: folders, cgroups and containers that were there after the last start.
        in_containers: whether sandboxes were Docker containers.
    """

    rows: tuple[Row, ...]
    endings: tuple[Ending, ...]
    enforced: str
    unswept: int
    in_containers: bool = False

    @property
    def limits_memory(self) -> bool:
        """Whether sandboxes have no more memory than was granted."""
        return self.in_containers or "memory limited" in self.enforced


def run_cases(
    cases: Sequence[Case], tell: Callable[[str], None], *, image: str | None = None, url: str | None = None
) -> Results:
    """Try cases.

    Args:
        cases: which.
        tell: hears the name of each one that begins, on some thread.
        image: of the containers that sandboxes are; None for folders of this machine.
        url: where the Docker daemon listens; None asks the environment.

    Raises:
        RuntimeError: a trainer does not start.
    """
    timed = [batch for batch in batches(cases) if not batch[0].is_ruin]
    ruined = [batch for batch in batches(cases) if batch[0].is_ruin]
    with tempfile.TemporaryDirectory(prefix="arl_tangram-") as folder, ThreadPoolExecutor(RUINED_AT_ONCE) as pool:
        where = Where(Path(folder, "sandboxes"), image, url)
        done = [_run_batch(where, tell, batch) for batch in timed]
        done += pool.map(partial(_run_batch, where, tell), ruined)
        last = TrainerProcess(where, (), tell)  # the next start, which removes what is left
        enforced = last.wait_open()
        last.end()
        rows = {row.name: row for some, _ in done for row in some}
        endings = tuple(ending for _, some in done for ending in some)
        unswept = sum(where.behind(pid) for pid in [last.pid, *(ending.pid for ending in endings)])
    return Results(tuple(rows[case.name] for case in cases), endings, enforced, unswept, image is not None)


def _run_batch(where: Where, tell: Callable[[str], None], batch: Sequence[Case]) -> tuple[list[Row], list[Ending]]:
    """Try the cases of one trainer, with another one for the rest if it does not survive one of them."""
    rows: list[Row] = []
    endings: list[Ending] = []
    while len(rows) < len(batch):
        trainer = TrainerProcess(where, batch[len(rows) :], tell)
        try:
            trainer.wait_open()
            rows += trainer.rows()
        finally:
            endings.append(trainer.end())
    return rows, endings
