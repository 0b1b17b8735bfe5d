"""Calls that wait for one another for ever: found at once, the youngest refused, and nobody else."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import permutations

import pytest

from arl_tangram.errors import NestedActionError
from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.deadlock import Node, reduce
from arl_tangram.scheduling.policies import paper
from unit.scheduling.nested import Scene, cores


@pytest.fixture
def scene() -> Scene:
    return Scene()


def names(scene: Scene, action_id: int) -> str:
    error = scene.refused[action_id]
    assert isinstance(error, NestedActionError)
    return str(error)


def test_two_that_keep_what_each_others_calls_need(scene: Scene) -> None:
    first, second = (scene.run(cores(1000, memory=4, name=name)) for name in ("first", "second"))
    calls = []
    for caller in (first, second):
        scene.lend(caller)
        calls.append(scene.submit(cores(1000, memory=4, name="call"), parent=caller))
    assert scene.started() == []
    assert list(scene.refused) == [calls[1]], "the youngest"
    assert "second → call: call asks for 4 of memory" in names(scene, calls[1])
    assert scene.core.waiting == 1
    assert scene.core.reclaim(second, 0.0)
    scene.finish(second)
    assert scene.started() == [calls[0]]


def test_as_long_as_one_that_waits_for_nobody_holds_enough_it_is_no_dead_lock(scene: Scene) -> None:
    first, second, other = (scene.run(cores(1000, memory=m)) for m in (3, 3, 2))
    calls = []
    for caller in (first, second):
        scene.lend(caller)
        calls.append(scene.submit(cores(1000, memory=2), parent=caller))
    assert scene.started() == []
    assert scene.refused == {}
    scene.lend(other)
    assert scene.started() == []
    assert scene.refused == {}, "it has lent, but waits for no call, so it goes on"
    inner = scene.submit(cores(1000, memory=1), parent=other)
    assert scene.started() == []
    assert list(scene.refused) == [inner], "now all wait for one another, and this is the youngest"
    assert scene.core.reclaim(other, 0.0)
    scene.finish(other)
    assert scene.started() == calls[:1]
    scene.finish(calls[0])
    assert scene.started() == calls[1:]


def test_what_one_caller_keeps_can_be_what_another_ones_call_gets_later(scene: Scene) -> None:
    first, second = scene.run(cores(1000, memory=4)), scene.run(cores(1000, memory=3))
    scene.lend(first, second)
    large = scene.submit(cores(1000, memory=4), parent=first)
    small = scene.submit(cores(1000, memory=1), parent=second)
    assert scene.started() == [small]
    scene.finish(small)
    assert scene.core.reclaim(second, 0.0)
    assert scene.started() == []
    scene.finish(second)
    assert scene.started() == [large]
    assert scene.refused == {}


def test_three_in_a_ring_and_one_refusal(scene: Scene) -> None:
    """Each keeps a third of the memory; when one call is refused, the others can have theirs in turn."""
    callers = [scene.run(cores(1000, memory=2, name=f"caller{n}")) for n in range(4)]
    calls = []
    for caller in callers:
        scene.lend(caller)
        calls.append(scene.submit(cores(1000, memory=2), parent=caller))
    scene.decide()
    assert list(scene.refused) == calls[-1:]


def test_as_many_are_refused_as_must_be(scene: Scene) -> None:
    callers = [scene.run(cores(1000, memory=4)), scene.run(cores(1000, memory=2)), scene.run(cores(1000, memory=2))]
    calls = []
    for caller in callers:
        scene.lend(caller)
        calls.append(scene.submit(cores(1000, memory=4), parent=caller))
    scene.decide()
    assert list(scene.refused) == [calls[2], calls[1]]
    for caller in callers[1:]:
        assert scene.core.reclaim(caller, 0.0)
        scene.finish(caller)
    assert scene.started() == calls[:1]


def test_cores_that_are_kept_count(scene: Scene) -> None:
    first, second = scene.run(cores(2000)), scene.run(cores(2000))
    scene.lend(first, second, cores=False)
    calls = [scene.submit(cores(2000), parent=caller) for caller in (first, second)]
    scene.decide()
    assert list(scene.refused) == calls[1:]


def test_a_caller_that_wants_its_cores_does_not_shut_out_who_must_end_before(scene: Scene) -> None:
    first = scene.run(cores(2000))
    scene.lend(first)
    second = scene.run(cores(3000))
    scene.lend(second, cores=False)
    assert not scene.core.reclaim(first, 0.0)
    call = scene.submit(cores(1000), parent=second)
    assert scene.started() == [call]
    scene.finish(call)
    assert scene.core.reclaim(second, 0.0)
    scene.finish(second)
    assert scene.resumed() == [first]


def test_one_that_waits_for_what_callers_keep_does_not_shut_out_their_calls(scene: Scene) -> None:
    callers = [scene.run(cores(1000, memory=3)) for _ in range(2)]
    urgent = scene.submit(cores(1000, memory=6, priority=-1))
    assert scene.started() == []
    scene.lend(*callers)
    call = scene.submit(cores(1000, memory=2), parent=callers[0])
    assert scene.started() == [call]
    outside = scene.submit(cores(1000, memory=1))
    scene.finish(call)
    assert scene.started() == [], "others behind it wait as ever"
    for caller in callers:
        assert scene.core.reclaim(caller, 0.0)
        scene.finish(caller)
    assert scene.started() == [urgent, outside]


def test_a_call_that_waits_for_a_trajectory_is_no_dead_lock_and_its_trajectory_goes_on(scene: Scene) -> None:
    inside = scene.trajectory(memory=5)
    caller = scene.run(cores(1000, memory=2))
    waits = scene.submit(cores(1000, memory=3, priority=-1))
    scene.lend(caller)
    call = scene.submit(cores(1000, memory=4), parent=caller)
    assert scene.started() == []
    assert scene.refused == {}
    needed = scene.submit(cores(1000, memory=1), trajectory=inside)
    assert scene.started() == [needed], "for the trajectory to close, its actions must run"
    scene.finish(needed)
    scene.core.close(inside, 0.0)
    assert scene.started() == [waits]
    scene.finish(waits)
    assert scene.started() == [call]


def test_a_turn_goes_to_a_call_that_can_end(scene: Scene) -> None:
    """The first call has the turn, and must wait for memory that the caller of the second keeps."""
    inside = scene.trajectory()
    first, second = (scene.run(cores(0, memory=4, name=name), trajectory=inside) for name in ("first", "second"))
    scene.lend(first, second)
    large = scene.submit(cores(1000, memory=4), parent=first, trajectory=inside, turn=True)
    small = scene.submit(cores(1000), parent=second, trajectory=inside, turn=True)
    assert scene.started() == [small]
    assert scene.refused == {}
    scene.finish(small)
    assert scene.started() == []
    assert scene.core.reclaim(second, 0.0)
    scene.finish(second)
    assert scene.started() == [large]


def test_a_budget_that_callers_count_for() -> None:
    core = SchedulerCore(Topology([Dimension("quota:b/calls", 4, 1, float("inf"))]), paper())
    demand = Demand("two", ((0, 2),), dimensions=1)
    for i in (1, 2):
        core.submit(PendingAction(i, demand, 0.0))
    assert len(core.decide(0.0).started) == 2
    core.lend(1, 0.0)
    core.submit(PendingAction(3, Demand("one", ((0, 1),), dimensions=1), 0.0, parent=1))
    decisions = core.decide(0.0)
    assert decisions.impossible == [], "the other one may settle for less"
    core.finish(2, 0.0, None)
    assert [action_id for action_id, _ in core.decide(0.0).impossible] == [3]


def test_less_capacity_can_make_a_dead_lock(scene: Scene) -> None:
    caller = scene.run(cores(1000, memory=4, name="caller"))
    scene.lend(caller)
    blocker = scene.run(cores(1000, memory=2))
    call = scene.submit(cores(1000, memory=4, name="call"), parent=caller)
    assert scene.started() == []
    scene.core.set_capacity(1, 6, 0.0)
    assert scene.started() == []
    assert list(scene.refused) == [call]
    assert "caller → call" in names(scene, call)
    scene.finish(blocker)


# Turns that are kept.


def test_who_is_below_the_keeper_of_a_turn_cannot_have_it(scene: Scene) -> None:
    inside = scene.trajectory()
    top = scene.run(cores(1000, name="top"), trajectory=inside, turn=True)
    scene.lend(top, cores=False)
    middle = scene.submit(cores(0, name="middle"), parent=top, trajectory=inside)
    assert scene.started() == [middle]
    scene.lend(middle)
    for caller, chain in ((middle, "top → middle → call"), (top, "top → call")):
        with pytest.raises(NestedActionError, match=f"{chain}: call would run in the sandbox of top"):
            scene.submit(cores(1000, name="call"), parent=caller, trajectory=inside, turn=True)
    elsewhere = scene.submit(cores(1000), parent=middle, trajectory=inside)
    assert scene.started() == [elsewhere]
    assert scene.core.waiting == 0


@pytest.mark.parametrize("units", [1000, 0])
def test_who_waits_already_for_a_turn_that_is_then_kept_is_refused(scene: Scene, units: int) -> None:
    inside = scene.trajectory()
    caller = scene.run(cores(units, name="caller"), trajectory=inside, turn=True)
    call = scene.submit(cores(1000, name="call"), parent=caller, trajectory=inside, turn=True)
    scene.lend(caller, cores=False)
    assert scene.started() == []
    assert "caller → call: call would run in the sandbox of caller" in names(scene, call)
    assert scene.core.reclaim(caller, 0.0)


def test_a_turn_is_kept_by_one_that_waits_for_what_its_own_waiter_keeps(scene: Scene) -> None:
    inside = scene.trajectory()
    other = scene.run(cores(0, memory=5, name="other"), trajectory=inside)
    keeper = scene.run(cores(1000, memory=2, name="keeper"), trajectory=inside, turn=True)
    scene.lend(keeper, cores=False)
    scene.lend(other)
    small = scene.submit(cores(0, name="small"), parent=keeper, trajectory=inside)
    assert scene.started() == [small]
    waits = scene.submit(cores(1000, name="waits"), parent=other, trajectory=inside, turn=True)
    assert scene.started() == []
    assert scene.refused == {}, "the turn comes when the small one and the keeper have ended"
    large = scene.submit(cores(0, memory=4, name="large"), parent=keeper, trajectory=inside)
    assert scene.started() == []
    assert "keeper → large: large asks for 4 of memory" in names(scene, large)
    assert list(scene.refused) == [large], "the youngest"
    scene.finish(small)
    assert scene.core.reclaim(keeper, 0.0)
    scene.finish(keeper)
    assert scene.started() == [waits]


def test_the_youngest_may_be_the_one_that_waits_for_the_turn(scene: Scene) -> None:
    inside = scene.trajectory()
    other = scene.run(cores(0, memory=5, name="other"), trajectory=inside)
    keeper = scene.run(cores(1000, memory=2, name="keeper"), trajectory=inside, turn=True)
    scene.lend(keeper, cores=False)
    large = scene.submit(cores(0, memory=4, name="large"), parent=keeper, trajectory=inside)
    assert scene.started() == []
    scene.lend(other)
    waits = scene.submit(cores(1000, name="waits"), parent=other, trajectory=inside, turn=True)
    assert scene.started() == []
    assert list(scene.refused) == [waits]
    assert "other → waits: waits would run in the sandbox of keeper" in names(scene, waits)
    assert scene.core.reclaim(other, 0.0)
    scene.finish(other)
    assert scene.started() == [large]


# Trajectories in which somebody waits.


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("first", ["caller", "trajectory"])
def test_a_trajectory_closes_after_its_actions_that_wait(scene: Scene, first: str, in_turn: bool) -> None:
    """One of them waits for threads that a caller keeps, whose call waits for the memory of the trajectory."""
    caller = scene.run(cores(0, threads=2, name="caller"))
    inside = scene.trajectory(memory=5)
    call = waits = 0
    if in_turn:
        before = scene.run(cores(0, name="before"), trajectory=inside, turn=True)
    for who in (first, {"caller": "trajectory", "trajectory": "caller"}[first]):
        assert scene.refused == {}
        if who == "caller":
            scene.lend(caller)
            call = scene.submit(cores(0, memory=4, name="call"), parent=caller)
        else:
            waits = scene.submit(cores(0, threads=1), trajectory=inside, turn=in_turn)
        assert scene.started() == []
    assert list(scene.refused) == [call]
    assert "caller → call: call asks for 4 of memory" in names(scene, call)
    if in_turn:
        scene.finish(before)
    assert scene.core.reclaim(caller, 0.0)
    scene.finish(caller)
    assert scene.started() == [waits]


@pytest.mark.parametrize("ends", ["withdrawn", "expired"])
def test_a_trajectory_in_which_nobody_waits_any_more_ends_by_itself(scene: Scene, ends: str) -> None:
    caller = scene.run(cores(0, threads=2, name="caller"))
    inside = scene.trajectory(memory=5)
    runs = scene.run(cores(0, name="runs"), trajectory=inside, turn=True)
    for turn in (False, True):
        demand = cores(0, threads=1)
        if ends == "expired":
            demand = replace(demand, queue_timeout=1.0)
        action_id = scene.submit(demand, trajectory=inside, turn=turn)
        if ends == "withdrawn":
            scene.core.withdraw(action_id)
    scene.now_s = 1.0
    scene.decide()
    scene.lend(caller)
    call = scene.submit(cores(0, memory=4), parent=caller)
    assert scene.started() == []
    assert scene.refused == {}
    scene.finish(runs)
    scene.core.close(inside, 1.0)
    assert scene.started() == [call]


def test_trajectories_whose_actions_can_have_what_they_wait_for_end(scene: Scene) -> None:
    """One waits for a core that is busy, and the other for memory of the first."""
    caller = scene.run(cores(0, threads=1, name="caller"))
    first, second = scene.trajectory(memory=2), scene.trajectory(memory=3)
    busy = scene.run(cores(4000))
    for_cores = scene.submit(cores(1000), trajectory=first)
    scene.lend(caller)
    for_memory = scene.submit(cores(0, memory=4), trajectory=second)
    call = scene.submit(cores(0, memory=7, threads=1, name="call"), parent=caller)
    assert scene.started() == []
    assert scene.refused == {}
    scene.finish(busy)
    assert scene.started() == [for_cores]
    scene.finish(for_cores)
    scene.core.close(first, 0.0)
    assert scene.started() == [for_memory]
    scene.finish(for_memory)
    scene.core.close(second, 0.0)
    assert scene.started() == [call]


def test_trajectories_that_wait_for_one_another_and_for_a_caller(scene: Scene) -> None:
    """The first waits for memory of the second, which waits for threads; nobody of them ends."""
    caller = scene.run(cores(0, threads=2, name="caller"))
    first, second = scene.trajectory(memory=2), scene.trajectory(memory=3)
    scene.submit(cores(0, memory=4), trajectory=first)
    scene.submit(cores(0, threads=1), trajectory=second)
    scene.lend(caller)
    small = scene.submit(cores(0, memory=3, name="small"), parent=caller)
    assert scene.started() == [small]
    scene.finish(small)
    call = scene.submit(cores(0, memory=5, name="call"), parent=caller)
    assert scene.started() == []
    assert list(scene.refused) == [call]


def test_the_order_of_reduction_does_not_matter() -> None:
    nodes = {
        1: Node((((0, 2),),), (), frozenset()),
        2: Node(((),), ((0, 2),), frozenset({3})),
        3: Node((((0, 1),), ((1, 1),)), (), frozenset()),
        4: Node((((1, 9),),), ((0, 5),), frozenset()),
        5: Node(((),), ((0, 5),), frozenset({4, 1})),
    }
    for order in permutations(nodes):
        free = [0, 1]
        assert set(reduce({n: nodes[n] for n in order}, free)) == {4, 5}
        assert free == [2, 1]


def test_calls_of_different_callers_are_not_alike_where_they_may_share_the_seat_of_their_caller() -> None:
    demand = cores(0)
    calls = [PendingAction(number, demand, 0.0, parent=number - 2) for number in (3, 4)]
    nodes = {
        **{call.id: Node(((),), (), frozenset(), call, (call.id - 2,)) for call in calls},
        1: Node(((),), (), frozenset({3})),
        2: Node(((),), (), frozenset({4})),
    }

    def can_sit(action: PendingAction, kept: Collection[int]) -> bool:
        return action.id == 4 or 2 not in kept

    for order in permutations(nodes):
        assert not reduce({n: nodes[n] for n in order}, [0], (1, 2), can_sit)
        assert set(reduce({n: nodes[n] for n in order if n not in {2, 4}}, [0], (1, 2), can_sit)) == {1, 3}


def test_many_callers_cost_little_where_nobody_can_be_stuck() -> None:
    """Each decision looks at the demands of calls, not at every call."""
    scene = Scene()
    scene.core.set_capacity(2, 3000, 0.0)
    callers = [scene.submit(cores(0, threads=1)) for _ in range(2000)]
    scene.decide()
    for caller in callers:
        scene.lend(caller)
        scene.submit(cores(1000), parent=caller)
    scene.decide()
    reduced = 0

    def counted(*_: object) -> dict[int, Node]:
        nonlocal reduced
        reduced += 1
        return {}

    scene.core._prelude._deadlocks._nodes = counted  # type: ignore[method-assign]
    for _ in range(50):
        scene.finish(next(i for i, r in scene.core._running.items() if r.pending.parent is not None))
        scene.core._nesting.unchecked = True
        assert len(scene.started()) == 1
    assert reduced == 0


def test_many_trajectories_in_which_actions_wait_cost_little_while_nobody_can_be_stuck() -> None:
    """Neither their actions that come nor those that are called make it look at each of them."""
    scene = Scene()
    scene.core.set_capacity(1, 3000, 0.0)
    inside = [scene.trajectory(memory=1) for _ in range(2000)]
    scene.run(cores(4000))
    demand = cores(1000)
    for trajectory in inside:
        scene.submit(demand, trajectory=trajectory)
    callers = [scene.submit(cores(0, name="thin")) for _ in range(2)]
    scene.decide()
    scene.lend(*callers)
    looked = 0

    def looks(*_: object) -> dict[int, Node]:
        nonlocal looked
        looked += 1
        return {}

    scene.core._prelude._deadlocks._nodes = looks  # type: ignore[method-assign]
    scene.submit(cores(1000, memory=1000), parent=callers[0])
    scene.decide()
    for trajectory in inside[:50]:
        scene.submit(demand, trajectory=trajectory)
        assert not scene.core._nesting.unchecked
        scene.decide()
    assert looked == 0
    scene.submit(cores(1000, memory=1001), parent=callers[1])
    scene.decide()
    assert looked == 1, "memory that trajectories hold"
