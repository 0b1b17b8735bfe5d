"""A call or a trajectory of a client at the owner, for as long as it waits or holds something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from arl_tangram.errors import NodeLostError
from arl_tangram.model.gpu import Seat
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction


class ClientTold(Protocol):
    """Tells a client what becomes of its calls and trajectories."""

    def granted(self, held: Held, running: RunningAction | None) -> None:
        """It has its units."""
        ...

    def expired(self, held: Held) -> None:
        """Its time to wait is over."""
        ...

    def failed(self, held: Held, error: Exception) -> None:
        """It does not get anything."""
        ...


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
        of: tells its client.
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

    of: ClientTold
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

    @property
    def waits(self) -> bool:
        """Whether it waits, and so holds nothing."""
        return self.running is None and not self.is_admitted

    def granted(self, running: RunningAction | None) -> None:
        """Tell the client that it has its units."""
        self.of.granted(self, running)

    def expired(self) -> None:
        """Tell the client that its time to wait is over."""
        self.of.expired(self)

    def failed(self, error: Exception) -> None:
        """Tell the client why it does not get anything."""
        self.of.failed(self, error)

    def shut_down(self) -> None:
        """Nothing: who closes an owner ends its sessions."""
