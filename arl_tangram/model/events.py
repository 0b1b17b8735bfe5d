"""What happened: the events that the core and the execution report, and that a trace records."""

from __future__ import annotations

from dataclasses import dataclass

from arl_tangram.model.lifecycle import FinishedAction, PendingAction, RunningAction


@dataclass(frozen=True, slots=True)
class ActionSubmitted:
    """A call entered the queue."""

    at_s: float
    action: PendingAction


@dataclass(frozen=True, slots=True)
class ActionDeferred:
    """A candidate was put off, for the first time, so that others get more units."""

    at_s: float
    id: int


@dataclass(frozen=True, slots=True)
class ActionStarted:
    """Units were promised to a call."""

    at_s: float
    action: RunningAction


@dataclass(frozen=True, slots=True)
class ActionEnded:
    """The caller of an action has its answer."""

    at_s: float
    action: FinishedAction


@dataclass(frozen=True, slots=True)
class UnitsReturned:
    """An action's units are free again; later than its end if the body lingered."""

    at_s: float
    id: int


@dataclass(frozen=True, slots=True)
class TrajectoryOpened:
    """A trajectory was admitted after waiting `waited_s` for what it holds.

    `reserved` are its milli-cores; `held` pairs each dimension's index with the units of it, those included.
    """

    at_s: float
    id: int
    group: str | None
    waited_s: float
    reserved: int
    held: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class TrajectoryClosed:
    """A trajectory gave back what it held."""

    at_s: float
    id: int


Event = (
    ActionSubmitted | ActionDeferred | ActionStarted | ActionEnded | UnitsReturned | TrajectoryOpened | TrajectoryClosed
)
