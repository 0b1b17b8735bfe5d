"""Start actions and admit trajectories whose units are taken."""

from __future__ import annotations

from typing import Protocol

from arl_tangram.model.events import ActionStarted, Event, TrajectoryOpened
from arl_tangram.model.gpu import Seat
from arl_tangram.model.lifecycle import PendingAction, RunningAction
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.blocking import Blocking
from arl_tangram.scheduling.decisions import Round
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.nesting import Nesting
from arl_tangram.scheduling.placement import Placement
from arl_tangram.scheduling.planning import Planning
from arl_tangram.scheduling.rounds import Rounds
from arl_tangram.scheduling.turns import Trajectories, TrajectoryState


class Sharers(Protocol):
    """Those that share their cores while they run."""

    def start(self, running: RunningAction) -> None:
        """An action has started, which may be one of them."""
        ...


class Starting:
    """The way out of the queue of one core, for those that start.

    Args:
        topology: the dimensions.
        running: what runs, by id; grows.
        trajectories: those that are open, or wait to be.
        nesting: is told of calls that start.
        blocking: is told of whom waits no more, and of what trajectories hold.
        planning: is told of what is expected to end.
        durations: what is expected of actions.
        placement: is told where trajectories are.
        rounds: is told whom to look at again.
        events: gets what happens, if that is recorded.

    Attributes:
        deferred: who waits and was ever deferred.
        sharing: those that share their cores, if any do.
    """

    def __init__(  # noqa: PLR0917 - the parts of one core
        self,
        topology: Topology,
        running: dict[int, RunningAction],
        trajectories: Trajectories,
        nesting: Nesting,
        blocking: Blocking,
        planning: Planning,
        durations: Durations,
        placement: Placement,
        rounds: Rounds,
        events: list[Event] | None,
    ) -> None:
        self._cores = topology.cores
        self._running = running
        self._trajectories = trajectories
        self._nesting = nesting
        self._blocking = blocking
        self._planning = planning
        self._durations = durations
        self._placement = placement
        self._rounds = rounds
        self._events = events
        self.deferred: set[int] = set()
        self.sharing: Sharers | None = None

    def start(self, action: PendingAction, units: int, this: Round, seat: Seat | None = None) -> None:
        """Start an action, or admit a trajectory.

        Args:
            action: whose units are taken.
            units: those of its elastic dimension.
            this: the round.
            seat: the one that it has taken in a pool of GPUs.
        """
        self._blocking.forget(action.id)
        if self.deferred:
            self.deferred.discard(action.id)
            if action.id in this.original:
                this.lift(action.id)
        demand = action.demand
        state = self._trajectories.get(action.id)
        if state is not None:
            self._admit(action, state, this)
            return
        expected_s = 0.0 if demand.elastic is None else self._durations.at(demand, action.key, units)
        running = RunningAction(action, this.now_s, units or demand.reserved, expected_s, seat)
        self._running[action.id] = running
        if action.parent is not None:
            self._nesting.start(action.id)
        if action.trajectory is not None:
            state = self._trajectories[action.trajectory]
            state.running += 1
            self._trajectories.end_waiting(action.id, state)
        if demand.elastic is not None:
            self._planning.expect(running)
        this.decisions.started.append(running)
        if self._events is not None:
            self._events.append(ActionStarted(this.now_s, running))
        if self.sharing is not None:
            self.sharing.start(running)

    def _admit(self, request: PendingAction, state: TrajectoryState, this: Round) -> None:
        demand = request.demand
        original = this.original.get(request.id, request).demand
        self._trajectories.admit(state, request, this.now_s)
        self._blocking.hold(demand)
        self._placement.open(demand)
        self._rounds.changed |= original.dimensions  # who waits for trajectories to close blocks others less now
        this.decisions.opened.append(request.id)
        reserved = sum([amount for dimension, amount in demand.fixed if self._cores >> dimension & 1])
        waited_s = this.now_s - request.submitted_at_s
        if self._events is not None:
            opened = TrajectoryOpened(
                this.now_s, request.id, state.group, waited_s, reserved, demand.fixed, demand.node
            )
            self._events.append(opened)
