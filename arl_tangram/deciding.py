"""Who decides, as calls see it: the dispatcher of this process, or what stands for that of another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from arl_tangram.model.events import Event
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.model.topology import Topology


class Waiter(Protocol):
    """Whoever waits for units; told once, synchronously, in the turn of the decision."""

    def granted(self, running: RunningAction | None) -> None:
        """Units are promised: to an action, or (None) to a trajectory."""
        ...

    def expired(self) -> None:
        """The `queue_timeout` has passed; nothing was held."""
        ...

    def failed(self, error: Exception) -> None:
        """The scheduler itself failed, or the call can never start, which a `TangramError` says; nothing was held."""
        ...

    def shut_down(self) -> None:
        """The runtime closes: withdraw."""
        ...


class Deciding(Protocol):
    """What calls and trajectories ask of who decides; on one event loop, synchronous."""

    @property
    def topology(self) -> Topology:
        """The dimensions, with the capacities that were set last."""
        ...

    @property
    def time(self) -> Callable[[], float]:
        """Tells the time of the loop."""
        ...

    def now_s(self) -> float:
        """Return the time; it is never before the last decision."""
        ...

    def new_id(self) -> int:
        """Return the id of the next action or trajectory; ids ascend."""
        ...

    def check_seat(self, demand: Demand) -> None:
        """Check that a demand can be met by the devices that there are.

        Raises:
            InfeasibleError: it never can.
        """
        ...

    def submit(self, action: PendingAction, waiter: Waiter) -> None:
        """Queue a call."""
        ...

    def open(self, request: PendingAction, waiter: Waiter, *, group: str | None) -> None:
        """Queue a trajectory."""
        ...

    def withdraw(self, action_id: int) -> None:
        """Forget a waiting call or trajectory."""
        ...

    def close(self, trajectory: int) -> None:
        """End an admitted trajectory."""
        ...

    def node_of(self, trajectory: int) -> int:
        """Return the number of the node where a trajectory was admitted; 0 where there is one."""
        ...

    def finish(self, action_id: int, now_s: float, duration_s: float | None) -> None:
        """Return a running call's units; `duration_s` is what it held them for, None if it did not end well."""
        ...

    def send_back(self, action_id: int, waiter: Waiter) -> bool:
        """Let a running call wait again, whose service could not be restored; return whether it does."""
        ...

    def unused(self, action_id: int) -> None:
        """A running call ends before its body began: what it was granted of rates and budgets is free again."""
        ...

    def lend(self, action_id: int, *, cores: bool) -> None:
        """A running call waits for calls that it made: its turn and, if `cores`, its cores are free for others."""
        ...

    def reclaim(self, action_id: int, regained: Callable[[Exception | None], None]) -> bool:
        """A call that has lent wants all back; return whether it has it at once.

        If not, `regained` is called in the turn in which it has, or with the error if the scheduler fails.
        """
        ...

    def settle(self, action_id: int, amounts: Iterable[tuple[int, int]]) -> None:
        """Count other units, by dimension, for a running call than it was granted."""
        ...

    def pause(self, dimension: int, for_s: float) -> None:
        """Grant nothing of a dimension for some seconds."""
        ...

    def waiters(self) -> list[Waiter]:
        """Return all who wait."""
        ...

    def note(self, event: Event) -> None:
        """Take down what happened, in its order among the decisions."""
        ...

    def stop(self) -> None:
        """Decide nothing any more; what waits must have been withdrawn."""
        ...
