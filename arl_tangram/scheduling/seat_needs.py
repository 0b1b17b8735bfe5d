"""Resolve what an action needs of a pool of GPUs: a seat on a service, or GPUs of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.elasticity import ASSUMED_SPEEDUP, Elastic
from arl_tangram.model.gpu import HostedService, SeatNeed
from arl_tangram.model.lifecycle import ActionSpec, Demand
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.topology import GPU, Topology
from arl_tangram.scheduling.offered import dimension_of
from arl_tangram.scheduling.relative import relative_duration

Units = tuple[int, int]
"""A dimension's index and integer units of it."""


def seat_of(spec: ActionSpec, topology: Topology, services: Mapping[str, HostedService]) -> tuple[SeatNeed, Units]:
    """Return what an action needs of the GPUs, and what that counts for at least.

    Args:
        spec: an action with `service=` or `gpu=`.
        topology: the dimensions that there are.
        services: those of the pool, by name.

    Raises:
        InfeasibleError: there is no such service, or there are fewer GPUs.
    """
    name = spec.cost.service
    if name is None:
        gpus, least = spec.cost.gpus, spec.cost.gpus[0]
        dimension = dimension_of(spec, topology, GPU, least, f"{least} {'GPU' if least == 1 else 'GPUs'} of its own")
        speedup = spec.cost.gpu.speedup if isinstance(spec.cost.gpu, Elastic) else None
        relative = () if speedup is None else tuple([relative_duration(speedup, number) for number in gpus])
        return SeatNeed(None, gpus, relative), (dimension, least)
    service = services.get(name)
    if service is None:
        known = ", ".join(map(repr, sorted(services)))
        raise InfeasibleError(
            f"{spec.name} asks for the service {name!r}; this runtime has "
            + (f"only {known}" if known else "no services, such as those of Tangram(tangram.GpuPool(...))")
        )
    return SeatNeed(name, service.dops), (topology.services[name], 1)


@lru_cache(maxsize=1024)
def timing(name: str, need: SeatNeed, duration_s: float | None) -> Demand:
    """Return what stands for an action where durations are learned: its options are the dops, in thousandths.

    Args:
        name: the action's name.
        need: on how many GPUs it may be, and what was declared of how it speeds up.
        duration_s: as declared.
    """
    learns = len(need.dops) > 1 and not need.relative
    assumed = tuple([1 / ASSUMED_SPEEDUP(dop) for dop in need.dops]) if learns else (1.0,)
    return Demand(
        name=name,
        fixed=(),
        options=tuple([dop * MILLI for dop in need.dops]),
        speedup=ASSUMED_SPEEDUP if learns else None,
        relative=need.relative or assumed,
        learns=learns,
        duration_s=duration_s,
    )


@lru_cache(maxsize=1024)
def with_gpus(demand: Demand, dimension: int, gpus: int) -> Demand:
    """Return what an action takes that has so many GPUs to itself.

    Args:
        demand: what it takes with another number of them.
        dimension: the index of the one that counts GPUs.
        gpus: how many.
    """
    return replace(demand, fixed=tuple([(d, gpus if d == dimension else units) for d, units in demand.fixed]))
