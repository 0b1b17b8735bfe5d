"""What one client has at the owner: its commands are inputs of the scheduler, and what is decided are its events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from arl_tangram.dispatch import Dispatcher
from arl_tangram.errors import (
    InfrastructureError,
    NestedActionError,
    NodeLostError,
    NoTrajectoryError,
    OwnerLostError,
    TangramError,
)
from arl_tangram.integrations.ray.answers import of_the_library
from arl_tangram.integrations.ray.breaking import OwnerBreakers
from arl_tangram.integrations.ray.charges import Charges, counted
from arl_tangram.integrations.ray.judging import Judging
from arl_tangram.integrations.ray.memory import Memory
from arl_tangram.integrations.ray.wire import (
    Admitted,
    Called,
    CalledOff,
    Close,
    Command,
    Declare,
    Ended,
    Event,
    Expired,
    Finish,
    Granted,
    Judged,
    Lend,
    Open,
    Pause,
    Reclaim,
    Refused,
    Resume,
    Resumed,
    Said,
    SendBack,
    Settle,
    Submit,
    Withdraw,
)
from arl_tangram.model.events import ActionEnded
from arl_tangram.model.gpu import Seat
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction

_MOST_PAST = 4096
_logger = logging.getLogger(__name__)


class NodesTold(Protocol):
    """The nodes: which are lost, and who tells the one with the GPUs of seats, in the order of decisions."""

    def loss_of(self, number: int) -> NodeLostError | None:
        """Return why nothing can be on a node with cores, by its number; None if it can."""
        ...

    def taken(self, session: str, seat: Seat) -> int:
        """A seat was granted; return the number of its lease."""
        ...

    def dropped(self, lease: int) -> None:
        """A call with a seat has ended, or waits again."""
        ...


@dataclass(slots=True, eq=False)
class Held:
    """A call or a trajectory of a client, while it waits or holds something; a `Waiter`.

    Attributes:
        local: its id at the client.
        pending: what the scheduler was given, with the owner's id.
        group: of a trajectory.
        is_trajectory: whether it is one.
        running: the call with its units; None while it waits.
        is_admitted: whether it is a trajectory that holds what it asked for.
        lease: the number of its seat, if it has one.
        on_end: is called when it does not hold anything any more.
        asked: of a call that was taken over, what it was granted, as the scheduler has it without rates and budgets.
        settled: what it counts for, by dimension, of those rates and budgets that it has settled.
    """

    of: Holdings
    local: int
    pending: PendingAction
    is_trajectory: bool = False
    group: str | None = None
    running: RunningAction | None = None
    is_admitted: bool = False
    lease: int = 0
    on_end: Callable[[], None] | None = None
    asked: Demand | None = None
    settled: dict[int, int] = field(default_factory=dict[int, int])

    def granted_units(self) -> dict[int, int]:
        """Return what a call was granted, by dimension, but for its elastic one."""
        assert self.running is not None
        return dict((self.asked or self.running.pending.demand).fixed)

    @property
    def waits(self) -> bool:
        """Whether it waits, and so holds nothing."""
        return self.running is None and not self.is_admitted

    def granted(self, running: RunningAction | None) -> None:
        """Tell the client that it has its units."""
        self.of.granted(self, running)

    def expired(self) -> None:
        """Tell the client that its time to wait is over."""
        self.of.forget(self)
        self.of.tell(Expired(self.local))

    def failed(self, error: Exception) -> None:
        """Tell the client why it does not get anything."""
        self.of.forget(self)
        self.of.refuse(self.local, self.pending.demand, error)

    def shut_down(self) -> None:
        """Nothing: who closes an owner ends its sessions."""


class Holdings:
    """What one client has.

    Args:
        session: its name.
        dispatcher: the scheduler.
        nodes: the nodes.
        tell: sends the client an event.
        interned: returns one object for all demands that are equal.
        why: returns why a demand is refused, by the error of the scheduler.
        breakers: those of the quotas, if any has one.
        memory: what is to be known beyond its end.
    """

    def __init__(
        self,
        session: str,
        dispatcher: Dispatcher,
        nodes: NodesTold,
        tell: Callable[[Event], None],
        *,
        interned: Callable[[Demand], Demand],
        why: Callable[[Demand, Exception], Exception],
        breakers: OwnerBreakers | None = None,
        memory: Memory,
    ) -> None:
        self.session = session
        self.tell = tell
        self._dispatcher = dispatcher
        self._nodes = nodes
        self._why = why
        self._interned = interned
        self._breakers = breakers
        self._judging = None if breakers is None else Judging(breakers)
        self._demands: dict[int, Demand] = {}
        self._held: dict[int, Held] = {}
        self._past: dict[int, int] = {}
        self._memory = memory
        self._charges = Charges()
        self._has_left = False

    def all(self) -> list[Held]:
        """Return all that waits or holds something."""
        return list(self._held.values())

    def take(self, command: Command) -> None:
        """Do what the client says; what it says of something that is over already changes nothing."""
        try:
            self._take(command)
        except Exception as error:
            if not isinstance(error, TangramError):
                _logger.exception("%s of %s failed", command, self.session)
            if isinstance(command, Submit | Open):
                self.refuse(command.id, self._demands.get(command.demand), error)

    def refuse(self, local: int, demand: Demand | None, error: Exception) -> None:
        """Tell the client that a call or a trajectory does not get anything, and why."""
        self.tell(Refused(local, _told(error if demand is None else self._why(demand, error))))

    def _take(self, command: Command) -> None:  # noqa: PLR0912 - one line for each
        dispatcher = self._dispatcher
        match command:
            case Declare(number, demand):
                self._declare(number, demand)
            case Submit():
                self._submit(command)
            case Open():
                self._open(command)
            case Withdraw(local):
                self._withdraw(local)
            case Close(local):
                if (held := self._held.get(local)) is not None and held.is_admitted:
                    self._close(held)
            case Finish(local, ran_s, unused):
                if (held := self._running(local)) is not None:
                    self._is_to_be_judged(held)
                    self._finish(held, ran_s, unused=unused)
            case SendBack(local):
                if (held := self._running(local)) is not None:
                    self._is_to_be_judged(held)
                    self._send_back(held)
            case Lend(local, cores):
                if (held := self._running(local)) is not None:
                    dispatcher.lend(held.pending.id, cores=cores)
            case Reclaim(local, number):
                if (held := self._running(local)) is not None:
                    self.reclaim(held, number)
            case Settle(local, amounts):
                if (held := self._running(local)) is not None:
                    held.settled.update(amounts)
                    dispatcher.settle(held.pending.id, amounts)
            case Pause(dimension, for_s):
                self._memory.pause(dimension, for_s)
            case Ended():
                self._note(command)
            case Called() | Said() | Judged():
                if self._judging is not None:
                    held = self._held.get(command.id)
                    self._judging.take(command, None if held is None else held.running)
                    self._memory.look_at_breakers()
            case _:
                raise ValueError(f"{command} is no command of a client")

    # What waits.

    def _declare(self, number: int, demand: Demand) -> None:
        if _is_within(demand, len(self._dispatcher.topology.dimensions)):
            self._demands[number] = self._interned(demand)
        else:
            self._demands.pop(number, None)

    def _demand(self, number: int) -> Demand:
        if (demand := self._demands.get(number)) is None:
            raise OwnerLostError("the pools of the shared runtime are others than those that this was asked of")
        return demand

    def _submit(self, command: Submit) -> None:
        dispatcher, trajectory, parent = self._dispatcher, None, None
        demand = self._demand(command.demand)
        if command.trajectory is not None:
            within = self._held.get(command.trajectory)
            if within is None or not within.is_admitted:
                raise NoTrajectoryError(f"{demand.name} was called in a trajectory that is not open")
            trajectory = within.pending.id
        if command.parent is not None:
            caller = self._running(command.parent)
            if caller is None:
                raise NestedActionError(f"{demand.name} was called by an action that has ended")
            parent = caller.pending.id
        now_s = dispatcher.now_s()
        pending = PendingAction(
            self._id(command.id),
            demand,
            now_s - command.age_s,
            command.key,
            trajectory,
            command.turn,
            0.0,
            parent,
            None if command.first_age_s is None else now_s - command.first_age_s,
        )
        if self._breakers is not None and (error := self._breakers.refusal(pending.demand)) is not None:
            raise error
        held = Held(self, command.id, pending)
        dispatcher.submit(pending, held)
        self._held[command.id] = held

    def _open(self, command: Open) -> None:
        demand = self._where_it_can_be(self._demand(command.demand))
        pending = PendingAction(self._id(command.id), demand, self._dispatcher.now_s() - command.age_s)
        held = Held(self, command.id, pending, is_trajectory=True, group=command.group)
        self._dispatcher.open(pending, held, group=command.group)
        self._held[command.id] = held

    def _where_it_can_be(self, demand: Demand) -> Demand:
        """Leave out the lost nodes for a trajectory that holds nothing: no pause of what these have keeps it out.

        Raises:
            NodeLostError: no other node can have it.
        """
        losses = [None if place.dimensions else self._nodes.loss_of(place.node or 0) for place in _places(demand)]
        if not any(losses):
            return demand
        places = tuple(place for place, loss in zip(_places(demand), losses, strict=True) if loss is None)
        if not places:
            raise next(filter(None, losses))
        return places[0] if len(places) == 1 else replace(demand, places=places)

    def _id(self, local: int) -> int:
        """Return the id of a call here; one that is tried again has the one that it had, and so its place."""
        return self._past.pop(local, None) or self._dispatcher.new_id()

    def _withdraw(self, local: int) -> None:
        held = self._held.get(local)
        if held is None:
            return
        if held.waits:
            self._dispatcher.withdraw(held.pending.id)
            self.forget(held)
        elif held.running is not None:  # granted meanwhile
            self._finish(held, None, unused=True)
        else:
            self._close(held)

    def granted(self, held: Held, running: RunningAction | None) -> None:
        """Tell the client that a call or a trajectory has what it waited for."""
        if running is None:
            held.is_admitted = True
            waited_s = self._dispatcher.now_s() - held.pending.submitted_at_s
            node = self._dispatcher.node_of(held.pending.id)
            self.tell(Admitted(held.local, waited_s, node))
            if (loss := self._nodes.loss_of(node)) is not None:  # it was lost while this had to wait for something else
                self.call_off(held, loss)
            return
        waited_s = running.started_at_s - held.pending.submitted_at_s
        held.running = running
        held.settled = {}
        if running.seat is not None:
            held.lease = self._nodes.taken(self.session, running.seat)
        demand = held.pending.demand
        granted = running.pending.demand  # perhaps with another number of GPUs than in the place
        of = (granted.keys, granted.node)
        place = next((n for n, one in enumerate(demand.places) if (one.keys, one.node) == of), None)
        self.tell(Granted(held.local, waited_s, place, running.units, running.expected_s, running.seat, held.lease))

    # What runs.

    def _running(self, local: int) -> Held | None:
        held = self._held.get(local)
        return None if held is None or held.running is None else held

    def _finish(self, held: Held, ran_s: float | None, *, unused: bool) -> None:
        dispatcher = self._dispatcher
        self._drop(held)
        if unused:
            dispatcher.unused(held.pending.id)
        else:
            self._charge(held)
        self.forget(held)
        dispatcher.finish(held.pending.id, dispatcher.now_s(), ran_s)
        if self._judging is not None and held.running is not None:
            self._judging.ended(held.local, held.running)

    def _charge(self, held: Held) -> None:
        """Remember what a call that ends has taken of rates and budgets, as of now what goes beyond its grant."""
        assert held.running is not None
        now_s, dimensions = self._dispatcher.now_s(), self._dispatcher.topology.dimensions
        for index, granted, beyond in counted(held.granted_units(), held.settled):
            for units, at_s in ((granted, held.running.started_at_s), (beyond, now_s)):
                if self._has_left:
                    self._memory.charge(index, units, at_s)
                else:
                    self._charges.add(index, dimensions[index], units, at_s, now_s)

    def leave(self) -> None:
        """The client is gone: what it took of rates and budgets, nobody else knows."""
        self._has_left = True
        self._charges.move(self._memory.charge, self._dispatcher.now_s())

    def _send_back(self, held: Held) -> None:
        self._drop(held)
        if self._dispatcher.send_back(held.pending.id, held):
            held.running = None
            return
        self._finish(held, None, unused=True)
        self.tell(Refused(held.local, NoTrajectoryError(f"the trajectory of {held.pending.demand.name} was closed")))

    def _drop(self, held: Held) -> None:
        if held.lease:
            self._nodes.dropped(held.lease)
            held.lease = 0

    def reclaim(self, held: Held, number: int) -> None:
        """A call wants back what it has lent."""
        if self._dispatcher.reclaim(held.pending.id, partial(self._regained, held, number)):
            self._regained(held, number, None)

    def _regained(self, held: Held, number: int, error: Exception | None) -> None:
        self.tell(Resumed(held.local, number, None if error is None else _told(error)))

    def _close(self, held: Held) -> None:
        self.forget(held)
        self._dispatcher.close(held.pending.id)

    def forget(self, held: Held) -> None:
        """It is over, but for a word on how it went, or another attempt."""
        self._held.pop(held.local, None)
        self._past[held.local] = held.pending.id
        if len(self._past) > _MOST_PAST:
            del self._past[next(iter(self._past))]
        if held.on_end is not None:
            held.on_end()

    # How it went.

    def _is_to_be_judged(self, held: Held) -> None:
        if self._judging is not None and held.running is not None:
            self._judging.ends(held.local, held.running)

    def refuse_waiting(self, concerns: Callable[[Demand], bool], error: Callable[[], TangramError]) -> None:
        """Refuse those calls that wait for something that is down."""
        for held in self.all():
            if held.waits and not held.is_trajectory and concerns(held.pending.demand):
                self._dispatcher.withdraw(held.pending.id)
                held.failed(error())

    def _note(self, command: Ended) -> None:
        """Take down the measurements of a call, in the owner's ids and time."""
        now_s, finished = self._dispatcher.now_s(), command.finished
        ids = [None if local is None else self._known(local) for local in (finished.id, finished.trajectory)]
        if ids[0] is None:  # refused before it had any
            return
        submitted_at_s = now_s - finished.submitted_at_s
        told = finished._replace(id=ids[0], trajectory=ids[1], submitted_at_s=submitted_at_s)
        self._dispatcher.note(ActionEnded(now_s - command.age_s, told))

    def _known(self, local: int) -> int | None:
        held = self._held.get(local)
        return self._past.get(local) if held is None else held.pending.id

    # After another owner.

    def adopt(self, resume: Resume, ids: Mapping[int, int], running: Mapping[int, RunningAction]) -> None:
        """Take over what the scheduler holds again for this client.

        Args:
            resume: what the client has told.
            ids: those of the owner, by the client's.
            running: the calls that run, by the owner's ids.
        """
        for trajectory in resume.trajectories:
            asked = trajectory.open
            if (number := ids.get(asked.id)) is None:
                continue
            if trajectory.closing:
                self._past[asked.id] = number
                continue
            pending = PendingAction(number, self._demands[asked.demand], self._dispatcher.now_s() - asked.age_s)
            held = Held(self, asked.id, pending, is_trajectory=True, group=asked.group, is_admitted=True)
            self._held[asked.id] = held
        for call in resume.running:
            number = ids.get(call.submit.id)
            if number is not None and number in running:
                again = running[number]
                demand = self._demands[call.submit.demand]
                taken = demand if call.place is None else demand.places[call.place]
                held = Held(self, call.submit.id, again.pending, running=again, asked=taken)
                held.settled.update(call.settled)
                self._held[call.submit.id] = held
        now_s = self._dispatcher.now_s()
        for index, units, age_s in resume.charges:
            self._charges.add(index, self._dispatcher.topology.dimensions[index], units, now_s - age_s, now_s)

    def wait_again(self, number: int, item: Submit | Open) -> None:
        """Let a call or a trajectory wait that waited, under a number of the owner."""
        self._past[item.id] = number
        self.take(item)

    def reclaim_again(self, resume: Resume) -> None:
        """Let calls have back what they have lent, as they wait for it."""
        for call in resume.running:
            held = self._running(call.submit.id)
            if held is not None and call.reclaim is not None:
                self.reclaim(held, call.reclaim)

    # Its end.

    def call_off(self, held: Held, error: TangramError) -> None:
        """Let the client end a call or a trajectory, which then says so."""
        self.tell(CalledOff(held.local, error))

    def end_waiting(self) -> None:
        """Take out of the queue whatever waits, and wait for no word on what has ended."""
        if self._judging is not None:
            self._judging.stop()
        for held in sorted(self._held.values(), key=lambda one: -one.pending.id):
            if held.waits:
                self._dispatcher.withdraw(held.pending.id)
                self.forget(held)

    def end_running(self, which: Callable[[Held], bool]) -> None:
        """Give back what calls hold of which that is true: those that were called before their callers."""
        for held in sorted(self._held.values(), key=lambda one: -one.pending.id):
            if held.running is not None and which(held):
                self._finish(held, None, unused=False)

    def end_trajectories(self) -> None:
        """Close those that are admitted."""
        for held in list(self._held.values()):
            if held.is_admitted:
                self._close(held)


def _places(demand: Demand) -> tuple[Demand, ...]:
    return demand.places or (demand,)


def _is_within(demand: Demand, dimensions: int) -> bool:
    """Whether a demand asks for nothing beyond so many dimensions."""
    asked = [index for place in _places(demand) for index, _ in place.fixed]
    asked += [place.elastic for place in _places(demand) if place.elastic is not None]
    return demand.dimensions >> dimensions == 0 and all(0 <= index < dimensions for index in asked)


def _told(error: Exception) -> TangramError:
    """Return an error that the client knows, and that can be sent."""
    if isinstance(error, TangramError):
        return of_the_library(error, InfrastructureError)
    return InfrastructureError(f"the scheduler of the shared runtime failed: {error!r}")
