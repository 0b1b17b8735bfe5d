"""The core under any order of what can happen to it, beside the account of `worlds.World`."""

from __future__ import annotations

import copy

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arl_tangram.errors import InfeasibleError, NoTrajectoryError
from arl_tangram.model.elasticity import Amdahl, Elastic, Linear
from arl_tangram.model.lifecycle import Demand
from arl_tangram.scheduling.policies import elastic, fixed, paper, reserved
from property.worlds import World, make_demand, make_topology

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
        self.world = World(topology, policy, order)
        self.demands: list[tuple[Demand, Demand]] = []
        for i, cost in enumerate(costs):
            inside = policy.reserved_cores * 1000
            try:
                outer = make_demand(topology, f"a{i}", **cost)
                inner = make_demand(topology, f"a{i}", **cost, reserved=inside)
            except InfeasibleError:
                continue
            self.demands.append((outer, inner))

    @precondition(lambda self: self.demands)
    @rule(which=PICK, repeat=st.sampled_from([1, 1, 1, 3, 10, 70]))
    def submit(self, which: int, repeat: int) -> None:
        for _ in range(repeat):
            self.world.submit(self.demands[which % len(self.demands)][0], key=str(which % 2))

    @precondition(lambda self: self.demands and self.world.open_trajectories)
    @rule(which=PICK, trajectory=PICK, turn=st.booleans())
    def submit_inside(self, which: int, trajectory: int, turn: bool) -> None:
        demand = self.demands[which % len(self.demands)][1]
        into = _pick(self.world.open_trajectories, trajectory)
        state = self.world.open_trajectories[into]
        if state.closing:
            with pytest.raises(NoTrajectoryError):
                self.world.submit(demand, trajectory=into, turn=turn)
        elif self._never_fits_beside(demand, state.demand):
            with pytest.raises(InfeasibleError, match="own trajectory holds"):
                self.world.submit(demand, trajectory=into, turn=turn)
        else:
            self.world.submit(demand, trajectory=into, turn=turn)

    @precondition(lambda self: self.demands and self.world.opening)
    @rule(trajectory=PICK)
    def submit_too_early(self, trajectory: int) -> None:
        with pytest.raises(NoTrajectoryError):
            self.world.submit(self.demands[0][1], trajectory=_pick(self.world.opening, trajectory), turn=True)

    @rule(memory_gib=st.sampled_from([0, 1, 2, 4]))
    def open(self, memory_gib: int) -> None:
        try:
            self.world.open(memory_gib=memory_gib)
        except InfeasibleError:
            assert self.world.policy.reserved_cores * 1000 > self.world.topology.dimensions[0].capacity

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

    @rule(dimension=st.sampled_from([2, 3, 4]), for_s=st.sampled_from([0.0, 0.2, 3.0, 60.0]))
    def pause(self, dimension: int, for_s: float) -> None:
        self.world.pause(dimension, for_s)

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
            assert at_s in {*deadlines, *world.paused.values(), *world.returns()}
        later_s = world.now + 1e6 if at_s is None else world.now + part * (at_s - world.now)
        if at_s is None or later_s < at_s:
            decisions = copy.deepcopy(world.core).decide(later_s)
            assert [*decisions.started, *decisions.opened, *decisions.expired] == []

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        """Let everything end: whoever still waits gets its turn, and then everything is free."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for _ in range(10_000):
            world.settle()
            at_s = world.core.next_wakeup_s()
            if world.running:
                world.finish(next(iter(world.running)))
            elif idle := [t for t in world.open_trajectories if all(a.trajectory != t for a in world.waiting.values())]:
                world.close(idle[0])
            elif at_s is not None:
                world.now = max(at_s, world.now)
            elif world.waiting or world.opening:
                # Trajectories hold what their own actions wait for: not to be solved by any order.
                assert world.open_trajectories
                assert any(world.exceeds_what_trajectories_leave(a.demand) for a in world.in_queue())
                world.close(next(iter(world.open_trajectories)))
            else:
                break
        world.now += 1000
        world.settle()
        assert [*world.waiting, *world.opening, *world.running, *world.open_trajectories] == []
        assert [world.core.free(i) for i in range(5)] == [d.capacity for d in world.topology.dimensions]
        assert world.core.next_wakeup_s() is None
        assert world.core.drain_events() == []

    def _never_fits_beside(self, demand: Demand, held: Demand) -> bool:
        needed = dict(demand.fixed)
        capacities = [d.capacity for d in self.world.topology.dimensions]
        return any(units + needed.get(dimension, 0) > capacities[dimension] for dimension, units in held.fixed)


def _pick(ids, which: int) -> int:  # type: ignore[no-untyped-def]
    ids = list(ids)
    return ids[which % len(ids)]


TestCore = Core.TestCase
