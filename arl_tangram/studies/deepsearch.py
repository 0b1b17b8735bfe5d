"""DeepSearch beside quotas that are split or reserved, and a static judge: step, and quotas for the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean

from arl_tangram.simulate.workloads import DeepSearch, Testbed
from arl_tangram.studies.contenders import OURS
from arl_tangram.studies.needs import WITHIN, Need, Of
from arl_tangram.studies.rows import Row, Unit, counts, saved, told_s
from arl_tangram.studies.runs import Figures, Run
from arl_tangram.studies.tasks import Outcomes, Task

_act_s: Callable[[Figures], float] = attrgetter("act_s")
_step_s: Callable[[Figures], float] = attrgetter("step_s")


@dataclass(frozen=True, slots=True)
class DeepSearchSection:
    """How large it is.

    Attributes:
        workload: the parameters of the batch.
        machines: what the judge is served on.
        others: the baselines, of which each figure is compared with the one that suits it best.
        seeds: what is drawn with.
    """

    workload: DeepSearch
    machines: Testbed
    others: tuple[str, ...]
    seeds: tuple[int, ...]

    def tasks(self) -> Sequence[Task]:
        """Return each contender on each seed."""
        return [run for name in (OURS, *self.others) for run in self._runs(name)]

    def further(self, outcomes: Outcomes) -> Sequence[Task]:
        """Return the searches for the least quotas, whose targets are what the best baseline took."""
        return self._needs(outcomes)

    def rows(self, outcomes: Outcomes) -> Sequence[Row]:
        """Return the ratios of the step and of the time, and what is saved of the quotas."""
        return [
            *self._against(outcomes, f"step, DeepSearch, batch {self.workload.rollouts:,}", "1.5x", _step_s),
            *self._against(outcomes, "mean ACT, DeepSearch", "", _act_s),
            *self._saved(outcomes),
        ]

    def best(self, outcomes: Outcomes, figure: Callable[[Figures], float]) -> str:
        """Return the baseline with the least of a figure, on the mean over the seeds."""
        return min(self.others, key=lambda name: fmean(self._figures(outcomes, name, figure)))

    def _runs(self, name: str) -> list[Run]:
        return [Run(self.workload, seed, name, self.machines) for seed in self.seeds]

    def _figures(self, outcomes: Outcomes, name: str, figure: Callable[[Figures], float]) -> list[float]:
        return [figure(outcomes.figures(run)) for run in self._runs(name)]

    def _against(self, outcomes: Outcomes, what: str, published: str, figure: Callable[[Figures], float]) -> list[Row]:
        """Return a row against the best baseline, and then one for each of the others."""
        best = self.best(outcomes, figure)
        ours = self._figures(outcomes, OURS, figure)
        rows: list[Row] = []
        for name in (best, *(other for other in self.others if other != best)):
            theirs = self._figures(outcomes, name, figure)
            rows.append(
                Row(
                    f"{what}, vs {name}" if name == best else f"  vs {name}",
                    published if name == best else "",
                    Unit.TIMES,
                    tuple([a / b for a, b in zip(theirs, ours, strict=True)]),
                    f"{name} {told_s(theirs)}, elastic {told_s(ours)}",
                    outcomes.took_s([*self._runs(name), *self._runs(OURS)]),
                )
            )
        return rows

    def _needs(self, outcomes: Outcomes) -> list[Need]:
        best = self.best(outcomes, _act_s)
        needs: list[Need] = []
        for run in self._runs(best):
            act_s = outcomes.figures(run).act_s
            ours = Run(self.workload, run.seed, OURS, self.machines)
            needs.append(Need(ours, Of.QUOTAS, (act_s, WITHIN * act_s)))
        return needs

    def _saved(self, outcomes: Outcomes) -> list[Row]:
        needs = self._needs(outcomes)
        found = [outcomes.needed(need).least for need in needs]
        took_s = outcomes.took_s(needs)
        names = f"quotas saved, ACT as under {self.best(outcomes, _act_s)}", "  ACT at most a tenth above that"
        rows: list[Row] = []
        for place, what in enumerate(names):
            hundredths = [least[place] for least in found]
            ours = tuple([saved(count, 100) for count in hundredths])
            detail = f"{counts(hundredths)} % of both quotas"
            rows.append(Row(what, "" if place else "71.2 %", Unit.PERCENT, ours, detail, took_s))
        return rows
