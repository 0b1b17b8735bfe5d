"""Choose a place for what could go to several: a sandbox or an action to a node, a call to one of a quota's keys.

It goes where fewest trajectories are open, of the places that have room, and of those where most is free. The actions
of a trajectory run where its sandbox is and nowhere else, because a sandbox does not move.
"""

from __future__ import annotations

from collections import Counter

from arl_tangram.model.lifecycle import Demand
from arl_tangram.scheduling.ledger import Ledger


class Placement:
    """Places demands that have several `places`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._open: Counter[int] = Counter()

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
        best = min(fitting, key=lambda n: (self._open[places[n].dimensions], -self._fits(places[n], shared), n))
        return demand.places[best], 0

    def open(self, demand: Demand, place: Demand) -> None:
        """A trajectory was admitted at a place."""
        if demand.places:
            self._open[place.dimensions] += 1

    def close(self, demand: Demand, place: Demand) -> None:
        """A trajectory that was admitted at a place has ended."""
        if demand.places:
            self._open[place.dimensions] -= 1

    def _fits(self, place: Demand, shared: int) -> float:
        """Return how many of a demand would fit at a place, by what the places do not share."""
        free = self._ledger.free
        if place.elastic is not None and not shared >> place.elastic & 1:
            return free[place.elastic] / place.options[0]
        return min([free[d] / units for d, units in place.fixed if units and not shared >> d & 1], default=0.0)
