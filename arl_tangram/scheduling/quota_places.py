"""Resolve what an action takes of quotas, with each of the combinations of their keys that have enough."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.lifecycle import ActionSpec, Demand
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.topology import QuotaKey, Topology
from arl_tangram.scheduling.offered import dimension_of, mask_of

Units = list[tuple[int, int]]
"""Pairs of a dimension's index and integer units of it."""
_MOST_PLACES = 256
"""Ways in which the keys of an action's quotas may go together; each decision may have to look at all."""


def quotas_of(spec: ActionSpec, topology: Topology) -> Iterator[tuple[str, list[tuple[int, Units]]]]:
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
        (dimension_of(spec, topology, topology.dimensions[index].name, amount, f"{amount / MILLI:g} {what}"), amount)
        for index, amount, what in amounts
    ]


def with_quotas(
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
                dimensions=demand.dimensions | mask_of([d for d, _ in taken]),
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
        node=demand.node,
        seat=demand.seat,
    )
