"""What actions that wait for their calls lend, who gets it, and how they have it back."""

from __future__ import annotations

import pytest

from arl_tangram.errors import InfeasibleError, NestedActionError
from arl_tangram.model.events import (
    ActionLent,
    ActionResumed,
    CapacityChanged,
    Paused,
    PolicyRefused,
    TrajectoryClosed,
    UnitsReturned,
)
from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.policies import elastic, paper
from arl_tangram.scheduling.policies.own import policy_of
from arl_tangram.scheduling.policy import Group, Policy
from unit.scheduling.nested import TOPOLOGY, Scene, cores


@pytest.fixture
def scene() -> Scene:
    return Scene()


# Cores.


@pytest.mark.parametrize("units", [4000, 500])
def test_cores_are_lent_and_had_again(scene: Scene, units: int) -> None:
    caller = scene.run(cores(units))
    scene.core.drain_events()
    scene.now_s = 1.0
    scene.lend(caller)
    assert scene.core.used(0) == 0
    scene.now_s = 2.0
    assert scene.core.reclaim(caller, 2.0)
    assert scene.core.used(0) == units
    assert scene.core.drain_events() == [ActionLent(1.0, caller, units), ActionResumed(2.0, caller, units)]
    scene.finish(caller)
    assert scene.core.used(0) == 0


def test_who_lent_nothing_has_all(scene: Scene) -> None:
    caller = scene.run(cores(1000))
    assert scene.core.reclaim(caller, 0.0)


def test_memory_and_threads_stay(scene: Scene) -> None:
    caller = scene.run(cores(1000, memory=3, threads=1))
    scene.lend(caller)
    assert [scene.core.used(d) for d in range(3)] == [0, 3, 1]


def test_cores_can_be_kept(scene: Scene) -> None:
    caller = scene.run(cores(3000))
    scene.lend(caller, cores=False)
    assert scene.core.used(0) == 3000
    assert isinstance(scene.core.drain_events()[-1], ActionLent)
    assert scene.core.reclaim(caller, 0.0)
    assert scene.core.used(0) == 3000


def test_a_caller_gets_the_same_cores_before_everybody_else(scene: Scene) -> None:
    caller = scene.run(cores(3000))
    urgent = [scene.submit(cores(1000, priority=-5)) for _ in range(8)]
    assert scene.started() == urgent[:1]
    scene.lend(caller)
    assert scene.started() == urgent[1:4]
    assert not scene.core.reclaim(caller, 0.0)
    assert not scene.core.reclaim(caller, 0.0), "asked twice"
    scene.finish(urgent[0])
    assert scene.started() == []
    scene.finish(urgent[1])
    assert scene.started() == []
    scene.finish(urgent[2])
    decisions = scene.decide()
    assert [running.pending.id for running in decisions.resumed] == [caller]
    assert decisions.started == []
    assert scene.resumed() == [], "told once"


def test_callers_go_on_in_the_order_in_which_they_wanted_to(scene: Scene) -> None:
    first, second = scene.run(cores(2000)), scene.run(cores(1000))
    other = scene.run(cores(1000))
    scene.lend(first, second)
    large = scene.run(cores(3000))
    assert not scene.core.reclaim(first, 0.0)
    assert not scene.core.reclaim(second, 0.0)
    scene.finish(other)
    assert scene.resumed() == [], "one core is free, and belongs to the first"
    scene.finish(large)
    assert scene.resumed() == [first, second]


def test_what_was_lent_twice_was_lent_once(scene: Scene) -> None:
    caller = scene.run(cores(2000))
    scene.lend(caller, caller)
    assert scene.core.free(0) == 4000


def test_one_that_wants_its_cores_back_can_lend_them_on(scene: Scene) -> None:
    caller = scene.run(cores(4000))
    scene.lend(caller)
    taker, waiter = scene.run(cores(4000)), scene.submit(cores(4000))
    assert not scene.core.reclaim(caller, 0.0)
    scene.lend(caller)
    scene.finish(taker)
    decisions = scene.decide()
    assert [running.pending.id for running in decisions.started] == [waiter]
    assert decisions.resumed == []


@pytest.mark.parametrize("wanted", [False, True])
def test_one_that_ends_meanwhile_gives_back_what_it_kept_once(scene: Scene, wanted: bool) -> None:
    caller = scene.run(cores(4000, memory=2))
    scene.lend(caller)
    taker = scene.run(cores(4000))
    if wanted:
        assert not scene.core.reclaim(caller, 0.0)
    scene.finish(caller)
    assert [scene.core.used(d) for d in (0, 1)] == [4000, 0]
    scene.finish(taker)
    assert scene.core.free(0) == 4000
    assert scene.resumed() == []


# Calls.


def test_calls_come_before_others_that_wait(scene: Scene) -> None:
    caller = scene.run(cores(4000))
    others = [scene.submit(cores(4000)) for _ in range(2)]
    scene.lend(caller)
    call = scene.submit(cores(4000), parent=caller)
    assert scene.started() == [call]
    inner = scene.submit(cores(4000), parent=call)
    scene.lend(call)
    assert scene.started() == [inner]
    scene.finish(inner)
    assert scene.core.reclaim(call, 0.0)
    scene.finish(call)
    assert scene.core.reclaim(caller, 0.0)
    scene.finish(caller)
    assert scene.started() == others[:1]


def test_a_call_is_as_urgent_as_the_most_urgent_who_waits_for_it(scene: Scene) -> None:
    caller = scene.run(cores(4000, priority=-2))
    scene.submit(cores(4000, priority=-1))
    scene.lend(caller)
    call = scene.submit(cores(4000, priority=7), parent=caller)
    assert scene.started() == [call]
    inner = scene.submit(cores(4000, priority=3), parent=call)
    scene.lend(call)
    assert scene.started() == [inner]


def test_a_more_urgent_action_comes_before_a_call(scene: Scene) -> None:
    caller = scene.run(cores(4000))
    urgent = scene.submit(cores(4000, priority=-1))
    scene.lend(caller)
    call = scene.submit(cores(4000), parent=caller)
    assert scene.started() == [urgent]
    scene.finish(urgent)
    assert scene.started() == [call]


def test_calls_of_actions_that_came_much_later_do_not_starve_anybody() -> None:
    """Thin callers without a cost of their own go on calling; who wants all cores still gets them."""
    scene = Scene()
    blocker = scene.run(cores(1000))
    large = scene.submit(cores(4000))
    for _ in range(3000):
        caller = scene.submit(cores(0, name="thin"))
        assert caller in scene.started()
        scene.lend(caller)
        call = scene.submit(cores(1000), parent=caller)
        started = scene.started()
        if call not in started:
            break
        scene.finish(blocker)
        blocker = call
    else:
        raise AssertionError("the large one starves")
    scene.finish(blocker)
    assert large in scene.started()


@pytest.mark.parametrize("order", ["shortest", "trajectory"])
def test_calls_come_first_in_every_order(order: str) -> None:
    core = SchedulerCore(TOPOLOGY, paper(), order=order)  # type: ignore[arg-type]
    core.submit(PendingAction(1, cores(4000), 10.0))
    core.decide(10.0)
    core.submit(PendingAction(2, cores(4000), 20.0))
    core.lend(1, 30.0)
    core.submit(PendingAction(3, cores(4000), 30.0, parent=1))
    assert [running.pending.id for running in core.decide(30.0).started] == [3]


def test_a_call_whose_caller_has_ended_waits_as_any_other(scene: Scene) -> None:
    caller = scene.run(cores(0, name="thin"))
    blocker, other = scene.run(cores(4000)), scene.submit(cores(4000))
    scene.lend(caller)
    call = scene.submit(cores(4000), parent=caller)
    scene.finish(caller)
    scene.finish(blocker)
    assert scene.started() == [other]
    scene.core.withdraw(call)
    assert scene.core.waiting == 0


def test_a_lent_action_is_not_expected_to_end_and_then_later_by_as_much() -> None:
    seen: list[list[tuple[float, int]]] = []

    def plan(group: Group) -> list[int]:
        seen.append(list(group.running))
        return [candidate.units[0] for candidate in group.candidates]

    scene = Scene(policy_of(plan))
    demand = Demand("run", (), 0, (1000, 2000), relative=(1.0, 0.5), dimensions=1, duration_s=10.0)

    def ask() -> list[tuple[float, int]]:
        scene.finish(scene.run(demand))
        return seen[-1]

    caller = scene.run(demand)
    scene.now_s = 4.0
    assert ask() == [(10.0, 1)]
    scene.lend(caller)
    assert ask() == []
    scene.now_s = 9.0
    assert scene.core.reclaim(caller, 9.0)
    assert ask() == [(15.0, 1)]


def test_a_policy_cannot_wait_for_cores_that_callers_keep() -> None:
    """It sees as many as return by themselves."""
    seen: list[int] = []

    def all_or_nothing(group: Group) -> list[int]:
        seen.append(group.capacity)
        most = min(group.capacity, group.candidates[0].units[-1])
        return [most] if group.free >= most else []

    scene = Scene(policy_of(all_or_nothing))
    demand = Demand("run", (), 0, (1000, 2000, 3000, 4000), relative=(1.0, 0.5, 0.4, 0.3), dimensions=1)
    caller = scene.run(cores(1000))
    scene.lend(caller, cores=False)
    call = scene.submit(demand, parent=caller)
    (running,) = scene.decide().started
    assert (running.pending.id, running.units, seen) == (call, 3000, [3])
    assert not any(isinstance(event, PolicyRefused) for event in scene.core.drain_events())


# Turns.


def test_the_turn_goes_to_the_call_first_and_comes_back_before_others(scene: Scene) -> None:
    inside = scene.trajectory()
    caller = scene.run(cores(1000), trajectory=inside, turn=True)
    other = scene.submit(cores(1000), trajectory=inside, turn=True)
    scene.lend(caller)
    call = scene.submit(cores(1000), parent=caller, trajectory=inside, turn=True)
    second = scene.submit(cores(1000), parent=caller, trajectory=inside, turn=True)
    assert scene.started() == [call], "though the other one was given the turn before the call was made"
    scene.finish(call)
    assert scene.started() == [second]
    scene.finish(second)
    assert not scene.core.reclaim(caller, 0.0)
    assert scene.resumed() == [caller]
    assert scene.started() == []
    scene.finish(caller)
    assert scene.started() == [other]


def test_a_caller_waits_for_the_turn_of_one_that_runs(scene: Scene) -> None:
    inside = scene.trajectory()
    caller = scene.run(cores(1000), trajectory=inside, turn=True)
    scene.lend(caller)
    other, last = (scene.submit(cores(1000), trajectory=inside, turn=True) for _ in range(2))
    assert scene.started() == [other]
    assert not scene.core.reclaim(caller, 0.0)
    assert scene.resumed() == []
    scene.finish(other)
    decisions = scene.decide()
    assert [running.pending.id for running in decisions.resumed] == [caller]
    assert decisions.started == []
    scene.core.withdraw(last)
    scene.finish(caller)


@pytest.mark.parametrize("wanted", [False, True])
def test_the_turn_of_one_that_ends_while_it_has_lent_is_not_passed_twice(scene: Scene, wanted: bool) -> None:
    inside = scene.trajectory()
    caller = scene.run(cores(1000), trajectory=inside, turn=True)
    scene.lend(caller)
    runs, waits = (scene.submit(cores(1000), trajectory=inside, turn=True) for _ in range(2))
    assert scene.started() == [runs]
    if wanted:
        assert not scene.core.reclaim(caller, 0.0)
    scene.finish(caller)
    assert scene.started() == []
    scene.finish(runs)
    assert scene.started() == [waits]


def test_on_a_reservation_only_the_turn_is_lent(scene: Scene) -> None:
    inside = scene.trajectory()
    demand = Demand("reserved", (), dimensions=0, reserved=2000)
    caller = scene.run(demand, trajectory=inside, turn=True)
    scene.core.drain_events()
    scene.lend(caller)
    assert scene.core.drain_events() == [ActionLent(0.0, caller, 0)]
    call = scene.submit(demand, parent=caller, trajectory=inside, turn=True)
    assert scene.started() == [call]
    scene.finish(call)
    assert scene.core.reclaim(caller, 0.0)


def test_a_trajectory_closes_when_who_has_lent_has_ended(scene: Scene) -> None:
    inside = scene.trajectory(memory=2)
    caller = scene.run(cores(1000), trajectory=inside, turn=True)
    scene.lend(caller)
    scene.core.close(inside, 0.0)
    assert scene.core.used(1) == 2
    scene.core.drain_events()
    scene.finish(caller)
    assert scene.core.drain_events() == [UnitsReturned(0.0, caller), TrajectoryClosed(0.0, inside)]
    assert scene.core.used(1) == 0


@pytest.mark.parametrize("demand", [cores(1000), Demand("reserved", (), dimensions=0, reserved=2000)])
def test_who_keeps_its_cores_keeps_its_turn(scene: Scene, demand: Demand) -> None:
    """Something that it has started is alive in the sandbox, and would be ended after whoever ran there meanwhile."""
    inside = scene.trajectory()
    caller = scene.run(demand, trajectory=inside, turn=True)
    other = scene.submit(demand, trajectory=inside, turn=True)
    scene.lend(caller, cores=False)
    assert scene.started() == []
    call = scene.submit(cores(0, name="elsewhere"), parent=caller, trajectory=inside)
    assert scene.started() == [call]
    scene.finish(call)
    assert scene.core.reclaim(caller, 0.0)
    assert scene.started() == []
    scene.finish(caller)
    assert scene.started() == [other]


def test_a_kept_turn_passes_on_when_the_caller_ends(scene: Scene) -> None:
    inside = scene.trajectory()
    caller = scene.run(cores(1000), trajectory=inside, turn=True)
    scene.lend(caller, cores=False)
    other = scene.submit(cores(1000), trajectory=inside, turn=True)
    assert scene.started() == []
    scene.finish(caller)
    assert scene.started() == [other]


def test_a_turn_is_kept_for_one_time_of_waiting(scene: Scene) -> None:
    inside = scene.trajectory()
    caller = scene.run(cores(1000), trajectory=inside, turn=True)
    other = scene.submit(cores(1000), trajectory=inside, turn=True)
    scene.lend(caller, cores=False)
    assert scene.core.reclaim(caller, 0.0)
    scene.lend(caller)
    assert scene.started() == [other]


# Halting.


def test_while_halted_only_calls_start_and_callers_go_on(scene: Scene) -> None:
    caller = scene.run(cores(2000))
    scene.core.drain_events()
    scene.core.halt(True, 0.0)
    scene.core.halt(True, 0.0)
    assert scene.core.drain_events() == [Paused(0.0, True)]
    new = scene.submit(cores(1000))
    empty = scene.submit(cores(0))
    scene.core.open(PendingAction(7, Demand("trajectory", ()), 0.0))
    scene.lend(caller)
    call = scene.submit(cores(4000), parent=caller)
    decisions = scene.decide()
    assert [running.pending.id for running in decisions.started] == [call]
    assert decisions.opened == []
    assert not scene.core.reclaim(caller, 0.0)
    scene.finish(call)
    decisions = scene.decide()
    assert [running.pending.id for running in decisions.resumed] == [caller]
    assert decisions.started == []
    scene.core.halt(False, 1.0)
    decisions = scene.decide()
    assert sorted(running.pending.id for running in decisions.started) == [new, empty]
    assert decisions.opened == [7]


def test_deadlines_go_on_while_halted(scene: Scene) -> None:
    core = scene.core
    core.halt(True, 0.0)
    demand = Demand("late", ((1, 1),), dimensions=2, queue_timeout=3.0)
    core.submit(PendingAction(1, demand, 0.0))
    assert core.decide(0.0).expired == []
    assert core.next_wakeup_s() == 3.0
    assert core.decide(3.0).expired == [1]


def test_while_halted_a_turn_does_not_stay_with_one_that_may_not_start(scene: Scene) -> None:
    inside = scene.trajectory()
    caller = scene.run(cores(1000), trajectory=inside, turn=True)
    other = scene.submit(cores(1000), trajectory=inside, turn=True)
    scene.core.halt(True, 0.0)
    scene.lend(caller)
    call = scene.submit(cores(1000), parent=caller, trajectory=inside, turn=True)
    assert scene.started() == [call]
    scene.finish(call)
    scene.core.reclaim(caller, 0.0)
    assert scene.resumed() == [caller]
    scene.finish(caller)
    assert scene.started() == []
    scene.core.halt(False, 0.0)
    assert scene.started() == [other]


# Capacities.


def test_more_is_there_at_once(scene: Scene) -> None:
    scene.run(cores(4000))
    waiting = scene.submit(cores(2000))
    assert scene.started() == []
    scene.core.drain_events()
    scene.core.set_capacity(0, 6000, 1.0)
    assert scene.core.drain_events() == [CapacityChanged(1.0, 0, 6000)]
    assert scene.started() == [waiting]
    assert scene.core.topology.dimensions[0].capacity == 6000


def test_less_takes_effect_as_units_return(scene: Scene) -> None:
    first, second = scene.run(cores(2000)), scene.run(cores(2000))
    waiting = scene.submit(cores(1000))
    scene.core.set_capacity(0, 1000, 0.0)
    assert (scene.core.free(0), scene.core.used(0), scene.core.capacity(0)) == (0, 4000, 4000)
    scene.finish(first)
    assert (scene.core.free(0), scene.core.used(0), scene.core.capacity(0)) == (0, 2000, 2000)
    assert scene.started() == []
    scene.finish(second)
    assert (scene.core.free(0), scene.core.capacity(0)) == (1000, 1000)
    assert scene.started() == [waiting]


def test_who_can_never_run_any_more_is_told(scene: Scene) -> None:
    inside = scene.trajectory()
    running = scene.run(cores(4000), trajectory=inside, turn=True)
    in_line = scene.submit(cores(3000), trajectory=inside, turn=True)
    large, small = scene.submit(cores(3000)), scene.submit(cores(2000))
    can_shrink = scene.submit(Demand("elastic", (), 0, (1000, 4000), relative=(1.0, 0.3), dimensions=1))
    scene.core.set_capacity(0, 2000, 0.0)
    assert scene.started() == []
    assert set(scene.refused) == {in_line, large}
    assert all(isinstance(error, InfeasibleError) for error in scene.refused.values())
    assert "2 in all" in str(scene.refused[large])
    scene.finish(running)
    assert scene.started() == [small]
    scene.finish(small)
    assert scene.started() == [can_shrink]
    with pytest.raises(InfeasibleError, match="by now it has 2 in all"):
        scene.submit(cores(3000))


def test_trajectories_that_wait_are_told_too(scene: Scene) -> None:
    scene.run(cores(0, memory=8))
    request = PendingAction(7, Demand("trajectory", ((1, 5),), dimensions=2), 0.0)
    scene.core.open(request)
    scene.decide()
    scene.core.set_capacity(1, 4, 0.0)
    scene.decide()
    assert isinstance(scene.refused[7], InfeasibleError)
    assert scene.core.waiting == 0
    with pytest.raises(InfeasibleError):
        scene.core.open(request._replace(id=8))


def test_a_trajectory_that_holds_more_than_there_is_stays_and_so_do_its_actions(scene: Scene) -> None:
    inside = scene.trajectory(memory=6)
    waiting = scene.submit(cores(1000), trajectory=inside)
    scene.core.set_capacity(1, 2, 0.0)
    assert scene.started() == [waiting]
    assert scene.core.capacity(1) == 6


@pytest.mark.parametrize("policy", [elastic(), paper()])
def test_a_caller_has_its_cores_again_where_there_are_fewer_by_now(policy: Policy) -> None:
    scene = Scene(policy)
    caller = scene.run(cores(4000))
    scene.lend(caller)
    other = scene.run(cores(1000))
    scene.core.set_capacity(0, 2000, 0.0)
    assert not scene.core.reclaim(caller, 0.0)
    assert scene.resumed() == []
    scene.finish(other)
    assert scene.resumed() == [caller]
    assert (scene.core.used(0), scene.core.capacity(0), scene.core.free(0)) == (4000, 4000, 0)
    scene.finish(caller)
    assert (scene.core.capacity(0), scene.core.free(0)) == (2000, 2000)


def test_a_call_has_its_cores_again_though_its_caller_keeps_more_than_there_are_by_now(scene: Scene) -> None:
    caller = scene.run(cores(2000))
    scene.lend(caller, cores=False)
    call = scene.submit(cores(2000), parent=caller)
    assert scene.started() == [call]
    scene.lend(call)
    scene.core.set_capacity(0, 1000, 0.0)
    assert scene.core.reclaim(call, 0.0)
    assert (scene.core.used(0), scene.core.capacity(0)) == (4000, 4000)
    scene.finish(call, caller)
    assert scene.core.capacity(0) == 1000


def test_rates_and_budgets_take_less_at_once() -> None:
    topology = Topology([Dimension("quota:a/calls", 4, 1, 10.0), Dimension("quota:b/calls", 4, 1, float("inf"))])
    core = SchedulerCore(topology, paper())
    rate, budget = Demand("rate", ((0, 1),), dimensions=1), Demand("budget", ((1, 1),), dimensions=2)
    for i in range(3):
        core.submit(PendingAction(i, rate, 0.0))
        core.submit(PendingAction(10 + i, budget, 0.0))
    assert len(core.decide(0.0).started) == 6
    for dimension in (0, 1):
        core.set_capacity(dimension, 2, 0.0)
        assert (core.free(dimension), core.used(dimension)) == (-1, 3)
    for i in range(3):
        core.finish(i, 0.0, None)
        core.finish(10 + i, 0.0, None)
    core.submit(PendingAction(20, rate, 0.0))
    core.submit(PendingAction(21, budget, 0.0))
    decisions = core.decide(0.0)
    assert decisions.started == []
    assert [action_id for action_id, _ in decisions.impossible] == [21]
    assert [running.pending.id for running in core.decide(10.0).started] == [20]


def test_a_call_is_refused_at_once_if_its_callers_keep_what_it_needs(scene: Scene) -> None:
    outer = scene.run(cores(1000, memory=3, name="outer"))
    scene.lend(outer)
    middle = scene.submit(cores(1000, memory=3, name="middle"), parent=outer)
    assert scene.started() == [middle]
    scene.lend(middle)
    with pytest.raises(NestedActionError, match="outer → middle → inner: inner asks for 3 of memory; it has 8 in all"):
        scene.submit(cores(1000, memory=3, name="inner"), parent=middle)
    assert scene.submit(cores(4000, memory=2), parent=middle) in scene.started()


def test_a_call_that_needs_the_cores_that_its_caller_keeps_is_refused(scene: Scene) -> None:
    caller = scene.run(cores(2000))
    scene.lend(caller, cores=False)
    with pytest.raises(NestedActionError):
        scene.submit(cores(3000), parent=caller)
    assert scene.submit(cores(2000), parent=caller) in scene.started()
