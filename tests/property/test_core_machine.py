"""The core under any order of what can happen to it, beside the account of `worlds.World`."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arl_tangram.errors import InfeasibleError, NoTrajectoryError
from arl_tangram.model.elasticity import Amdahl, Elastic, Linear
from arl_tangram.model.lifecycle import Demand
from arl_tangram.model.quantities import GIB
from arl_tangram.model.topology import CPU, MEMORY, THREADS, Topology, quota_calls, quota_concurrency, resource_of
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies import Policy, elastic, fixed, paper, reserved
from property.worlds import World, make_demand, make_nodes, make_topology

POLICIES = st.sampled_from(
    [
        elastic(),
        elastic(),
        paper(),
        paper(best_prefix=True),
        paper(best_prefix=True, depth=0),
        *map(fixed, (1, 2, 3, 4)),
        *map(reserved, (1, 2)),
    ]
)
ORDERS = st.sampled_from(["fcfs", "fcfs", "shortest", "trajectory"])
TOPOLOGIES = st.builds(
    make_topology,
    cores=st.sampled_from([1, 2, 2.5, 4, 7, 9]),
    memory_gib=st.sampled_from([4, 8, 16]),
    threads=st.sampled_from([1, 3]),
    calls=st.sampled_from([1, 2, 5]),
    period_s=st.sampled_from([0.5, 5, 60]),
    concurrency=st.sampled_from([1, 2, 4]),
)
CORES = [0.1, 0.5, 1.5, 1, 2, 4, Elastic(1, 4), Elastic(2, 9), Elastic.of(1, 3), Elastic(1, 8, speedup=Amdahl(0.3))]
GARBAGE = [Elastic(1, 4, speedup=garbage) for garbage in (lambda u: float("nan"), lambda u: -u, lambda u: 1 / u)]
COSTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from([*CORES, *GARBAGE, Elastic(1, 3, speedup=Linear())]),
        "memory_gib": st.sampled_from([0.5, 1, 3, 4]),
        "search": st.sampled_from([0.5, 1, 2]),
        "thread": st.just(True),
        "priority": st.sampled_from([-1, 0, 3]),
        "queue_timeout": st.sampled_from([0.3, 2, 50]),
        "duration_s": st.sampled_from([0.01, 1, 1e9]),
    },
)
STEPS_S = st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0, 5.0, 60.0]) | st.floats(0, 100)
PICK = st.integers(0, 1 << 30)


class Core(RuleBasedStateMachine):
    """Every command in any order; `World` checks what follows from each."""

    @initialize(topology=TOPOLOGIES, policy=POLICIES, order=ORDERS, costs=st.lists(COSTS, min_size=1, max_size=6))
    def begin(self, topology, policy, order, costs) -> None:  # type: ignore[no-untyped-def]
        self.world = self.new_world(topology, policy, order)
        self.demands: list[Demand] = []
        self.inside: dict[tuple[str, int], Demand] = {}
        for i, cost in enumerate(costs):
            with suppress(InfeasibleError):
                self.demands.append(make_demand(topology, f"a{i}", **cost))
            for node in range(len(topology.nodes)):
                with suppress(InfeasibleError):
                    demand = make_demand(topology, f"a{i}", **cost, reserved=policy.reserved_cores * 1000, node=node)
                    self.inside[demand.name, node] = demand

    def new_world(self, topology: Topology, policy: Policy, order: Order) -> World:
        return World(topology, policy, order)

    def inner(self, which: int, trajectory: int) -> Demand:
        """What an action asks for in a trajectory: of the node where that is, or of this machine.

        What is too much for that node is replaced by something else that is not.
        """
        node = self.world.core.node_of(trajectory)
        possible = [self.inside[demand.name, node] for demand in self.demands if (demand.name, node) in self.inside]
        return possible[which % len(possible)] if possible else Demand("nothing", ())

    def of_kind(self, kind: str, which: int) -> int:
        """The dimension that counts something, of one of the nodes."""
        names = [name for name in self.world.topology.index if (resource_of(name) or name).startswith(kind)]
        return self.world.topology.index[names[which % len(names)]]

    @precondition(lambda self: self.demands)
    @rule(which=PICK, repeat=st.sampled_from([1, 1, 1, 3, 10, 70]))
    def submit(self, which: int, repeat: int) -> None:
        demand = self.demands[which % len(self.demands)]
        if self.world.exceeds(demand):
            with pytest.raises(InfeasibleError):
                self.world.submit(demand)
            return
        for _ in range(repeat):
            self.world.submit(demand, key=str(which % 2))

    @precondition(lambda self: self.demands and self.world.open_trajectories)
    @rule(which=PICK, trajectory=PICK, turn=st.booleans())
    def submit_inside(self, which: int, trajectory: int, turn: bool) -> None:
        into = _pick(self.world.open_trajectories, trajectory)
        demand = self.inner(which, into)
        state = self.world.open_trajectories[into]
        if state.closing:
            with pytest.raises(NoTrajectoryError):
                self.world.submit(demand, trajectory=into, turn=turn)
        elif self.world.refusal(demand, into, None) is not None:
            with pytest.raises(InfeasibleError):
                self.world.submit(demand, trajectory=into, turn=turn)
        else:
            self.world.submit(demand, trajectory=into, turn=turn)

    @precondition(lambda self: self.demands and self.world.opening)
    @rule(trajectory=PICK)
    def submit_too_early(self, trajectory: int) -> None:
        with pytest.raises(NoTrajectoryError):
            self.world.submit(self.demands[0], trajectory=_pick(self.world.opening, trajectory), turn=True)

    @rule(memory_gib=st.sampled_from([0, 1, 2, 4]))
    def open(self, memory_gib: int) -> None:
        try:
            self.world.open(memory_gib=memory_gib)
        except InfeasibleError:
            for node in self.world.topology.nodes:
                cores, memory = self.world.capacity[node.cpu], self.world.capacity[node.memory]
                no_sandboxes = node.sandboxes is not None and self.world.capacity[node.sandboxes] == 0
                assert self.world.policy.reserved_cores * 1000 > cores or memory_gib * GIB > memory or no_sandboxes

    @precondition(lambda self: self.world.open_trajectories)
    @rule(trajectory=PICK)
    def close(self, trajectory: int) -> None:
        into = _pick(self.world.open_trajectories, trajectory)
        if not self.world.open_trajectories[into].closing:
            self.world.close(into)

    @precondition(lambda self: self.world.waiting or self.world.opening)
    @rule(which=PICK)
    def withdraw(self, which: int) -> None:
        self.world.withdraw(_pick([*self.world.waiting, *self.world.opening], which))

    @precondition(lambda self: self.world.running)
    @rule(which=PICK, ok=st.booleans(), duration_s=st.none() | st.floats())
    def finish(self, which: int, ok: bool, duration_s: float | None) -> None:
        self.world.finish(_pick(self.world.running, which), ok=ok, duration_s=duration_s)

    @precondition(lambda self: len(self.world.running) > 3)
    @rule()
    def finish_all(self) -> None:
        for action_id in list(self.world.running):
            self.world.finish(action_id)

    @precondition(lambda self: self.demands and self.world.running)
    @rule(
        parent=PICK,
        which=PICK,
        turn=st.booleans(),
        cores=st.sampled_from([True, True, False]),
        repeat=st.integers(1, 3),
    )
    def call(self, parent: int, which: int, turn: bool, cores: bool, repeat: int) -> None:
        """A running action calls others."""
        caller = _pick(self.world.running, parent)
        trajectory = self.world.running[caller].pending.trajectory
        if trajectory is not None and self.world.open_trajectories[trajectory].closing:
            return
        for n in range(repeat):
            outer = self.demands[(which + n) % len(self.demands)]
            called = outer if trajectory is None else self.inner(which + n, trajectory)
            self.world.call(caller, called, turn=turn, cores=cores)

    @precondition(lambda self: self.world.callers.idle())
    @rule(which=PICK)
    def reclaim(self, which: int) -> None:
        self.world.reclaim(_pick(self.world.callers.idle(), which))

    @precondition(lambda self: self.world.running)
    @rule(which=PICK, cores=st.booleans())
    def lend(self, which: int, cores: bool) -> None:
        """Also one that has lent already, or wants it back."""
        self.world.lend(_pick(self.world.running, which), cores=cores)

    @precondition(lambda self: self.demands and self.world.running)
    @rule(caller=PICK, which=PICK, cores=st.booleans())
    def want_back_what_others_use(self, caller: int, which: int, cores: bool) -> None:
        """Others take what a running action has lent before it wants that back."""
        action_id = _pick(self.world.running, caller)
        self.submit(which, 3)
        trajectory = self.world.running[action_id].pending.trajectory
        if trajectory is not None:
            self.submit_inside(which, list(self.world.open_trajectories).index(trajectory), turn=True)
        self.world.lend(action_id, cores=cores)
        self.world.decide()
        if action_id in self.world.callers.idle():
            self.world.reclaim(action_id)

    @precondition(lambda self: [i for i in self.world.running if i not in self.world.callers.loans])
    @rule()
    def let_calls_end(self) -> None:
        """Whatever does not wait for others ends, and whoever waited for it wants to go on."""
        for action_id in [i for i in self.world.running if i not in self.world.callers.loans]:
            self.world.finish(action_id)
        for caller in self.world.callers.idle():
            self.world.reclaim(caller)

    @rule(halted=st.booleans())
    def halt(self, halted: bool) -> None:
        self.world.halt(halted)

    @rule(
        change=st.sampled_from(
            [
                *((CPU, milli_cores) for milli_cores in (500, 1000, 2000, 4000, 9000)),
                *((MEMORY, gib * GIB) for gib in (2, 8)),
                *((THREADS, threads) for threads in (1, 4)),
                *((quota_calls("search"), calls) for calls in (500, 3000)),
                *((quota_concurrency("search"), calls) for calls in (1000, 3000)),
            ]
        ),
        node=PICK,
    )
    def set_capacity(self, change: tuple[str, int], node: int) -> None:
        kind, units = change
        self.world.set_capacity(self.of_kind(kind, node), units)

    @rule(
        kind=st.sampled_from([THREADS, quota_calls("search"), quota_concurrency("search")]),
        for_s=st.sampled_from([0.0, 0.2, 3.0, 60.0]),
    )
    def pause(self, kind: str, for_s: float) -> None:
        self.world.pause(self.of_kind(kind, 0), for_s)

    @rule(step_s=STEPS_S)
    def advance(self, step_s: float) -> None:
        self.world.advance(step_s)

    @rule()
    def advance_to_wakeup(self) -> None:
        at_s = self.world.core.next_wakeup_s()
        if at_s is not None:
            self.world.advance(max(0.0, at_s - self.world.now))
            self.world.now = max(self.world.now, at_s)
            self.world.settle()

    @rule()
    def decide(self) -> None:
        self.world.decide()

    @rule(part=st.floats(0, 1, exclude_max=True))
    def settle_and_look_ahead(self, part: float) -> None:
        """Until the next wake-up nothing can start by time alone, and something changes then."""
        world = self.world
        world.settle()
        at_s = world.core.next_wakeup_s()
        if at_s is not None:
            deadlines = [
                a.submitted_at_s + a.demand.queue_timeout
                for a in world.waiting.values()
                if a.demand.queue_timeout is not None
            ]
            known = {*deadlines, *world.paused.values(), *world.returns(), *world.core._rounds.look_again_s.values()}
            if world.core._sharing is not None:
                known.add(world.core._sharing.next_s())
            assert at_s in known, f"{at_s} is none of {known}"
        later_s = world.now + 1e6 if at_s is None else world.now + part * (at_s - world.now)
        if at_s is None or later_s < at_s:
            decisions = world.twin().core.decide(later_s)
            assert not decisions.any

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        """Let everything end: whoever still waits gets its turn, and then everything is free."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.halt(False)
        for _ in range(10_000):
            world.settle()
            at_s = world.core.next_wakeup_s()
            if busy := [i for i in world.running if i not in world.callers.loans]:
                world.finish(busy[0])
            elif idle_callers := world.callers.idle():
                world.reclaim(idle_callers[0])
            elif idle := [t for t in world.open_trajectories if all(a.trajectory != t for a in world.waiting.values())]:
                world.close(idle[0])
            elif at_s is not None:
                world.now = max(at_s, world.now)
            elif world.waiting or world.opening:
                # Trajectories hold what their own actions wait for: not to be solved by any order.
                assert world.open_trajectories
                assert any(world.exceeds_what_is_left(a.demand) for a in world.in_queue())
                if not any(loan.wanted for loan in world.callers.loans.values()):
                    inside = [a for a in world.in_queue() if a.trajectory is not None]
                    assert not [a for a in inside if world.fits(a.demand)], "nobody else goes on before these"
                world.close(next(iter(world.open_trajectories)))
            else:
                break
        world.now += 1000
        world.settle()
        assert [*world.waiting, *world.opening, *world.running, *world.open_trajectories] == []
        assert [world.core.free(i) for i in range(len(world.capacity))] == world.capacity
        assert world.core.next_wakeup_s() is None
        assert world.core.drain_events() == []


KEPT = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from([1, 2, 0.5, Elastic(1, 3)]),
        "memory_gib": st.sampled_from([1, 2, 3]),
        "thread": st.just(True),
        "search": st.just(1),
        "priority": st.sampled_from([-1, 0]),
    },
)


class Callers(Core):
    """Much that callers keep, little of everything, and calls above all."""

    @initialize(
        cores=st.sampled_from([2, 3, 4]),
        threads=st.sampled_from([1, 2, 3]),
        concurrency=st.sampled_from([1, 2]),
        policy=POLICIES,
        order=ORDERS,
        costs=st.lists(KEPT, min_size=2, max_size=5),
    )
    def begin(self, cores, threads, concurrency, policy, order, costs) -> None:  # type: ignore[no-untyped-def,override]
        topology = make_topology(cores=cores, memory_gib=6, threads=threads, calls=5, concurrency=concurrency)
        super().begin(topology, policy, order, costs)

    @precondition(lambda self: self.demands and self.world.running)
    @rule(parent=PICK, which=PICK, turn=st.booleans(), cores=st.booleans(), repeat=st.integers(1, 2))
    def call_and_decide(self, parent: int, which: int, turn: bool, cores: bool, repeat: int) -> None:
        """As `call`, and those that fit start."""
        self.call(parent, which, turn, cores, repeat)
        self.world.decide()

    @precondition(lambda self: self.demands and self.world.running)
    @rule(parent=PICK, which=PICK, cores=st.booleans())
    def call_and_call_from_there(self, parent: int, which: int, cores: bool) -> None:
        """A call that starts makes another one, which wants the turn."""
        before = set(self.world.running)
        self.call(parent, which, turn=False, cores=cores, repeat=1)
        self.world.decide()
        for called in list(self.world.running.keys() - before)[:1]:
            self.call(list(self.world.running).index(called), which // 7, turn=True, cores=True, repeat=1)

    @precondition(lambda self: self.demands)
    @rule(memory_gib=st.sampled_from([1, 2, 4]), which=PICK, parent=PICK)
    def open_and_call_and_wait_inside(self, memory_gib: int, which: int, parent: int) -> None:
        """A trajectory that holds memory, a call of somebody else, and an action of the trajectory."""
        self.open(memory_gib)
        self.world.decide()
        if self.world.running:
            self.call(parent, which // 7, turn=False, cores=True, repeat=1)
        if self.world.open_trajectories:
            self.submit_inside(which, len(self.world.open_trajectories) - 1, turn=which % 2 == 0)
            self.world.decide()

    @precondition(lambda self: self.demands and self.world.open_trajectories)
    @rule(which=PICK, trajectory=PICK)
    def begin_inside(self, which: int, trajectory: int) -> None:
        """An action in a trajectory starts, if it can."""
        self.submit_inside(which, trajectory, turn=which % 2 == 0)
        self.world.decide()


class Nodes(Callers):
    """Several nodes of all sizes: trajectories go to one that has room, and call bodies that run on another."""

    @initialize(
        nodes=st.lists(
            st.tuples(st.sampled_from([1, 2, 2.5, 4]), st.sampled_from([2, 6]), st.sampled_from([None, 1, 3])),
            min_size=2,
            max_size=3,
        ),
        threads=st.sampled_from([1, 2, 3]),
        concurrency=st.sampled_from([1, 2]),
        policy=POLICIES,
        order=ORDERS,
        costs=st.lists(KEPT | COSTS, min_size=2, max_size=5),
    )
    def begin(self, nodes, threads, concurrency, policy, order, costs) -> None:  # type: ignore[no-untyped-def,override]
        topology = make_nodes(nodes=nodes, threads=threads, calls=5, concurrency=concurrency)
        Core.begin(self, topology, policy, order, costs)

    @rule(sandboxes=st.sampled_from([0, 1, 4]), node=PICK)
    def set_sandboxes(self, sandboxes: int, node: int) -> None:
        limited = [node.sandboxes for node in self.world.topology.nodes if node.sandboxes is not None]
        if limited:
            self.world.set_capacity(limited[node % len(limited)], sandboxes)


def _pick(ids, which: int) -> int:  # type: ignore[no-untyped-def]
    ids = list(ids)
    return ids[which % len(ids)]


TestCore = Core.TestCase
TestCallers = Callers.TestCase
TestNodes = Nodes.TestCase
