"""How little the scheduler needs to be as fast as others are on all of it: cores, GPUs or quotas."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from arl_tangram.simulate.workloads import Coding, DeepSearch, Mopd
from arl_tangram.studies.least import least
from arl_tangram.studies.runs import Run

WITHIN = 1.1
"""A time that is kept nearly: at most a tenth longer."""

_HUNDRED = 100


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
        took_s: seconds of this machine that the search took.
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
        began_s = time.perf_counter()
        tried: dict[int, float] = {}

        def act_s(capacity: int) -> float:
            if capacity not in tried:
                tried[capacity] = self.with_capacity(capacity).outcome().act_s
            return tried[capacity]

        found = [least(act_s, at_most_s, self.capacities, tuple(tried)) for at_most_s in self.at_most_s]
        return Found(tuple(found), tuple(sorted(tried.items())), time.perf_counter() - began_s)

    @property
    def capacities(self) -> range:
        """All capacities that could be the answer, ascending; the last is what there is."""
        machines, workload = self.run.machines, self.run.workload
        if self.of is Of.CORES:
            return range(1, machines.cores + 1)
        if self.of is Of.QUOTAS:
            return range(1, _HUNDRED + 1)
        step = min(dop for service in _of_services(workload).services() for dop in service.dops)
        there = machines.gpu_nodes * machines.gpus if self.run.gpus is None else self.run.gpus
        return range(step, there // step * step + 1, step)

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


def _of_services(workload: Coding | DeepSearch | Mopd) -> DeepSearch | Mopd:
    assert not isinstance(workload, Coding), workload
    return workload
