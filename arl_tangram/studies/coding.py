"""AI coding beside cores that are reserved for trajectories: action completion time, step, and cores that are saved.

The baseline gets whichever number of cores suits it best, on the mean over the seeds, for each figure anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean

from arl_tangram.simulate.workloads import Coding, Testbed
from arl_tangram.studies.contenders import OURS
from arl_tangram.studies.needs import WITHIN, Need, Of
from arl_tangram.studies.rows import Row, Unit, counts, saved, told_s
from arl_tangram.studies.runs import Figures, Run
from arl_tangram.studies.tasks import Outcomes, Task

PUBLISHED_OVER_BATCHES = {256: "3.1x", 1536: "27.7x"}
_act_s: Callable[[Figures], float] = attrgetter("act_s")
_step_s: Callable[[Figures], float] = attrgetter("step_s")


@dataclass(frozen=True, slots=True)
class CodingSection:
    """How large it is.

    Attributes:
        workload: the parameters of a batch of the published size.
        machines: what it is served on.
        batches: sizes of the curve, ascending; that of `workload` is one of them.
        cores: those that the baseline reserves for a trajectory, one of them after the other.
        seeds: what is drawn with.
    """

    workload: Coding
    machines: Testbed
    batches: tuple[int, ...]
    cores: tuple[int, ...]
    seeds: tuple[int, ...]

    def tasks(self) -> Sequence[Task]:
        """Return every contender on every batch and seed."""
        return [run for batch in self.batches for run in self._of_batch(batch)]

    def further(self, outcomes: Outcomes) -> Sequence[Task]:
        """Return the searches for the least cores, whose targets are what the baseline took."""
        return [self._need(outcomes, seed) for seed in self.seeds]

    def rows(self, outcomes: Outcomes) -> Sequence[Row]:
        """Return the ratio and its parts, the curve, the step, and what is saved."""
        return [
            *self._published_batch(outcomes),
            *[self._of_curve(outcomes, batch) for batch in self.batches],
            self._step(outcomes),
            *self._saved(outcomes),
        ]

    def best(self, outcomes: Outcomes, batch: int, figure: Callable[[Figures], float] = _act_s) -> int:
        """Return the cores for a trajectory with which a figure of the baseline is least, on the mean."""
        return min(self.cores, key=lambda k: fmean(self._figures(outcomes, batch, _reserved(k), figure)))

    def ratios(
        self, outcomes: Outcomes, batch: int, cores: int, figure: Callable[[Figures], float] = _act_s
    ) -> tuple[float, ...]:
        """Return how many times longer the baseline takes, for each seed."""
        theirs = self._figures(outcomes, batch, _reserved(cores), figure)
        ours = self._figures(outcomes, batch, OURS, figure)
        return tuple([a / b for a, b in zip(theirs, ours, strict=True)])

    def _run(self, batch: int, contender: str, seed: int) -> Run:
        return Run(replace(self.workload, rollouts=batch), seed, contender, self.machines)

    def _of_batch(self, batch: int) -> list[Run]:
        names = [OURS, *map(_reserved, self.cores)]
        return [self._run(batch, name, seed) for seed in self.seeds for name in names]

    def _figures(
        self, outcomes: Outcomes, batch: int, contender: str, figure: Callable[[Figures], float]
    ) -> list[float]:
        return [figure(outcomes.figures(self._run(batch, contender, seed))) for seed in self.seeds]

    def _against(self, outcomes: Outcomes, batch: int, cores: int, figure: Callable[[Figures], float] = _act_s) -> str:
        theirs, ours = (self._figures(outcomes, batch, name, figure) for name in (_reserved(cores), OURS))
        return f"reserved({cores}) {told_s(theirs)}, elastic {told_s(ours)}"

    def _published_batch(self, outcomes: Outcomes) -> list[Row]:
        batch = self.workload.rollouts
        best = self.best(outcomes, batch)
        took_s = outcomes.took_s(self._of_batch(batch))
        parts: list[tuple[str, str, Callable[[Figures], float]]] = [
            (f"mean ACT vs reserved(k), AI coding, batch {batch:,}", "4.3x", _act_s),
            ("  commands (environment)", "9.0x", attrgetter("environment_s")),
            ("  rewards", "2.8x", attrgetter("reward_s")),
        ]
        rows = [
            Row(
                what,
                published,
                Unit.TIMES,
                self.ratios(outcomes, batch, best, figure),
                f"k={best} suits it best: {self._against(outcomes, batch, best, figure)}",
                took_s,
            )
            for what, published, figure in parts
        ]
        rows += [
            Row(
                f"  ACT vs reserved({k})",
                "",
                Unit.TIMES,
                self.ratios(outcomes, batch, k),
                self._against(outcomes, batch, k),
                took_s,
            )
            for k in self.cores
            if k != best
        ]
        return rows

    def _of_curve(self, outcomes: Outcomes, batch: int) -> Row:
        best, most = self.best(outcomes, batch), max(self.cores)
        of_most = fmean(self.ratios(outcomes, batch, most))
        return Row(
            f"mean ACT vs reserved(k), batch {batch:,}",
            PUBLISHED_OVER_BATCHES.get(batch, ""),
            Unit.TIMES,
            self.ratios(outcomes, batch, best),
            f"k={best}: {self._against(outcomes, batch, best)}; k={most}: {of_most:.3g}x",
            outcomes.took_s(self._of_batch(batch)),
        )

    def _step(self, outcomes: Outcomes) -> Row:
        batch = self.workload.rollouts
        best = self.best(outcomes, batch, _step_s)
        return Row(
            f"step vs reserved(k), AI coding, batch {batch:,}",
            "1.4x",
            Unit.TIMES,
            self.ratios(outcomes, batch, best, _step_s),
            f"k={best}: {self._against(outcomes, batch, best, _step_s)}",
            outcomes.took_s(self._of_batch(batch)),
        )

    def _kept_whole(self) -> list[int]:
        """Return the cores for a trajectory with which nobody waits for a place: more machines would be of no use."""
        machines = self.machines
        return [k for k in self.cores if machines.nodes * (machines.cores // k) >= self.workload.rollouts]

    def _need(self, outcomes: Outcomes, seed: int) -> Need:
        batch = self.workload.rollouts

        def act_s(cores: int) -> float:
            return outcomes.figures(self._run(batch, _reserved(cores), seed)).act_s

        best_s = act_s(self.best(outcomes, batch))
        targets = (best_s, WITHIN * best_s, *map(act_s, self._kept_whole()))
        return Need(self._run(batch, OURS, seed), Of.CORES, targets)

    def _saved(self, outcomes: Outcomes) -> list[Row]:
        needs = [self._need(outcomes, seed) for seed in self.seeds]
        found = [outcomes.needed(need).least for need in needs]
        took_s = outcomes.took_s(needs)
        nodes, batch = self.machines.nodes, self.workload.rollouts
        there, best = nodes * self.machines.cores, self.best(outcomes, batch)

        def row(what: str, published: str, place: int, of: int) -> Row:
            of_each = [least[place] for least in found]
            cores = [None if count is None else nodes * count for count in of_each]
            ours = tuple([saved(count, of) for count in cores])
            return Row(what, published, Unit.PERCENT, ours, f"{counts(cores)} of {of:,} cores", took_s)

        rows = [
            row(f"cores saved, ACT as under reserved({best}) on all", "71.2 %", 0, there),
            row("  ACT at most a tenth above that", "", 1, there),
        ]
        rows += [
            row(f"  ACT as under reserved({k}) on the cores that it holds", "", place, k * batch)
            for place, k in enumerate(self._kept_whole(), start=2)
        ]
        return rows


def _reserved(cores: int) -> str:
    return f"reserved({cores})"
