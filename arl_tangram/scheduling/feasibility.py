"""Resolve a declared cost against the pools that there are, or say why it can never be granted."""

from __future__ import annotations

import math

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import ASSUMED_SPEEDUP, Elastic, Speedup
from arl_tangram.model.lifecycle import ActionSpec, BodyKind, Demand
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import CPU, MEMORY, THREADS, Topology, quota_calls, quota_concurrency

LONGEST_S = 1e7
"""What an estimate that is not finite, or absurd, is taken to be: worse than any real duration."""


def resolve(spec: ActionSpec, topology: Topology, *, reserved: int = 0, memory_held: int = 0) -> Demand:
    """Return the cost of an action in the units and dimensions of a topology.

    Args:
        spec: the action.
        topology: the dimensions that there are.
        reserved: milli-cores that the action's trajectory holds for all its actions; they replace `cpu=`.
        memory_held: bytes that the trajectory holds; the action's memory is part of them. Were it not, trajectories
            that hold all memory would wait for each other for ever.

    Raises:
        InfeasibleError: a resource that no pool offers, or more of it than there is.
    """
    fixed = [*_memory(spec, topology, memory_held), *_quotas(spec, topology)]
    if spec.kind is BodyKind.THREAD:
        fixed.append((topology.index[THREADS], 1))
    elastic: int | None = None
    options: tuple[int, ...] = ()
    speedup: Speedup | None = None
    fraction = 0
    if reserved == 0 and spec.cost.minimum_cpu > 0:
        dimension = _dimension(spec, topology, CPU, spec.cost.minimum_cpu, f"{spec.cost.minimum_cpu / MILLI:g} cores")
        options, speedup = _core_options(spec.cost, topology.dimensions[dimension].capacity)
        if options:
            elastic = dimension
        else:
            fraction = spec.cost.minimum_cpu
            fixed.append((dimension, fraction))
    return Demand(
        name=spec.name,
        fixed=tuple(fixed),
        elastic=elastic,
        options=options,
        speedup=speedup,
        relative=tuple(_relative(speedup, units // MILLI) for units in options),
        learns=len(options) > 1 and isinstance(spec.cost.cpu, Elastic) and spec.cost.cpu.speedup is None,
        dimensions=_mask([d for d, _ in fixed] + ([] if elastic is None else [elastic])),
        priority=spec.priority,
        queue_timeout=spec.queue_timeout,
        duration_s=spec.duration_s,
        reserved=reserved if spec.cost.minimum_cpu > 0 else 0,
        milli_cores=fraction,
    )


def trajectory_demand(topology: Topology, *, memory_bytes: int, reserved: int) -> Demand:
    """Return what a trajectory holds from its first to its last turn.

    Raises:
        InfeasibleError: more memory or cores than there are.
    """
    spec = ActionSpec(name="trajectory", cost=Cost(memory_bytes=memory_bytes))
    fixed = _memory(spec, topology)
    if reserved:
        fixed.append((_dimension(spec, topology, CPU, reserved, f"{reserved / MILLI:g} reserved cores"), reserved))
    return Demand(name=spec.name, fixed=tuple(fixed), dimensions=_mask([d for d, _ in fixed]))


def check_beside(demand: Demand, held: Demand, topology: Topology) -> None:
    """Check that an action fits beside what its own trajectory holds until the action has ended.

    Raises:
        InfeasibleError: it never does.
    """
    if not held.fixed:
        return
    needed = dict(demand.fixed)
    for index, units in held.fixed:
        dimension, asked = topology.dimensions[index], needed.get(index, 0)
        if asked + units > dimension.capacity:
            raise InfeasibleError(
                f"{demand.name} asks for {asked / dimension.scale:g} of {dimension.name}; it has "
                f"{dimension.capacity / dimension.scale:g} in all, and the action's own trajectory holds "
                f"{units / dimension.scale:g} of them"
            )


def _memory(spec: ActionSpec, topology: Topology, held: int = 0) -> list[tuple[int, int]]:
    amount = spec.cost.memory_bytes
    if held and amount > held:
        raise InfeasibleError(
            f"{spec.name} asks for {amount / GIB:g} GiB of memory; its trajectory holds {held / GIB:g}, and its "
            "actions take theirs from that"
        )
    if held or amount == 0:
        return []
    return [(_dimension(spec, topology, MEMORY, amount, f"{amount / GIB:g} GiB of memory"), amount)]


def _quotas(spec: ActionSpec, topology: Topology) -> list[tuple[int, int]]:
    fixed: list[tuple[int, int]] = []
    for name, amount in spec.cost.quota:
        parts = [part for part in (quota_calls(name), quota_concurrency(name)) if part in topology.index]
        if not parts:
            known = sorted({d.name.split("/")[0].removeprefix("quota:") for d in topology.dimensions if "/" in d.name})
            raise InfeasibleError(
                f"{spec.name} asks for the quota {name!r}; this runtime has "
                + (f"only {', '.join(map(repr, known))}" if known else "no quotas")
            )
        fixed += [(_dimension(spec, topology, part, amount, f"{amount / MILLI:g} calls"), amount) for part in parts]
    return fixed


def _dimension(spec: ActionSpec, topology: Topology, name: str, amount: int, asked: str) -> int:
    index = topology.index.get(name)
    if index is None:
        raise InfeasibleError(f"{spec.name} asks for {asked}; this runtime has no pool that offers {name}")
    dimension = topology.dimensions[index]
    if amount > dimension.capacity:
        there_is = dimension.capacity / dimension.scale
        raise InfeasibleError(f"{spec.name} asks for {asked}; {name} has {there_is:g} in all")
    return index


def _core_options(cost: Cost, capacity: int) -> tuple[tuple[int, ...], Speedup | None]:
    """Return the admitted milli-cores and the speed-up; nothing for a fraction, which no policy hands out."""
    if isinstance(cost.cpu, Elastic):
        options = tuple(units * MILLI for units in cost.cpu.options if units * MILLI <= capacity)
        return options, cost.cpu.speedup or ASSUMED_SPEEDUP
    return ((cost.cpu,), None) if cost.cpu % MILLI == 0 else ((), None)


def _relative(speedup: Speedup | None, units: int) -> float:
    """Return the duration at `units` relative to one unit; a useless speed-up costs time, never a wrong allocation."""
    if speedup is None:
        return 1.0
    faster = speedup(units)
    if not (math.isfinite(faster) and faster > 1 / LONGEST_S):
        return LONGEST_S
    return 1 / min(faster, LONGEST_S)


def _mask(dimensions: list[int]) -> int:
    mask = 0
    for dimension in dimensions:
        mask |= 1 << dimension
    return mask
