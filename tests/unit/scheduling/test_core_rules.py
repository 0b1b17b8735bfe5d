"""The rules of the core, one by one: blocking, lost chances, deferring, turns, trajectories, deadlines, exact units."""

from __future__ import annotations

from random import Random

import pytest

from arl_tangram.errors import InfeasibleError, NoTrajectoryError
from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.events import ActionDeferred
from arl_tangram.model.lifecycle import PendingAction
from arl_tangram.model.topology import CPU, Dimension, Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.policies import fixed, paper, reserved
from property.worlds import World, make_demand, make_topology

TOPOLOGY = make_topology()
TWO_CORES = make_demand(TOPOLOGY, "two", cpu=2)
FOUR_CORES = make_demand(TOPOLOGY, "four", cpu=4)
ONE_CORE = make_demand(TOPOLOGY, "one", cpu=1)
HALF = make_demand(TOPOLOGY, "half", cpu=0.5)
CALL = make_demand(TOPOLOGY, "call", search=1)
BOTH_CALLS = make_demand(TOPOLOGY, "calls", search=2)
CALL_WITH_CORE = make_demand(TOPOLOGY, "call with core", search=1, cpu=1)
ALL_MEMORY = make_demand(TOPOLOGY, "memory", memory_gib=16)


def world_of(*demands: object, policy: object = None) -> World:
    """Return a world at rest after these actions were submitted in this order; their ids are 1, 2, …."""
    world = World(TOPOLOGY, policy or paper())  # type: ignore[arg-type]
    for demand in demands:
        world.submit(demand)  # type: ignore[arg-type]
    world.settle()
    return world


def test_the_first_that_does_not_fit_blocks_what_it_lacks_and_nothing_else() -> None:
    world = world_of(TWO_CORES, FOUR_CORES, ONE_CORE, CALL)
    assert set(world.running) == {1, 4}, "the second blocks the cores, not the quota"
    world.finish(1)
    world.settle()
    assert set(world.running) == {2, 4}


def test_an_action_that_lacks_one_resource_leaves_the_others_to_those_behind_it() -> None:
    world = world_of(CALL, CALL, CALL_WITH_CORE, ONE_CORE, CALL)
    assert set(world.running) == {1, 2, 4}


def test_who_lacks_a_quota_all_the_time_never_blocks_the_cores() -> None:
    """However often the cores are full and free meanwhile, it lost no chance: the quota was never there."""
    world = world_of(CALL, CALL, CALL_WITH_CORE)
    for _ in range(20):
        full = world.submit(FOUR_CORES)
        world.settle()
        assert full in world.running
        world.finish(full)
        world.settle()
    assert 3 in world.waiting


def test_who_loses_chances_in_turn_blocks_all_its_dimensions_at_last() -> None:
    """Cores and calls are free alternately, never both, until the victim holds on to what it sees."""
    world = world_of(FOUR_CORES)
    victim = world.submit(make_demand(TOPOLOGY, "victim", cpu=4, search=2))
    holder, other, rounds = 1, CALL, 0
    while victim in world.waiting:
        assert rounds < 12
        following = world.submit(other)
        world.settle()
        world.finish(holder)
        world.settle()
        if following not in world.running:
            continue
        holder, other, rounds = following, FOUR_CORES if other is CALL else CALL, rounds + 1
        world.advance(10)
    assert rounds >= 3, "it should lose some chances first"
    assert victim in world.running


def test_priorities_go_first_and_arrival_decides_within_one() -> None:
    low = make_demand(TOPOLOGY, "low", cpu=4, priority=1)
    high = make_demand(TOPOLOGY, "high", cpu=4, priority=-1)
    world = world_of(FOUR_CORES, low, FOUR_CORES, high, high)
    order = []
    while world.running:
        (running,) = world.running
        order.append(running)
        world.finish(running)
        world.settle()
    assert order == [4, 5, 1, 3, 2]


def test_a_deferred_action_keeps_its_place_and_holds_nothing() -> None:
    better_alone = make_demand(TOPOLOGY, "alone", cpu=Elastic.of(1, 4, speedup=lambda units: units**3))
    with_call = make_demand(TOPOLOGY, "alone", cpu=Elastic.of(1, 4, speedup=lambda units: units**3), search=2)
    world = World(TOPOLOGY, paper(best_prefix=True))
    for demand in (better_alone, with_call, with_call, CALL):
        world.submit(demand)
    decisions = world.decide()
    assert {r.pending.id: r.units for r in decisions.started} == {1: 4000, 4: 0}
    assert world.core.used(4) == 1000, "only the call that runs"
    world.finish(4)
    world.finish(1)
    world.settle()
    assert list(world.running) == [2]


def test_deferring_somebody_does_not_undo_the_block_of_who_is_ahead() -> None:
    """The third waits for both calls. That the fifth is deferred on the cores does not let the sixth take one."""
    better_alone = make_demand(TOPOLOGY, "alone", cpu=Elastic.of(1, 4, speedup=lambda units: units**3))
    victim = make_demand(TOPOLOGY, "victim", cpu=1, search=2)
    world = World(TOPOLOGY, paper(best_prefix=True))
    for demand in (FOUR_CORES, CALL, victim, better_alone, better_alone, CALL):
        world.submit(demand)
    world.settle()
    assert set(world.running) == {1, 2}
    world.advance(1)
    world.finish(1)
    world.settle()
    assert set(world.running) == {2, 4}
    world.advance(10)
    world.finish(2)
    world.finish(4)
    world.settle()
    assert 3 in world.running


def test_deferral_is_told_once() -> None:
    core = SchedulerCore(TOPOLOGY, paper(best_prefix=True), record=True)
    better_alone = make_demand(TOPOLOGY, "alone", cpu=Elastic.of(1, 4, speedup=lambda units: units**3))
    for i in (1, 2, 3):
        core.submit(PendingAction(i, better_alone, 0.0))
    core.decide(0.0)
    core.finish(1, 1.0, 1.0)
    core.decide(1.0)
    told = [(e.at_s, e.id) for e in core.drain_events() if isinstance(e, ActionDeferred)]
    assert told == [(0.0, 2), (0.0, 3)]


def test_nothing_is_recorded_unless_asked() -> None:
    core = SchedulerCore(TOPOLOGY, paper())
    core.submit(PendingAction(1, ONE_CORE, 0.0))
    core.decide(0.0)
    assert core.drain_events() == []


def test_a_fraction_does_not_slip_past_who_waits_for_its_dop() -> None:
    """Under `fixed(4)` the second wants four cores and not the least that it could run on."""
    wide = make_demand(TOPOLOGY, "wide", cpu=Elastic(1, 4))
    world = world_of(HALF, wide, HALF, HALF, policy=fixed(4))
    assert set(world.running) == {1}
    world.finish(1)
    world.settle()
    assert {i: r.units for i, r in world.running.items()} == {2: 4000}


def test_more_than_64_candidates_start_in_several_decisions() -> None:
    topology = make_topology(cores=200)
    world = World(topology, paper())
    one = make_demand(topology, "one", cpu=1)
    for _ in range(150):
        world.submit(one)
    sizes = []
    for _ in range(3):
        decisions = world.decide()
        sizes.append((len(decisions.started), decisions.more))
    assert sizes == [(64, True), (64, True), (22, False)]


def test_turns_of_a_trajectory_come_one_at_a_time_in_order_of_submission() -> None:
    world = World(TOPOLOGY, paper())
    trajectory = world.open()
    world.settle()
    first, second, third = (world.submit(ONE_CORE, trajectory=trajectory, turn=True) for _ in range(3))
    free = world.submit(CALL, trajectory=trajectory)
    world.settle()
    assert set(world.running) == {first, free}
    world.withdraw(second)
    world.finish(first, ok=False)
    world.settle()
    assert set(world.running) == {third, free}


def test_whose_turn_comes_keeps_its_place_before_those_who_came_later() -> None:
    world = World(TOPOLOGY, paper())
    trajectory = world.open()
    world.settle()
    first = world.submit(FOUR_CORES, trajectory=trajectory, turn=True)
    second = world.submit(FOUR_CORES, trajectory=trajectory, turn=True)
    other = world.open()
    world.settle()
    later = world.submit(FOUR_CORES, trajectory=other, turn=True)
    world.settle()
    world.finish(first)
    world.settle()
    assert list(world.running) == [second]
    assert later in world.waiting


def test_withdrawing_the_one_whose_turn_it_is_passes_the_turn_on() -> None:
    world = World(TOPOLOGY, paper())
    trajectory = world.open()
    world.submit(FOUR_CORES)
    world.settle()
    first, second = (world.submit(ONE_CORE, trajectory=trajectory, turn=True) for _ in range(2))
    world.settle()
    world.withdraw(first)
    world.finish(2)
    world.settle()
    assert list(world.running) == [second]


def test_actions_need_an_open_trajectory() -> None:
    world = world_of(ALL_MEMORY)
    waiting = world.open(memory_gib=1)
    world.settle()
    with pytest.raises(NoTrajectoryError, match="one was called in a trajectory that is not open"):
        world.submit(ONE_CORE, trajectory=waiting)
    world.finish(1)
    world.settle()
    running = world.submit(ONE_CORE, trajectory=waiting)
    world.settle()
    world.close(waiting)
    for _ in range(2):  # while it is closing, and when it is closed
        with pytest.raises(NoTrajectoryError):
            world.submit(ONE_CORE, trajectory=waiting)
        if running in world.running:
            assert world.core.used(1) > 0, "it holds its memory until its last action has ended"
            world.finish(running)
    assert world.core.used(1) == 0


def test_an_action_that_cannot_fit_beside_its_own_trajectory_is_refused() -> None:
    world = World(TOPOLOGY, paper())
    trajectory = world.open(memory_gib=10)
    world.settle()
    with pytest.raises(InfeasibleError, match="own trajectory holds 10"):
        world.submit(make_demand(TOPOLOGY, memory_gib=7), trajectory=trajectory, turn=True)
    assert world.core.waiting == 0
    fits = world.submit(make_demand(TOPOLOGY, memory_gib=6), trajectory=trajectory, turn=True)
    world.settle()
    assert fits in world.running


def test_reserved_trajectories_wait_for_their_cores_and_their_actions_run_on_them() -> None:
    world = World(TOPOLOGY, reserved(2))
    first, second, third = (world.open() for _ in range(3))
    world.settle()
    assert set(world.open_trajectories) == {first, second}
    inner = make_demand(TOPOLOGY, "inner", cpu=Elastic(1, 8), reserved=2000)
    action = world.submit(inner, trajectory=first, turn=True)
    world.settle()
    assert world.running[action].units == 2000
    assert world.core.free(0) == 0
    world.finish(action)
    world.close(first)
    world.settle()
    assert third in world.open_trajectories


def test_a_queue_timeout_ends_a_wait_for_units_and_a_wait_for_a_turn() -> None:
    hasty = make_demand(TOPOLOGY, "hasty", cpu=4, queue_timeout=2)
    world = World(TOPOLOGY, paper())
    trajectory = world.open()
    world.settle()
    world.submit(FOUR_CORES, trajectory=trajectory, turn=True)
    world.settle()
    outside, inside = world.submit(hasty), world.submit(hasty, trajectory=trajectory, turn=True)
    world.settle()
    assert world.core.next_wakeup_s() == 2
    world.advance(1.999)
    assert world.decide().expired == []
    world.advance(0.001)
    assert world.decide().expired == [outside, inside]
    assert world.core.next_wakeup_s() is None


def test_deadlines_of_those_who_have_started_do_not_pile_up() -> None:
    patient = make_demand(TOPOLOGY, "patient", cpu=1, queue_timeout=3600)
    core = SchedulerCore(TOPOLOGY, paper())
    for i in range(1, 2001):
        core.submit(PendingAction(i, patient, 0.0))
        (running,) = core.decide(0.0).started
        core.finish(running.pending.id, 0.0, None)
    assert len(core._deadlines) < 100
    for i in range(2001, 3001):
        core.submit(PendingAction(i, patient, 1.0))
    started = [running.pending.id for running in core.decide(1.0).started]
    assert len(core.decide(3601.0).expired) == 1000 - len(started)


def test_who_has_started_does_not_expire() -> None:
    world = world_of(make_demand(TOPOLOGY, "hasty", cpu=4, queue_timeout=2))
    waiting = world.submit(FOUR_CORES)
    world.settle()
    assert waiting in world.waiting
    assert world.core.next_wakeup_s() is None, "the deadline of who runs wakes nobody"
    world.advance(5)
    assert world.decide().expired == []


def test_a_tenth_and_two_tenths_fit_in_three() -> None:
    topology = make_topology(cores=0.3)
    world = World(topology, paper())
    tenth = world.submit(make_demand(topology, "a", cpu=0.1))
    two = world.submit(make_demand(topology, "b", cpu=0.2))
    world.settle()
    assert set(world.running) == {tenth, two}
    assert world.core.free(0) == 0


def test_a_million_tenths_come_and_go_and_leave_exactly_nothing() -> None:
    topology = Topology([Dimension(CPU, 300, 1000)])
    core = SchedulerCore(topology, paper())
    ledger, tenth = core._ledger, make_demand(topology, "a", cpu=0.1)
    for _ in range(1_000_000):
        ledger.take(tenth, 0, 0.0)
        ledger.give_back(tenth, 0)
    assert (core.free(0), core.used(0)) == (300, 0)
    for _ in range(2000):
        core.submit(PendingAction(1, tenth, 0.0))
        (running,) = core.decide(0.0).started
        core.finish(running.pending.id, 0.0, None)
    assert (core.free(0), core.used(0)) == (300, 0)


def test_one_decision_is_enough() -> None:
    """What deferring leaves free is planned anew in the same decision: nothing else would wake the core for it."""
    for seed in range(300):
        random = Random(seed)
        core = SchedulerCore(make_topology(cores=8), paper(best_prefix=True))
        for number in range(1, random.randint(3, 7)):
            cores = random.choice([Elastic(1, 2), Elastic(2, 4), Elastic.of(1, 4), Elastic(3, 3), Elastic.of(2, 8)])
            demand = make_demand(core.topology, f"a{number}", cpu=cores, duration_s=random.choice([0.1, 1, 10]))
            core.submit(PendingAction(number, demand, 0.0))
        assert not core.decide(0.0).more
        assert not core.decide(0.0).started, f"seed {seed}"


def test_a_decision_is_bounded_for_fixed_costs_too() -> None:
    core = SchedulerCore(make_topology(calls=5_000, concurrency=5_000), paper())
    for number in range(1, 2_001):
        core.submit(PendingAction(number, make_demand(core.topology, search=1), 0.0))
    started = []
    while True:
        decisions = core.decide(0.0)
        started.append(len(decisions.started))
        if not decisions.more:
            break
    assert max(started) <= 512
    assert sum(started) == 2_000
