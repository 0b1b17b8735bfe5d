"""Say which dimensions an action that waits closes for everybody behind it, so that it starts in bounded time.

An action blocks the dimensions that it lacks, and no others. Three rules keep that from starving it or the rest:

- If each of its dimensions was there at some time, but never all at once, it has lost a chance. After
  `_LOST_CHANCES` of those it blocks all its dimensions.
- What a trajectory holds returns only when the actions of that trajectory have run. So an action that
  needs more of a dimension than trajectories leave waits for one of them to close, and meanwhile blocks
  nobody inside an open trajectory: only new trajectories and actions outside of any.
- What an action keeps while it waits for actions that it called returns only when those have run. So an action that
  needs more of a dimension than such callers leave blocks none of the actions that running ones have called. While one
  of those waits for a trajectory to close, it does not block those inside of trajectories, either. To a trajectory
  that wants to hold something, what callers have lent counts as what they keep: while it held that, its own actions
  might wait for what such a caller keeps.

The mask of a block has a bit per dimension for each of three classes: the lowest for everybody, the next for those that
nobody who runs has called, the highest for those of them that are outside of trajectories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.scheduling.ledger import Ledger

_LOST_CHANCES = 4
_EVERYBODY, _UNCALLED, _OUTSIDE = range(3)


class Masks:
    """The bits of blocks that concern an action.

    Args:
        dimensions: how many there are in the topology.

    Attributes:
        new: the bit that concerns all whom nobody who runs has called.
    """

    __slots__ = ("_inside", "_outside", "new")

    def __init__(self, dimensions: int) -> None:
        self._inside = 1 | 1 << dimensions
        self._outside = self._inside | 1 << 2 * dimensions
        self.new = 1 << 3 * dimensions

    def of(self, action: PendingAction) -> int:
        """Return the bits that concern an action."""
        if action.inherited is not None:
            return action.demand.dimensions
        return action.demand.dimensions * (self._outside if action.trajectory is None else self._inside) | self.new


class Blocking:
    """What waiting actions have lacked so far, and what trajectories and callers hold.

    Attributes:
        kept: units of each dimension that callers keep while they wait for what they have called.
        callers: how many keep something.
        lent: units that callers have lent, by dimension, of those of which they have lent any.
        held_back: whether a trajectory waits for what callers have lent.
        widened: whether an action blocks less than it did, so that all have to be looked at again.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._dimensions = len(ledger.target)
        self._budgets = ledger.budgets
        self._left = list(ledger.target)
        self._trajectories = 0
        self._chances: dict[int, tuple[int, int, int]] = {}
        self._wait_for_trajectories: set[int] = set()
        self.kept = [0] * self._dimensions
        self.callers = 0
        self.lent: dict[int, int] = {}
        self.held_back = False
        self.widened = False

    def hold(self, demand: Demand) -> None:
        """A trajectory holds a demand from now on."""
        self._trajectories += 1
        for dimension, units in demand.fixed:
            self._left[dimension] -= units

    def release(self, demand: Demand) -> None:
        """A trajectory holds a demand no longer."""
        self._trajectories -= 1
        for dimension, units in demand.fixed:
            self._left[dimension] += units

    def keep(self, kept: Sequence[tuple[int, int]]) -> None:
        """A caller keeps units, by dimension, while it waits for what it has called."""
        self.callers += 1
        for dimension, units in kept:
            self.kept[dimension] += units

    def stop_keeping(self, kept: Sequence[tuple[int, int]]) -> None:
        """A caller that kept these runs again, or has ended."""
        self.callers -= 1
        for dimension, units in kept:
            self.kept[dimension] -= units

    def lend(self, dimension: int, units: int) -> None:
        """A caller has lent units, or (below 0) has them again."""
        lent = self.lent.pop(dimension, 0) + units
        if lent:
            self.lent[dimension] = lent

    def beyond_lent(self, request: Demand, reserving: Mapping[int, int]) -> int:
        """Return the dimensions of which a trajectory asks for more than is left beside what callers lend and keep.

        Args:
            request: what it wants to hold.
            reserving: units by dimension that others are about to hold.
        """
        beyond = 0
        for dimension, lent in self.lent.items():
            left = self._left[dimension] - self.kept[dimension] - lent - reserving.get(dimension, 0)
            for place in request.places or (request,):
                if any(d == dimension and units > left for d, units in place.fixed):
                    beyond |= 1 << dimension
        self.held_back |= beyond > 0
        return beyond

    def resize(self, dimension: int, more: int) -> None:
        """There are so many more units of a dimension, or (below 0) fewer."""
        self._left[dimension] += more

    def blocks(self, action: PendingAction, lacking: int, lent: bool) -> int:
        """Return the mask that an action blocks which now lacks the dimensions `lacking`, some as they are `lent`."""
        concerned = self._concerned(action, lacking, lent) if self._trajectories or self.callers else _EVERYBODY
        always, lost, before = self._chances.get(action.id, (lacking, 0, concerned))
        always &= lacking
        if not always or concerned > before:
            always, lost = lacking, lost + 1
        self._chances[action.id] = always, lost, concerned
        blocked = action.demand.dimensions if lost >= _LOST_CHANCES else lacking
        return blocked << concerned * self._dimensions

    def blocks_units(self, dimension: int, units: int) -> int:
        """Return the mask that a caller blocks which lacks these units to go on."""
        return 1 << dimension + self._dimensions * self._concerned_by(units, dimension)

    def keeps(self, dimension: int, capacity: int) -> int:
        """Return the units that return only when trajectories close or callers have what they called, of so many."""
        return capacity - self._left[dimension] + self.kept[dimension]

    def concerning(self, action: PendingAction, blocked: int) -> int:
        """Return the bits of the dimensions that are blocked for an action."""
        if action.inherited is not None:
            return blocked
        blocked |= blocked >> self._dimensions
        return blocked if action.trajectory is not None else blocked | blocked >> self._dimensions

    def forget(self, action_id: int) -> None:
        """An action does not wait any more."""
        self._chances.pop(action_id, None)
        if self._wait_for_trajectories:
            self._wait_for_trajectories.discard(action_id)

    def _concerned(self, action: PendingAction, lacking: int, lent: bool) -> int:
        """Return whom an action blocks."""
        if self._trajectories and _exceeds(action.demand, self._left):
            if action.inherited is not None and action.id not in self._wait_for_trajectories:
                self._wait_for_trajectories.add(action.id)
                self.widened = True
            return _OUTSIDE
        if self.callers and (lent or lacking & self._budgets or _exceeds(action.demand, self._left_by_all())):
            return _OUTSIDE if self._wait_for_trajectories else _UNCALLED
        return _EVERYBODY

    def _concerned_by(self, units: int, dimension: int) -> int:
        if units > self._left[dimension]:
            return _OUTSIDE
        if units > self._left[dimension] - self.kept[dimension]:
            return _OUTSIDE if self._wait_for_trajectories else _UNCALLED
        return _EVERYBODY

    def _left_by_all(self) -> list[int]:
        return [left - kept for left, kept in zip(self._left, self.kept, strict=True)]


def _exceeds(demand: Demand, left: Sequence[int]) -> bool:
    if demand.places:
        return all(_exceeds(place, left) for place in demand.places)
    if demand.elastic is not None and demand.options[0] > left[demand.elastic]:
        return True
    return any(units > left[dimension] for dimension, units in demand.fixed)
