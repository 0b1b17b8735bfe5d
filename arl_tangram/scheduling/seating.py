"""Give candidates their seats in a pool of GPUs, in order, and put back in the queue who gets none.

All else that a candidate asks for it holds already, and no policy can put it off any more: a seat that is taken is
never given back before its action ends. Who gets none holds nothing, and blocks its own service (or the GPUs) for
those behind it. If something has to be restored for it, which is not possible yet, nothing is restored for anybody
behind it; joining what is there goes on, within the bounds that `gpu.seats` sets.

What running actions have called is another matter: what such a caller keeps, others may be waiting for, so that they
would wait for each other. So these are seated though others wait before them, but for a part of the time (`barring`);
else they might keep busy what has to go for one that waits for a restore, for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import overload

from arl_tangram.errors import RestoreError, TangramError
from arl_tangram.model.events import Event, RestoreFailed, ServiceEvicted, ServiceLost, ServiceRestored
from arl_tangram.model.gpu import Chunk, GpuNode, Instance, Seat
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.topology import GPU, Topology
from arl_tangram.scheduling.barring import Barring
from arl_tangram.scheduling.candidates import Candidates
from arl_tangram.scheduling.decisions import Round
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.gpu.request import SeatRequest
from arl_tangram.scheduling.gpu.seats import Seats
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.nesting import Nesting
from arl_tangram.scheduling.queue import WaitingQueue, place
from arl_tangram.scheduling.rounds import Rounds
from arl_tangram.scheduling.seat_needs import timing, with_gpus
from arl_tangram.scheduling.starting import Starting

_MOST_TOGETHER = 8
_WINDOW = 32
_LEAST_S = 0.001


class Seating:
    """The seats of one core.

    Args:
        seats: who sits where.
        topology: the dimensions; one of them counts GPUs.
        ledger: what there is.
        queue: who waits.
        candidates: puts back who gets no seat.
        rounds: is told when to look again.
        durations: what is expected of actions.
        nesting: who has called whom.
        starting: starts those who have a seat.
        refuse: lets go of one that was taken out of the queue, with the error.
        set_capacity: takes the index of a dimension, units and the time: there are so many from now on.
        note: is told what happens.

    Attributes:
        seats: who sits where.
    """

    def __init__(  # noqa: PLR0917 - the parts of one core
        self,
        seats: Seats,
        topology: Topology,
        ledger: Ledger,
        queue: WaitingQueue,
        candidates: Candidates,
        rounds: Rounds,
        durations: Durations,
        nesting: Nesting,
        starting: Starting,
        refuse: Callable[[PendingAction, TangramError, Round], None],
        set_capacity: Callable[[int, int, float], None],
        note: Callable[[Event], object],
    ) -> None:
        self.seats = seats
        self._own = topology.dimensions[topology.index[GPU]].capacity
        self._lent: dict[int, int] = {}
        self._set_capacity = set_capacity
        self._gpu = topology.index[GPU]
        self._services = topology.services
        self._ledger = ledger
        self._queue = queue
        self._candidates = candidates
        self._rounds = rounds
        self._durations = durations
        self._nesting = nesting
        self._starting = starting
        self._refuse = refuse
        self._note = note
        self._where: dict[Instance, Chunk] = {}
        self._barring = Barring()

    # Candidates.

    def seat(self, members: Sequence[PendingAction], this: Round, *, more: bool) -> int:
        """Start those candidates that get a seat; return how many. If anybody is left over, others may start now.

        Args:
            members: the candidates, in order.
            this: the round.
            more: whether there may be more of them.
        """
        if this.unseated is not None and not self._waits(this.unseated[-1], members):
            this.unseated = None  # of an earlier call of the round
        self._barring.begin(members, this, more=more)
        left, started, blocked = deque(members), 0, 0
        left_over: list[PendingAction] = []
        most = _MOST_TOGETHER
        try:
            while left:
                if self._waits_behind(left[0], blocked):
                    if not self._is_refused(left[0], this):
                        self._defer(left[0], this)
                        left_over.append(left[0])
                    left.popleft()
                    continue
                batch = self._batch(left, most, blocked)
                seats = self._seats_for(batch, left, this)
                for seat in seats:
                    action = self._sit(left[0], seat, this)
                    left.popleft()
                    self._starting.start(action, 0, this, seat)
                started += len(seats)
                if len(batch) == len(seats):
                    most = _MOST_TOGETHER
                elif len(batch) > 1:
                    most = 1  # the first of those who got none is asked for by itself
                else:
                    most = _MOST_TOGETHER
                    if not self._is_refused(left[0], this):
                        self._pass_over(left[0], left, this)
                        left_over.append(left[0])
                        blocked |= self._blocked_by(left[0])
                    left.popleft()
        except BaseException:
            left_over += left
            raise
        finally:
            self._candidates.put_back(left_over, this)
        changes_at_s = self._barring.changes_at_s() if self._nesting.waiting else None
        if changes_at_s is not None:
            self._look_again(changes_at_s, this.now_s)
        return started

    def _batch(self, left: Iterable[PendingAction], most: int, blocked: int) -> list[PendingAction]:
        """Return the first, or as many of the first as nobody bars, who are to be seated together."""
        batch: list[PendingAction] = []
        for action in islice(left, most):
            if batch and (self._barring.bars(action) or self._waits_behind(action, blocked)):
                break
            batch.append(action)
            if self._barring.bars(action):
                break
        return batch

    def _seats_for(self, batch: list[PendingAction], left: Iterable[PendingAction], this: Round) -> list[Seat]:
        """Return the seats of a batch, or of the first of it who get any."""
        requests = [self.request(action) for action in batch]
        heeds = self._barring.heeds(batch[0]) if self._barring.bars(batch[0]) else None
        upcoming = _Upcoming(lambda: self._upcoming(batch[0], islice(left, len(batch), None)))
        if len(requests) > 1:
            seats = self.seats.arrange(requests, this.now_s, upcoming)
        else:
            seat = self.seats.find(requests[0], this.now_s, upcoming=upcoming, heeds=heeds)
            seats = [] if seat is None else [seat]
        self.evict(this)
        return seats

    def _sit(self, action: PendingAction, seat: Seat, this: Round) -> PendingAction:
        """Give an action its seat; return it with what it holds then."""
        self.seats.sit(self.request(action), seat, this.now_s)
        self._barring.end(action)
        self._note_evicted(seat.evicts, this.now_s)
        if seat.restores and seat.instance is not None:
            self._where[seat.instance] = seat.chunk
        return action if seat.instance is not None else self._with_gpus(action, seat.chunk.size)

    def with_least(self, action: PendingAction) -> PendingAction:
        """Return an action as it waits: with the least number of GPUs that it asks for."""
        need = action.demand.seat
        if need is None or need.service is not None or len(need.dops) == 1:
            return action
        return action._replace(demand=with_gpus(action.demand, self._gpu, need.dops[0]))

    def _with_gpus(self, action: PendingAction, gpus: int) -> PendingAction:
        """Count all GPUs that an action gets to itself; as a candidate it holds the least that it asks for."""
        need = action.demand.seat
        assert need is not None
        if gpus == need.dops[0]:
            return action
        # Candidates without a seat still hold some, and devices that were reclaimed may be in use.
        self._ledger.regain(self._gpu, gpus - need.dops[0])
        return action._replace(demand=with_gpus(action.demand, self._gpu, gpus))

    def _waits(self, action_id: int, members: Iterable[PendingAction]) -> bool:
        return action_id in self._queue or any(action.id == action_id for action in members)

    def _waits_behind(self, action: PendingAction, blocked: int) -> bool:
        """Whether one before it wants the same service and got nothing, so that it gets nothing, either."""
        return blocked > 0 and action.inherited is None and blocked >> self._dimension(action) & 1 > 0

    def _blocked_by(self, action: PendingAction) -> int:
        """Return the bit of the service that others behind an action need not ask for, which got nothing.

        Where it wants GPUs to itself, one that wants fewer may get some, and a call what its caller keeps.
        """
        dimension = self._dimension(action)
        return 0 if dimension == self._gpu or action.inherited is not None else 1 << dimension

    def _dimension(self, action: PendingAction) -> int:
        """Return the dimension that an action without a seat blocks: of its service, or of the GPUs."""
        need = action.demand.seat
        assert need is not None
        return self._gpu if need.service is None else self._services[need.service]

    def _defer(self, action: PendingAction, this: Round) -> None:
        this.deferred[action.id] = this.deferred.get(action.id, 0) | 1 << self._dimension(action)

    def _is_refused(self, action: PendingAction, this: Round) -> bool:
        """Let go of an action for which its service cannot be restored anywhere; return whether that is so."""
        if self._barring.bars(action) or not self.seats.hopeless(self.request(action), this.now_s):
            return False
        self._barring.end(action)
        self._candidates.drop(action)
        this.original.pop(action.id, None)
        need = action.demand.seat
        assert need is not None
        error = RestoreError(f"{action.demand.name}: {need.service} could not be restored on any of its GPUs")
        self._refuse(action, error, this)
        return True

    def _pass_over(self, action: PendingAction, left: Iterable[PendingAction], this: Round) -> None:
        """Let an action wait, the first of those who are left, which got no seat."""
        self._defer(action, this)
        if self._barring.bars(action):
            return
        upcoming = _Upcoming(lambda: self._upcoming(action, islice(left, 1, None)))
        wait = self.seats.pass_over(self.request(action), this.now_s, upcoming=upcoming)
        if wait.until_s is not None:
            self._look_again(wait.until_s, this.now_s)
        if wait.placing:
            self._barring.waits(action)
        else:
            self._barring.pause(action.id)

    def _look_again(self, at_s: float, now_s: float) -> None:
        """Look at those who wait for a seat at a time, though nothing has changed until then."""
        at_s = max(at_s, now_s + _LEAST_S)
        self._rounds.look_again_s[self._gpu] = min(at_s, self._rounds.look_again_s.get(self._gpu, at_s))

    def is_possible(self, action: PendingAction, kept: Collection[int]) -> bool:
        """Whether an action could ever sit while these others (their ids) keep their seats."""
        return self.seats.possible(self.request(action), kept)

    def request(self, action: PendingAction) -> SeatRequest:
        """Return what an action asks for."""
        demand = action.demand
        need = demand.seat
        assert need is not None
        expected_s = self._durations.expected_curve(timing(demand.name, need, demand.duration_s), action.key)
        callers = () if action.parent is None else self._nesting.seated_callers_of(action)
        return SeatRequest(action.id, need.service, need.dops, expected_s, callers)

    def _upcoming(self, asker: PendingAction, candidates: Iterable[PendingAction]) -> list[str]:
        """Return the services of those of the same priority who come next, in order."""
        services: list[str] = []
        for action in islice(chain(candidates, self._queue.behind(self._gpu, _WINDOW)), _WINDOW):
            if place(action) < place(asker):
                continue
            if place(action)[0] > place(asker)[0]:
                break
            need = action.demand.seat
            if need is not None and need.service is not None:
                services.append(need.service)
        return services

    # What happens.

    def rise(self, running: RunningAction, now_s: float, duration_s: float | None) -> None:
        """An action that had a seat has ended; learn from it if that took `duration_s` and went well."""
        action, seat, need = running.pending, running.seat, running.pending.demand.seat
        self.seats.rise(action.id, now_s)
        self.look_at_all()
        if duration_s is not None and seat is not None and need is not None:
            dop = seat.chunk.size if seat.instance is None else seat.instance.dop
            learned_by = timing(action.demand.name, need, action.demand.duration_s)
            self._durations.observe(learned_by, action.key, dop * MILLI, duration_s)

    def restored(self, instance: Instance, took_s: float, now_s: float) -> None:
        """An instance can be used; that took so long."""
        if (chunk := self._where.get(instance)) is not None:
            self._note(ServiceRestored(now_s, instance, chunk, took_s))
        self.seats.restored(instance, took_s, now_s)
        self.look_at_all()

    def failed(self, instance: Instance, now_s: float) -> None:
        """An instance could not be restored; who sat there has no seat any more, and is to be sent back."""
        if (chunk := self._where.pop(instance, None)) is not None:
            self._note(RestoreFailed(now_s, instance, chunk))
        self.seats.failed(instance, now_s)
        self.look_at_all()

    def lost(self, instance: Instance, now_s: float) -> None:
        """An instance has died; who sat there goes on to its end."""
        if (chunk := self._where.pop(instance, None)) is not None:
            self._note(ServiceLost(now_s, instance, chunk))
        self.seats.lost(instance, now_s)
        self.look_at_all()

    def forget(self, action_id: int) -> None:
        """An action waits no more for a seat."""
        self.seats.forget(action_id)
        self._barring.forget(action_id)
        self.look_at_all()

    def check(self, demand: Demand) -> None:
        """Check that a demand can be met by the devices that there are.

        Raises:
            InfeasibleError: it never can.
        """
        need = demand.seat
        if need is not None:
            self.seats.check(SeatRequest(0, need.service, need.dops, (0.0,) * len(need.dops)), demand.name)

    def set_device(self, device: int, capacity_bytes: int, now_s: float) -> None:
        """Services can have so many bytes of a device for a while; who finds too little there waits for it."""
        self.seats.set_capacity(device, capacity_bytes, now_s)
        self.look_at_all()

    def lend(self, first: int, node: GpuNode, now_s: float) -> None:
        """There are the devices of one more node, or again, numbered from `first`."""
        self.seats.lend(first, node, now_s)
        self._lent[first] = len(node.devices)
        self._count(now_s)

    def reclaim(self, first: int, now_s: float) -> None:
        """Nobody new sits on the devices of the node that was lent with this number; what is idle there is evicted."""
        self.seats.reclaim(first, now_s)
        self._lent.pop(first, None)
        self._count(now_s)

    def evict(self, this: Round) -> None:
        """Hand over what is evicted for nobody."""
        evicted = self.seats.take_evicted()
        if evicted:
            decisions = this.decisions
            decisions.evicted = [*(decisions.evicted or ()), *evicted]
            self._note_evicted(evicted, this.now_s)

    def _count(self, now_s: float) -> None:
        """There are more or fewer seats: let the dimensions that count them say so."""
        counted = {dimension: self.seats.capacity_of(name) for name, dimension in self._services.items()}
        for dimension, units in (*counted.items(), (self._gpu, self._own + sum(self._lent.values()))):
            if units != self._ledger.target[dimension]:
                self._set_capacity(dimension, units, now_s)
        self.look_at_all()

    def look_at_all(self) -> None:
        """Look at all who wait for a seat."""
        self._ledger.changed |= 1 << self._gpu

    def _note_evicted(self, instances: Iterable[Instance], now_s: float) -> None:
        for instance in instances:
            if (chunk := self._where.pop(instance, None)) is not None:  # else it has died since
                self._note(ServiceEvicted(now_s, instance, chunk))


class _Upcoming(Sequence[str]):
    """The services of those who come next; found out when it is first looked at, which is seldom."""

    def __init__(self, find: Callable[[], list[str]]) -> None:
        self._find = find

    @cached_property
    def _names(self) -> list[str]:
        return self._find()

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._names[index]

    def __len__(self) -> int:
        return len(self._names)
