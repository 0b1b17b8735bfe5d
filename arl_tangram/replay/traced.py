"""What became of each call and trajectory of a trace, and what in the trace cannot be."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from arl_tangram.model.events import (
    ActionDeferred,
    ActionEnded,
    ActionLent,
    ActionResized,
    ActionResumed,
    ActionStarted,
    ActionSubmitted,
    CapacityChanged,
    Event,
    Paused,
    TrajectoryClosed,
    TrajectoryOpened,
    UnitsReturned,
    UnitsSettled,
)
from arl_tangram.model.lifecycle import FinishedAction, PendingAction, RunningAction
from arl_tangram.model.topology import is_breaker
from arl_tangram.trace.figures import Figures
from arl_tangram.trace.format import Header
from arl_tangram.trace.plausible import Plausible
from arl_tangram.trace.reader import Ending, TraceReader, open_trace
from arl_tangram.trace.summary import Summary

_OFF_BY_S = 1.0  # of several processes, each tells its times by its own clock and when its words arrive


@dataclass(slots=True)
class TracedCall:
    """One attempt at a call.

    Attributes:
        pending: as it was submitted.
        started: as it started, the last time if a restore failed before; None if it never did.
        ended: its measurements; None if the trace ends before.
        ended_at_s: when its caller had the answer.
        units: what it had of its elastic dimension, and since when, in order.
        settled: what it counted for in the end of dimensions (by their index), other than what it had reserved.
        returned: whether its units were returned.
    """

    pending: PendingAction
    started: RunningAction | None = None
    ended: FinishedAction | None = None
    ended_at_s: float = 0.0
    units: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    settled: dict[int, int] = field(default_factory=dict[int, int])
    returned: bool = False


@dataclass(slots=True)
class TracedTrajectory:
    """One trajectory.

    Attributes:
        opened: when it was admitted, and what it held.
        closed_at_s: when it gave that back; None if the trace ends before.
    """

    opened: TrajectoryOpened
    closed_at_s: float | None = None


@dataclass(slots=True)
class TracedRun:
    """A whole trace.

    Attributes:
        header: of the trace.
        ending: of the trace.
        figures: those that `report` shows.
        calls: each attempt at a call, in the order of the file.
        trajectories: by their ids, in the order of their admission.
        orphans: ends of calls whose submission is not in the file.
        strays: other lines about calls whose submission is not in the file, or about trajectories whose opening is not.
        unreturned: calls that have ended and whose units are still held when the trace ends.
        resizes: how often cores of running calls were changed.
        changes: how often a capacity changed, breakers left out.
        pauses: how often the runtime was paused.
    """

    header: Header
    ending: Ending
    figures: Figures
    calls: list[TracedCall]
    trajectories: dict[int, TracedTrajectory]
    orphans: int = 0
    strays: int = 0
    unreturned: int = 0
    resizes: int = 0
    changes: int = 0
    pauses: int = 0


def read_run(path: Path) -> TracedRun:
    """Read a trace.

    Raises:
        TraceFormatError: the file is no trace, or one of a newer version, or a line is damaged or cannot be true: times
            that go back or are negative, units that never were there, a call that is submitted or a trajectory that is
            opened twice.
        OSError: the file cannot be read.
    """
    with open_trace(path) as reader:
        gathering = _Gathering(reader)
        for event in reader.events():
            gathering.add(event)
        return gathering.run()


class _Gathering:
    """Goes through the events of a trace; each check is about the line that was read last."""

    def __init__(self, reader: TraceReader) -> None:
        self._reader = reader
        self._topology = reader.header.topology
        self._summary = Summary(self._topology)
        self._plausible = Plausible(self._topology)
        self._by_id: dict[int, TracedCall] = {}
        self._calls: list[TracedCall] = []
        self._trajectories: dict[int, TracedTrajectory] = {}
        self._orphans = self._strays = self._resizes = self._changes = self._pauses = 0

    def run(self) -> TracedRun:
        """Return what was gathered."""
        return TracedRun(
            self._reader.header,
            self._reader.ending,
            self._summary.figures(),
            self._calls,
            self._trajectories,
            self._orphans,
            self._strays,
            sum(call.ended is not None and call.started is not None and not call.returned for call in self._calls),
            self._resizes,
            self._changes,
            self._pauses,
        )

    def add(self, event: Event) -> None:
        """Take in the next event."""
        refusal = self._plausible.refusal(event)
        if refusal is not None:
            raise self._reader.error(refusal)
        self._summary.add(event)
        match event:
            case ActionSubmitted(action=action):
                self._submitted(action)
            case ActionStarted(action=action):
                self._started(action)
            case ActionEnded(at_s=at_s, action=action):
                self._ended(at_s, action)
            case TrajectoryOpened():
                self._opened(event)
            case TrajectoryClosed():
                self._was_closed(event)
            case Paused(paused=paused):
                self._pauses += paused
            case CapacityChanged(dimension=dimension):
                self._changes += not is_breaker(self._topology.dimensions[dimension].name)
            case ActionResized() | UnitsSettled() | UnitsReturned():
                self._changed(event)
            case ActionDeferred(id=id_) | ActionLent(id=id_) | ActionResumed(id=id_):
                self._strays += id_ not in self._by_id
            case _:
                pass

    def _submitted(self, action: PendingAction) -> None:
        before = self._by_id.get(action.id)
        if before is not None and before.ended is None:
            if not before.returned:
                raise self._reader.error(f"call {action.id} is submitted while it waits or runs: ids are unique")
            before.returned = False  # the restore that it waited for has failed: it is the same attempt
            return
        call = TracedCall(action)
        self._by_id[action.id] = call
        self._calls.append(call)

    def _started(self, running: RunningAction) -> None:
        call = self._by_id[running.pending.id]
        call.started = running
        call.units = [(running.started_at_s, running.units)]

    def _ended(self, at_s: float, action: FinishedAction) -> None:
        call = self._by_id.get(action.id)
        if call is None:
            self._orphans += 1
            return
        if call.ended is not None:
            raise self._reader.error(f"call {action.id} ends twice")
        begun = call.pending
        if action.name != begun.demand.name or action.trajectory not in (None, begun.trajectory):
            raise self._reader.error(
                f"call {action.id} ends as {action.name} of trajectory {action.trajectory}; it was submitted as "
                f"{begun.demand.name} of trajectory {begun.trajectory}"
            )
        if abs(action.submitted_at_s - begun.submitted_at_s) > _OFF_BY_S:
            raise self._reader.error(
                f"call {action.id} ends as one that was submitted at {action.submitted_at_s:.6f} s; "
                f"it was submitted at {begun.submitted_at_s:.6f} s"
            )
        call.ended = action
        call.ended_at_s = at_s

    def _opened(self, event: TrajectoryOpened) -> None:
        if event.id in self._trajectories:
            raise self._reader.error(f"trajectory {event.id} is opened twice")
        self._trajectories[event.id] = TracedTrajectory(event)

    def _was_closed(self, event: TrajectoryClosed) -> None:
        trajectory = self._trajectories.get(event.id)
        if trajectory is None:
            self._strays += 1
        elif trajectory.closed_at_s is not None:
            raise self._reader.error(f"trajectory {event.id} is closed twice")
        else:
            trajectory.closed_at_s = event.at_s

    def _changed(self, event: ActionResized | UnitsSettled | UnitsReturned) -> None:
        call = self._by_id.get(event.id)
        if isinstance(event, ActionResized):
            self._resizes += 1
        if call is None:
            self._strays += 1
            return
        demand = call.pending.demand if call.started is None else call.started.pending.demand
        match event:
            case ActionResized(id=id_, at_s=at_s, units=units):
                if units and units not in demand.options:
                    raise self._reader.error(f"call {id_} has {units} units; it may have {list(demand.options)}")
                call.units.append((at_s, units))
            case UnitsSettled(dimension=dimension, units=units):
                call.settled[dimension] = units
            case UnitsReturned():
                call.returned = True
