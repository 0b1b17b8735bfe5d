"""What one client has declared at the owner: its demands by their numbers, as far as they can be met there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from arl_tangram.errors import NodeLostError, OwnerLostError
from arl_tangram.integrations.ray.wire import Declare
from arl_tangram.model.lifecycle import Demand


class Declared:
    """The demands of one client.

    Args:
        interned: returns one object for all demands that are equal.
        dimensions: how many there are; a demand that asks for others is of other pools.
        loss_of: returns why nothing can be on a node, by its number; None if it can.
    """

    def __init__(
        self,
        interned: Callable[[Demand], Demand],
        dimensions: int,
        loss_of: Callable[[int], NodeLostError | None],
    ) -> None:
        self._interned = interned
        self._dimensions = dimensions
        self._loss_of = loss_of
        self._demands: dict[int, Demand] = {}

    def declare(self, declared: Declare) -> None:
        """From now on a number means this demand."""
        if _is_within(declared.demand, self._dimensions):
            self._demands[declared.number] = self._interned(declared.demand)
        else:
            self._demands.pop(declared.number, None)

    def get(self, number: int) -> Demand:
        """Return a demand.

        Raises:
            OwnerLostError: it asks for what there is not.
        """
        if (demand := self._demands.get(number)) is None:
            raise OwnerLostError("the pools of the shared runtime are others than those that this was asked of")
        return demand

    def find(self, number: int) -> Demand | None:
        """Return a demand; None if it asks for what there is not."""
        return self._demands.get(number)

    def where_it_can_be(self, demand: Demand) -> Demand:
        """Leave out the lost nodes for a trajectory that holds nothing: no pause of what these have keeps it out.

        Raises:
            NodeLostError: no other node can have it.
        """
        losses = [None if place.dimensions else self._loss_of(place.node or 0) for place in _places(demand)]
        if not any(losses):
            return demand
        places = tuple(place for place, loss in zip(_places(demand), losses, strict=True) if loss is None)
        if not places:
            raise next(filter(None, losses))
        return places[0] if len(places) == 1 else replace(demand, places=places)


def _places(demand: Demand) -> tuple[Demand, ...]:
    return demand.places or (demand,)


def _is_within(demand: Demand, dimensions: int) -> bool:
    """Whether a demand asks for nothing beyond so many dimensions."""
    asked = [index for place in _places(demand) for index, _ in place.fixed]
    asked += [place.elastic for place in _places(demand) if place.elastic is not None]
    return demand.dimensions >> dimensions == 0 and all(0 <= index < dimensions for index in asked)
