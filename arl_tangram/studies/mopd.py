"""MOPD beside static services and loading on demand: action completion time, and GPUs for the same one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arl_tangram.simulate.workloads import Mopd, Testbed
from arl_tangram.studies.contenders import OURS, SERVERLESS, STATIC
from arl_tangram.studies.needs import WITHIN, Need, Of
from arl_tangram.studies.rows import Row, Unit, counts, saved, told_s
from arl_tangram.studies.runs import Run
from arl_tangram.studies.tasks import Outcomes, Task


@dataclass(frozen=True, slots=True)
class MopdSection:
    """How large it is.

    Attributes:
        workload: the parameters of the batch.
        machines: what it is served on.
        seeds: what is drawn with.
    """

    workload: Mopd
    machines: Testbed
    seeds: tuple[int, ...]

    def tasks(self) -> Sequence[Task]:
        """Return each contender on each seed."""
        return [run for name in (OURS, STATIC, SERVERLESS) for run in self._runs(name)]

    def further(self, outcomes: Outcomes) -> Sequence[Task]:
        """Return the searches for the fewest GPUs, whose targets are what static services took."""
        return [self._need(outcomes, run) for run in self._runs(STATIC)]

    def rows(self, outcomes: Outcomes) -> Sequence[Row]:
        """Return the ratios, and the GPUs."""
        return [
            self._against(
                outcomes, STATIC, f"mean ACT vs static services, MOPD, batch {self.workload.rollouts:,}", "18.1x"
            ),
            self._against(outcomes, SERVERLESS, "  ACT vs loading on demand", ""),
            *self._fewest(outcomes),
        ]

    def _runs(self, name: str) -> list[Run]:
        return [Run(self.workload, seed, name, self.machines) for seed in self.seeds]

    def _acts_s(self, outcomes: Outcomes, name: str) -> list[float]:
        return [outcomes.figures(run).act_s for run in self._runs(name)]

    def _against(self, outcomes: Outcomes, name: str, what: str, published: str) -> Row:
        theirs, ours = self._acts_s(outcomes, name), self._acts_s(outcomes, OURS)
        return Row(
            what,
            published,
            Unit.TIMES,
            tuple([a / b for a, b in zip(theirs, ours, strict=True)]),
            f"{name} {told_s(theirs)}, elastic {told_s(ours)}",
            outcomes.took_s([*self._runs(name), *self._runs(OURS)]),
        )

    def _need(self, outcomes: Outcomes, static: Run) -> Need:
        act_s = outcomes.figures(static).act_s
        return Need(Run(self.workload, static.seed, OURS, self.machines), Of.GPUS, (act_s, WITHIN * act_s))

    def _fewest(self, outcomes: Outcomes) -> list[Row]:
        there = self.machines.gpu_nodes * self.machines.gpus
        needs = [self._need(outcomes, run) for run in self._runs(STATIC)]
        found = [outcomes.needed(need).least for need in needs]
        took_s = outcomes.took_s(needs)
        rows: list[Row] = []
        for place, (words, indent) in enumerate(
            (("as with static services", ""), ("at most a tenth above that", "  "))
        ):
            gpus = [least[place] for least in found]
            detail = f"{counts(gpus)} of {there} GPUs"
            less = tuple([saved(count, there) for count in gpus])
            needed = tuple([100 - percent for percent in less])
            rows.append(
                Row(f"{indent}GPUs needed, ACT {words}", "" if indent else "29 %", Unit.PERCENT, needed, detail, took_s)
            )
            rows.append(
                Row(f"{indent}GPUs saved, ACT {words}", "" if indent else "71.2 %", Unit.PERCENT, less, detail, took_s)
            )
        return rows
