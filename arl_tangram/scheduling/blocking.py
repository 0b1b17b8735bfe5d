"""Say which dimensions an action that waits closes for everybody behind it, so that it starts in bounded time.

An action blocks the dimensions that it lacks, and no others. Two rules keep that from starving it or the rest:

- If each of its dimensions was there at some time, but never all at once, it has lost a chance. After
  `_LOST_CHANCES` of those it blocks all its dimensions.
- What a trajectory holds returns only when the actions of that trajectory have run. So an action that
  needs more of a dimension than trajectories leave waits for one of them to close, and meanwhile blocks
  nobody inside an open trajectory: only new trajectories and actions outside of any.

The mask of a block has two bits per dimension: the low half for everybody, the high half for those outside.
"""

from __future__ import annotations

from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.topology import Topology

_LOST_CHANCES = 4


def lane_mask(action: PendingAction, dimensions: int) -> int:
    """Return the bits of blocks that concern an action, in a topology of so many dimensions."""
    mask = action.demand.dimensions
    return mask if action.trajectory is not None else mask | mask << dimensions


class Blocking:
    """What waiting actions have lacked so far, and what trajectories hold."""

    def __init__(self, topology: Topology) -> None:
        self._dimensions = len(topology.dimensions)
        self._left = [dimension.capacity for dimension in topology.dimensions]
        self._held = 0
        self._chances: dict[int, tuple[int, int, bool]] = {}

    def hold(self, demand: Demand) -> None:
        """A trajectory holds a demand from now on."""
        self._held += 1
        for dimension, units in demand.fixed:
            self._left[dimension] -= units

    def release(self, demand: Demand) -> None:
        """A trajectory holds a demand no longer."""
        self._held -= 1
        for dimension, units in demand.fixed:
            self._left[dimension] += units

    def blocks(self, action: PendingAction, lacking: int) -> int:
        """Return the mask that an action blocks which now lacks the dimensions `lacking`."""
        waits_to_close = self._held > 0 and self._exceeds_what_is_left(action.demand)
        always, lost, waited = self._chances.get(action.id, (lacking, 0, waits_to_close))
        always &= lacking
        if not always or (waits_to_close and not waited):
            always, lost = lacking, lost + 1
        self._chances[action.id] = always, lost, waits_to_close
        blocked = action.demand.dimensions if lost >= _LOST_CHANCES else lacking
        return blocked << self._dimensions if waits_to_close else blocked

    def concerning(self, action: PendingAction, blocked: int) -> int:
        """Return the bits of the dimensions that are blocked for an action."""
        return blocked if action.trajectory is not None else blocked | blocked >> self._dimensions

    def forget(self, action_id: int) -> None:
        """An action does not wait any more."""
        self._chances.pop(action_id, None)

    def _exceeds_what_is_left(self, demand: Demand) -> bool:
        if demand.places:
            return all(map(self._exceeds_what_is_left, demand.places))
        left = self._left
        if demand.elastic is not None and demand.options[0] > left[demand.elastic]:
            return True
        return any(units > left[dimension] for dimension, units in demand.fixed)
