"""Resolve a declared cost against the pools that there are, or say why it can never be granted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import ASSUMED_SPEEDUP, Elastic, Speedup
from arl_tangram.model.lifecycle import ActionSpec, BodyKind, Demand
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import CPU, MEMORY, PROCESSES, THREADS, Dimension, QuotaKey, Topology

Units = list[tuple[int, int]]
"""Pairs of a dimension's index and integer units of it."""
LONGEST_S = 1e7
"""What an estimate that is not finite, or absurd, is taken to be: worse than any real duration."""
_MOST_PLACES = 256
"""Ways in which the keys of an action's quotas may go together; each decision may have to look at all."""


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
    memory = _memory(spec, topology, memory_held)
    fixed: list[tuple[int, int]] = []
    quotas = list(_quotas(spec, topology))
    if spec.kind is BodyKind.THREAD:
        fixed.append((topology.index[THREADS], 1))
    if spec.kind is BodyKind.PROCESS:
        fixed.append((topology.index[PROCESSES], 1))
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
    demand = Demand(
        name=spec.name,
        fixed=(*memory, *fixed),
        elastic=elastic,
        options=options,
        speedup=speedup,
        relative=tuple(_relative(speedup, units // MILLI) for units in options),
        learns=len(options) > 1 and isinstance(spec.cost.cpu, Elastic) and spec.cost.cpu.speedup is None,
        dimensions=_mask([d for d, _ in (*memory, *fixed)] + ([] if elastic is None else [elastic])),
        priority=spec.priority,
        queue_timeout=spec.queue_timeout,
        duration_s=spec.duration_s,
        reserved=reserved if spec.cost.minimum_cpu > 0 else 0,
        milli_cores=fraction,
    )
    return _with_quotas(demand, quotas, len(memory), topology) if quotas else demand


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


def _quotas(spec: ActionSpec, topology: Topology) -> Iterator[tuple[str, list[tuple[int, Units]]]]:
    """Yield the name of each quota that an action takes, and what it takes with each of the keys that have enough."""
    tokens = dict(spec.cost.tokens)
    for name, calls in spec.cost.quota:
        keys = topology.quotas.get(name)
        if keys is None:
            known = ", ".join(map(repr, sorted(topology.quotas)))
            raise InfeasibleError(
                f"{spec.name} asks for the quota {name!r}; this runtime has "
                + (f"only {known}" if known else "no quotas")
            )
        enough: list[tuple[int, Units]] = []
        lacking: InfeasibleError | None = None
        for number, key in enumerate(keys):
            try:
                enough.append((number, _of_key(spec, topology, key, calls, tokens.get(name, 0))))
            except InfeasibleError as error:
                lacking = lacking or error
        if lacking is not None and not enough:
            raise lacking
        yield name, enough


def _of_key(spec: ActionSpec, topology: Topology, key: QuotaKey, calls: int, tokens: int) -> Units:
    """Return what an action takes with one key; also no tokens: it waits while those are overdrawn."""
    amounts = [(index, calls, "calls") for index in key.calls + key.concurrency]
    amounts += [(index, tokens, "tokens") for index in key.tokens]
    amounts += [(index, 1, "call") for index in key.breaker]
    return [
        (_dimension(spec, topology, topology.dimensions[index].name, amount, f"{amount / MILLI:g} {what}"), amount)
        for index, amount, what in amounts
    ]


def _with_quotas(
    demand: Demand, quotas: list[tuple[str, list[tuple[int, Units]]]], at: int, topology: Topology
) -> Demand:
    """Return a demand with what it takes of quotas; with places, if there are several keys to choose from.

    Args:
        demand: what is taken beside.
        quotas: by name and the number of a key, what is taken.
        at: how many pairs of a dimension and units of the others come first.
        topology: what there is.
    """
    ways = math.prod(len(keys) for _, keys in quotas)
    if ways > _MOST_PLACES:
        raise InfeasibleError(
            f"{demand.name} could take its quotas with {ways} combinations of their keys; {_MOST_PLACES} are the most"
        )
    several = [name for name, _ in quotas if len(topology.quotas[name]) > 1]
    places: list[Demand] = []
    for chosen in itertools.product(*(keys for _, keys in quotas)):
        taken = [pair for _, pairs in chosen for pair in pairs]
        numbers = {name: number for (name, _), (number, _) in zip(quotas, chosen, strict=True)}
        places.append(
            replace(
                demand,
                fixed=(*demand.fixed[:at], *taken, *demand.fixed[at:]),
                dimensions=demand.dimensions | _mask([d for d, _ in taken]),
                keys=tuple((name, numbers[name]) for name in several),
            )
        )
    if len(places) == 1:
        return places[0]
    dimensions = 0
    for place in places:
        dimensions |= place.dimensions
    return Demand(
        name=demand.name,
        fixed=(),
        dimensions=dimensions,
        priority=demand.priority,
        queue_timeout=demand.queue_timeout,
        duration_s=demand.duration_s,
        reserved=demand.reserved,
        milli_cores=demand.milli_cores,
        places=tuple(places),
    )


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
