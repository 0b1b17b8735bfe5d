"""How little the scheduler needs to be as fast as others are on all of it: cores, GPUs or quotas."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from arl_tangram.plan.search import smallest
from arl_tangram.simulate.workloads import Coding, DeepSearch, Mopd
from arl_tangram.studies.runs import Run

WITHIN = 1.1
"""A time that is kept nearly: at most a tenth longer."""

_HUNDRED = 100
_CHECKS = 3


class Of(StrEnum):
    """What is searched for.

    Cores are taken from all machines alike, and told for one machine. GPUs go by as many as the smallest instance
    has. Both quotas are reduced together, and told in hundredths of what they are.
    """

    CORES = "cores"
    GPUS = "GPUs"
    QUOTAS = "quotas"


class Found(NamedTuple):
    """What is needed.

    Attributes:
        least: for each time that was to be kept, the capacity; None where not even all of it is enough.
        tried: capacities and what they took, ascending.
        took_s: CPU seconds that the search took.
    """

    least: tuple[int | None, ...]
    tried: tuple[tuple[int, float], ...]
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Need:
    """A search for the smallest capacities that keep mean action completion times.

    Attributes:
        run: with all that there is.
        of: what is to be less.
        at_most_s: mean action completion times that are to be kept.
    """

    run: Run
    of: Of
    at_most_s: tuple[float, ...]

    def outcome(self) -> Found:
        """Search."""
        began_s = time.process_time()
        tried: dict[int, float] = {}

        def act_s(steps: int) -> float:
            if steps not in tried:
                tried[steps] = self.with_capacity(steps * self.step).outcome().act_s
            return tried[steps]

        found = tuple([_least(act_s, at_most_s, self.steps, tried) for at_most_s in self.at_most_s])
        capacities = tuple([None if steps is None else steps * self.step for steps in found])
        acts_s = tuple([(steps * self.step, tried[steps]) for steps in sorted(tried)])
        return Found(capacities, acts_s, time.process_time() - began_s)

    @property
    def step(self) -> int:
        """By how much capacities differ at least."""
        if self.of is not Of.GPUS:
            return 1
        return min(dop for service in _of_services(self.run.workload).services() for dop in service.dops)

    @property
    def steps(self) -> int:
        """How many steps there are in what there is."""
        machines = self.run.machines
        if self.of is Of.CORES:
            return machines.cores
        if self.of is Of.QUOTAS:
            return _HUNDRED
        return (machines.gpu_nodes * machines.gpus if self.run.gpus is None else self.run.gpus) // self.step

    def with_capacity(self, capacity: int) -> Run:
        """Return the same run with so much of what is searched for."""
        run = self.run
        if self.of is Of.CORES:
            return replace(run, machines=replace(run.machines, cores=capacity))
        if self.of is Of.GPUS:
            return replace(run, gpus=capacity)
        asked = run.workload
        assert isinstance(asked, DeepSearch), asked
        return replace(
            run,
            workload=replace(
                asked,
                searches_per_s=max(1, asked.searches_per_s * capacity // _HUNDRED),
                pages_at_once=max(1, asked.pages_at_once * capacity // _HUNDRED),
            ),
        )


def _least(act_s: Callable[[int], float], at_most_s: float, most: int, tried: Mapping[int, float]) -> int | None:
    """Return the least from which on all that were tried, also for another time, keep it; None if all is too little."""
    if act_s(most) > at_most_s:
        return None
    short = 0
    while True:
        found = smallest(lambda steps: act_s(steps) <= at_most_s, short + 1, most, checks=_CHECKS)
        above = [steps for steps, tried_s in tried.items() if steps > found and tried_s > at_most_s]
        if not above:
            return found
        short = max(above)


def _of_services(workload: Coding | DeepSearch | Mopd) -> DeepSearch | Mopd:
    assert not isinstance(workload, Coding), workload
    return workload
