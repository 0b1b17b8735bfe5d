"""Say how many cores others than sharers are to find free: callers that want theirs back, and those that wait.

Others start by the ordinary walk over the queue. In their order, they find as many cores free as they need at least, up
to a bound: together, with those that they have, the part of the cores that is theirs by their number. Beyond it, the
first of them still finds what it needs if they have none, or after it has waited for a while, but not before a
sharer that came before it and is overdue. So neither starve the others.
"""

from __future__ import annotations

from typing import NamedTuple

from arl_tangram.model.lifecycle import Demand
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.queue import WaitingQueue
from arl_tangram.scheduling.sharing.room import Room

PATIENCE_S = 10.0
"""How long the first of the others may wait for its part."""
_MOST = 64


class Want(NamedTuple):
    """One that is no sharer yet and waits, and could start if there were cores.

    Attributes:
        id: of the action, or the trajectory.
        priority: lower first.
        order: as that of a sharer.
        units: integer units that it needs at least.
        since_s: when it was submitted.
    """

    id: int
    priority: int
    order: int
    units: int
    since_s: float


class Others:
    """Those of one core object that wait for cores and do not share them yet.

    Args:
        ledger: what there is.
        queue: who waits.
    """

    def __init__(self, ledger: Ledger, queue: WaitingQueue) -> None:
        self._ledger = ledger
        self._queue = queue

    def wanting(self, room: Room, *, halted: bool) -> list[Want]:
        """Return those whose every other dimension fits now, in order; if nothing new is to start, only calls."""
        wants: list[Want] = []
        lacked = 0
        for action in self._queue.behind(room.cpu, _MOST):
            if action.id in room.passed_over or (halted and action.inherited is None):
                continue
            units, lacking = self._units(action.demand, room.cpu, lacked)
            if units:
                place = action.inherited or (action.demand.priority, 0.0, action.id)
                wants.append(Want(action.id, place[0], place[2], units, action.submitted_at_s))
            lacked |= lacking
        return wants

    def _units(self, demand: Demand, cpu: int, lacked: int) -> tuple[int, int]:
        """Return the cores that would let an action start, 0 if these would not, and what else it lacks."""
        least, lacking = 0, 0
        bit = 1 << cpu
        for placed in demand.places or (demand,):
            lacks = (self._ledger.lacking(placed) | placed.dimensions & lacked) & ~bit
            if lacks:
                lacking |= lacks
                continue
            if not placed.dimensions & bit:
                return 0, 0  # it starts elsewhere
            units = sum([amount for dimension, amount in placed.fixed if dimension == cpu])
            if placed.elastic == cpu:
                units += placed.options[0]
            if units and (not least or units < least):
                least = units
        return least, 0 if least else lacking


class Part(NamedTuple):
    """What those of one priority find free.

    Attributes:
        units: integer units.
        ids: for whom.
        lacks: whether the first that lacks something does so because of sharers that must keep their cores.
        look_again_s: when one has waited long enough; None if that is not what it waits for.
    """

    units: int
    ids: tuple[int, ...]
    lacks: bool = False
    look_again_s: float | None = None


def part_of(
    wants: list[Want], sharers: int, *, held: int, scale: int, capacity: int, spare: int, kept: int,
    first: tuple[int, int] | None, now_s: float,
) -> Part:  # fmt: skip
    """Return what the others of one priority find free.

    Args:
        wants: of that priority, in order.
        sharers: how many there are.
        held: units that others have, or find already.
        scale: units in a core.
        capacity: units in all.
        spare: units that there are for all of that priority.
        kept: those of them that sharers must keep.
        first: the order of the first overdue sharer, and the units that it needs; None if there is none.
        now_s: the time.
    """
    others = len(wants) + -(-held // scale)
    limit = capacity * others // (others + sharers) if sharers else capacity
    taken, ids = 0, list[int]()
    for want in wants:
        found = taken + want.units
        if found > spare - kept:
            return Part(taken, tuple(ids), lacks=found <= spare)
        if first is not None and first[0] < want.order and found > spare - first[1]:
            break
        if held + found > limit and held + taken > 0:
            if taken or now_s < want.since_s + PATIENCE_S:
                return Part(taken, tuple(ids), look_again_s=None if taken else want.since_s + PATIENCE_S)
            ids.append(want.id)
            taken = found
            break
        taken = found
        ids.append(want.id)
    return Part(taken, tuple(ids))
