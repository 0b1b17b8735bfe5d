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

An action that waits for actions that it has called lends its cores and its turn (`lending`), and these actions come
before nearly all others (`nesting`). Such a call that could never run, for what its callers keep, is refused
(`deadlock`).

A candidate that uses a service, or wants GPUs to itself, needs a seat besides, which it gets last of all (`seating`).

One call does a bounded amount of work: it plans a few dimensions, with a bounded number of candidates each, and says
that there is `more`. What it returns is valid by itself. Calls that follow go on with the other dimensions; all of them
together are a round.
"""

from __future__ import annotations

from arl_tangram.errors import NoTrajectoryError
from arl_tangram.model.events import (
    ActionSubmitted,
    CapacityChanged,
    Event,
    Paused,
    TrajectoryClosed,
    UnitsReturned,
    UnitsSettled,
)
from arl_tangram.model.lifecycle import PendingAction, RunningAction
from arl_tangram.model.sharing import Sharing
from arl_tangram.model.topology import GPU, Topology
from arl_tangram.scheduling.blocking import Blocking
from arl_tangram.scheduling.candidates import Candidates
from arl_tangram.scheduling.deadlines import Deadlines
from arl_tangram.scheduling.deadlock import Deadlocks
from arl_tangram.scheduling.decisions import Decisions, Round
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.feasibility import check_beside
from arl_tangram.scheduling.gpu.seats import Seats
from arl_tangram.scheduling.joining import Joining
from arl_tangram.scheduling.leaving import Leaving
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.lending import Lending
from arl_tangram.scheduling.nesting import Nesting
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.planning import Planning
from arl_tangram.scheduling.policy import Policy
from arl_tangram.scheduling.prelude import Prelude
from arl_tangram.scheduling.queue import WaitingQueue
from arl_tangram.scheduling.resizing import Resizing
from arl_tangram.scheduling.rounds import Rounds
from arl_tangram.scheduling.seating import Seating
from arl_tangram.scheduling.sharing.aside import QueueAside
from arl_tangram.scheduling.sharing.shared_cores import SharedCores
from arl_tangram.scheduling.starting import Starting
from arl_tangram.scheduling.turns import Trajectories
from arl_tangram.scheduling.walk import Walk


class SchedulerCore:
    """The scheduler: a synchronous state machine; the same inputs give the same decisions.

    Ids are given by the caller, ascending in order of submission, over actions and trajectories. One that is tried
    again has its id again.

    Args:
        topology: the dimensions of all pools.
        policy: how candidates for the same dimension share it.
        order: who comes first among those of one priority.
        record: whether `drain_events` returns what happened.
        submissions: whether that includes `ActionSubmitted`, which a trace wants.
        seats: those of a pool of GPUs, which `topology` has the dimensions of; None if there is none.
        sharing: how running actions share their cores; None if they keep those that they have started with.
    """

    def __init__(
        self,
        topology: Topology,
        policy: Policy,
        *,
        order: Order = "fcfs",
        record: bool = False,
        submissions: bool = True,
        seats: Seats | None = None,
        sharing: Sharing | None = None,
    ) -> None:
        self.policy = policy
        self.durations = Durations()
        self._order = order
        self._running: dict[int, RunningAction] = {}
        self._events: list[Event] = []
        self._record = record
        self._record_submissions = record and submissions
        self._ledger = ledger = Ledger(topology)
        gpu = topology.index.get(GPU)
        seated = 0 if gpu is None else 1 << gpu
        queue = (WaitingQueue if sharing is None else QueueAside)(len(topology.dimensions), seated)
        self._queue = queue
        self._blocking = blocking = Blocking(ledger)
        self._trajectories = turns = Trajectories(len(topology.dimensions))
        self._candidates = Candidates(topology, ledger, queue, blocking, turns)
        self._planning = planning = Planning(topology, policy, self.durations, queue, ledger, blocking.kept)
        self._rounds = rounds = Rounds(ledger, queue, seated)
        self._nesting = nesting = Nesting(topology, ledger, turns, self._running, blocking.kept)
        self._joining = Joining(order, queue, rounds, planning, self.durations, nesting, turns)
        self._lending = Lending(nesting, ledger, queue, blocking, planning, turns, self._joining.join, self.note)
        places, events = self._candidates.placement, self._events if record else None
        self._starting = Starting(
            topology, self._running, turns, nesting, blocking, planning, self.durations, places, rounds, events
        )
        self._leaving = leaving = Leaving(queue, turns, rounds, blocking, self._starting, nesting, self._lending)
        self._sharing: SharedCores | None = None
        if sharing is not None and isinstance(queue, QueueAside):
            self._sharing = SharedCores(
                sharing, topology, ledger, queue, blocking, rounds, self._running, nesting, self._lending, planning,
                self.durations, self._starting, self.note,
            )  # fmt: skip
        self._seating: Seating | None = None
        if seats is not None:
            self._candidates.with_seats = True
            self._seating = nesting.seating = leaving.seating = Seating(
                seats, topology, ledger, queue, self._candidates, rounds, self.durations, nesting, self._starting,
                leaving.refuse, self.set_capacity, self.note,
            )  # fmt: skip
        self._walk = Walk(
            ledger, queue, blocking, self._candidates, planning, rounds, self._starting, self._seating, leaving.refuse,
            self.note,
        )  # fmt: skip
        check_seat = None if self._seating is None else self._seating.check
        self._resizing = Resizing(topology, ledger, queue, blocking, planning, turns, check_seat)
        self._deadlines = Deadlines(self._is_waiting, lambda: self.waiting)
        deadlocks = Deadlocks(topology, ledger, nesting, self._lending, turns)
        self._prelude = Prelude(
            len(ledger.target), self._deadlines, self._resizing, deadlocks, self._lending, rounds, leaving.withdraw
        )

    @property
    def topology(self) -> Topology:
        """The dimensions, with the capacities that were set last."""
        return self._resizing.topology

    # What comes in.

    def open(self, request: PendingAction, *, group: str | None = None) -> None:
        """A trajectory wants to hold its demand from now to `close`; its id is the request's.

        Raises:
            InfeasibleError: there is too little for it by now.
        """
        self._resizing.check(request.demand)
        self._trajectories.add(request.id, group)
        self._joining.join(request, request.submitted_at_s)

    def close(self, trajectory: int, now_s: float) -> None:
        """An admitted trajectory ends; what it holds returns when the last of its actions that run has ended."""
        state = self._trajectories[trajectory]
        state.closing = True
        if state.running == 0:
            held = self._trajectories.end(trajectory)
            self._ledger.give_back(held.demand, 0)
            self._blocking.release(held.demand)
            self._candidates.placement.close(held.demand)
            self.note(TrajectoryClosed(now_s, trajectory))

    def submit(self, action: PendingAction) -> None:
        """A call wants to run.

        If a running action has called it (`parent`), that one is to lend before `decide` is called.

        Raises:
            NoTrajectoryError: its trajectory is not open.
            InfeasibleError: it needs more than its own trajectory, which waits for it, leaves.
            NestedActionError: it needs more than those who wait for it leave.
        """
        state = None
        if action.trajectory is not None:
            state = self._trajectories.get(action.trajectory)
            if state is None or state.held is None or state.closing:
                raise NoTrajectoryError(f"{action.demand.name} was called in a trajectory that is not open")
            check_beside(action.demand, state.held.demand, self.topology)
        self._resizing.check(action.demand)
        if action.parent is not None:
            self._nesting.check(action)
            self._nesting.add(action)
        if action.demand.queue_timeout is not None:
            self._deadlines.add(action.submitted_at_s + action.demand.queue_timeout, action.id)
        if self._record_submissions:
            self._events.append(ActionSubmitted(action.submitted_at_s, action))
        if state is not None:
            self._trajectories.begin_waiting(action, state)
            if self._nesting.lent and not self._nesting.unchecked:
                self._nesting.arrive(action, state)
        if not action.turn or state is None or self._lending.take_turn(action, state):
            self._joining.join(action, action.submitted_at_s)

    def withdraw(self, action_id: int) -> None:
        """A waiting call or trajectory is not wanted any more; it held nothing."""
        self._leaving.withdraw(action_id)

    def finish(self, action_id: int, now_s: float, duration_s: float | None) -> None:
        """A running call gives its units back, whatever it has lent of them.

        Args:
            action_id: the call.
            now_s: the time.
            duration_s: how long it held them, to learn from, without the time for which it was suspended; None if it
                did not end well.
        """
        running = self._running.pop(action_id)
        action = running.pending
        demand = action.demand
        away_s, has_turn, units = 0.0, True, running.units
        if self._sharing is not None:
            units, duration_s = self._sharing.finish(running, now_s, duration_s)
        if self._nesting.callers:
            away_s, has_turn = self._lending.end(running, now_s)
        elif demand.elastic is not None:
            self._planning.expect_no_more(running)
        if action.parent is not None:
            self._nesting.end(action)
        self._ledger.give_back(demand, running.units)
        if self._ledger.charged:
            self._ledger.conclude(running)
        if self._record:
            self._events.append(UnitsReturned(now_s, action_id))
        if action.trajectory is not None:
            state = self._trajectories[action.trajectory]
            state.running -= 1
            state.attained_s += now_s - running.started_at_s - away_s
            if has_turn:
                self._lending.pass_turn(action, now_s)
            if state.closing:
                self.close(action.trajectory, now_s)
        if running.seat is not None and self._seating is not None:
            self._seating.rise(running, now_s, duration_s)
        elif duration_s is not None and (demand.elastic is not None or self._order == "shortest"):
            self.durations.observe(demand, action.key, units, duration_s)  # else nothing depends on it

    def send_back(self, action_id: int, now_s: float) -> bool:
        """Let a running call whose service could not be restored wait again, at its old place; its body never began.

        Returns:
            Whether it does: not if its trajectory closes. Then it is still running.
        """
        running = self._running[action_id]
        action = running.pending
        state = None if action.trajectory is None else self._trajectories[action.trajectory]
        if state is not None and state.closing:
            return False
        turn, action = action.turn, action._replace(turn=False)  # its turn stays its own
        self.unused(action_id, now_s)
        seat = running.seat if self.seating.seats.seat_of(action_id) is not None else None  # else it has none any more
        self._running[action_id] = running._replace(pending=action, seat=seat)
        self.finish(action_id, now_s, None)
        action = self.seating.with_least(action._replace(turn=turn))
        if action.parent is not None:
            self._nesting.add(action)
        if action.demand.queue_timeout is not None:
            self._deadlines.add(action.submitted_at_s + action.demand.queue_timeout, action_id)
        if self._record_submissions:
            self._events.append(ActionSubmitted(now_s, action))
        if state is not None:
            self._trajectories.begin_waiting(action, state)
        self._joining.join(action, action.submitted_at_s)
        return True

    def lend(self, action_id: int, now_s: float, *, cores: bool = True) -> None:
        """A running call waits for calls that it has made: if `cores`, its turn and its cores are free for others.

        It keeps both if something that it has started is alive on these cores, in the sandbox of its turn.

        One that wants them back (`reclaim`) wants them no more; for one that has lent them already, nothing changes.
        """
        self._lending.lend(self._running[action_id], now_s, cores=cores)

    def reclaim(self, action_id: int, now_s: float) -> bool:
        """A call that has lent wants all back; return whether it has it at once.

        If not, it stands at the very head of the queue, and appears in `Decisions.resumed` when it has it.
        """
        return self._lending.reclaim(action_id, now_s)

    def settle(self, action_id: int, dimension: int, units: int, now_s: float) -> None:
        """Count `units` of a rate or a budget for a running call, instead of what it was granted; see the ledger."""
        running = self._running.get(action_id)
        if running is not None:
            self._ledger.settle(running, dimension, units, now_s)
            self._nesting.unchecked = True
            self.note(UnitsSettled(now_s, action_id, dimension, units))

    def unused(self, action_id: int, now_s: float) -> None:
        """A running call ends, or waits again, before its body began: it counts for nothing of any rate or budget."""
        charged = self._ledger.charged.get(action_id, {})
        for dimension, units in self._running[action_id].pending.demand.fixed:
            if self._ledger.is_spent(dimension) and (units or dimension in charged):
                self.settle(action_id, dimension, 0, now_s)

    @property
    def seating(self) -> Seating:
        """The seats of the pool of GPUs, for what comes in from there; there must be one."""
        assert self._seating is not None, "there is no pool of GPUs"
        return self._seating

    def pause(self, dimension: int, until_s: float) -> None:
        """Grant nothing of a dimension before `until_s`; the latest such time counts."""
        self._ledger.pause(dimension, until_s)

    def lift(self, dimension: int) -> None:
        """End the pause of a dimension, if there is one."""
        self._ledger.lift(dimension)

    def halt(self, halted: bool, now_s: float) -> None:
        """Start nothing new from now on, or (not `halted`) do again.

        What runs gets back what it has lent, and the calls that it makes start. Deadlines go on.
        """
        if halted != self._prelude.halted:
            self._prelude.halted = halted
            self._rounds.look_at_all()
            self.note(Paused(now_s, halted))

    def set_capacity(self, dimension: int, units: int, now_s: float) -> None:
        """Let a dimension have so many integer units, from 0.

        More are there at once. Of what is held, less than are in use takes effect as they return. Of a rate or a budget
        it takes effect at once: nothing is granted until enough has returned. Who waits and can never run any more is
        `impossible` in what `decide` returns next.
        """
        self._resizing.resize(dimension, units)
        self._nesting.unchecked = True
        self.note(CapacityChanged(now_s, dimension, units))

    def note(self, event: Event) -> None:
        """Record what happened outside of the core, in its order among what happened here."""
        if self._record:
            self._events.append(event)

    def advance(self, now_s: float) -> None:
        """Let units of rates return that are due, before `used` and `free` are looked at."""
        self._ledger.advance(now_s)

    # What goes out.

    def decide(self, now_s: float) -> Decisions:
        """Return what starts and what gives up now; costs what changed, not what waits."""
        self._ledger.advance(now_s)
        this = self._rounds.begin(now_s)
        decisions = this.decisions
        self._prelude.expire(this)
        try:
            if self._sharing is not None:
                self._sharing.share(this, halted=self._prelude.halted)
            if self._resizing.less or self._prelude.halted or self._nesting.callers:
                self._prelude.prepare(this)
            if self._sharing is None:
                self._walk_queue(this)
            else:
                with self._sharing.kept_from_others():
                    self._walk_queue(this)
            if self._seating is not None:
                self._seating.evict(this)
            if self._sharing is not None:
                self._sharing.fill(this, halted=self._prelude.halted)
        except BaseException as error:
            if not decisions.any:
                raise
            decisions.more = True  # what was decided before the failure is carried out first; the next call fails
            if isinstance(error, Exception):
                return decisions
            self._rounds.interrupt(this)  # an interruption does not fail again
            raise
        self._rounds.end(this)
        return decisions

    def _walk_queue(self, this: Round) -> None:
        while self._queue and self._walk.walk(this):
            pass

    def next_wakeup_s(self) -> float | None:
        """When `decide` should be called again though nothing comes in; None if never."""
        shared_s = None if self._sharing is None else self._sharing.next_s()
        if not self._queue and shared_s is None:
            return self._deadlines.next_s() if self._trajectories.waiting else None
        times = [self._deadlines.next_s(), shared_s]
        if not self._prelude.halted or self._nesting.waiting:
            times += [self._ledger.next_change_s(), *self._rounds.look_again_s.values()]
        return min([at_s for at_s in times if at_s is not None], default=None)

    def drain_events(self) -> list[Event]:
        """Return what happened since the last call; nothing unless `record` was asked for."""
        events = self._events.copy()
        self._events.clear()
        return events

    def node_of(self, trajectory: int) -> int:
        """Return the number of the node where a trajectory was admitted; 0 where there is one."""
        held = self._trajectories[trajectory].held
        return 0 if held is None else held.demand.node or 0

    def free(self, dimension: int) -> int:
        """Free integer units of a dimension."""
        return self._ledger.free[dimension]

    def used(self, dimension: int) -> int:
        """Used integer units of a dimension; with the free ones, its capacity."""
        return self._ledger.used(dimension)

    def capacity(self, dimension: int) -> int:
        """Integer units of a dimension, free or used: more than `topology` says while too many are in use."""
        return self._ledger.capacity(dimension)

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

    def _is_waiting(self, action_id: int) -> bool:
        return action_id in self._queue or self._trajectories.is_waiting(action_id)
