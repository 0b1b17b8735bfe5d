"""A scheduler core beside an independent account of what it should hold: every step through a `World` is checked.

The account knows nothing of lanes, ledgers or groups. It remembers who waits, who runs and what each was granted,
and adds up.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from arl_tangram.errors import InfeasibleError, NestedActionError, TangramError
from arl_tangram.model.cost import declare_cost
from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.events import (
    ActionDeferred,
    ActionLent,
    ActionResized,
    ActionResumed,
    ActionStarted,
    ActionSubmitted,
    CapacityChanged,
    Event,
    Paused,
    PolicyRefused,
    TrajectoryClosed,
    TrajectoryOpened,
    UnitsReturned,
)
from arl_tangram.model.lifecycle import ActionSpec, BodyKind, Demand, PendingAction, RunningAction
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.sharing import Sharing
from arl_tangram.model.topology import (
    CPU,
    MEMORY,
    SANDBOXES,
    THREADS,
    Dimension,
    Topology,
    on_node,
    quota_calls,
    quota_concurrency,
)
from arl_tangram.scheduling.core import Decisions, SchedulerCore
from arl_tangram.scheduling.feasibility import resolve, trajectory_demand
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies import Policy
from arl_tangram.scheduling.queue import place
from property.callers import Callers, Loan, ancestors, granted, least, stuck_calls

MOST_DECISIONS = 1000
"""Calls of `decide` at one moment after which we say that it spins; each quiet world needs a few."""


def make_topology(
    *,
    cores: float = 4,
    memory_gib: int = 16,
    threads: int = 3,
    calls: int = 3,
    period_s: float = 5,
    concurrency: int = 2,
) -> Topology:
    """Return cores, memory, threads and one quota `search` with both of its limits."""
    return Topology(
        [
            Dimension(CPU, round(cores * MILLI), MILLI),
            Dimension(MEMORY, memory_gib * GIB, GIB),
            Dimension(THREADS, threads),
            Dimension(quota_calls("search"), calls * MILLI, MILLI, period_s),
            Dimension(quota_concurrency("search"), concurrency * MILLI, MILLI),
        ]
    )


def make_nodes(
    *,
    nodes: Sequence[tuple[float, int, int | None]],
    threads: int = 3,
    calls: int = 3,
    period_s: float = 5,
    concurrency: int = 2,
) -> Topology:
    """Return nodes of so many cores, GiB of memory and sandboxes (None for any number), and the rest as above."""
    dimensions: list[Dimension] = []
    for number, (cores, memory_gib, sandboxes) in enumerate(nodes):
        dimensions.append(Dimension(on_node(CPU, f"n{number}"), round(cores * MILLI), MILLI))
        dimensions.append(Dimension(on_node(MEMORY, f"n{number}"), memory_gib * GIB, GIB))
        if sandboxes is not None:
            dimensions.append(Dimension(on_node(SANDBOXES, f"n{number}"), sandboxes))
    rest = make_topology(threads=threads, calls=calls, period_s=period_s, concurrency=concurrency).dimensions[2:]
    return Topology([*dimensions, *rest])


def make_demand(
    topology: Topology,
    name: str = "act",
    *,
    cpu: float | Elastic = 0,
    memory_gib: float = 0,
    search: float = 0,
    thread: bool = False,
    priority: int = 0,
    queue_timeout: float | None = None,
    duration_s: float | None = None,
    reserved: int = 0,
    node: int | None = None,
    host: int | None = 0,
    preemptible: bool = True,
) -> Demand:
    """Resolve an action the way the runtime does, where it is called in a trajectory on `node`."""
    cost = declare_cost(name, cpu=cpu, memory_gib=memory_gib, quota={"search": search} if search else None)
    kind = BodyKind.THREAD if thread else BodyKind.ASYNC
    spec = ActionSpec(
        name, cost, kind, priority, queue_timeout=queue_timeout, duration_s=duration_s, preemptible=preemptible
    )
    return resolve(spec, topology, node=node, host=host, reserved=reserved)


@dataclass
class _Open:
    """A trajectory that was admitted, with what it holds."""

    demand: Demand
    closing: bool = False
    running: set[int] = field(default_factory=set)


class World:
    """Drives a core in virtual time and checks each answer."""

    def __init__(
        self, topology: Topology, policy: Policy, order: Order = "fcfs", sharing: Sharing | None = None
    ) -> None:
        self.topology = topology
        self.policy = policy
        self.core = SchedulerCore(topology, policy, order=order, record=True, sharing=sharing)
        self.now = 0.0
        self.waiting: dict[int, PendingAction] = {}
        self.opening: dict[int, PendingAction] = {}
        self.open_trajectories: dict[int, _Open] = {}
        self.running: dict[int, RunningAction] = {}
        self.callers = Callers()
        self.capacity = [dimension.capacity for dimension in topology.dimensions]
        self.halted = False
        self.refused: list[int] = []
        self.paused: dict[int, float] = {}
        self.gone: set[int] = set()
        self.log: list[object] = []
        self._in_windows: list[tuple[float, int, int]] = []
        self._deferred: set[int] = set()
        self.refusals: list[PolicyRefused] = []
        self._next_id = 0

    # Commands.

    def submit(
        self,
        demand: Demand,
        *,
        trajectory: int | None = None,
        turn: bool = False,
        key: str = "",
        parent: int | None = None,
    ) -> int:
        self._next_id += 1
        action = PendingAction(self._next_id, demand, self.now, key, trajectory, turn, parent=parent)
        self.core.submit(action)
        self.waiting[action.id] = action
        if parent is not None:
            self.callers.calls.setdefault(parent, set()).add(action.id)
        assert self._events() == [ActionSubmitted(self.now, action)]
        self.check()
        return action.id

    def call(self, parent: int, demand: Demand, *, turn: bool, cores: bool) -> None:
        """A running action calls another one in its trajectory, and lends before that."""
        loan = self.callers.loans.get(parent)
        if loan is None or loan.wanted:
            self.lend(parent, cores=cores)
        trajectory = self.running[parent].pending.trajectory
        refusal = self.refusal(demand, trajectory, parent, turn=turn)
        if refusal is None:
            self.submit(demand, trajectory=trajectory, turn=turn, parent=parent)
            return
        with pytest.raises(refusal) as raised:
            self.submit(demand, trajectory=trajectory, turn=turn, parent=parent)
        names = [self.running[i].pending.demand.name for i in reversed(ancestors(parent, self.running))]
        assert refusal is InfeasibleError or " → ".join([*names, demand.name]) in str(raised.value)

    def refusal(
        self, demand: Demand, trajectory: int | None, parent: int | None, *, turn: bool = False
    ) -> type[TangramError] | None:
        """The error that a call of this demand gets at once, if any."""
        if self.exceeds(demand):
            return InfeasibleError
        beside = {} if trajectory is None else dict(self.open_trajectories[trajectory].demand.fixed)
        if self.exceeds(demand, beside):
            return InfeasibleError
        chain = ancestors(parent, self.running)
        kept_turns = [self.running[i].pending.trajectory for i in chain if self.callers.keeps_turn(i)]
        if turn and trajectory is not None and trajectory in kept_turns:
            return NestedActionError
        for other in {self.running[i].pending.trajectory for i in chain} - {None, trajectory}:
            for dimension, units in self.open_trajectories[other].demand.fixed:
                beside[dimension] = beside.get(dimension, 0) + units
        for i in chain:
            for dimension, units in granted(self.running[i]).items():
                if self.topology.dimensions[dimension].window_s is None:
                    loan = self.callers.loans.get(i)
                    lent = loan is None or loan.cores
                    beside[dimension] = beside.get(dimension, 0) + (0 if self.is_cores(dimension) and lent else units)
        return NestedActionError if self.exceeds(demand, beside) else None

    def exceeds(self, demand: Demand, beside: dict[int, int] | None = None) -> bool:
        """Whether there is less than a demand asks for, beside what is held, in each of its places."""
        held = beside or {}
        return all(
            any(units + held.get(d, 0) > self.capacity[d] for d, units in least(placed).items() if units)
            for placed in demand.places or (demand,)
        )

    def is_cores(self, dimension: int) -> bool:
        """Whether a dimension is one of those that count cores."""
        return bool(self.topology.cores >> dimension & 1)

    def cores_of(self, running: RunningAction) -> tuple[int, int]:
        """The dimension of the cores that an action was granted, and how many; (0, 0) for none."""
        return next(((d, units) for d, units in granted(running).items() if self.is_cores(d)), (0, 0))

    def lend(self, action_id: int, *, cores: bool) -> None:
        running = self.running[action_id]
        loan = self.callers.loans.get(action_id)
        self.core.lend(action_id, self.now, cores=cores)
        if loan is not None:
            loan.wanted = False
            assert self._events() == []
        else:
            cpu, lent = self.cores_of(running) if cores else (0, 0)
            turn = running.pending.turn and running.pending.trajectory is not None
            shares = not cores and running.units == 0 and running.pending.demand.elastic is not None
            self.callers.loans[action_id] = Loan(lent, cpu, keeps_turn=turn and not cores, shares=shares)
            assert self._events() == [ActionLent(self.now, action_id, lent)]
        self.check()

    def reclaim(self, action_id: int) -> None:
        loan = self.callers.loans[action_id]
        if self.core.reclaim(action_id, self.now):
            del self.callers.loans[action_id]
            assert self._events() == [ActionResumed(self.now, action_id, loan.cores)]
        else:
            loan.wanted = True
            assert self._events() == []
        self.check()

    def halt(self, halted: bool) -> None:
        self.core.halt(halted, self.now)
        assert self._events() == ([Paused(self.now, halted)] if halted != self.halted else [])
        self.halted = halted

    def set_capacity(self, dimension: int, units: int) -> None:
        self.core.set_capacity(dimension, units, self.now)
        self.capacity[dimension] = units
        assert self._events() == [CapacityChanged(self.now, dimension, units)]
        self.check()

    def open(self, *, memory_gib: int = 0) -> int:
        self._next_id += 1
        reserved = self.policy.reserved_cores * MILLI
        demand = trajectory_demand(self.core.topology, memory_bytes=memory_gib * GIB, reserved=reserved)
        request = PendingAction(self._next_id, demand, self.now)
        self.core.open(request, group="g")
        self.opening[request.id] = request
        assert self._events() == []
        self.check()
        return request.id

    def withdraw(self, action_id: int) -> None:
        self.core.withdraw(action_id)
        self._leave(action_id)
        assert self._events() == []
        self.check()

    def finish(self, action_id: int, *, ok: bool = True, duration_s: float | None = None) -> None:
        running = self.running.pop(action_id)
        self.callers.loans.pop(action_id, None)
        self.callers.calls.pop(action_id, None)
        self._call_ended(running.pending)
        lasted_s = self.now - running.started_at_s if duration_s is None else duration_s
        self.core.finish(action_id, self.now, lasted_s if ok else None)
        expected: list[Event] = [UnitsReturned(self.now, action_id)]
        trajectory = running.pending.trajectory
        if trajectory is not None:
            state = self.open_trajectories[trajectory]
            state.running.remove(action_id)
            if state.closing and not state.running:
                del self.open_trajectories[trajectory]
                expected.append(TrajectoryClosed(self.now, trajectory))
        assert self._events() == expected
        self.check()

    def close(self, trajectory: int) -> None:
        """End a trajectory as the runtime does: what waits in it is withdrawn first."""
        for action_id in [a.id for a in self.waiting.values() if a.trajectory == trajectory][::-1]:
            self.withdraw(action_id)
        state = self.open_trajectories[trajectory]
        self.core.close(trajectory, self.now)
        state.closing = True
        expected: list[Event] = []
        if not state.running:
            del self.open_trajectories[trajectory]
            expected.append(TrajectoryClosed(self.now, trajectory))
        assert self._events() == expected
        self.check()

    def pause(self, dimension: int, for_s: float) -> None:
        self.core.pause(dimension, self.now + for_s)
        self.paused[dimension] = max(self.now + for_s, self.paused.get(dimension, 0))
        self.check()

    def decide(self) -> Decisions:
        """Decide once, and hold the answer against the account."""
        self._in_windows = [w for w in self._in_windows if w[0] > self.now]
        self.paused = {d: until_s for d, until_s in self.paused.items() if until_s > self.now}
        due = [a.id for a in self.waiting.values() if _deadline_s(a) <= self.now]
        before = self.twin() if self.callers.loans and self._stuck() else None
        decisions = self.core.decide(self.now)
        events = self._events()
        assert sorted(decisions.expired) == sorted(due)
        for action_id in decisions.expired:
            self._leave(action_id)
        self._check_impossible(decisions, before)
        self._resized(decisions)
        for running in decisions.resumed:
            assert self.callers.loans.pop(running.pending.id).wanted
            assert self.running[running.pending.id] is running
        for trajectory in decisions.opened:
            self._opened(trajectory)
        for running in decisions.started:
            self._started(running)
        self._check_order(decisions.started)
        self._check_events(decisions, events)
        self.log += [decisions.expired, decisions.opened, [(r.pending.id, r.units) for r in decisions.started]]
        self.log += [[(r.pending.id, r.units) for r in decisions.resized]]
        self.log += [[r.pending.id for r in decisions.resumed], [i for i, _ in decisions.impossible]]
        self.check()
        return decisions

    def settle(self) -> None:
        """Decide at one moment as long as the core asks for it, then check that nothing is left idle."""
        for _ in range(MOST_DECISIONS):
            if not self.decide().more:
                break
        else:
            raise AssertionError("decide does not come to rest")
        self.check_work_conservation()
        at_s = self.core.next_wakeup_s()
        assert at_s is None or at_s > self.now

    def twin(self) -> World:
        """Return another world in the same state."""
        demands = [a.demand for a in (*self.waiting.values(), *(r.pending for r in self.running.values()))]
        return copy.deepcopy(self, {id(demand): demand for demand in demands})  # known by their identity

    def advance(self, for_s: float) -> None:
        self.now += for_s

    # What there is.

    def free(self, dimension: int) -> int:
        """Free units by the account, as of the last decision."""
        used = self._used(dimension)
        if self.topology.dimensions[dimension].window_s is not None:
            return self.capacity[dimension] - used
        return max(self.capacity[dimension], used) - used

    def in_queue(self) -> list[PendingAction]:
        """Who waits for units (and not for a turn), in order."""
        places = {a.id: place(a) for a in self.core._queue}
        waiting = [a for a in [*self.waiting.values(), *self.opening.values()] if a.id in places]
        return sorted(waiting, key=lambda a: places[a.id])

    def asked(self, demand: Demand) -> int:
        """Units of its elastic dimension that the policy grants an action that is alone."""
        if demand.elastic is None or self.policy.name.startswith("paper") or len(demand.options) == 1:
            return demand.options[0] if demand.options else 0
        if not self.policy.name.startswith(("fixed", "reserved")):
            return demand.options[0]
        most = min(int(self.policy.name.split("(")[1].rstrip(")")) * MILLI, self.capacity[demand.elastic])
        return max((u for u in demand.options if u <= most), default=demand.options[0])

    def needs(self, demand: Demand) -> dict[int, int]:
        """Units per dimension at what the policy asks for."""
        needs = dict(demand.fixed)
        if demand.elastic is not None:
            needs[demand.elastic] = needs.get(demand.elastic, 0) + self.asked(demand)
        return needs

    def fits(self, demand: Demand) -> bool:
        return any(
            all(units <= self.free(d) and d not in self.paused for d, units in self.needs(placed).items())
            for placed in demand.places or (demand,)
        )

    def returns(self) -> list[float]:
        """When units of rates return."""
        return [at_s for at_s, _, _ in self._in_windows]

    def exceeds_what_is_left(self, demand: Demand) -> bool:
        """Whether it could not start even if nothing but open trajectories and callers that wait held anything."""
        left = list(self.capacity)
        for state in self.open_trajectories.values():
            for dimension, units in state.demand.fixed:
                left[dimension] -= units
        for i, loan in self.callers.loans.items():
            for dimension, units in granted(self.running[i]).items():
                if loan.shares and dimension == self.running[i].pending.demand.elastic:
                    continue
                if self.topology.dimensions[dimension].window_s is None:
                    left[dimension] -= units - (loan.cores if dimension == loan.cpu else 0)
        return all(
            any(units > left[dimension] for dimension, units in self.needs(placed).items())
            for placed in demand.places or (demand,)
        )

    # Laws.

    def check(self) -> None:
        """Free and used units are what the account says, and their sum is the capacity."""
        for i, dimension in enumerate(self.topology.dimensions):
            used = self._used(i)
            assert self.core.used(i) == used, dimension.name
            assert self.core.free(i) == self.free(i), dimension.name
            assert self.core.free(i) + used == self.core.capacity(i)
            if dimension.window_s is None:
                assert self.core.free(i) >= 0, dimension.name
                assert self.core.capacity(i) == max(self.capacity[i], used)
        assert self.core.waiting == len(self.waiting) + len(self.opening)
        assert self.core.running == len(self.running)
        assert self.core.trajectories == len(self.open_trajectories)
        self._check_turns()

    def check_work_conservation(self) -> None:
        """Of a world at rest: nobody who is the first waiter in each of its dimensions fits.

        The first in all its dimensions has nobody before it who could hold it up. What it asks for is the least that
        its policy grants: its least units under `paper`, those of its dop under `fixed` and `reserved`. Under others it
        may wait for units that are coming, and there is a time at which that is thought over.
        """
        taken: set[int] = set()
        for i, loan in self.callers.loans.items():
            if loan.wanted and i in self.core._lending._resuming:
                above = [a for a in ancestors(self.running[i].pending.parent, self.running) if a in self.callers.loans]
                kept = sum(granted(self.running[a]).get(loan.cpu, 0) - self.lent(a, loan.cpu) for a in above)
                assert max(0, min(loan.cores, self.capacity[loan.cpu] - kept)) > self.free(loan.cpu), f"{i} could go on"
                taken.add(loan.cpu)
        for action in self.in_queue():
            if self.halted and not self.is_called(action):
                continue
            places = action.demand.places or (action.demand,)
            asked = {dimension for placed in places for dimension in self.needs(placed)}
            first_everywhere = taken.isdisjoint(asked)
            taken |= asked
            if action.id in self.opening:
                places = tuple(placed for placed in places if self.is_beside_callers(placed))
            if first_everywhere and any(map(self.fits, places)):
                assert self.may_wait_for_more(action.demand), f"{action} fits and does not start"

    def may_wait_for_more(self, demand: Demand) -> bool:
        """Whether its policy may let it wait though it fits."""
        if self.policy.name.startswith(("fixed", "reserved", "paper")) or len(demand.options) < 2:
            return False
        held = any(
            r.pending.demand.elastic == demand.elastic and i not in self.callers.loans for i, r in self.running.items()
        )
        return held and self.core.next_wakeup_s() is not None

    def _used(self, dimension: int) -> int:
        if self.topology.dimensions[dimension].window_s is not None:
            return sum(units for _, d, units in self._in_windows if d == dimension)
        held = [dict(state.demand.fixed).get(dimension, 0) for state in self.open_trajectories.values()]
        for running in self.running.values():
            demand = running.pending.demand
            held.append(dict(demand.fixed).get(dimension, 0))
            held.append(running.units if demand.elastic == dimension else 0)
        return sum(held) - sum(self.lent(action_id, dimension) for action_id in self.callers.loans)

    def lent(self, action_id: int, dimension: int) -> int:
        """What an action has lent of a dimension."""
        loan = self.callers.loans[action_id]
        return loan.cores if loan.cpu == dimension else 0

    def is_called(self, action: PendingAction) -> bool:
        """Whether a running action has called it."""
        return action.parent is not None and action.parent in self.running

    def _stuck(self) -> set[int]:
        held = {d: self.capacity[d] for d, what in enumerate(self.topology.dimensions) if what.window_s is None}
        trajectories = {t: dict(state.demand.fixed) for t, state in self.open_trajectories.items()}
        return stuck_calls(self.waiting.values(), self.running, self.callers, trajectories, held)

    def _check_impossible(self, decisions: Decisions, before: World | None) -> None:
        """Who is refused can never start, and nobody else waits for ever."""
        for action_id, error in decisions.impossible:
            request = self.waiting.get(action_id) or self.opening[action_id]
            if isinstance(error, InfeasibleError):
                state = None if request.trajectory is None else self.open_trajectories[request.trajectory]
                assert self.exceeds(request.demand, None if state is None else dict(state.demand.fixed))
            else:
                assert isinstance(error, NestedActionError)
                assert action_id == max(self._stuck()), "not the youngest"
                assert before is not None
                self.refused.append(action_id)
                names = [self.running[i].pending.demand.name for i in reversed(ancestors(request.parent, self.running))]
                assert " → ".join([*names, request.demand.name]) in str(error)
            self._leave(action_id)
        assert not self._stuck(), "nobody would ever start these"
        for action_id, _ in decisions.impossible[:1]:
            if action_id in self.refused and before is not None:
                before.let_all_end()
                assert action_id in before.waiting or action_id in decisions.expired, "it could have run"

    def let_all_end(self) -> None:
        """Let everything end that can, without a refusal, and without anybody giving up.

        Trajectories end in which nobody waits or runs.
        """
        closed: set[int] = set()
        self.core._deadlines._heap.clear()
        self.core._prelude._deadlocks.refusals = lambda now_s: iter(())  # type: ignore[method-assign]
        for _ in range(1000):
            done = self.core.decide(self.now)
            self.core.drain_events()
            for action_id in done.expired:
                self.waiting.pop(action_id, None)
            for running in done.started:
                self.waiting.pop(running.pending.id)
                self.running[running.pending.id] = running
            for trajectory in done.opened:
                self.open_trajectories[trajectory] = _Open(self.placed(self.opening.pop(trajectory)))
            for running in done.resumed:
                del self.callers.loans[running.pending.id]
            actions = [*self.waiting.values(), *(running.pending for running in self.running.values())]
            closed |= {t for t, state in self.open_trajectories.items() if state.closing}
            idle = self.open_trajectories.keys() - closed - {action.trajectory for action in actions}
            ready = [i for i in self.running if i not in self.callers.loans]
            waiting = self.callers.idle()
            at_s = self.core.next_wakeup_s()
            if ready:
                action = self.running.pop(ready[0]).pending
                self._call_ended(action)
                self.core.finish(action.id, self.now, None)
                self.callers.calls.pop(action.id, None)
            elif waiting:
                self.callers.loans[waiting[0]].wanted = True
                if self.core.reclaim(waiting[0], self.now):
                    del self.callers.loans[waiting[0]]
            elif at_s is not None and not done.more:
                self.now = max(self.now, at_s)
            elif idle:
                self.core.close(min(idle), self.now)
                closed.add(min(idle))
            elif not done.more:
                return

    def _check_turns(self) -> None:
        """One action at a time has the turn, and it does not lie about while somebody wants it."""
        for trajectory in self.open_trajectories:
            inside = [r for r in self.running.values() if r.pending.trajectory == trajectory and r.pending.turn]
            having = [
                r for r in inside if r.pending.id not in self.callers.loans or self.callers.keeps_turn(r.pending.id)
            ]
            assert len(having) <= 1, "two have the turn"
            wanting = [a.id for a in self.waiting.values() if a.trajectory == trajectory and a.turn]
            wanting += [r.pending.id for r in inside if r not in having and self.callers.loans[r.pending.id].wanted]
            first = [i for i in wanting if i in self.core._queue or i in self.core._lending._resuming]
            assert len(first) + len(having) == (1 if wanting or having else 0), f"the turn of {trajectory} was lost"

    def _call_ended(self, action: PendingAction) -> None:
        if action.parent in self.callers.calls:
            self.callers.calls[action.parent].discard(action.id)

    def _leave(self, action_id: int) -> None:
        action = self.waiting.pop(action_id, None) or self.opening.pop(action_id)
        self._call_ended(action)
        self.gone.add(action_id)

    def _opened(self, trajectory: int) -> None:
        held = self.placed(self.opening.pop(trajectory))
        self.open_trajectories[trajectory] = _Open(held)
        for cpu in (d for d, _ in held.fixed if self.is_cores(d)):
            if any(self.lent(i, cpu) for i in self.callers.loans):
                left = self.cores_beside_callers(cpu)
                assert left >= 0, "it holds what callers have lent, and may wait for what they keep"

    def placed(self, request: PendingAction) -> Demand:
        """What a trajectory holds that was admitted: its demand on one of the nodes."""
        if not request.demand.places:
            return request.demand
        node = self.core.node_of(request.id)
        return next(placed for placed in request.demand.places if placed.node == node)

    def is_beside_callers(self, demand: Demand) -> bool:
        """Whether a trajectory that is to hold a demand would hold no cores that callers have lent."""
        return all(
            units <= self.cores_beside_callers(d)
            for d, units in demand.fixed
            if self.is_cores(d) and any(self.lent(i, d) for i in self.callers.loans)
        )

    def cores_beside_callers(self, cpu: int) -> int:
        """Integer units of a node that trajectories and callers leave, those included that callers have lent."""
        held = sum(dict(state.demand.fixed).get(cpu, 0) for state in self.open_trajectories.values())
        return self.capacity[cpu] - held - sum(granted(self.running[i]).get(cpu, 0) for i in self.callers.loans)

    def _started(self, running: RunningAction) -> None:
        action, demand = running.pending, running.pending.demand
        assert action.id not in self.gone
        assert action.id not in self.running
        assert self.waiting.pop(action.id) == action._replace(rank=0.0, inherited=None)
        assert not self.halted or self.is_called(action), f"nothing new is to start: {action}"
        if action.turn and action.trajectory is not None:
            self._check_turn(action)
        assert running.started_at_s == self.now
        assert math.isfinite(running.expected_s)
        assert running.expected_s > 0 or running.pending.demand.elastic is None
        assert running.units in demand.options if demand.elastic is not None else running.units == demand.reserved
        self.running[action.id] = running
        if action.trajectory is not None:
            state = self.open_trajectories[action.trajectory]
            assert not state.closing
            state.running.add(action.id)
        self._rate(demand)

    def _check_turn(self, action: PendingAction) -> None:
        for other in self.waiting.values():
            if other.trajectory == action.trajectory and other.turn:
                if self.is_called(other):
                    assert self.is_called(action), f"{action.id} has the turn before {other.id}, which was called"
                elif action.parent is None and other.parent is None:
                    assert other.id > action.id, "out of turn"

    def _resized(self, decisions: Decisions) -> None:
        assert not decisions.resized, "cores are not shared"

    def _rate(self, demand: Demand) -> None:
        for dimension, units in demand.fixed:
            window_s = self.topology.dimensions[dimension].window_s
            if window_s is not None:
                self._in_windows.append((self.now + window_s, dimension, units))

    def _check_order(self, started: Sequence[RunningAction]) -> None:
        """Nobody overtakes its own kind: same demand, same place (inside or outside trajectories)."""
        places = {action.id: place(action) for action in self.core._queue}
        for running in started:
            mine = running.pending
            for other in self.in_queue():
                alike = other.demand is mine.demand and (other.trajectory is None) == (mine.trajectory is None)
                if alike and (other.parent is None) == (mine.parent is None):
                    assert places[other.id] > place(mine) or other.turn, f"{mine.id} overtook {other.id}"

    def _check_events(self, decisions: Decisions, events: list[Event]) -> None:
        assert [e.action for e in events if isinstance(e, ActionStarted)] == decisions.started
        opened = [(e.id, e.held) for e in events if isinstance(e, TrajectoryOpened)]
        assert opened == [(i, self.open_trajectories[i].demand.fixed) for i in decisions.opened]
        resumed = [e.id for e in events if isinstance(e, ActionResumed)]
        assert resumed == [r.pending.id for r in decisions.resumed]
        deferred = [e.id for e in events if isinstance(e, ActionDeferred)]
        assert self._deferred.isdisjoint(deferred), "deferred for the first time, twice"
        assert len(set(deferred)) == len(deferred)
        self._deferred.update(deferred)
        refused = [e for e in events if isinstance(e, PolicyRefused)]
        self.refusals += refused
        assert len({refusal.policy for refusal in self.refusals}) == len(self.refusals), "a policy is refused once"
        resized = [(e.id, e.units) for e in events if isinstance(e, ActionResized)]
        assert resized == [(r.pending.id, r.units) for r in decisions.resized]
        known = (decisions.started, decisions.opened, decisions.resumed, decisions.resized, deferred, refused)
        assert len(events) == sum(map(len, known))
        assert all(e.at_s == self.now for e in events)

    def _events(self) -> list[Event]:
        return self.core.drain_events()


def _deadline_s(action: PendingAction) -> float:
    timeout = action.demand.queue_timeout
    return math.inf if timeout is None else action.submitted_at_s + timeout
