"""Resolve what an action needs of a pool of GPUs: a seat on a service, or GPUs of its own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.elasticity import ASSUMED_SPEEDUP
from arl_tangram.model.gpu import HostedService, SeatNeed
from arl_tangram.model.lifecycle import ActionSpec, Demand
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.topology import GPU, Topology
from arl_tangram.scheduling.offered import dimension_of

Units = tuple[int, int]
"""A dimension's index and integer units of it."""


def seat_of(spec: ActionSpec, topology: Topology, services: Mapping[str, HostedService]) -> tuple[SeatNeed, Units]:
    """Return what an action needs of the GPUs, and what that counts for.

    Args:
        spec: an action with `service=` or `gpu=`.
        topology: the dimensions that there are.
        services: those of the pool, by name.

    Raises:
        InfeasibleError: there is no such service, or there are fewer GPUs.
    """
    name, gpus = spec.cost.service, spec.cost.gpu
    if name is None:
        dimension = dimension_of(spec, topology, GPU, gpus, f"{gpus} {'GPU' if gpus == 1 else 'GPUs'} of its own")
        return SeatNeed(None, (gpus,)), (dimension, gpus)
    service = services.get(name)
    if service is None:
        known = ", ".join(map(repr, sorted(services)))
        raise InfeasibleError(
            f"{spec.name} asks for the service {name!r}; this runtime has "
            + (f"only {known}" if known else "no services, such as those of Tangram(tangram.GpuPool(...))")
        )
    return SeatNeed(name, service.dops), (topology.services[name], 1)


@lru_cache(maxsize=1024)
def timing(name: str, dops: tuple[int, ...], duration_s: float | None) -> Demand:
    """Return what stands for an action where durations are learned: its options are the dops, in thousandths.

    Args:
        name: the action's name.
        dops: on how many GPUs it may be, ascending.
        duration_s: as declared.
    """
    several = len(dops) > 1
    return Demand(
        name=name,
        fixed=(),
        options=tuple([dop * MILLI for dop in dops]),
        speedup=ASSUMED_SPEEDUP if several else None,
        relative=tuple([1 / ASSUMED_SPEEDUP(dop) for dop in dops]) if several else (1.0,),
        learns=several,
        duration_s=duration_s,
    )
