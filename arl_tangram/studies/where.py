"""Where the results hold and where they stop: the parameters that matter most, one varied after the other.

The cores are a quarter of the published ones and so is the batch, unless that is what is varied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean
from typing import NamedTuple

from arl_tangram.errors import ConfigurationError
from arl_tangram.simulate.baselines import static_services
from arl_tangram.simulate.gpus import Gpus
from arl_tangram.simulate.workloads import CODING_BATCH, Coding, Mopd, Testbed
from arl_tangram.studies.contenders import OURS, SERVERLESS, STATIC
from arl_tangram.studies.needs import WITHIN, Need, Of
from arl_tangram.studies.rows import saved
from arl_tangram.studies.runs import Figures, Run, Told, first_gpus
from arl_tangram.studies.tasks import Outcomes, Task

QUARTER = Testbed(cores=64)
_act_s: Callable[[Figures], float] = attrgetter("act_s")
_step_s: Callable[[Figures], float] = attrgetter("step_s")


@dataclass(frozen=True, slots=True)
class Point:
    """One value of what is varied.

    Attributes:
        axis: what is varied.
        value: its value.
        workload: the parameters of the batch.
        told: by which factor actions declare their mean duration, as `Run` has it.
    """

    axis: str
    value: float
    workload: Coding
    told: Told = None


class Place(NamedTuple):
    """What was found at a point; one figure for each seed.

    Attributes:
        point: where.
        cores: those for a trajectory that suit the baseline best.
        act: how many times longer its mean action completion time is.
        step: how many times longer its step is, with whichever cores suit that best.
        fixed: how many times longer the mean action completion time is with each fixed number of cores.
        saved: percent of the cores that are not needed for a mean action completion time at most a tenth above that of
            the baseline; NaN where all of them are not enough.
    """

    point: Point
    cores: int
    act: tuple[float, ...]
    step: tuple[float, ...]
    fixed: tuple[tuple[float, ...], ...]
    saved: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class WhereCoding:
    """AI coding at several points.

    Attributes:
        points: in order.
        machines: what it is served on.
        cores: those that the baseline reserves for a trajectory, one of them after the other.
        dops: fixed numbers of cores, one after the other.
        seeds: what is drawn with.
    """

    points: tuple[Point, ...]
    machines: Testbed
    cores: tuple[int, ...]
    dops: tuple[int, ...]
    seeds: tuple[int, ...]

    def tasks(self) -> Sequence[Task]:
        """Return each contender at each point on each seed."""
        return [
            run
            for point in self.points
            for name in (OURS, *map(_reserved, self.cores), *map(_fixed, self.dops))
            for run in self._runs(point, name)
        ]

    def further(self, outcomes: Outcomes) -> Sequence[Task]:
        """Return the searches for the least cores."""
        return [need for point in self.points for need in self._needs(outcomes, point)]

    def places(self, outcomes: Outcomes) -> list[Place]:
        """Return what was found at each point."""
        return [self._place(outcomes, point) for point in self.points]

    def _place(self, outcomes: Outcomes, point: Point) -> Place:
        def ratios(name: str, figure: Callable[[Figures], float]) -> tuple[float, ...]:
            theirs, ours = (self._figures(outcomes, point, of, figure) for of in (name, OURS))
            return tuple([a / b for a, b in zip(theirs, ours, strict=True)])

        best = self._best(outcomes, point, _act_s)
        needed = [outcomes.needed(need).least[0] for need in self._needs(outcomes, point)]
        return Place(
            point,
            best,
            ratios(_reserved(best), _act_s),
            ratios(_reserved(self._best(outcomes, point, _step_s)), _step_s),
            tuple([ratios(_fixed(dop), _act_s) for dop in self.dops]),
            tuple([saved(cores, self.machines.cores) for cores in needed]),
        )

    def _runs(self, point: Point, name: str) -> list[Run]:
        told = point.told if name == OURS else None  # the others do not look at it
        return [Run(point.workload, seed, name, self.machines, told=told) for seed in self.seeds]

    def _figures(self, outcomes: Outcomes, point: Point, name: str, figure: Callable[[Figures], float]) -> list[float]:
        return [figure(outcomes.figures(run)) for run in self._runs(point, name)]

    def _best(self, outcomes: Outcomes, point: Point, figure: Callable[[Figures], float]) -> int:
        return min(self.cores, key=lambda k: fmean(self._figures(outcomes, point, _reserved(k), figure)))

    def _needs(self, outcomes: Outcomes, point: Point) -> list[Need]:
        theirs = self._figures(outcomes, point, _reserved(self._best(outcomes, point, _act_s)), _act_s)
        ours = self._runs(point, OURS)
        return [Need(run, Of.CORES, (WITHIN * act_s,)) for run, act_s in zip(ours, theirs, strict=True)]


class ServicesPlace(NamedTuple):
    """What services come to; one figure for each seed.

    Attributes:
        batch: trajectories.
        gpus: how many there are.
        static: how many times longer the mean action completion time of static services is; None if they have no room.
        serverless: the same of loading on demand.
    """

    batch: int
    gpus: int
    static: tuple[float, ...] | None
    serverless: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class WhereMopd:
    """MOPD with other batches, and with fewer GPUs than its teachers need to be on them together.

    Attributes:
        workload: the parameters of the batch.
        machines: what it is served on, if there were all of its GPUs.
        places: batches and numbers of GPUs, in order.
        seeds: what is drawn with.
    """

    workload: Mopd
    machines: Testbed
    places: tuple[tuple[int, int], ...]
    seeds: tuple[int, ...]

    def tasks(self) -> Sequence[Task]:
        """Return each contender at each place on each seed."""
        return [
            run
            for batch, gpus in self.places
            for name in (OURS, SERVERLESS, *([STATIC] if self._fits(gpus) else []))
            for run in self._runs(batch, gpus, name)
        ]

    def found(self, outcomes: Outcomes) -> list[ServicesPlace]:
        """Return what was found at each place."""

        def ratios(batch: int, gpus: int, name: str) -> tuple[float, ...]:
            theirs, ours = ([outcomes.figures(run).act_s for run in self._runs(batch, gpus, of)] for of in (name, OURS))
            return tuple([a / b for a, b in zip(theirs, ours, strict=True)])

        return [
            ServicesPlace(
                batch,
                gpus,
                ratios(batch, gpus, STATIC) if self._fits(gpus) else None,
                ratios(batch, gpus, SERVERLESS),
            )
            for batch, gpus in self.places
        ]

    def _runs(self, batch: int, gpus: int, name: str) -> list[Run]:
        workload = replace(self.workload, rollouts=batch)
        return [Run(workload, seed, name, self.machines, gpus=gpus) for seed in self.seeds]

    def _fits(self, gpus: int) -> bool:
        try:
            static_services(Gpus(first_gpus(self.machines, gpus), self.workload.services()))
        except ConfigurationError:
            return False
        return True


def coding_points(base: Coding, batches: Sequence[int]) -> tuple[Point, ...]:
    """Return the points around a batch; what is varied first, then its values."""
    points = [
        Point("time in commands", share, replace(base, tool_share=share)) for share in (0.1, 0.25, 0.47, 0.7, 0.86)
    ]
    points += [
        Point("sigma of slow commands", sigma, replace(base, slow_sigma=sigma)) for sigma in (0.5, 1.0, 1.5, 2.0)
    ]
    points += [
        Point("slow commands that are tests", share, replace(base, testing=share)) for share in (0, 0.28, 0.6, 1)
    ]
    points += [Point("durations told, times the truth", told, base, told) for told in (0.1, 1.0, 10.0)]
    points += [
        Point(
            "told times this for tests, the reverse for rewards", told, base, (("testing", told), ("suite", 1 / told))
        )
        for told in (0.1, 0.3, 3.0, 10.0)
    ]
    points += [Point("batch", batch, replace(base, rollouts=batch)) for batch in batches]
    return tuple(points)


def where_coding(seeds: tuple[int, ...], *, quick: bool = False) -> WhereCoding:
    """Return the study of AI coding, or one that is too small to say anything."""
    if quick:
        points = coding_points(replace(CODING_BATCH, rollouts=16, turns=4, group=4), (8, 16))[::5]
        return WhereCoding(points, Testbed(nodes=2, cores=16), (1, 2, 4), (4, 16), seeds)
    base = replace(CODING_BATCH, rollouts=320)
    return WhereCoding(coding_points(base, (80, 160, 320, 640, 1280)), QUARTER, (1, 2, 3, 4, 8), (4, 16), seeds)


def where_mopd(seeds: tuple[int, ...], *, quick: bool = False) -> WhereMopd:
    """Return the study of MOPD, the published batch and others, and fewer GPUs; or a small one."""
    if quick:
        return WhereMopd(Mopd(shares=(0.5, 0.3, 0.2)), Testbed(gpu_nodes=2), ((32, 16), (32, 8)), seeds)
    batches = [(batch, 40) for batch in (1024, 2048, 3072)]
    return WhereMopd(Mopd(), Testbed(), (*batches, *[(2048, gpus) for gpus in (36, 32, 24, 16)]), seeds)


def _reserved(cores: int) -> str:
    return f"reserved({cores})"


def _fixed(dop: int) -> str:
    return f"fixed({dop})"
