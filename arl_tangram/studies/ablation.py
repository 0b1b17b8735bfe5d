"""Elastic beside a fixed number of cores for each action that can use several, at each step of a training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arl_tangram.simulate.workloads import Coding, Testbed
from arl_tangram.studies.contenders import OURS
from arl_tangram.studies.rows import Row, Unit, told_s
from arl_tangram.studies.tasks import Outcomes, Task
from arl_tangram.studies.training import Training

THROUGHOUT = "better throughout"
"""What was published about all steps."""


@dataclass(frozen=True, slots=True)
class AblationSection:
    """How large it is.

    Attributes:
        workload: the parameters of each batch.
        machines: what it is served on.
        steps: of each training.
        dops: the fixed numbers of cores, one after the other.
        seeds: of the trainings.
    """

    workload: Coding
    machines: Testbed
    steps: int
    dops: tuple[int, ...]
    seeds: tuple[int, ...]

    def tasks(self) -> Sequence[Task]:
        """Return each training with each contender."""
        return [training for name in self._names for training in self._trainings(name)]

    def further(self, outcomes: Outcomes) -> Sequence[Task]:
        """Return nothing."""
        return []

    def rows(self, outcomes: Outcomes) -> Sequence[Row]:
        """Return a row for each fixed number: the ratio at each step of each training."""
        ours = self._acts_s(outcomes, OURS)
        rows: list[Row] = []
        for dop in self.dops:
            name = _fixed(dop)
            theirs = self._acts_s(outcomes, name)
            ratios = tuple([a / b for a, b in zip(theirs, ours, strict=True)])
            better = sum(ratio > 1 for ratio in ratios)
            rows.append(
                Row(
                    f"ACT vs {name}, each of {self.steps} steps",
                    THROUGHOUT,
                    Unit.TIMES,
                    ratios,
                    f"better at {better} of {len(ratios)} steps: {name} {told_s(theirs)}, elastic {told_s(ours)}",
                    outcomes.took_s([*self._trainings(OURS), *self._trainings(name)]),
                )
            )
        return rows

    @property
    def _names(self) -> list[str]:
        return [OURS, *map(_fixed, self.dops)]

    def _trainings(self, name: str) -> list[Training]:
        return [Training(self.workload, self.steps, seed, name, self.machines) for seed in self.seeds]

    def _acts_s(self, outcomes: Outcomes, name: str) -> list[float]:
        return [act_s for training in self._trainings(name) for act_s in outcomes.steps(training).act_s]


def _fixed(dop: int) -> str:
    return f"fixed({dop})"
