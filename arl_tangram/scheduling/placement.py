"""Choose a place for what could go to several: a sandbox or an action to a node, a call to one of a quota's keys.

It goes to one that has room. A trajectory goes to the node that is least loaded then: by how many trajectories are open
there for each of its cores, in proportion to the other nodes, and by the share of its memory (or of its sandboxes, if
that is more) that is held. So nodes of different sizes fill in proportion, and memory counts for more the scarcer it
is. The actions of a trajectory run where its sandbox is and nowhere else, because a sandbox does not move. A call goes
where most of its kind would fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from arl_tangram.model.lifecycle import Demand
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.ledger import Ledger


class Placement:
    """Places demands that have several `places`."""

    def __init__(self, topology: Topology, ledger: Ledger) -> None:
        self._nodes = topology.nodes
        self._ledger = ledger
        self._open = [0] * len(topology.nodes)

    def choose(self, demand: Demand, barred: int) -> tuple[Demand, int]:
        """Return the place where a demand fits best; if it fits nowhere, itself and what it lacks over all places.

        Args:
            demand: one with places.
            barred: bits of dimensions that it must not use now.
        """
        lacking, shared = 0, -1
        fitting: list[int] = []
        for number, place in enumerate(demand.places):
            lacks = self._ledger.lacking(place) | place.dimensions & barred
            lacking |= lacks
            shared &= place.dimensions
            if not lacks:
                fitting.append(number)
        if not fitting:
            return demand, lacking
        places = demand.places
        if demand.node is None and places[0].node is not None:
            return min([places[number] for number in fitting], key=self._load_of(places)), 0
        return min([places[number] for number in fitting], key=lambda place: -self._fits(place, shared)), 0

    def open(self, place: Demand) -> None:
        """A trajectory was admitted at a place."""
        if place.node is not None:
            self._open[place.node] += 1

    def close(self, place: Demand) -> None:
        """A trajectory that was admitted at a place has ended."""
        if place.node is not None:
            self._open[place.node] -= 1

    def _load_of(self, places: Iterable[Demand]) -> Callable[[Demand], float]:
        """Return what says how loaded the node of a place would be with a trajectory that asks for these places."""
        numbers = [place.node for place in places if place.node is not None]
        cores = sum(map(self._cores, numbers))
        opened = 1 + sum([self._open[number] for number in numbers])

        def load(place: Demand) -> float:
            assert place.node is not None
            share = (self._open[place.node] + 1) / opened
            return share * cores / max(self._cores(place.node), 1) + self._fullness(place)

        return load

    def _cores(self, node: int) -> int:
        """Return the units of cores of a node, as many as are to be; one where they are not counted."""
        cpu = self._nodes[node].cpu
        return 1 if cpu is None else self._ledger.target[cpu]

    def _fullness(self, place: Demand) -> float:
        """Return the largest share of a node's memory or sandboxes that is held with what is asked for at a place."""
        assert place.node is not None
        node, ledger = self._nodes[place.node], self._ledger
        shares = [
            (ledger.used(dimension) + units) / max(ledger.target[dimension], 1)
            for dimension, units in place.fixed
            if dimension in (node.memory, node.sandboxes)
        ]
        return max(shares, default=0.0)

    def _fits(self, place: Demand, shared: int) -> float:
        """Return how many of a demand would fit at a place, by what the places do not share."""
        free = self._ledger.free
        if place.elastic is not None and not shared >> place.elastic & 1:
            return free[place.elastic] / place.options[0]
        return min([free[d] / units for d, units in place.fixed if units and not shared >> d & 1], default=0.0)
