"""`SchedulerCore`: events in, decisions out. It never awaits, reads a clock, logs or draws.

The rules, in the order in which `decide` applies them:

1. What waits is walked in order of priority, then rank (`order`), then arrival. An action is a candidate if its least
   cost fits what is left in every dimension. The first that does not fit blocks the dimensions
   that it lacks for everybody behind it, and no others (`blocking` says when it blocks more).
2. Candidates are grouped by the dimension whose units they have a choice of, and the policy says how
   many of each group start, and with what. Who is deferred keeps its place, blocks that dimension, and
   holds nothing else: the walk is repeated for the rest.
3. Candidates that take a fixed part of such a dimension are not deferred for a group. Only where the policy
   starts nobody of it (its first wants more than its least), they wait behind that one.

A trajectory that wants to hold something (memory, reserved cores) waits in the same queue. An action
that takes its sandbox's turn enters the queue when the one before it has ended.

One call does a bounded amount of work: it plans a few dimensions, with a bounded number of candidates each, and says
that there is `more`. What it returns is valid by itself. Calls that follow go on with the other dimensions; all of them
together are a round.
"""

from __future__ import annotations

from arl_tangram.errors import NoTrajectoryError
from arl_tangram.model.events import (
    ActionDeferred,
    ActionStarted,
    ActionSubmitted,
    Event,
    PolicyRefused,
    TrajectoryClosed,
    TrajectoryOpened,
    UnitsReturned,
)
from arl_tangram.model.lifecycle import PendingAction, RunningAction
from arl_tangram.model.topology import CPU, Topology
from arl_tangram.scheduling.blocking import Blocking
from arl_tangram.scheduling.candidates import Candidates
from arl_tangram.scheduling.deadlines import Deadlines
from arl_tangram.scheduling.decisions import Decisions, Round
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.feasibility import check_beside, no_budget
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.order import Order, shortest_rank, trajectory_rank
from arl_tangram.scheduling.planning import Planning
from arl_tangram.scheduling.policy import Policy
from arl_tangram.scheduling.queue import WaitingQueue, place
from arl_tangram.scheduling.turns import Trajectories, TrajectoryState


class SchedulerCore:
    """The scheduler: a synchronous state machine; the same inputs give the same decisions.

    Ids are given by the caller, ascending in order of submission, over actions and trajectories.

    Args:
        topology: the dimensions of all pools.
        policy: how candidates for the same dimension share it.
        order: who comes first among those of one priority.
        record: whether `drain_events` returns what happened.
        submissions: whether that includes `ActionSubmitted`, which a trace wants.
    """

    def __init__(
        self,
        topology: Topology,
        policy: Policy,
        *,
        order: Order = "fcfs",
        record: bool = False,
        submissions: bool = True,
    ) -> None:
        self.topology = topology
        self.policy = policy
        self.durations = Durations()
        self._order = order
        self._ledger = Ledger(topology)
        self._queue = WaitingQueue(len(topology.dimensions))
        self._blocking = Blocking(topology)
        self._candidates = Candidates(self._ledger, self._queue, self._blocking)
        self._planning = Planning(topology, policy, self.durations, self._queue)
        self._trajectories = Trajectories()
        self._running: dict[int, RunningAction] = {}
        self._deadlines = Deadlines(self._is_waiting, lambda: self.waiting)
        self._deferred: set[int] = set()
        self._look_again_s: dict[int, float] = {}
        self._skip = 0
        self._undelivered: Decisions | None = None
        self._joined = 0
        self._joined_before_round = 0
        self._changed = 0
        self._record = record
        self._record_submissions = record and submissions
        self._events: list[Event] = []

    # What comes in.

    def open(self, request: PendingAction, *, group: str | None = None) -> None:
        """A trajectory wants to hold its demand from now to `close`; its id is the request's."""
        self._trajectories.add(request.id, group)
        self._join(request, request.submitted_at_s)

    def close(self, trajectory: int, now_s: float) -> None:
        """An admitted trajectory ends; what it holds returns when the last of its actions that run has ended."""
        state = self._trajectories[trajectory]
        state.closing = True
        if state.running == 0:
            held = self._trajectories.end(trajectory)
            self._ledger.give_back(held.demand, 0)
            self._blocking.release(held.demand)
            self._candidates.placement.close(state.original or held.demand, held.demand)
            self._note(TrajectoryClosed(now_s, trajectory))

    def submit(self, action: PendingAction) -> None:
        """A call wants to run.

        Raises:
            NoTrajectoryError: its trajectory is not open.
            InfeasibleError: it needs more than its own trajectory, which waits for it, leaves.
        """
        state = None
        if action.trajectory is not None:
            state = self._trajectories.get(action.trajectory)
            if state is None or state.held is None or state.closing:
                raise NoTrajectoryError(f"{action.demand.name} was called in a trajectory that is not open")
            check_beside(action.demand, state.held.demand, self.topology)
        if action.demand.queue_timeout is not None:
            self._deadlines.add(action.submitted_at_s + action.demand.queue_timeout, action.id)
        if self._record_submissions:
            self._events.append(ActionSubmitted(action.submitted_at_s, action))
        if not action.turn or state is None or self._trajectories.take_turn(action, state):
            self._join(action, action.submitted_at_s)

    def withdraw(self, action_id: int) -> None:
        """A waiting call or trajectory is not wanted any more; it held nothing."""
        if self._trajectories.stop_waiting(action_id):
            return
        self._trajectories.forget(action_id)
        action = self._queue.get(action_id)
        self._queue.remove(action_id)
        self._joined += 1
        self._blocking.forget(action_id)
        self._deferred.discard(action_id)
        self._pass_turn(action, action.submitted_at_s)

    def finish(self, action_id: int, now_s: float, duration_s: float | None) -> None:
        """A running call gives its units back.

        Args:
            action_id: the call.
            now_s: the time.
            duration_s: how long it held them, to learn from; None if it did not end well.
        """
        running = self._running.pop(action_id)
        action = running.pending
        demand = action.demand
        self._ledger.give_back(demand, running.units)
        if self._ledger.charged:
            self._ledger.conclude(running)
        if demand.elastic is not None:
            self._planning.completions[demand.elastic].remove(*self._expectation(running))
        if self._record:
            self._events.append(UnitsReturned(now_s, action_id))
        if action.trajectory is not None:
            state = self._trajectories[action.trajectory]
            state.running -= 1
            state.attained_s += now_s - running.started_at_s
            self._pass_turn(action, now_s)
            if state.closing:
                self.close(action.trajectory, now_s)
        if duration_s is not None and (demand.elastic is not None or self._order == "shortest"):
            self.durations.observe(demand, action.key, running.units, duration_s)  # else nothing depends on it

    def settle(self, action_id: int, dimension: int, units: int, now_s: float) -> None:
        """Count `units` of a rate or a budget for a running call, instead of what it was granted; see the ledger."""
        running = self._running.get(action_id)
        if running is not None:
            self._ledger.settle(running, dimension, units, now_s)

    def pause(self, dimension: int, until_s: float) -> None:
        """Grant nothing of a dimension before `until_s`; the latest such time counts."""
        self._ledger.pause(dimension, until_s)

    def advance(self, now_s: float) -> None:
        """Let units of rates return that are due, before `used` and `free` are looked at."""
        self._ledger.advance(now_s)

    # What goes out.

    def decide(self, now_s: float) -> Decisions:
        """Return what starts and what gives up now; costs what changed, not what waits."""
        self._ledger.advance(now_s)
        self._note_what_is_due(now_s)
        this = Round(now_s, self._skip)
        if self._undelivered is not None:
            this.decisions, self._undelivered = self._undelivered, None
        decisions = this.decisions
        self._expire(now_s, decisions)
        try:
            while self._queue and self._walk(this):
                pass
        except BaseException as error:
            if not (decisions.started or decisions.opened or decisions.expired or decisions.exhausted):
                raise
            decisions.more = True  # what was decided before the failure is carried out first; the next call fails
            if isinstance(error, Exception):
                return decisions
            self._undelivered = decisions  # an interruption does not fail again
            raise
        self._end_of_call(this)
        return decisions

    def next_wakeup_s(self) -> float | None:
        """When `decide` should be called again though nothing comes in; None if never."""
        if not self._queue:
            return self._deadlines.next_s() if self._trajectories.waiting else None
        times = (self._deadlines.next_s(), self._ledger.next_change_s(), *self._look_again_s.values())
        return min([at_s for at_s in times if at_s is not None], default=None)

    def drain_events(self) -> list[Event]:
        """Return what happened since the last call; nothing unless `record` was asked for."""
        events, self._events = self._events, []
        return events

    def place_of(self, trajectory: int) -> int:
        """Return the number of the place, of those that its demand named, where a trajectory was admitted; else 0."""
        state = self._trajectories[trajectory]
        places = () if state.original is None else state.original.places
        return places.index(state.held.demand) if places and state.held is not None else 0

    def free(self, dimension: int) -> int:
        """Free integer units of a dimension."""
        return self._ledger.free[dimension]

    def used(self, dimension: int) -> int:
        """Used integer units of a dimension; with the free ones, its capacity."""
        return self._ledger.used(dimension)

    @property
    def waiting(self) -> int:
        """Number of calls and trajectories that wait."""
        return len(self._queue) + self._trajectories.waiting

    @property
    def running(self) -> int:
        """Number of calls that hold units, those that nobody waits for any more included."""
        return len(self._running)

    @property
    def trajectories(self) -> int:
        """Number of trajectories that are open."""
        return self._trajectories.open

    # One walk over the queue.

    def _walk(self, this: Round) -> bool:
        """Start what can start and was not deferred in this call; return whether to walk again.

        Once more after a start, if there are several lanes: what starts can make one waiter lack what another
        one behind it was blocked for, and nothing else would wake the core for that one.
        """
        plans: dict[int, list[int]] = {}
        again = False
        gathered = self._candidates.gather(this, self._changed)
        if gathered.exhausted:
            again = True
            self._refuse(gathered.exhausted, this)
        try:
            this.decisions.more = gathered.left_some
            for dimension, members in gathered.groups.items():
                plans[dimension] = self._planned(dimension, members, this)
                if not plans[dimension] and (behind := _users_behind(members[0], dimension, gathered.fixed)):
                    self._candidates.put_back(behind, this)
                    gathered.fixed = [action for action in gathered.fixed if action not in behind]
                    plans[dimension] = self._planned(dimension, members, this)
                    again = True
        except BaseException:
            self._candidates.put_back(gathered.all(), this)
            raise
        for action in gathered.fixed:
            self._start(action, 0, this)
        for dimension, members in gathered.groups.items():
            again |= self._arrange(dimension, members, plans[dimension], this)
        if gathered.fixed or any(plans.values()):
            return not this.decisions.more and (again or self._queue.lanes > 1)
        return again

    def _refuse(self, exhausted: list[tuple[PendingAction, int]], this: Round) -> None:
        """Let go of those that ask for more of a budget than can ever be there."""
        for action, budget in exhausted:
            self._blocking.forget(action.id)
            self._deferred.discard(action.id)
            dimension = self.topology.dimensions[budget]
            error = no_budget(action.demand, dimension, self._ledger.free[budget])
            this.decisions.exhausted.append((action.id, error))
            self._pass_turn(action, this.now_s)

    def _arrange(self, dimension: int, members: list[PendingAction], plan: list[int], this: Round) -> bool:
        """Start the candidates of a group as the policy says; return whether anybody is left over.

        Who is left over is deferred, unless somebody was started and it still fits: then it is planned anew.
        """
        self._look_again_s.pop(dimension, None)
        late = members[len(plan) :]
        if late:
            self._candidates.put_back(late, this)
        for action, units in zip(members, plan, strict=False):
            self._ledger.free[dimension] -= units - action.demand.options[0]
            self._start(action, units, this)
        if late and plan and late[0].demand.options[0] <= self._ledger.free[dimension]:
            this.full |= 1 << dimension  # if this call ends before that, the next one of the round goes on with it
        elif late:
            this.full &= ~(1 << dimension)
            self._defer(late, dimension, this)
        return bool(late)

    def _defer(self, late: list[PendingAction], dimension: int, this: Round) -> None:
        for action in late:
            this.deferred[action.id] = this.deferred.get(action.id, 0) | 1 << dimension
            if action.id not in self._deferred:
                self._deferred.add(action.id)
                self._note(ActionDeferred(this.now_s, action.id))
        at_s = self._planning.completions[dimension].next_s(this.now_s)
        if at_s is not None:
            self._look_again_s[dimension] = at_s

    def _planned(self, dimension: int, members: list[PendingAction], this: Round) -> list[int]:
        for action in members:
            if len(action.demand.options) > 1:
                break
        else:  # nobody has a choice
            return [action.demand.options[0] for action in members]
        free = self._ledger.free[dimension] + sum([action.demand.options[0] for action in members])
        refused = self._planning.refused
        units = self._planning.plan(dimension, members, free, this.now_s)
        if refused is None and self._planning.refused is not None:
            this.decisions.refused = self._planning.refused
            self._note(PolicyRefused(this.now_s, self.policy.name, self._planning.refused))
        return units

    def _start(self, action: PendingAction, units: int, this: Round) -> None:
        self._blocking.forget(action.id)
        if self._deferred:
            self._deferred.discard(action.id)
            if action.id in this.original:
                this.lift(action.id)
        demand = action.demand
        state = self._trajectories.get(action.id)
        if state is not None:
            self._admit(action, state, this)
            return
        expected_s = 0.0 if demand.elastic is None else self.durations.at(demand, action.key, units)
        running = RunningAction(action, this.now_s, units or demand.reserved, expected_s)
        self._running[action.id] = running
        if action.trajectory is not None:
            self._trajectories[action.trajectory].running += 1
        if demand.elastic is not None:
            self._planning.completions[demand.elastic].add(*self._expectation(running))
        this.decisions.started.append(running)
        if self._record:
            self._events.append(ActionStarted(this.now_s, running))

    def _admit(self, request: PendingAction, state: TrajectoryState, this: Round) -> None:
        demand = request.demand
        original = this.original.get(request.id, request).demand
        self._trajectories.admit(state, request, original, this.now_s)
        self._blocking.hold(demand)
        self._candidates.placement.open(original, demand)
        self._changed |= original.dimensions  # whoever waits for trajectories to close blocks others less now
        this.decisions.opened.append(request.id)
        cpu = self.topology.index.get(CPU)
        reserved = sum(amount for dimension, amount in demand.fixed if dimension == cpu)
        waited_s = this.now_s - request.submitted_at_s
        self._note(TrajectoryOpened(this.now_s, request.id, state.group, waited_s, reserved, demand.fixed))

    def _expectation(self, running: RunningAction) -> tuple[float, int, int]:
        demand = running.pending.demand
        scale = self.topology.dimensions[demand.elastic or 0].scale
        return running.started_at_s + running.expected_s, running.pending.id, running.units // scale

    # Rounds, turns, deadlines, book-keeping.

    def _note_what_is_due(self, now_s: float) -> None:
        """Take over what has changed, and look again where the policy waits for an end that is due."""
        if self._look_again_s:
            for dimension, at_s in list(self._look_again_s.items()):
                if at_s <= now_s:
                    del self._look_again_s[dimension]
                    self._ledger.changed |= 1 << dimension
        self._changed |= self._ledger.changed
        if self._skip:
            self._skip &= ~self._ledger.changed
        self._ledger.changed = 0

    def _end_of_call(self, this: Round) -> None:
        if this.decisions.more:
            for dimension in this.planned:
                self._skip |= 1 << dimension & ~this.full
            return
        if self._skip and self._joined != self._joined_before_round:
            this.decisions.more = True  # who joined behind what was passed over is looked at in a round of its own
        else:
            self._changed = 0
            self._queue.settle()
        self._skip = 0
        self._joined_before_round = self._joined

    def _join(self, action: PendingAction, at_s: float) -> None:
        """Let an action compete from now on."""
        self._joined += 1
        if self._order != "fcfs":
            action = action._replace(rank=self._rank(action, at_s))
        if action.demand.elastic is not None:
            self._planning.arrive(action, at_s)
        self._queue.add(action)

    def _rank(self, action: PendingAction, at_s: float) -> float:
        if self._order == "shortest" and not self._is_trajectory(action.id):
            return shortest_rank(at_s, self.durations.expected_s(action.demand, action.key))
        if self._order == "trajectory" and action.trajectory is not None:
            state = self._trajectories[action.trajectory]
            return trajectory_rank(at_s, state.admitted_at_s, state.attained_s)
        return at_s

    def _pass_turn(self, action: PendingAction, now_s: float) -> None:
        if (following := self._trajectories.pass_turn(action)) is not None:
            self._join(following, max(now_s, following.submitted_at_s))

    def _expire(self, now_s: float, decisions: Decisions) -> None:
        while (action_id := self._deadlines.pop_due(now_s)) is not None:
            self.withdraw(action_id)
            decisions.expired.append(action_id)

    def _is_trajectory(self, action_id: int) -> bool:
        return self._trajectories.get(action_id) is not None

    def _is_waiting(self, action_id: int) -> bool:
        return action_id in self._queue or self._trajectories.is_waiting(action_id)

    def _note(self, event: Event) -> None:
        if self._record:
            self._events.append(event)


def _users_behind(first: PendingAction, dimension: int, actions: list[PendingAction]) -> list[PendingAction]:
    return [a for a in actions if a.demand.dimensions >> dimension & 1 and place(a) > place(first)]
