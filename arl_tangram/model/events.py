"""What happened: the events that the core and the execution report, and that a trace records.

They are named tuples: several are made for every call, and a frozen dataclass takes three times as long to make.
"""

from __future__ import annotations

from typing import NamedTuple

from arl_tangram.model.gpu import Chunk, Instance
from arl_tangram.model.lifecycle import FinishedAction, PendingAction, RunningAction


class ActionSubmitted(NamedTuple):
    """A call entered the queue."""

    at_s: float
    action: PendingAction


class ActionDeferred(NamedTuple):
    """A candidate was put off, for the first time, so that others get more units."""

    at_s: float
    id: int


class ActionStarted(NamedTuple):
    """Units were promised to a call."""

    at_s: float
    action: RunningAction


class ActionResized(NamedTuple):
    """A running call has other units of its elastic dimension from now on; with none it is suspended."""

    at_s: float
    id: int
    units: int


class ActionEnded(NamedTuple):
    """The caller of an action has its answer."""

    at_s: float
    action: FinishedAction


class UnitsReturned(NamedTuple):
    """An action's units are free again; later than its end if the body lingered."""

    at_s: float
    id: int


class TrajectoryOpened(NamedTuple):
    """A trajectory was admitted after waiting `waited_s` for what it holds.

    `reserved` are its milli-cores; `held` pairs each dimension's index with the units of it, those included. `node` is
    the number of the node where it was admitted, if there are several nodes.
    """

    at_s: float
    id: int
    group: str | None
    waited_s: float
    reserved: int
    held: tuple[tuple[int, int], ...] = ()
    node: int | None = None


class TrajectoryClosed(NamedTuple):
    """A trajectory gave back what it held."""

    at_s: float
    id: int


class PolicyRefused(NamedTuple):
    """A policy failed or planned what is not possible: it is not asked again.

    Whoever fits starts in order from then on, with its least units; or, if it was the one by which running actions
    share cores (`shares`), they share them equally.
    """

    at_s: float
    policy: str
    reason: str
    shares: bool = False


class ActionLent(NamedTuple):
    """A running action waits for those that it called: others may have its turn and `units` (integer) of its cores."""

    at_s: float
    id: int
    units: int


class ActionResumed(NamedTuple):
    """An action that had lent has its turn and the same `units` (integer) of its cores again."""

    at_s: float
    id: int
    units: int


class UnitsSettled(NamedTuple):
    """A running call counts for `units` (integer) of a rate or a budget (its index), not for what it did before."""

    at_s: float
    id: int
    dimension: int
    units: int


class CapacityChanged(NamedTuple):
    """A dimension (its index) has another capacity, in integer units, from now on."""

    at_s: float
    dimension: int
    capacity: int


class ServiceEvicted(NamedTuple):
    """A service has to leave the GPUs of a chunk, so that there is room for another."""

    at_s: float
    instance: Instance
    chunk: Chunk


class ServiceRestored(NamedTuple):
    """A service can be used on the GPUs of a chunk; `took_s` is its restore, without the wait for what had to leave."""

    at_s: float
    instance: Instance
    chunk: Chunk
    took_s: float


class RestoreFailed(NamedTuple):
    """A service could not be made usable on the GPUs of a chunk; who waits for it is tried elsewhere."""

    at_s: float
    instance: Instance
    chunk: Chunk


class ServiceLost(NamedTuple):
    """A service has died on the GPUs of a chunk while it could be used."""

    at_s: float
    instance: Instance
    chunk: Chunk


class Paused(NamedTuple):
    """From now on nothing new starts, or (not `paused`) does again."""

    at_s: float
    paused: bool


Event = (
    ActionSubmitted
    | ActionDeferred
    | ActionStarted
    | ActionResized
    | ActionEnded
    | UnitsReturned
    | TrajectoryOpened
    | TrajectoryClosed
    | PolicyRefused
    | ServiceEvicted
    | ServiceRestored
    | RestoreFailed
    | ServiceLost
    | ActionLent
    | ActionResumed
    | UnitsSettled
    | CapacityChanged
    | Paused
)
