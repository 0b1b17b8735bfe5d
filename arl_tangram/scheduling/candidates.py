"""Walk the queue and take out who could start: candidates at their least units, by the dimension they compete for."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.blocking import Blocking
from arl_tangram.scheduling.decisions import Round
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.placement import Placement
from arl_tangram.scheduling.queue import Head, Lane, WaitingQueue, place
from arl_tangram.scheduling.turns import Trajectories

_MOST_GROUPS = 4
_MOST_CANDIDATES = 64
_MOST_FIXED = 512
_MOST_SEATED = 128


class Gathered:
    """Candidates; each holds its least units.

    Attributes:
        groups: those that a policy hands out units to, by dimension, in order.
        fixed: the others, in order, but for
        seated: those that need a seat in a pool of GPUs, in order; they have none yet.
        exhausted: no candidates: those that ask for more of a budget than is left; they hold nothing.
        left_some: whether it stopped at a bound, and there may be more.
        left_seated: the same for those that need a seat: there may be more of them than `seated`.
        reserving: units that trajectories among the candidates take of what callers have lent some of, by dimension.
    """

    __slots__ = ("exhausted", "fixed", "groups", "left_seated", "left_some", "reserving", "seated")

    def __init__(self) -> None:
        self.groups: dict[int, list[PendingAction]] = {}
        self.fixed: list[PendingAction] = []
        self.exhausted: list[tuple[PendingAction, int]] = []
        self.left_some = False
        self.left_seated = False
        self.reserving: dict[int, int] = {}
        self.seated: list[PendingAction] = []

    def reserve(self, demand: Demand) -> None:
        """A trajectory is to hold a demand."""
        for dimension, units in demand.fixed:
            self.reserving[dimension] = self.reserving.get(dimension, 0) + units

    def all(self) -> list[PendingAction]:
        """Return all candidates."""
        return [*self.fixed, *self.seated, *(action for members in self.groups.values() for action in members)]


class Candidates:
    """Takes candidates out of the queue, and puts back who does not start.

    Attributes:
        with_seats: whether there are seats in a pool of GPUs; where there are none, as when a trace is replayed, who
            needs one starts without.
    """

    def __init__(
        self,
        topology: Topology,
        ledger: Ledger,
        queue: WaitingQueue,
        blocking: Blocking,
        trajectories: Trajectories,
    ) -> None:
        self.with_seats = False
        self.placement = Placement(topology, ledger)
        self._trajectories = trajectories
        self._ledger = ledger
        self._queue = queue
        self._blocking = blocking

    def gather(self, this: Round, changed: int) -> Gathered:
        """Take the candidates, of the dimensions that changed or are tied to those that did."""
        gathered = Gathered()
        ledger, queue, blocking, fixed = self._ledger, self._queue, self._blocking, gathered.fixed
        lent = blocking.lent
        blocked = this.skip | this.barred
        heads = queue.heads(changed)
        while heads:
            lane = heads[0][1]
            if lane.mask & blocked:
                heapq.heappop(heads)
                continue
            action = lane.actions[0]
            demand = action.demand
            if demand.places or lent:
                demand, lacking = self._placed(action, this, blocked, gathered)
            else:
                lacking = ledger.lacking(demand)
                if this.deferred:
                    lacking |= this.deferred.get(action.id, 0)
            if lacking:
                heapq.heappop(heads)
                blocked |= self._pass_over(lane, lacking, heads, this, gathered)
                continue
            elastic = demand.elastic
            members = fixed if len(fixed) < _MOST_FIXED else None
            seated = elastic is None and demand.seat is not None and self.with_seats
            if elastic is not None:
                members = self._group(elastic, gathered, this)
            elif seated:
                members = gathered.seated if len(gathered.seated) < _MOST_SEATED else None
            if members is None:
                gathered.left_seated |= seated
                gathered.left_some |= not seated
                blocked |= demand.dimensions if elastic is None else 1 << elastic
                heapq.heappop(heads)
                continue
            queue.take(lane)
            ledger.take(demand, 0 if elastic is None else demand.options[0], this.now_s)
            if demand is not action.demand:
                this.original[action.id] = action
                action = action._replace(demand=demand)
            members.append(action)
            following = queue.first(lane)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (place(following), lane))
        return gathered

    def put_back(self, taken: Iterable[PendingAction], this: Round) -> None:
        """Return candidates to their places; they hold nothing."""
        for action in sorted(taken, key=place, reverse=True):
            demand = action.demand
            self._ledger.undo(demand, 0 if demand.elastic is None else demand.options[0])
            self._queue.put_back(this.original.pop(action.id, action))

    def drop(self, action: PendingAction) -> None:
        """Take back what a candidate holds that will never start; it is not queued again."""
        self._ledger.undo(action.demand, 0 if action.demand.elastic is None else action.demand.options[0])

    def _lent(self, action: PendingAction, gathered: Gathered) -> int:
        """Return the dimensions of which a trajectory, which holds them for long, would take what callers have lent."""
        if action.id not in self._trajectories:
            return 0
        return self._blocking.beyond_lent(action.demand, gathered.reserving)

    def _pass_over(self, lane: Lane, lacking: int, heads: list[Head], this: Round, gathered: Gathered) -> int:
        """Return what the first of a lane blocks; if not those behind it that ask for something else, go on with them.

        Args:
            lane: the lane.
            lacking: bits of the dimensions that its first lacks.
            heads: gets the first of those to go on with.
            this: the round.
            gathered: the candidates so far.
        """
        if lacking & self._ledger.budgets and self._take_exhausted(lane, gathered):
            return 0
        action = lane.actions[0]
        if action.demand.places:
            lacking = self._own_lack(action, this, gathered)
            if not lacking:
                return 0
        lent = bool(self._blocking.lent) and self._lent(action, gathered) > 0
        if action.demand.seat is not None:  # a caller may keep the seat that it waits for, until it has what it called
            if action.inherited is not None and not lacking & ~this.deferred.get(action.id, 0):
                return 0
            lent = True
        blocks = self._blocking.blocks(action, lacking, lent)
        if (
            not (lane.alike or blocks & lane.mask)
            and not self._blocking.concerning(action, blocks) & action.demand.dimensions
        ):
            for head in self._queue.split(lane):
                heapq.heappush(heads, head)
        return blocks

    def _placed(self, action: PendingAction, this: Round, blocked: int, gathered: Gathered) -> tuple[Demand, int]:
        """Return what an action asks for at the best of its places, or itself and the dimensions that it lacks."""
        barred = this.deferred.get(action.id, 0) | self._blocking.concerning(action, blocked)
        demand, lent = action.demand, self._lent(action, gathered)
        if demand.places:
            demand, lacking = self.placement.choose(demand, barred | lent)
        else:
            lacking = self._ledger.lacking(demand) | this.deferred.get(action.id, 0) | lent
        if not lacking and self._blocking.lent and action.id in self._trajectories:
            gathered.reserve(demand)
        return demand, lacking

    def _own_lack(self, action: PendingAction, this: Round, gathered: Gathered) -> int:
        """Return the dimensions that an action with places lacks itself, in any of them.

        What is only blocked for it, by one before it, is blocked for those whom that one's block concerns, and for
        nobody else: not, say, for the calls of actions that keep what that one waits for.
        """
        lacking = this.deferred.get(action.id, 0) | self._lent(action, gathered)
        for placed in action.demand.places:
            lacking |= self._ledger.lacking(placed)
        return lacking

    def _take_exhausted(self, lane: Lane, gathered: Gathered) -> bool:
        """Take the first of a lane out of the queue as long as a budget leaves too little for it; whether any was."""
        taken = False
        while (first := self._queue.first(lane)) is not None:
            budget = self._exhausted(first.demand)
            if budget is None:
                break
            gathered.exhausted.append((self._queue.take(lane), budget))
            taken = True
        return taken

    def _exhausted(self, demand: Demand) -> int | None:
        """Return a budget that leaves too little for a demand, in each of its places, for ever."""
        budget = None
        for placed in demand.places or (demand,):
            budget = self._ledger.exhausted(placed)
            if budget is None:
                return None
        return budget

    @staticmethod
    def _group(elastic: int, gathered: Gathered, this: Round) -> list[PendingAction] | None:
        """Return the group that a candidate joins, or None if that would be one group or one candidate too many."""
        if elastic not in this.planned:
            if len(this.planned) >= _MOST_GROUPS:
                return None
            this.planned.add(elastic)
        members = gathered.groups.setdefault(elastic, [])
        if len(members) < _MOST_CANDIDATES:
            return members
        this.full |= 1 << elastic
        return None
