"""`SchedulerCore`: events in, decisions out. It never awaits, reads a clock, logs or draws.

The rules, in the order in which `decide` applies them:

1. What waits is walked in order of priority, then arrival. An action is a candidate if its least
   cost fits what is left in every dimension. The first that does not fit blocks the dimensions
   that it lacks for everybody behind it, and no others (`blocking` says when it blocks more).
2. Candidates are grouped by the dimension whose units they have a choice of, and the policy says how
   many of each group start, and with what. Who is deferred keeps its place, blocks that dimension, and
   holds nothing else: the walk is repeated for the rest.
3. Candidates that take a fixed part of such a dimension are not deferred for a group. Only where the policy
   starts nobody of it (its first wants more than its least), they wait behind that one.

A trajectory that wants to hold something (memory, reserved cores) waits in the same queue. An action
that takes its sandbox's turn enters the queue when the one before it has ended.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from arl_tangram.errors import ConfigurationError, NoTrajectoryError
from arl_tangram.model.events import (
    ActionDeferred,
    ActionStarted,
    ActionSubmitted,
    Event,
    TrajectoryClosed,
    TrajectoryOpened,
    UnitsReturned,
)
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.model.topology import CPU, Topology
from arl_tangram.scheduling.blocking import Blocking
from arl_tangram.scheduling.completions import Completions
from arl_tangram.scheduling.deadlines import Deadlines
from arl_tangram.scheduling.decisions import Decisions, Round
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.feasibility import check_beside
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.policy import Candidate, Group, Policy
from arl_tangram.scheduling.queue import WaitingQueue

_MOST_CANDIDATES = 64
_MOST_FIXED = 512
_DEPTH = 64


@dataclass(slots=True)
class _Trajectory:
    """An opened or opening trajectory: what it holds, and whose turn it is in its sandbox."""

    group: str | None
    running: int = 0
    closing: bool = False
    turn: int | None = None
    turns_waiting: deque[PendingAction] = field(default_factory=deque[PendingAction])


class SchedulerCore:
    """The scheduler: a synchronous state machine; the same inputs give the same decisions.

    Ids are given by the caller, ascending in order of submission, over actions and trajectories.

    Args:
        topology: the dimensions of all pools.
        policy: how candidates for the same dimension share it.
        record: whether `drain_events` returns what happened.
        submissions: whether that includes `ActionSubmitted`, which a trace wants.
    """

    def __init__(self, topology: Topology, policy: Policy, *, record: bool = False, submissions: bool = True) -> None:
        self.topology = topology
        self.policy = policy
        self.durations = Durations()
        self._ledger = Ledger(topology)
        self._queue = WaitingQueue(len(topology.dimensions))
        self._blocking = Blocking(topology)
        self._running: dict[int, RunningAction] = {}
        self._held: dict[int, PendingAction] = {}
        self._completions = {i: Completions() for i in range(len(topology.dimensions))}
        self._trajectories: dict[int, _Trajectory] = {}
        self._turn_waiting: dict[int, PendingAction] = {}
        self._deadlines = Deadlines(self._is_waiting, lambda: self.waiting)
        self._deferred: set[int] = set()
        self._record = record
        self._record_submissions = record and submissions
        self._events: list[Event] = []

    # What comes in.

    def open(self, request: PendingAction, *, group: str | None = None) -> None:
        """A trajectory wants to hold its demand from now to `close`; its id is the request's."""
        self._trajectories[request.id] = _Trajectory(group)
        self._queue.add(request)

    def close(self, trajectory: int, now_s: float) -> None:
        """An admitted trajectory ends; what it holds returns when the last of its actions that run has ended."""
        state = self._trajectories[trajectory]
        state.closing = True
        if state.running == 0:
            del self._trajectories[trajectory]
            held = self._held.pop(trajectory).demand
            self._ledger.give_back(held, 0)
            self._blocking.release(held)
            self._note(TrajectoryClosed(now_s, trajectory))

    def submit(self, action: PendingAction) -> None:
        """A call wants to run.

        Raises:
            NoTrajectoryError: its trajectory is not open.
            InfeasibleError: it needs more than its own trajectory, which waits for it, leaves.
        """
        state = None
        if action.trajectory is not None:
            held = self._held.get(action.trajectory)
            state = self._trajectories.get(action.trajectory)
            if held is None or state is None or state.closing:
                raise NoTrajectoryError(f"{action.demand.name} was called in a trajectory that is not open")
            check_beside(action.demand, held.demand, self.topology)
        if action.demand.queue_timeout is not None:
            self._deadlines.add(action.submitted_at_s + action.demand.queue_timeout, action.id)
        if self._record_submissions:
            self._events.append(ActionSubmitted(action.submitted_at_s, action))
        if action.turn and state is not None:
            if state.turn is not None:
                state.turns_waiting.append(action)
                self._turn_waiting[action.id] = action
                return
            state.turn = action.id
        self._queue.add(action)

    def withdraw(self, action_id: int) -> None:
        """A waiting call or trajectory is not wanted any more; it held nothing."""
        self._trajectories.pop(action_id, None)
        waiting = self._turn_waiting.pop(action_id, None)
        if waiting is not None:
            if waiting.trajectory is not None:
                self._trajectories[waiting.trajectory].turns_waiting.remove(waiting)
            return
        action = self._queue.get(action_id)
        self._queue.remove(action_id)
        self._blocking.forget(action_id)
        self._deferred.discard(action_id)
        self._pass_turn(action)

    def finish(self, action_id: int, now_s: float, duration_s: float | None) -> None:
        """A running call gives its units back.

        Args:
            action_id: the call.
            now_s: the time.
            duration_s: how long it held them, to learn from; None if it did not end well.
        """
        running = self._running.pop(action_id)
        demand = running.pending.demand
        self._ledger.give_back(demand, running.units)
        if demand.elastic is not None:
            self._completions[demand.elastic].remove(*self._expectation(running))
        if duration_s is not None:
            self.durations.observe(demand, running.pending.key, running.units, duration_s)
        if self._record:
            self._events.append(UnitsReturned(now_s, action_id))
        trajectory = running.pending.trajectory
        if trajectory is not None:
            self._pass_turn(running.pending)
            state = self._trajectories[trajectory]
            state.running -= 1
            if state.closing:
                self.close(trajectory, now_s)

    def pause(self, dimension: int, until_s: float) -> None:
        """Grant nothing of a dimension before `until_s`; the latest such time counts."""
        self._ledger.pause(dimension, until_s)

    def advance(self, now_s: float) -> None:
        """Let units of rates return that are due, before `used` and `free` are looked at."""
        self._ledger.advance(now_s)

    # What goes out.

    def decide(self, now_s: float) -> Decisions:
        """Return what starts and what gives up now; costs what changed, not what waits."""
        this = Round(now_s)
        decisions = this.decisions
        self._ledger.advance(now_s)
        self._expire(now_s, decisions)
        try:
            while self._queue and self._walk(this):
                pass
        except Exception:
            if not (decisions.started or decisions.opened or decisions.expired):
                raise
            decisions.more = True  # what was decided before the failure is carried out first; the next call fails
        return decisions

    def next_wakeup_s(self) -> float | None:
        """When `decide` should be called again though nothing comes in; None if never."""
        if not self._queue and not self._turn_waiting:
            return None
        deadline_s = self._deadlines.next_s()
        change_s = self._ledger.next_change_s() if self._queue else None
        if deadline_s is None or change_s is None:
            return change_s if deadline_s is None else deadline_s
        return min(deadline_s, change_s)

    def drain_events(self) -> list[Event]:
        """Return what happened since the last call; nothing unless `record` was asked for."""
        events, self._events = self._events, []
        return events

    def free(self, dimension: int) -> int:
        """Free integer units of a dimension."""
        return self._ledger.free[dimension]

    def used(self, dimension: int) -> int:
        """Used integer units of a dimension; with the free ones, its capacity."""
        return self._ledger.used(dimension)

    @property
    def waiting(self) -> int:
        """Number of calls and trajectories that wait."""
        return len(self._queue) + len(self._turn_waiting)

    @property
    def running(self) -> int:
        """Number of calls that hold units, those that nobody waits for any more included."""
        return len(self._running)

    @property
    def trajectories(self) -> int:
        """Number of trajectories that are open."""
        return len(self._held)

    # One walk over the queue.

    def _walk(self, this: Round) -> bool:
        """Start what can start and was not deferred in this round; return whether to walk again.

        Once more after a start, if there are several lanes: what starts can make one waiter lack what another
        one behind it was blocked for, and nothing else would wake the core for that one.
        """
        groups: dict[int, list[PendingAction]] = {}
        fixed: list[PendingAction] = []
        plans: dict[int, list[int]] = {}
        again = False
        try:
            this.decisions.more = self._gather(this, groups, fixed)
            for dimension, members in groups.items():
                plans[dimension] = self._planned(dimension, members, this.now_s)
                if not plans[dimension] and (behind := _users_behind(members[0], dimension, fixed)):
                    self._put_back(behind, this.now_s)
                    fixed = [action for action in fixed if action not in behind]
                    plans[dimension] = self._planned(dimension, members, this.now_s)
                    again = True
        except BaseException:
            self._put_back([*fixed, *(action for members in groups.values() for action in members)], this.now_s)
            raise
        for action in fixed:
            self._start(action, 0, this)
        for dimension, members in groups.items():
            again |= self._arrange(dimension, members, plans[dimension], this)
        if fixed or any(plans.values()):
            return not this.decisions.more and (again or self._queue.lanes > 1)
        return again

    def _gather(self, this: Round, groups: dict[int, list[PendingAction]], fixed: list[PendingAction]) -> bool:
        """Take the candidates at their least units, grouped or `fixed`; return whether it stopped at its bound."""
        blocked = candidates = 0
        heads = self._queue.heads()
        while heads:
            lane = heads[0][2]
            if lane.mask & blocked:
                heapq.heappop(heads)
                continue
            action = lane.actions[0]
            demand = action.demand
            lacking = self._ledger.lacking(demand)
            if this.deferred:
                lacking |= this.deferred.get(action.id, 0)
            if lacking:
                blocked |= self._blocking.blocks(action, lacking)
                heapq.heappop(heads)
                continue
            if demand.elastic is not None:
                candidates += 1
                if candidates > _MOST_CANDIDATES:
                    return True
                groups.setdefault(demand.elastic, []).append(action)
                self._ledger.take(demand, demand.options[0], this.now_s)
            else:
                if len(fixed) >= _MOST_FIXED:
                    return True
                fixed.append(action)
                self._ledger.take(demand, 0, this.now_s)
            self._queue.take(lane)
            following = self._queue.first(lane)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (lane.priority, following.id, lane))
        return False

    def _arrange(self, dimension: int, members: list[PendingAction], plan: list[int], this: Round) -> bool:
        """Start the candidates of a group as the policy says; return whether anybody is left over.

        Who is left over is deferred, unless somebody was started and it still fits: then it is planned anew.
        """
        late = members[len(plan) :]
        if late:
            self._put_back(late, this.now_s)
        for action, units in zip(members, plan, strict=False):
            self._ledger.free[dimension] -= units - action.demand.options[0]
            self._start(action, units, this)
        if late and not (plan and late[0].demand.options[0] <= self._ledger.free[dimension]):
            self._defer(late, dimension, this)
        return bool(late)

    def _defer(self, late: list[PendingAction], dimension: int, this: Round) -> None:
        for action in late:
            this.deferred[action.id] = 1 << dimension
            if action.id not in self._deferred:
                self._deferred.add(action.id)
                self._note(ActionDeferred(this.now_s, action.id))

    def _put_back(self, taken: list[PendingAction], now_s: float) -> None:
        for action in sorted(taken, key=_place, reverse=True):
            demand = action.demand
            self._ledger.undo(demand, demand.options[0] if demand.elastic is not None else 0, now_s)
            self._queue.put_back(action)

    def _planned(self, dimension: int, members: list[PendingAction], now_s: float) -> list[int]:
        for action in members:
            if len(action.demand.options) > 1:
                break
        else:  # nobody has a choice
            return [action.demand.options[0] for action in members]
        scale = self.topology.dimensions[dimension].scale
        free = self._ledger.free[dimension] + sum(action.demand.options[0] for action in members)
        waiting = self._queue.behind(dimension, _DEPTH)
        group = Group(
            now_s=now_s,
            free=free // scale,
            candidates=tuple(self._candidate(action, scale) for action in members),
            waiting=tuple(self._candidate(a, scale) for a in waiting if a.demand.elastic == dimension),
            running=self._completions[dimension].upcoming(now_s),
        )
        plan = list(self.policy.plan(group))
        fits = len(plan) <= len(members) and sum(plan) <= group.free
        if not fits or any(u not in c.units for u, c in zip(plan, group.candidates, strict=False)):
            raise ConfigurationError(f"the policy {self.policy.name} planned {plan} for {group}")
        return [units * scale for units in plan]

    def _candidate(self, action: PendingAction, scale: int) -> Candidate:
        demand = action.demand
        return Candidate(tuple(u // scale for u in demand.options), self.durations.curve(demand, action.key))

    def _start(self, action: PendingAction, units: int, this: Round) -> None:
        self._blocking.forget(action.id)
        if self._deferred:
            self._deferred.discard(action.id)
        demand = action.demand
        state = self._trajectories.get(action.id)
        if state is not None:
            self._held[action.id] = action
            self._blocking.hold(demand)
            this.decisions.opened.append(action.id)
            cpu = self.topology.index.get(CPU)
            reserved = sum(amount for dimension, amount in demand.fixed if dimension == cpu)
            waited_s = this.now_s - action.submitted_at_s
            self._note(TrajectoryOpened(this.now_s, action.id, state.group, waited_s, reserved, demand.fixed))
            return
        expected_s = 0.0 if demand.elastic is None else self.durations.at(demand, action.key, units)
        running = RunningAction(action, this.now_s, units or demand.reserved, expected_s)
        self._running[action.id] = running
        if action.trajectory is not None:
            self._trajectories[action.trajectory].running += 1
        if demand.elastic is not None:
            self._completions[demand.elastic].add(*self._expectation(running))
        this.decisions.started.append(running)
        if self._record:
            self._events.append(ActionStarted(this.now_s, running))

    def _expectation(self, running: RunningAction) -> tuple[float, int, int]:
        demand: Demand = running.pending.demand
        scale = self.topology.dimensions[demand.elastic or 0].scale
        return running.started_at_s + running.expected_s, running.pending.id, running.units // scale

    # Turns, deadlines, book-keeping.

    def _pass_turn(self, action: PendingAction) -> None:
        if not action.turn or action.trajectory is None:
            return
        state = self._trajectories[action.trajectory]
        state.turn = None
        if state.turns_waiting:
            following = state.turns_waiting.popleft()
            del self._turn_waiting[following.id]
            state.turn = following.id
            self._queue.add(following)

    def _expire(self, now_s: float, decisions: Decisions) -> None:
        while (action_id := self._deadlines.pop_due(now_s)) is not None:
            self.withdraw(action_id)
            decisions.expired.append(action_id)

    def _is_waiting(self, action_id: int) -> bool:
        return action_id in self._queue or action_id in self._turn_waiting

    def _note(self, event: Event) -> None:
        if self._record:
            self._events.append(event)


def _place(action: PendingAction) -> tuple[int, int]:
    return action.demand.priority, action.id


def _users_behind(first: PendingAction, dimension: int, actions: list[PendingAction]) -> list[PendingAction]:
    return [a for a in actions if a.demand.dimensions >> dimension & 1 and _place(a) > _place(first)]
