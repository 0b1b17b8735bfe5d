"""What one client took of rates and budgets, at the owner, which remembers it when the client is gone."""

from __future__ import annotations

from collections.abc import Iterable

from arl_tangram.dispatch import Dispatcher
from arl_tangram.integrations.ray.charges import Charges, counted
from arl_tangram.integrations.ray.owner.holding import Held
from arl_tangram.integrations.ray.owner.memory import Memory


class Spending:
    """What the calls of one client took that do not run any more.

    Args:
        dispatcher: the scheduler.
        memory: what the owner remembers.
    """

    def __init__(self, dispatcher: Dispatcher, memory: Memory) -> None:
        self._dispatcher = dispatcher
        self._memory = memory
        self._charges = Charges()
        self._has_left = False
        spent = [i for i, known in enumerate(dispatcher.topology.dimensions) if known.window_s is not None]
        self._spent = sum(1 << index for index in spent)

    def ended(self, held: Held) -> None:
        """A call ends; what goes beyond its grant counts from now on."""
        assert held.running is not None
        demand = held.asked or held.running.pending.demand
        if not demand.dimensions & self._spent:
            return
        for index, granted, beyond in counted(dict(demand.fixed), held.settled):
            self._add(index, granted, held.running.started_at_s)
            self._add(index, beyond, self._dispatcher.now_s())

    def took_over(self, charges: Iterable[tuple[int, int, float]]) -> None:
        """The client has told what it took before this owner: dimensions, units, and how long ago."""
        now_s = self._dispatcher.now_s()
        for index, units, age_s in charges:
            self._add(index, units, now_s - age_s)

    def leave(self) -> None:
        """The client is gone, and nobody else knows what it took."""
        self._has_left = True
        self._charges.move(self._memory.charge, self._dispatcher.now_s())

    def _add(self, index: int, units: int, at_s: float) -> None:
        if self._has_left:
            self._memory.charge(index, units, at_s)
        else:
            known = self._dispatcher.topology.dimensions[index]
            self._charges.add(index, known, units, at_s, self._dispatcher.now_s())
