"""Nobody is passed over whom nobody blocks, and no trajectory holds what a caller has lent."""

from __future__ import annotations

import pytest

from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.topology import CPU, MEMORY, Dimension, Topology
from arl_tangram.scheduling import blocking
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.policies import paper
from unit.scheduling.nested import Scene, cores


@pytest.fixture
def scene() -> Scene:
    return Scene()


def request(scene: Scene, milli_cores: int, *, places: int = 0) -> int:
    """Ask for a trajectory that holds cores, if `places` at one of so many."""
    scene._next_id += 1
    demand = Demand("trajectory", ((0, milli_cores),), dimensions=1)
    if places:
        demand = Demand("trajectory", (), dimensions=1, places=(demand,) * places)
    scene.core.open(PendingAction(scene._next_id, demand, scene.now_s))
    return scene._next_id


# Lanes.


def test_one_that_waits_for_what_a_caller_keeps_passes_over_only_its_like_in_trajectories(scene: Scene) -> None:
    """Both ask for threads, of which the caller keeps one; its call waits for the second one's trajectory to close."""
    caller = scene.run(cores(0, threads=1))
    first, second = scene.trajectory(memory=4), scene.trajectory(memory=4)
    scene.lend(caller)
    call = scene.submit(cores(0, memory=4, name="call"), parent=caller)
    two, one = cores(0, threads=2), cores(0, threads=1)
    scene.submit(two, trajectory=first)
    scene.submit(two, trajectory=first)
    single = scene.submit(one, trajectory=second)
    assert scene.started() == [single]
    scene.finish(single)
    scene.core.close(second, 0.0)
    assert scene.started() == [call]
    assert scene.refused == {}


def test_one_with_places_that_lacks_nothing_itself_does_not_stand_before_calls(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is blocked for it, by one that waits for what a caller keeps, is not blocked for the call of that caller."""
    monkeypatch.setattr(blocking, "_LOST_CHANCES", 0)  # who lacks one dimension blocks all of its dimensions
    caller = scene.run(cores(0, threads=2))
    scene.lend(caller)
    unlucky = scene.submit(cores(500, threads=1, priority=-1))
    place = cores(500, memory=1, priority=-1)
    placed = scene.submit(Demand("placed", (), dimensions=place.dimensions, priority=-1, places=(place, place)))
    call = scene.submit(cores(1000, name="call"), parent=caller)
    assert call in scene.started()
    scene.finish(call)
    scene.finish(caller)
    assert set(scene.started()) <= {unlucky, placed}
    assert scene.refused == {}


def test_one_that_waits_for_a_trajectory_to_close_passes_over_only_its_like_in_others(scene: Scene) -> None:
    first, second = scene.trajectory(memory=3), scene.trajectory(memory=3)
    large = scene.submit(cores(0, memory=3), trajectory=first)
    small = [scene.submit(cores(0, memory=1), trajectory=second) for _ in range(2)]
    outside = scene.submit(cores(0, memory=1))
    assert scene.started() == small
    scene.finish(*small)
    scene.core.close(second, 0.0)
    assert scene.started() == [large, outside]


def test_a_lane_that_was_split_goes_on_in_order_and_is_one_again_when_it_was_empty(scene: Scene) -> None:
    first, second = scene.trajectory(memory=3), scene.trajectory(memory=3)
    large, small = cores(0, memory=3), cores(0, memory=1)
    waiting = [scene.submit(demand, trajectory=first) for demand in (large, large)]
    begun = [scene.submit(small, trajectory=first) for _ in range(2)]
    assert scene.started() == begun
    begun += [scene.submit(small, trajectory=first)]
    gone = scene.submit(small, trajectory=first)
    scene.core.withdraw(gone)
    assert scene.decide().started == []
    scene.finish(*begun[:2])
    assert scene.started() == begun[2:]
    scene.core.close(second, 0.0)
    assert scene.started() == waiting[:1]
    scene.finish(waiting[0], begun[2])
    assert scene.started() == waiting[1:]
    scene.decide()
    scene.submit(cores(4000), trajectory=first)
    scene.decide()
    assert scene.core.waiting == 0
    scene.finish(waiting[1])
    scene.submit(cores(0, memory=5), trajectory=first)
    scene.submit(large, trajectory=first)
    assert scene.core._queue._split == set()
    assert len([lane for lane in scene.core._queue._lanes.values() if lane.actions]) == 1


def test_where_nobody_waits_for_a_trajectory_or_caller_there_is_one_lane(scene: Scene) -> None:
    inside = scene.trajectory(memory=1)
    scene.run(cores(0, memory=6), trajectory=inside)
    for memory in (3, 2, 2):
        scene.submit(cores(0, memory=memory), trajectory=inside)
    assert scene.started() == []
    assert scene.core._queue.lanes == 1


# Trajectories beside what callers have lent.


@pytest.mark.parametrize("places", [0, 2])
def test_a_trajectory_takes_no_cores_that_a_caller_has_lent(scene: Scene, places: int) -> None:
    caller = scene.run(cores(3000, threads=2))
    scene.lend(caller)
    call = scene.submit(cores(0, memory=1), parent=caller)
    assert scene.started() == [call]
    small, large = request(scene, 1000, places=places), request(scene, 1000, places=places)
    decisions = scene.decide()
    assert decisions.opened == [small], "beside the lent cores there is one"
    scene.finish(call)
    assert scene.core.reclaim(caller, 0.0)
    assert scene.decide().opened == []
    scene.finish(caller)
    assert scene.decide().opened == [large]


def test_two_that_ask_at_once_count_each_other(scene: Scene) -> None:
    caller = scene.run(cores(2000))
    scene.lend(caller)
    asked = [request(scene, 1000) for _ in range(4)]
    assert scene.decide().opened == asked[:2]


def test_calls_start_while_a_trajectory_waits_for_what_was_lent_and_others_do_not(scene: Scene) -> None:
    caller = scene.run(cores(4000))
    scene.lend(caller)
    trajectory = request(scene, 1000)
    other = scene.submit(cores(1000))
    call = scene.submit(cores(1000), parent=caller)
    assert scene.started() == [call]
    scene.finish(call)
    assert scene.core.reclaim(caller, 0.0)
    scene.finish(caller)
    decisions = scene.decide()
    assert decisions.opened == [trajectory]
    assert [running.pending.id for running in decisions.started] == [other]


def test_a_trajectory_is_admitted_when_a_caller_goes_on_and_enough_is_left(scene: Scene) -> None:
    """A call runs on the cores that its caller has lent, and lends them on: counted twice, until it has them again."""
    caller = scene.run(cores(2000))
    scene.lend(caller)
    call = scene.submit(cores(2000), parent=caller)
    assert scene.started() == [call]
    scene.lend(call)
    trajectory = request(scene, 1000)
    assert scene.decide().opened == []
    assert scene.core.reclaim(call, 0.0)
    assert scene.decide().opened == [trajectory]


def test_those_that_hold_no_cores_are_admitted(scene: Scene) -> None:
    caller = scene.run(cores(4000))
    scene.lend(caller)
    scene.trajectory(memory=8)


# Who was deferred.


def test_who_was_deferred_and_gave_its_turn_up_is_forgotten_when_it_gives_up() -> None:
    core = SchedulerCore(Topology([Dimension(CPU, 4000, 1000), Dimension(MEMORY, 8)]), paper(), record=True)
    core.open(PendingAction(1, Demand("trajectory", ()), 0.0))
    caller = PendingAction(2, Demand("caller", ()), 0.0, trajectory=1)
    core.decide(0.0)
    core.submit(caller)
    core.decide(0.0)
    holder = PendingAction(3, cores(4000), 0.0, trajectory=1, turn=True)
    core.submit(PendingAction(4, cores(1000), 0.0))
    core.decide(0.0)
    core.submit(holder)
    core.decide(0.0)
    core._starting.deferred.add(3)  # as the policy could have it
    core.lend(2, 0.0)
    core.submit(PendingAction(5, cores(4000), 0.0, trajectory=1, turn=True, parent=2))
    assert core._trajectories.is_waiting(3), "its turn is another one's"
    core.withdraw(3)
    assert core._starting.deferred == set()
