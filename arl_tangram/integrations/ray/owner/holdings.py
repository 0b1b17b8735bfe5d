"""What one client has at the owner: its commands are inputs of the scheduler, and what is decided are its events."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from arl_tangram.dispatch import Dispatcher
from arl_tangram.errors import (
    InfrastructureError,
    NestedActionError,
    NoTrajectoryError,
    TangramError,
)
from arl_tangram.integrations.ray.answers import of_the_library
from arl_tangram.integrations.ray.owner.breaking import OwnerBreakers
from arl_tangram.integrations.ray.owner.declared import Declared
from arl_tangram.integrations.ray.owner.holding import Held, NodesTold
from arl_tangram.integrations.ray.owner.judging import Judging
from arl_tangram.integrations.ray.owner.memory import Memory
from arl_tangram.integrations.ray.owner.spending import Spending
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
    Resumed,
    Said,
    SendBack,
    Settle,
    Submit,
    Withdraw,
)
from arl_tangram.model.events import ActionEnded
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction

_MOST_PAST = 4096
_logger = logging.getLogger(__name__)


class Holdings:
    """What one client has.

    Attributes:
        demands: what it has declared.
        spending: what its calls took of rates and budgets.

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
        self._breakers = breakers
        self._judging = None if breakers is None else Judging(breakers)
        self.demands = Declared(interned, len(dispatcher.topology.dimensions), nodes.loss_of)
        self._held: dict[int, Held] = {}
        self._past: dict[int, int] = {}
        self._memory = memory
        self.spending = Spending(dispatcher, memory)

    def all(self) -> list[Held]:
        """Return all that waits or holds something."""
        return list(self._held.values())

    def hold(self, held: Held) -> None:
        """Something waits, or holds something, from now on."""
        self._held[held.local] = held

    def know(self, local: int, number: int) -> None:
        """What has this id at the client has, or had, that one here."""
        self._past[local] = number

    def take(self, command: Command) -> None:
        """Do what the client says; what it says of something that is over already changes nothing."""
        try:
            self._take(command)
        except Exception as error:
            if not isinstance(error, TangramError):
                _logger.exception("%s of %s failed", command, self.session)
            if isinstance(command, Submit | Open):
                self.refuse(command.id, self.demands.find(command.demand), error)

    def refuse(self, local: int, demand: Demand | None, error: Exception) -> None:
        """Tell the client that a call or a trajectory does not get anything, and why."""
        self.tell(Refused(local, _told(error if demand is None else self._why(demand, error))))

    def _take(self, command: Command) -> None:  # noqa: PLR0912 - one line for each
        dispatcher = self._dispatcher
        match command:
            case Declare():
                self.demands.declare(command)
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
                if (held := self.running(local)) is not None:
                    self._is_to_be_judged(held)
                    self._finish(held, ran_s, unused=unused)
            case SendBack(local):
                if (held := self.running(local)) is not None:
                    self._is_to_be_judged(held)
                    self._send_back(held)
            case Lend(local, cores):
                if (held := self.running(local)) is not None:
                    dispatcher.lend(held.pending.id, cores=cores)
            case Reclaim(local, number):
                if (held := self.running(local)) is not None:
                    self.reclaim(held, number)
            case Settle(local, amounts):
                if (held := self.running(local)) is not None:
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

    def _submit(self, command: Submit) -> None:
        dispatcher, trajectory, parent = self._dispatcher, None, None
        demand = self.demands.get(command.demand)
        if command.trajectory is not None:
            within = self._held.get(command.trajectory)
            if within is None or not within.is_admitted:
                raise NoTrajectoryError(f"{demand.name} was called in a trajectory that is not open")
            trajectory = within.pending.id
        if command.parent is not None:
            caller = self.running(command.parent)
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
        self.hold(held)

    def _open(self, command: Open) -> None:
        demand = self.demands.where_it_can_be(self.demands.get(command.demand))
        pending = PendingAction(self._id(command.id), demand, self._dispatcher.now_s() - command.age_s)
        held = Held(self, command.id, pending, is_trajectory=True, group=command.group)
        self._dispatcher.open(pending, held, group=command.group)
        self.hold(held)

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

    def expired(self, held: Held) -> None:
        """Tell the client that the time to wait of a call is over."""
        self.forget(held)
        self.tell(Expired(held.local))

    def failed(self, held: Held, error: Exception) -> None:
        """Tell the client why a call or a trajectory does not get anything."""
        self.forget(held)
        self.refuse(held.local, held.pending.demand, error)

    # What runs.

    def running(self, local: int) -> Held | None:
        """Return a call that runs, by its id at the client; None if it does not."""
        held = self._held.get(local)
        return None if held is None or held.running is None else held

    def _finish(self, held: Held, ran_s: float | None, *, unused: bool) -> None:
        dispatcher = self._dispatcher
        self._drop(held)
        if unused:
            dispatcher.unused(held.pending.id)
        else:
            self.spending.ended(held)
        self.forget(held)
        dispatcher.finish(held.pending.id, dispatcher.now_s(), ran_s)
        if self._judging is not None and held.running is not None:
            self._judging.ended(held.local, held.running)

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
                self.failed(held, error())

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


def _told(error: Exception) -> TangramError:
    """Return an error that the client knows, and that can be sent."""
    if isinstance(error, TangramError):
        return of_the_library(error, InfrastructureError)
    return InfrastructureError(f"the scheduler of the shared runtime failed: {error!r}")
