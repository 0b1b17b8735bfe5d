"""A scheduler core beside an independent account of what it should hold: every step through a `World` is checked.

The account knows nothing of lanes, ledgers or groups. It remembers who waits, who runs and what each was granted,
and adds up.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from arl_tangram.model.cost import declare_cost
from arl_tangram.model.elasticity import Elastic
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
from arl_tangram.model.lifecycle import ActionSpec, BodyKind, Demand, PendingAction, RunningAction
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import CPU, MEMORY, THREADS, Dimension, Topology, quota_calls, quota_concurrency
from arl_tangram.scheduling.core import Decisions, SchedulerCore
from arl_tangram.scheduling.feasibility import resolve, trajectory_demand
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies import Policy

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
) -> Demand:
    """Resolve an action the way the runtime does."""
    cost = declare_cost(name, cpu=cpu, memory_gib=memory_gib, quota={"search": search} if search else None)
    kind = BodyKind.THREAD if thread else BodyKind.ASYNC
    spec = ActionSpec(name, cost, kind, priority, queue_timeout=queue_timeout, duration_s=duration_s)
    return resolve(spec, topology, reserved=reserved)


@dataclass
class _Open:
    """A trajectory that was admitted."""

    demand: Demand
    closing: bool = False
    running: set[int] = field(default_factory=set)


class World:
    """Drives a core in virtual time and checks each answer."""

    def __init__(self, topology: Topology, policy: Policy, order: Order = "fcfs") -> None:
        self.topology = topology
        self.policy = policy
        self.core = SchedulerCore(topology, policy, order=order, record=True)
        self.now = 0.0
        self.waiting: dict[int, PendingAction] = {}
        self.opening: dict[int, PendingAction] = {}
        self.open_trajectories: dict[int, _Open] = {}
        self.running: dict[int, RunningAction] = {}
        self.turns: dict[int, list[int]] = defaultdict(list)
        self.paused: dict[int, float] = {}
        self.gone: set[int] = set()
        self.log: list[object] = []
        self._in_windows: list[tuple[float, int, int]] = []
        self._deferred: set[int] = set()
        self.refusals: list[PolicyRefused] = []
        self._next_id = 0

    # Commands.

    def submit(self, demand: Demand, *, trajectory: int | None = None, turn: bool = False, key: str = "") -> int:
        self._next_id += 1
        action = PendingAction(self._next_id, demand, self.now, key, trajectory, turn)
        self.core.submit(action)
        self.waiting[action.id] = action
        if turn and trajectory is not None:
            self.turns[trajectory].append(action.id)
        assert self._events() == [ActionSubmitted(self.now, action)]
        self.check()
        return action.id

    def open(self, *, memory_gib: int = 0) -> int:
        self._next_id += 1
        reserved = self.policy.reserved_cores * MILLI
        demand = trajectory_demand(self.topology, memory_bytes=memory_gib * GIB, reserved=reserved)
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
        lasted_s = self.now - running.started_at_s if duration_s is None else duration_s
        self.core.finish(action_id, self.now, lasted_s if ok else None)
        expected: list[Event] = [UnitsReturned(self.now, action_id)]
        trajectory = running.pending.trajectory
        if trajectory is not None:
            state = self.open_trajectories[trajectory]
            state.running.remove(action_id)
            if running.pending.turn:
                assert self.turns[trajectory].pop(0) == action_id
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
        decisions = self.core.decide(self.now)
        events = self._events()
        assert sorted(decisions.expired) == sorted(due)
        for action_id in decisions.expired:
            self._leave(action_id)
        for trajectory in decisions.opened:
            self._opened(trajectory)
        for running in decisions.started:
            self._started(running)
        self._check_order(decisions.started)
        self._check_events(decisions, events)
        self.log += [decisions.expired, decisions.opened, [(r.pending.id, r.units) for r in decisions.started]]
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

    def advance(self, for_s: float) -> None:
        self.now += for_s

    # What there is.

    def free(self, dimension: int) -> int:
        """Free units by the account, as of the last decision."""
        return self.topology.dimensions[dimension].capacity - self._used(dimension)

    def in_queue(self) -> list[PendingAction]:
        """Who waits for units (and not for a turn), in order."""
        actions = [a for a in self.waiting.values() if not self._waits_for_turn(a)]
        ranks = {a.id: a.rank for a in self.core._queue}
        waiting = [*actions, *self.opening.values()]
        return sorted(waiting, key=lambda a: (a.demand.priority, ranks.get(a.id, 0.0), a.id))

    def asked(self, demand: Demand) -> int:
        """Units of its elastic dimension that the policy grants an action that is alone."""
        if demand.elastic is None or self.policy.name.startswith("paper") or len(demand.options) == 1:
            return demand.options[0] if demand.options else 0
        if not self.policy.name.startswith(("fixed", "reserved")):
            return demand.options[0]
        dop = int(self.policy.name.split("(")[1].rstrip(")"))
        return max((u for u in demand.options if u <= dop * MILLI), default=demand.options[0])

    def needs(self, demand: Demand) -> dict[int, int]:
        """Units per dimension at what the policy asks for."""
        needs = dict(demand.fixed)
        if demand.elastic is not None:
            needs[demand.elastic] = needs.get(demand.elastic, 0) + self.asked(demand)
        return needs

    def fits(self, demand: Demand) -> bool:
        return all(units <= self.free(d) and d not in self.paused for d, units in self.needs(demand).items())

    def returns(self) -> list[float]:
        """When units of rates return."""
        return [at_s for at_s, _, _ in self._in_windows]

    def exceeds_what_trajectories_leave(self, demand: Demand) -> bool:
        """Whether it could not start even if nothing but the open trajectories held anything."""
        left = [dimension.capacity for dimension in self.topology.dimensions]
        for state in self.open_trajectories.values():
            for dimension, units in state.demand.fixed:
                left[dimension] -= units
        return any(units > left[dimension] for dimension, units in self.needs(demand).items())

    # Laws.

    def check(self) -> None:
        """Free and used units are what the account says, and their sum is the capacity."""
        for i, dimension in enumerate(self.topology.dimensions):
            assert self.core.used(i) == self._used(i), dimension.name
            assert self.core.free(i) == dimension.capacity - self._used(i) >= 0, dimension.name
        assert self.core.waiting == len(self.waiting) + len(self.opening)
        assert self.core.running == len(self.running)
        assert self.core.trajectories == len(self.open_trajectories)

    def check_work_conservation(self) -> None:
        """Of a world at rest: nobody who is the first waiter in each of its dimensions fits.

        The first in all its dimensions has nobody before it who could hold it up. What it asks for is the least that
        its policy grants: its least units under `paper`, those of its dop under `fixed` and `reserved`. Under others it
        may wait for units that are coming, and there is a time at which that is thought over.
        """
        taken: set[int] = set()
        for action in self.in_queue():
            needs = self.needs(action.demand)
            first_everywhere = taken.isdisjoint(needs)
            taken |= needs.keys()
            if first_everywhere and self.fits(action.demand):
                assert self.may_wait_for_more(action.demand), f"{action} fits and does not start"

    def may_wait_for_more(self, demand: Demand) -> bool:
        """Whether its policy may let it wait though it fits."""
        if self.policy.name.startswith(("fixed", "reserved", "paper")) or len(demand.options) < 2:
            return False
        held = any(r.pending.demand.elastic == demand.elastic for r in self.running.values())
        return held and self.core.next_wakeup_s() is not None

    def _used(self, dimension: int) -> int:
        if self.topology.dimensions[dimension].window_s is not None:
            return sum(units for _, d, units in self._in_windows if d == dimension)
        held = [dict(state.demand.fixed).get(dimension, 0) for state in self.open_trajectories.values()]
        for running in self.running.values():
            demand = running.pending.demand
            held.append(dict(demand.fixed).get(dimension, 0))
            held.append(running.units if demand.elastic == dimension else 0)
        return sum(held)

    def _waits_for_turn(self, action: PendingAction) -> bool:
        return action.turn and action.trajectory is not None and self.turns[action.trajectory][0] != action.id

    def _leave(self, action_id: int) -> None:
        action = self.waiting.pop(action_id, None) or self.opening.pop(action_id)
        if action.turn and action.trajectory is not None:
            self.turns[action.trajectory].remove(action_id)
        self.gone.add(action_id)

    def _opened(self, trajectory: int) -> None:
        request = self.opening.pop(trajectory)
        self.open_trajectories[trajectory] = _Open(request.demand)
        self._rate(request.demand)

    def _started(self, running: RunningAction) -> None:
        action, demand = running.pending, running.pending.demand
        assert action.id not in self.gone
        assert action.id not in self.running
        assert not self._waits_for_turn(action), "out of turn"
        assert self.waiting.pop(action.id) == action._replace(rank=0.0)
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

    def _rate(self, demand: Demand) -> None:
        for dimension, units in demand.fixed:
            window_s = self.topology.dimensions[dimension].window_s
            if window_s is not None:
                self._in_windows.append((self.now + window_s, dimension, units))

    def _check_order(self, started: Sequence[RunningAction]) -> None:
        """Nobody overtakes its own kind: same demand, same place (inside or outside trajectories)."""
        ranks = {action.id: action.rank for action in self.core._queue}
        for running in started:
            mine = running.pending
            for other in self.in_queue():
                if other.demand is mine.demand and (other.trajectory is None) == (mine.trajectory is None):
                    behind = (ranks[other.id], other.id) > (mine.rank, mine.id)
                    assert behind or other.turn, f"{mine.id} overtook {other.id}"

    def _check_events(self, decisions: Decisions, events: list[Event]) -> None:
        assert [e.action for e in events if isinstance(e, ActionStarted)] == decisions.started
        assert [e.id for e in events if isinstance(e, TrajectoryOpened)] == decisions.opened
        deferred = [e.id for e in events if isinstance(e, ActionDeferred)]
        assert self._deferred.isdisjoint(deferred), "deferred for the first time, twice"
        assert len(set(deferred)) == len(deferred)
        self._deferred.update(deferred)
        refused = [e for e in events if isinstance(e, PolicyRefused)]
        self.refusals += refused
        assert len(self.refusals) <= 1, "a policy is refused once"
        assert len(events) == len(decisions.started) + len(decisions.opened) + len(deferred) + len(refused)
        assert all(e.at_s == self.now for e in events)

    def _events(self) -> list[Event]:
        return self.core.drain_events()


def _deadline_s(action: PendingAction) -> float:
    timeout = action.demand.queue_timeout
    return math.inf if timeout is None else action.submitted_at_s + timeout
