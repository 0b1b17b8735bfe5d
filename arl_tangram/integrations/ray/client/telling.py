"""What the owner decides about the calls of a client, told to those who wait for it here."""

from __future__ import annotations

from collections.abc import Callable

from arl_tangram.deciding import Waiter
from arl_tangram.errors import InfrastructureError, TangramError
from arl_tangram.integrations.ray.client.gpus import GrantedSeat
from arl_tangram.integrations.ray.client.held import HeldHere
from arl_tangram.integrations.ray.wire import Admitted, CalledOff, Event, Expired, Granted, Refused, Resumed
from arl_tangram.model.lifecycle import RunningAction


class Telling:
    """Tells those who wait; what is about something that is over is ignored.

    Args:
        held: what this process holds and waits for, by its id; what is refused is taken out.
        time: tells the time.
        call_off: ends a call or a trajectory with an error, whether it waits or runs.
    """

    def __init__(
        self,
        held: dict[int, HeldHere],
        time: Callable[[], float],
        call_off: Callable[[Waiter, TangramError], None],
    ) -> None:
        self._held = held
        self._time = time
        self._call_off = call_off

    def tell(self, event: Event) -> None:
        """Tell whom an event is about."""
        if not isinstance(event, Granted | Admitted | Expired | Refused | CalledOff | Resumed):
            return
        if (held := self._held.get(event.id)) is not None:
            self._tell(event, held)

    def _tell(self, event: Granted | Admitted | Expired | Refused | CalledOff | Resumed, held: HeldHere) -> None:
        match event:
            case Granted() if held.waits:
                self._granted(event, held)
            case Admitted(_, _, node) if held.waits:
                held.node = node
                held.waiter.granted(None)
            case Expired():
                self._forgotten(held).waiter.expired()
            case Refused(_, error):
                self._forgotten(held).waiter.failed(error)
            case CalledOff(_, error):
                self._call_off(held.waiter, error)
            case Resumed():
                _resumed(event, held)
            case _:
                pass

    def _granted(self, event: Granted, held: HeldHere) -> None:
        demand = held.pending.demand
        placed = demand if event.place is None else demand.places[event.place]
        now_s = self._time()
        started_at_s = min(now_s, held.pending.submitted_at_s + event.queued_s)
        seat = None if event.seat is None else GrantedSeat.of(event.seat, event.lease)
        pending = held.pending._replace(demand=placed)
        running = RunningAction(pending, started_at_s, event.units, event.expected_s, seat)
        held.running, held.place, held.since_s = running, event.place, now_s
        held.settled = {}
        held.waiter.granted(running)

    def _forgotten(self, held: HeldHere) -> HeldHere:
        del self._held[held.pending.id]
        return held


def _resumed(event: Resumed, held: HeldHere) -> None:
    """Tell a call that it has back what it lent, unless it has lent again since."""
    regained = held.regained
    if held.reclaim == event.number and regained is not None:
        held.regained, held.reclaim, held.lent = None, None, None
        regained(None if event.error is None else InfrastructureError(str(event.error)))
