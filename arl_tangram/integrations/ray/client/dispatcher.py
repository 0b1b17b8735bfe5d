"""What stands for the owner's dispatcher in a client: what calls want becomes commands, and events tell them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from arl_tangram.deciding import Waiter
from arl_tangram.dispatch import clock_of
from arl_tangram.errors import InfeasibleError, TangramError
from arl_tangram.integrations.ray.charges import Charges
from arl_tangram.integrations.ray.client.demands import Demands
from arl_tangram.integrations.ray.client.held import HeldHere, charges_of, resume_of
from arl_tangram.integrations.ray.client.telling import Telling
from arl_tangram.integrations.ray.naming import named
from arl_tangram.integrations.ray.wire import (
    Close,
    Command,
    Ended,
    Event,
    Finish,
    Kept,
    Lend,
    Open,
    Pause,
    Reclaim,
    Remember,
    Reshaped,
    Resume,
    SendBack,
    Settle,
    Shape,
    Submit,
    Withdraw,
)
from arl_tangram.model.events import ActionEnded
from arl_tangram.model.events import Event as Happening
from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.topology import Topology

_logger = logging.getLogger(__name__)


class RemoteDispatcher:
    """Decides nothing itself; a `Deciding` on the event loop of a client.

    Attributes:
        time: tells the time of the loop.
        shape: what there is, as it was told last.

    Args:
        post: sends a command to the owner.
        shape: what there is.
        call_off: ends a call or a trajectory with an error, whether it waits or runs.
        on_shape: is told when there is more or less of something.
        here: Ray's name of this machine; empty if it is not known.
    """

    def __init__(
        self,
        post: Callable[[Command], None],
        shape: Shape,
        *,
        call_off: Callable[[Waiter, TangramError], None],
        on_shape: Callable[[Shape], None],
        here: str = "",
    ) -> None:
        self.shape = shape
        self._here = here
        self.time = clock_of(asyncio.get_running_loop())
        self._post = post
        self._call_off = call_off
        self._on_shape = on_shape
        self._topology = Topology(shape.dimensions)
        self._demands = Demands()
        self._held: dict[int, HeldHere] = {}
        self._telling = Telling(self._held, self.time, call_off)
        self._charges = Charges()
        self._kept: tuple[Kept, float] | None = None
        self._next_id = 0
        self._next_reclaim = 0
        self._is_stopped = False
        self._is_adrift = False

    # What calls know.

    @property
    def topology(self) -> Topology:
        """The dimensions, with the capacities that were told last."""
        return self._topology

    def now_s(self) -> float:
        """Return the time."""
        return self.time()

    def new_id(self) -> int:
        """Return the id of the next action or trajectory; the owner has another one for it."""
        self._next_id += 1
        return self._next_id

    def check_seat(self, demand: Demand) -> None:
        """Check that a body which has devices to itself runs where they are; the owner refuses what none can meet.

        Raises:
            InfeasibleError: they are on another machine.
        """
        if demand.seat is None or demand.seat.service is not None:
            return
        offer = next((offer for offer in self.shape.nodes if offer.devices), None)
        if offer is not None and (not self._here or offer.node_id != self._here):
            raise InfeasibleError(
                f"{demand.name} asks for gpu= and would run on this machine, and the GPUs are on {named(offer.name)}; "
                "make the call in a process there, or use a service"
            )

    def node_of(self, trajectory: int) -> int:
        """Return the number of the node where a trajectory was admitted."""
        return self._held[trajectory].node or 0

    def waiters(self) -> list[Waiter]:
        """Return all who wait."""
        return [held.waiter for held in self._held.values() if held.waits]

    # What calls want.

    def submit(self, action: PendingAction, waiter: Waiter) -> None:
        """Queue a call."""
        held = self._held[action.id] = HeldHere(action, waiter)
        self._ask_for(held)

    def open(self, request: PendingAction, waiter: Waiter, *, group: str | None) -> None:
        """Queue a trajectory."""
        held = self._held[request.id] = HeldHere(request, waiter, is_trajectory=True, group=group)
        self._ask_for(held)

    def withdraw(self, action_id: int) -> None:
        """Forget a waiting call or trajectory."""
        if self._held.pop(action_id, None) is not None:
            self._say(Withdraw(action_id))

    def close(self, trajectory: int) -> None:
        """End an admitted trajectory."""
        held = self._held.get(trajectory)
        if held is not None and not held.closing:
            held.closing = True
            self._forget_closed(trajectory)
            self._say(Close(trajectory))

    def finish(self, action_id: int, now_s: float, duration_s: float | None) -> None:
        """Return a running call's units."""
        if (held := self._held.pop(action_id, None)) is not None:
            if not held.unused:
                self._charge(held, now_s)
            self._say(Finish(action_id, duration_s, held.unused))
            if held.pending.trajectory is not None:
                self._forget_closed(held.pending.trajectory)

    def _forget_closed(self, trajectory: int) -> None:
        """Forget a trajectory that was closed when the last of its calls has ended."""
        held = self._held.get(trajectory)
        if held is None or not held.closing:
            return
        if all(one.pending.trajectory != trajectory for one in self._held.values()):
            del self._held[trajectory]

    def send_back(self, action_id: int, waiter: Waiter) -> bool:
        """Let a running call wait again, whose service could not be restored."""
        held = self._held.get(action_id)
        if held is None:
            return False
        held.running, held.waiter = None, waiter
        self._say(SendBack(action_id))
        return True

    def unused(self, action_id: int) -> None:
        """A running call ends before its body began: what it was granted of rates and budgets is free again."""
        if (held := self._held.get(action_id)) is not None:
            held.unused = True

    def lend(self, action_id: int, *, cores: bool) -> None:
        """A running call waits for calls that it made."""
        if (held := self._held.get(action_id)) is not None:
            held.regained, held.reclaim, held.lent = None, None, cores
            self._say(Lend(action_id, cores))

    def reclaim(self, action_id: int, regained: Callable[[Exception | None], None]) -> bool:
        """A call that has lent wants all back; it never has it at once, as the owner is elsewhere."""
        held = self._held.get(action_id)
        if held is None:
            return True  # all that it had is lost, and it is being ended
        self._next_reclaim += 1
        held.regained, held.reclaim = regained, self._next_reclaim
        self._say(Reclaim(action_id, self._next_reclaim))
        return False

    def settle(self, action_id: int, amounts: Iterable[tuple[int, int]]) -> None:
        """Count other units, by dimension, for a running call than it was granted."""
        if (held := self._held.get(action_id)) is not None:
            given = tuple(amounts)
            held.settled.update(given)
            self._say(Settle(action_id, given))

    def pause(self, dimension: int, for_s: float) -> None:
        """Grant nothing of a dimension for some seconds."""
        self._say(Pause(dimension, for_s))

    def note(self, event: Happening) -> None:
        """Tell the owner how a call went, for its report and its trace."""
        if isinstance(event, ActionEnded):
            finished = event.action
            age_s = event.at_s - finished.submitted_at_s
            self._say(Ended(finished._replace(submitted_at_s=age_s), max(0.0, self.time() - event.at_s)))

    def stop(self) -> None:
        """Say nothing any more."""
        self._is_stopped = True

    # What the owner tells.

    def tell(self, events: Sequence[Event]) -> None:
        """Tell those who wait; what is about something that is over is ignored.

        What goes wrong with one event is not the end of those behind it, as none of them comes again.
        """
        for event in events:
            try:
                self._tell(event)
            except Exception:
                _logger.exception("%s failed in a shared runtime", type(event).__name__)

    def _tell(self, event: Event) -> None:
        match event:
            case Reshaped(shape):
                self._reshape(shape)
            case Remember(kept):
                self._kept = (kept, self.time())
            case _:
                self._telling.tell(event)

    def lost(self, error: TangramError, *, for_good: bool = False) -> None:
        """All that was held is lost, and what waits is forgotten: a new session knows nothing of it.

        So is what was taken of rates and budgets: who ends the session remembers that, and it is not to be told twice.

        Args:
            error: what each call ends with.
            for_good: whether there will be no session any more. What is called then is posted all the same, so that
                whoever is to send it says here that it is lost, too.
        """
        held = list(self._held.values())
        self._held.clear()
        self._demands = Demands()
        self._is_adrift = not for_good
        self._charges.clear()
        for one in held:
            if one.waits:
                one.waiter.failed(type(error)(str(error)))
            else:
                with suppress(Exception):
                    self._call_off(one.waiter, type(error)(str(error)))

    def held(self) -> Resume:
        """Return what is held and waits for an owner that was started again."""
        return resume_of(
            self.shape, self._demands.declared(self._live_demands()), list(self._held.values()),
            tuple(self._charges.told(self.time())),
            kept=self.kept(),
            now_s=self.time(), submit=self._submit_of, open_=self._open_of,
        )  # fmt: skip

    def kept(self) -> Kept | None:
        """Return what the owner wants to be remembered, as of now; a next one may want it beyond this session."""
        return None if self._kept is None else self._kept[0].aged(self.time() - self._kept[1])

    def _reshape(self, shape: Shape) -> None:
        if shape.version > self.shape.version:
            self.shape = shape
            self._topology = Topology(shape.dimensions)
            self._on_shape(shape)

    def renew(self, shape: Shape) -> bool:
        """Take the shape with which another session begins, and ask for what was wanted meanwhile.

        Args:
            shape: what there is.

        Returns:
            False if its dimensions are others than before, and nothing is taken: what was resolved here, and may be
            kept by anybody, such as a call that is to be tried again, would mean something else there.
        """
        if [d.name for d in self.shape.dimensions] != [d.name for d in shape.dimensions]:
            return False
        self.shape = shape
        self._topology = Topology(shape.dimensions)
        self._is_adrift = False
        for held in self._held.values():
            self._ask_for(held)
        return True

    # Commands.

    def _ask_for(self, held: HeldHere) -> None:
        if not self._is_adrift:
            self._declare(held.pending.demand)
            self._say(self._open_of(held) if held.is_trajectory else self._submit_of(held))

    def _say(self, command: Command) -> None:
        if not self._is_stopped and not self._is_adrift:
            self._post(command)

    def _declare(self, demand: Demand) -> None:
        if (declared := self._demands.declare(demand, self._live_demands)) is not None:
            self._say(declared)

    def _live_demands(self) -> list[Demand]:
        return [held.pending.demand for held in self._held.values()]

    def _submit_of(self, held: HeldHere) -> Submit:
        pending, now_s = held.pending, self.time()
        return Submit(
            pending.id,
            self._demands.number(pending.demand),
            pending.key,
            pending.trajectory,
            pending.turn,
            pending.parent,
            now_s - pending.submitted_at_s,
            None if pending.since_s is None else now_s - pending.since_s,
        )

    def _open_of(self, held: HeldHere) -> Open:
        number = self._demands.number(held.pending.demand)
        return Open(held.pending.id, number, held.group, self.time() - held.pending.submitted_at_s)

    def _charge(self, held: HeldHere, now_s: float) -> None:
        """Remember what a call that ends has taken of rates and budgets, as of now what goes beyond its grant."""
        for dimension, granted, beyond in charges_of(held):
            known = self._topology.dimensions[dimension]
            self._charges.add(dimension, known, granted, held.since_s, now_s)
            self._charges.add(dimension, known, beyond, now_s, now_s)
