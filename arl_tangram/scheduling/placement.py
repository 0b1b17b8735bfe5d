"""Choose a place for what could go to several: the sandbox of a trajectory to a node, or an action to any node.

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
        lacking = 0
        fitting: list[tuple[int, int, int]] = []
        for number, place in enumerate(demand.places):
            lacks = self._ledger.lacking(place) | place.dimensions & barred
            lacking |= lacks
            if not lacks:
                fitting.append((self._open[number], -self._free(place), number))
        return (demand.places[min(fitting)[2]], 0) if fitting else (demand, lacking)

    def open(self, demand: Demand, place: Demand) -> None:
        """A trajectory was admitted at a place."""
        if demand.places:
            self._open[demand.places.index(place)] += 1

    def close(self, demand: Demand, place: Demand) -> None:
        """A trajectory that was admitted at a place has ended."""
        if demand.places:
            self._open[demand.places.index(place)] -= 1

    def _free(self, place: Demand) -> int:
        dimensions = [d for d, _ in place.fixed] if place.elastic is None else [place.elastic]
        return min((self._ledger.free[d] for d in dimensions), default=0)
