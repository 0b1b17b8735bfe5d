"""Say how many cores others than sharers are to find free, who start by the ordinary walk over the queue.

In their order, they find as many as they need at least, up to a bound: together, with those that they have, the part of
the cores that is theirs by their number. The first that finds none holds up those behind it, so that no smaller one
overtakes it for ever. Beyond their part, the first still finds what it needs when they have none but those that
return late; so others do not starve.

A sharer that does not fit beside others, and has waited for a while or is overdue, bars those that came after it, until
it has had its cores for a while: what others have returns. So sharers do not starve.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from math import inf
from typing import NamedTuple

from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.scheduling.blocking import Blocking
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.queue import WaitingQueue, place
from arl_tangram.scheduling.sharing.room import Room

_MOST = 64


class Want(NamedTuple):
    """One that is no sharer yet and waits, and could start if there were cores.

    Attributes:
        action: the call, or the request of a trajectory.
        priority: lower first.
        order: as that of a sharer.
        units: integer units that it needs at least.
    """

    action: PendingAction
    priority: int
    order: int
    units: int


class Bar(NamedTuple):
    """What a sharer blocks for those that came after it.

    Attributes:
        priority: its own.
        order: its own.
        blocks: the mask.
    """

    priority: int
    order: int
    blocks: int


class Part(NamedTuple):
    """What others find free.

    Attributes:
        units: integer units, in all.
        made: for whom.
        lacks: the priority and the order of the first that waits for sharers that must keep their cores, or None.
        blocked: the mask of what they block.
    """

    units: int
    made: tuple[Want, ...]
    lacks: tuple[int, int] | None
    blocked: int


class Others:
    """Those of one core object that wait for cores and do not share them yet.

    Args:
        ledger: what there is.
        queue: who waits.
        blocking: what those who wait block.
    """

    def __init__(self, ledger: Ledger, queue: WaitingQueue, blocking: Blocking) -> None:
        self._ledger = ledger
        self._queue = queue
        self._blocking = blocking

    def wanting(self, room: Room, *, halted: bool) -> list[Want]:
        """Return those whose every other dimension fits now, in order; if nothing new is to start, only calls.

        Those of a lane wait behind its first that lacks something else.
        """
        wants: list[Want] = []
        lacked = 0
        lanes = self._queue.lanes_of(room.cpu)
        heads = [(place(first), at, first) for at, lane in enumerate(lanes) if (first := next(lane, None)) is not None]
        heapify(heads)
        while heads and len(wants) < _MOST:
            _, at, action = heads[0]
            units, lacking = 0, -1
            if not halted or action.inherited is not None:
                units, lacking = self._units(action.demand, room.cpu, lacked)
                lacked |= lacking
            following = None if lacking else next(lanes[at], None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (place(following), at, following))
            if units and action.id not in room.passed_over:
                priority, _, order = action.inherited or (action.demand.priority, 0.0, action.id)
                wants.append(Want(action, priority, order, units))
        return wants

    def part_of(
        self, wants: list[Want], cpu: int, *, most: int, bars: list[Bar], blocked: int, kept: int = 0,
        beside: float = inf, returning: int = 0,
    ) -> Part:  # fmt: skip
        """Return what others find free.

        Args:
            wants: theirs, in order.
            cpu: the dimension.
            most: units that there are for them.
            bars: what sharers block.
            blocked: the mask of what is blocked for them besides.
            kept: units that there would be, too, if no sharer had to keep its cores.
            beside: units that they may have beside those that others have already.
            returning: those of the units of others that return by themselves.
        """
        taken, lacks, made = 0, None, list[Want]()
        for want in wants:
            for bar in bars:
                if (bar.priority, bar.order) < (want.priority, want.order):
                    blocked |= bar.blocks
            if self._blocking.concerning(want.action, blocked) >> cpu & 1:
                continue
            found = taken + want.units
            if found > most or (found > beside and returning + taken > 0):
                if lacks is None and most < found <= most + kept:
                    lacks = want.priority, want.order
                blocked |= self._blocking.blocks_units(cpu, want.units)
                continue
            taken = found
            made.append(want)
        return Part(taken, tuple(made), lacks, blocked)

    def bar(self, cpu: int, priority: int, order: int, units: int) -> Bar:
        """Return what a sharer blocks that needs so many units."""
        return Bar(priority, order, self._blocking.blocks_units(cpu, units))

    def blocked_by_callers(self, cpu: int, units: int) -> int:
        """Return what a caller blocks that needs so many units to go on."""
        return self._blocking.blocks_units(cpu, units)

    def returning(self, cpu: int, held: int) -> int:
        """Return how many of the units that others have return by themselves."""
        return max(0, held - self._blocking.keeps(cpu, self._ledger.target[cpu]))

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
