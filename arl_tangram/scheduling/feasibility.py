"""Resolve a declared cost against the pools that there are, or say why it can never be granted."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import ASSUMED_SPEEDUP, Elastic, Speedup
from arl_tangram.model.gpu import HostedService
from arl_tangram.model.lifecycle import ActionSpec, BodyKind, Demand
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import CPU, MEMORY, PROCESSES, SANDBOXES, THREADS, Dimension, Topology
from arl_tangram.scheduling.offered import cores_in_words, mask_of, nowhere, of_node
from arl_tangram.scheduling.quota_places import quotas_of, with_quotas
from arl_tangram.scheduling.relative import relative_duration
from arl_tangram.scheduling.seat_needs import seat_of

_NO_SERVICES: Mapping[str, HostedService] = MappingProxyType({})


def resolve(
    spec: ActionSpec,
    topology: Topology,
    *,
    node: int | None = None,
    host: int | None = 0,
    reserved: int = 0,
    memory_held: int = 0,
    services: Mapping[str, HostedService] = _NO_SERVICES,
) -> Demand:
    """Return the cost of an action in the units and dimensions of a topology.

    Cores and memory are those of the node where its body runs: that of its trajectory if it has a sandbox there, else
    that of this machine.

    Args:
        spec: the action.
        topology: the dimensions that there are.
        node: the number of the node where its trajectory was admitted; None outside of trajectories.
        host: the number of the node that is this machine; None if there is none.
        reserved: milli-cores that the action's trajectory holds for all its actions; they replace `cpu=` where it runs
            on that node.
        memory_held: bytes that the trajectory holds; the action's memory is part of them. Were it not, trajectories
            that hold all memory would wait for each other for ever.
        services: those of the pool of GPUs, by name.

    Raises:
        InfeasibleError: a resource that no pool offers, or more of it than there is.
    """
    at = host if node is None or not in_sandbox(spec) else node
    minimum = spec.cost.minimum_cpu
    if minimum == 0 or (node is not None and at != node):
        reserved = 0  # what its trajectory holds is of no use to it, or on another machine
    memory = _memory(spec, topology, at, memory_held)
    fixed: list[tuple[int, int]] = []
    quotas = list(quotas_of(spec, topology))
    if spec.kind is BodyKind.THREAD:
        fixed.append((topology.index[THREADS], 1))
    if spec.kind is BodyKind.PROCESS:
        fixed.append((topology.index[PROCESSES], 1))
    seat = None
    if spec.cost.service is not None or spec.cost.gpu:
        seat, units = seat_of(spec, topology, services)
        fixed.append(units)
    elastic: int | None = None
    options: tuple[int, ...] = ()
    speedup: Speedup | None = None
    fraction = 0
    if reserved == 0 and minimum > 0:
        dimension = of_node(spec, topology, at, CPU, minimum, said=cores_in_words(minimum))
        if seat is None:  # with one, its cores are fixed: no policy may put off who has it
            options, speedup = _core_options(spec.cost, topology.dimensions[dimension].capacity)
        if options:
            elastic = dimension
        else:
            fraction = minimum
            fixed.append((dimension, fraction))
    # Whole cores of a sandbox can be taken and given while it runs.
    shared = elastic is not None and node is not None and at == node and in_sandbox(spec)
    demand = Demand(
        name=spec.name,
        fixed=(*memory, *fixed),
        elastic=elastic,
        options=options,
        speedup=speedup,
        relative=tuple(relative_duration(speedup, units // MILLI) for units in options),
        learns=len(options) > 1 and isinstance(spec.cost.cpu, Elastic) and spec.cost.cpu.speedup is None,
        dimensions=mask_of([d for d, _ in (*memory, *fixed)] + ([] if elastic is None else [elastic])),
        priority=spec.priority,
        queue_timeout=spec.queue_timeout,
        duration_s=spec.duration_s,
        reserved=reserved,
        milli_cores=fraction,
        node=at if len(topology.nodes) > 1 and (memory or minimum or reserved) else None,
        seat=seat,
        preemptible=shared and spec.preemptible,
        resizable=shared and isinstance(spec.cost.cpu, Elastic) and spec.cost.cpu.resizable,
    )
    return with_quotas(demand, quotas, len(memory), topology) if quotas else demand


def trajectory_demand(topology: Topology, *, memory_bytes: int, reserved: int) -> Demand:
    """Return what a trajectory holds from its first to its last turn, on any of the nodes that can ever hold it.

    Raises:
        InfeasibleError: more memory or cores than any node has.
    """
    spec = ActionSpec(name="trajectory", cost=Cost(memory_bytes=memory_bytes))
    if len(topology.nodes) <= 1:
        return _held_on(spec, topology, 0, reserved)
    places: list[Demand] = []
    for node in range(len(topology.nodes)):
        with suppress(InfeasibleError):
            places.append(_held_on(spec, topology, node, reserved))
    if len(places) == 1:
        return places[0]
    if not places:
        raise nowhere(topology, spec.name, memory_bytes=memory_bytes, milli_cores=reserved)
    dimensions = 0
    for place in places:
        dimensions |= place.dimensions
    return Demand(name=spec.name, fixed=(), dimensions=dimensions, places=tuple(places))


def _held_on(spec: ActionSpec, topology: Topology, node: int, reserved: int) -> Demand:
    """Return what a trajectory holds on one of the nodes."""
    fixed = _memory(spec, topology, node)
    if reserved:
        said = cores_in_words(reserved, "reserved ")
        fixed.append((of_node(spec, topology, node, CPU, reserved, said=said), reserved))
    if topology.nodes and topology.nodes[node].sandboxes is not None:
        fixed.append((of_node(spec, topology, node, SANDBOXES, 1, said="a sandbox"), 1))
    return Demand(
        name=spec.name,
        fixed=tuple(fixed),
        dimensions=mask_of([d for d, _ in fixed]),
        node=node if len(topology.nodes) > 1 else None,
    )


def in_sandbox(spec: ActionSpec) -> bool:
    """Whether an action runs in the sandbox of its trajectory, if it is called in one; else it runs on this machine."""
    return spec.kind is BodyKind.ASYNC and spec.cost.minimum_cpu > 0


def check_beside(demand: Demand, held: Demand, topology: Topology) -> None:
    """Check that an action fits beside what its own trajectory holds until the action has ended.

    Raises:
        InfeasibleError: it never does.
    """
    if not held.fixed:
        return
    needed = dict((*demand.places, demand)[0].fixed)  # places differ in their quotas, of which no trajectory holds any
    for index, units in held.fixed:
        dimension, asked = topology.dimensions[index], needed.get(index, 0)
        if asked and asked + units > dimension.capacity:
            raise InfeasibleError(
                f"{demand.name} asks for {asked / dimension.scale:g} of {dimension.name}; it has "
                f"{dimension.capacity / dimension.scale:g} in all, and the action's own trajectory holds "
                f"{units / dimension.scale:g} of them"
            )


def check_capacity(demand: Demand, topology: Topology) -> None:
    """Check that there is enough of everything for a demand that was resolved when there was more.

    Raises:
        InfeasibleError: there is not, in any of its places.
    """
    lacking: tuple[Dimension, int] | None = None
    for placed in demand.places or (demand,):
        least = list(placed.fixed)
        if placed.elastic is not None:
            least.append((placed.elastic, placed.options[0]))
        beyond = [(topology.dimensions[d], units) for d, units in least if units > topology.dimensions[d].capacity]
        if not beyond:
            return
        lacking = beyond[0]
    if lacking is not None:
        dimension, asked = lacking
        raise InfeasibleError(
            f"{demand.name} asks for {asked / dimension.scale:g} of {dimension.name}; by now it has "
            f"{dimension.capacity / dimension.scale:g} in all"
        )


def no_budget(demand: Demand, dimension: Dimension, free: int) -> InfeasibleError:
    """Return the error for a demand that asks for more of a budget than is left."""
    return InfeasibleError(
        f"{demand.name} asks for more of {dimension.name} than is left for good: "
        f"{max(free, 0) / dimension.scale:g} of {dimension.capacity / dimension.scale:g}"
    )


def _memory(spec: ActionSpec, topology: Topology, node: int | None, held: int = 0) -> list[tuple[int, int]]:
    amount = spec.cost.memory_bytes
    if held and amount > held:
        raise InfeasibleError(
            f"{spec.name} asks for {amount / GIB:g} GiB of memory; its trajectory holds {held / GIB:g}, and its "
            "actions take theirs from that"
        )
    if held or amount == 0:
        return []
    said = f"{amount / GIB:g} GiB of memory"
    return [(of_node(spec, topology, node, MEMORY, amount, said=said), amount)]


def _core_options(cost: Cost, capacity: int) -> tuple[tuple[int, ...], Speedup | None]:
    """Return the admitted milli-cores and the speed-up; nothing for a fraction, which no policy hands out."""
    if isinstance(cost.cpu, Elastic):
        options = tuple(units * MILLI for units in cost.cpu.options if units * MILLI <= capacity)
        return options, cost.cpu.speedup or ASSUMED_SPEEDUP
    return ((cost.cpu,), None) if cost.cpu % MILLI == 0 else ((), None)
