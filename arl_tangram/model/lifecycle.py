"""The states of an action, each a type: `ActionSpec` → `PendingAction` → `RunningAction` → `FinishedAction`.

What is made for every call is a named tuple: a frozen dataclass takes three times as long to make.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from arl_tangram.errors import InfrastructureError
from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import Speedup
from arl_tangram.model.gpu import Seat, SeatNeed


class BodyKind(StrEnum):
    """Where the body of an action runs."""

    ASYNC = "async"
    THREAD = "thread"
    PROCESS = "process"


class Outcome(StrEnum):
    """How an action ended."""

    OK = "ok"
    ERROR = "error"
    RUN_TIMEOUT = "run_timeout"
    QUEUE_TIMEOUT = "queue_timeout"
    CANCELLED = "cancelled"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """What the decorator declares about every call of an action.

    Attributes:
        name: `module:qualname` of the body.
        cost: the cost vector of one call.
        kind: an `async def` body, or a plain one on a thread or in a worker process.
        priority: lower runs first.
        timeout: seconds that the body may run, or None.
        queue_timeout: seconds that a call may wait, or None.
        duration_s: expected seconds on one unit (the least units, if cores are elastic from more), or None.
        key: a function of the call's arguments; calls with the same key share what is learned.
        idempotent: whether running it twice does no harm.
        retries: how often a call that failed is tried again, at most.
        retry_on: after which errors.
        end_at_s: on the clock of the runtime: a body that still runs then is ended as at its timeout, which can
            stand still, while this does not; None for never.
        preemptible: whether it may be suspended for a while, in a sandbox of a pool with `share=`.
    """

    name: str
    cost: Cost
    kind: BodyKind = BodyKind.ASYNC
    priority: int = 0
    timeout: float | None = None
    queue_timeout: float | None = None
    duration_s: float | None = None
    key: Callable[..., object] | None = None
    idempotent: bool = False
    retries: int = 0
    retry_on: tuple[type[Exception], ...] = (InfrastructureError,)
    end_at_s: float | None = None
    preemptible: bool = True


@dataclass(frozen=True, slots=True)
class Demand:
    """A cost vector resolved against a topology; one object shared by all calls of an action.

    Attributes:
        name: the action's name; what is learned about durations is kept per (name, key).
        fixed: pairs of a dimension's index and units, without the elastic one.
        elastic: index of the dimension whose whole units the policy hands out, or None.
        options: integer units of it that the action may get, ascending; one if there is no choice.
        speedup: speed-up over whole units of the elastic dimension, or None where there is no choice.
        relative: expected duration at each option, relative to one whole unit.
        learns: whether there is a choice and no declared speed-up: `speedup` is assumed, and learned from the runs.
        dimensions: bit mask of all dimensions in use.
        priority: lower first.
        queue_timeout: seconds, or None.
        duration_s: prior for the duration at one whole unit, or None.
        reserved: units of the trajectory's own reservation that the action runs on, or 0.
        milli_cores: those among `fixed`: a fraction of the cores, which no policy hands out, or 0.
        places: the same demand in each of the places (nodes, keys of a quota) of which any will do; it then has no
            dimensions of its own, and `dimensions` are those of all places. Empty if there is one place.
        keys: for each quota that has several keys, its name and the number of the one that is taken, from 0.
        node: the number of the node whose cores, memory or sandbox it takes, if there are several nodes; else None.
        seat: what it needs of a pool of GPUs, or None.
        preemptible: whether it may be suspended, if its cores are shared: it runs in a sandbox, on whole cores.
        resizable: whether its cores may become more or less while it runs, within `options`, if they are shared.
    """

    name: str
    fixed: tuple[tuple[int, int], ...]
    elastic: int | None = None
    options: tuple[int, ...] = ()
    speedup: Speedup | None = None
    relative: tuple[float, ...] = ()
    learns: bool = False
    dimensions: int = 0
    priority: int = 0
    queue_timeout: float | None = None
    duration_s: float | None = None
    reserved: int = 0
    milli_cores: int = 0
    places: tuple[Demand, ...] = ()
    keys: tuple[tuple[str, int], ...] = ()
    node: int | None = None
    seat: SeatNeed | None = None
    preemptible: bool = False
    resizable: bool = False


class PendingAction(NamedTuple):
    """A call that has been submitted and waits.

    Attributes:
        id: unique in its runtime, ascending in order of submission.
        demand: what it takes.
        submitted_at_s: when, on the clock of the core's driver.
        key: what the action's `key=` made of the arguments.
        trajectory: id of the trajectory, or None.
        turn: whether it takes the turn in the trajectory's sandbox.
        rank: its place among those of its priority: lower first, and by id where it is equal; set by the core.
        parent: id of the running action that called it, or None.
        since_s: when it was first submitted, if it was tried before: its place counts from then; else None.
        inherited: where it stands if a running action called it: its priority, its rank, and the id that it stands for;
            set by the core.
    """

    id: int
    demand: Demand
    submitted_at_s: float
    key: str = ""
    trajectory: int | None = None
    turn: bool = False
    rank: float = 0.0
    parent: int | None = None
    since_s: float | None = None
    inherited: tuple[int, float, int] | None = None


class RunningAction(NamedTuple):
    """A call that holds units.

    Attributes:
        pending: the call.
        started_at_s: when its units were promised.
        units: integer units of the elastic dimension (or of the trajectory's reservation); 0 if neither, or if it is
            suspended. They change while it runs if its cores are shared: then this value is replaced by another one.
        expected_s: the expected duration at these units; 0 if no dimension is elastic, where nothing depends on it.
        seat: where it is in a pool of GPUs, or None.
    """

    pending: PendingAction
    started_at_s: float
    units: int
    expected_s: float
    seat: Seat | None = None


class FinishedAction(NamedTuple):
    """The measurements of a call that has ended, in seconds.

    Attributes:
        id: as in the `PendingAction`.
        name: the action's name.
        key: as in the `PendingAction`.
        trajectory: id of the trajectory, or None.
        outcome: how it ended.
        error: the type name of the error, or None.
        submitted_at_s: when it was submitted, on the loop's clock.
        queueing_s: from submission until its units were promised (or it gave up).
        execution_s: the body's own time: outside `exec`, plus the commands' time as reported in band.
        overhead_s: all the rest.
        cpu_s: CPU seconds of the commands that it ran in its sandbox.
        cores: cores granted at its start; 0 for none.
        node: the number of the node where it had cores or memory, if there are several nodes; else None.
        suspended_s: from when its units were promised, seconds in which it had none of them.
        switches: how often its cores were changed, down to none and back included.
    """

    id: int
    name: str
    key: str
    trajectory: int | None
    outcome: Outcome
    error: str | None
    submitted_at_s: float
    queueing_s: float
    execution_s: float
    overhead_s: float
    cpu_s: float
    cores: float
    node: int | None = None
    suspended_s: float = 0.0
    switches: int = 0

    @property
    def act_s(self) -> float:
        """Action completion time: queueing + execution + overhead, and what it was suspended for."""
        return self.queueing_s + self.execution_s + self.overhead_s + self.suspended_s
