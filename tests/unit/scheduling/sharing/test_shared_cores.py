"""What a core object does with running actions that share their cores, one case at a time."""

from __future__ import annotations

import math
from typing import TypeAlias

import pytest

from arl_tangram.model.elasticity import Elastic, Linear
from arl_tangram.model.events import ActionResized
from arl_tangram.model.sharing import SharePolicy
from arl_tangram.scheduling.policies import equal_shares, least_attained, size_aware
from property.wrong_shares import OwnShares
from unit.scheduling.sharing.machine import Machine

Preempted: TypeAlias = tuple[Machine, int, int]


@pytest.fixture
def preempted() -> Preempted:
    """Return a machine of one core, a long action that is suspended on it, and the short one for which it is."""
    machine = Machine(cores=1, sharing=size_aware())
    long = machine.submit(duration_s=100)
    machine.decide()
    short = machine.submit(duration_s=1)
    machine.decide(1.0)
    return machine, long, short


def test_what_runs_grows_into_cores_that_fall_free_and_shrinks_for_the_next() -> None:
    machine = Machine()
    first = machine.submit(Elastic(1, 4, resizable=True, speedup=Linear()))
    machine.decide()
    second = machine.submit(Elastic(1, 4, resizable=True, speedup=Linear()))
    decided = machine.decide(1.0)
    assert machine.units == {first: 2, second: 2}
    assert [(r.pending.id, r.units) for r in decided.resized] == [(first, 2000)]
    assert ActionResized(1.0, first, 2000) in machine.core.drain_events()
    machine.finish(first, 1.0)
    machine.decide(2.0)
    assert machine.units == {second: 4}
    assert machine.core.free(0) == 0


def test_a_long_one_is_suspended_for_a_short_one_and_goes_on_after_it(preempted: Preempted) -> None:
    machine, long, short = preempted
    assert machine.units == {long: 0, short: 1}
    machine.finish(short, 1.0)
    machine.decide(2.0)
    assert machine.units == {long: 1}


def test_who_was_changed_lately_keeps_its_cores_for_a_while() -> None:
    machine = Machine(cores=1, sharing=size_aware(), switch_s=0.02)
    long = machine.submit(duration_s=100)
    machine.decide()
    short = machine.submit(duration_s=1)
    machine.decide(0.5)
    assert machine.units == {long: 1}
    again_s = machine.core.next_wakeup_s()
    assert again_s == pytest.approx(1.0)
    machine.decide(again_s)
    assert machine.units == {long: 0, short: 1}


def test_one_that_must_not_be_suspended_keeps_its_least() -> None:
    machine = Machine(cores=2, sharing=size_aware())
    kept = machine.submit(Elastic(1, 2, resizable=True), duration_s=1000, preemptible=False)
    machine.decide()
    assert machine.units == {kept: 2}
    others = [machine.submit(duration_s=0.1) for _ in range(3)]
    machine.decide(1.0)
    assert machine.units == {kept: 1, others[0]: 1}
    machine.core.set_capacity(0, 500, 1.0)
    machine.decide(2.0)
    assert machine.units == {kept: 1, others[0]: 0}
    assert (machine.core.used(0), machine.core.free(0)) == (1000, 0)


def test_cores_that_are_taken_away_suspend_what_runs_on_them() -> None:
    machine = Machine(cores=4)
    running = [machine.submit() for _ in range(4)]
    machine.decide()
    machine.core.set_capacity(0, 2000, 1.0)
    decided = machine.decide(1.0)
    assert [r.units for r in decided.resized] == [0, 0]
    assert machine.core.capacity(0) == 2000
    machine.core.set_capacity(0, 4000, 2.0)
    machine.decide(2.0)
    assert machine.units == dict.fromkeys(running, 1)


def test_one_that_is_suspended_goes_on_with_what_there_can_be() -> None:
    machine = Machine(cores=4)
    wide = machine.submit(4)
    machine.decide()
    machine.core.set_capacity(0, 2000, 1.0)
    machine.decide(1.0)
    assert machine.units == {wide: 2}
    machine.finish(wide, 1.0)
    assert machine.core.free(0) == 2000


def test_a_suspended_one_may_end(preempted: Preempted) -> None:
    machine, long, short = preempted
    machine.finish(long, None)
    machine.decide(1.5)
    assert machine.units == {short: 1}
    assert machine.core.used(0) == 1000


def test_a_suspended_one_lends_nothing_and_has_it_all_back_at_once(preempted: Preempted) -> None:
    machine, caller, short = preempted
    machine.core.lend(caller, 1.0)
    called = machine.submit(parent=caller, duration_s=0.1)
    machine.decide(1.5)
    assert machine.units == {caller: 0, short: 0, called: 1}
    machine.finish(called, 0.1)
    assert machine.core.reclaim(caller, 1.6)
    machine.decide(1.6)
    assert machine.units == {caller: 0, short: 1}
    machine.finish(short, 1.0)
    machine.decide(3.0)
    assert machine.units == {caller: 1}


def test_a_caller_has_its_cores_back_though_sharers_have_them_all() -> None:
    machine = Machine(cores=2)
    caller = machine.submit(2)
    machine.decide()
    machine.core.lend(caller, 1.0)
    others = [machine.submit() for _ in range(3)]
    machine.decide(1.0)
    assert {machine.units[other] for other in others[:2]} == {1}
    assert not machine.core.reclaim(caller, 1.001)
    decided = machine.decide(1.001)
    assert [r.pending.id for r in decided.resumed] == [caller]
    assert [r.units for r in decided.resized] == [0, 0]


def test_a_trajectory_closes_when_its_suspended_action_has_ended(preempted: Preempted) -> None:
    machine, long, _ = preempted
    machine.core.close(long - 1, 1.0)
    assert machine.core.trajectories == 2
    machine.finish(long, None)
    assert machine.core.trajectories == 1


def test_who_waits_for_a_share_gives_up_and_can_be_withdrawn() -> None:
    machine = Machine(cores=1)
    machine.submit(preemptible=False)
    machine.decide()
    late = machine.submit(queue_timeout=2.0)
    unwanted = machine.submit()
    machine.decide(1.0)
    assert machine.core.waiting == 2
    assert machine.core.next_wakeup_s() == 2.0 or machine.core.next_wakeup_s() == 3.0
    machine.core.withdraw(unwanted)
    assert machine.decide(3.0).expired == [late]
    assert machine.core.waiting == 0


def test_nothing_new_starts_while_halted_and_what_is_suspended_goes_on(preempted: Preempted) -> None:
    machine, long, short = preempted
    new = machine.submit(duration_s=0.1)
    machine.core.halt(True, 1.1)
    machine.decide(1.1)
    machine.finish(short)
    machine.decide(2.0)
    assert machine.units == {long: 1}
    machine.core.halt(False, 2.1)
    machine.decide(2.1)
    assert machine.units == {long: 0, new: 1}


def test_a_lower_priority_waits_while_a_higher_one_could_use_the_cores() -> None:
    machine = Machine(cores=2)
    low = machine.submit(2, priority=1)
    machine.decide()
    high = machine.submit(priority=0)
    machine.decide(1.0)
    assert machine.units == {low: 0, high: 1}


@pytest.mark.parametrize("policy", [equal_shares(), least_attained(), size_aware()], ids=lambda p: p.name)
def test_what_does_not_share_finds_its_cores_free(policy: SharePolicy) -> None:
    machine = Machine(cores=2, sharing=policy)
    for _ in range(6):
        machine.submit(duration_s=50)
    machine.decide()
    other = machine.submit(0.5)
    machine.decide(1.0)
    assert machine.core.used(0) == 1500
    assert other in machine.units


@pytest.mark.parametrize("policy", [equal_shares(), least_attained(), size_aware()], ids=lambda p: p.name)
def test_a_long_one_goes_on_though_short_ones_keep_coming(policy: SharePolicy) -> None:
    machine = Machine(cores=1, sharing=policy)
    long = machine.submit(duration_s=2)
    ran_s = 0.0
    for step in range(3000):
        machine.now_s = 0.1 * step
        for action_id in [i for i, units in machine.units.items() if units and i != long]:
            machine.finish(action_id, 0.1)
        machine.submit(duration_s=0.1)
        machine.decide()
        ran_s += 0.1 * bool(machine.units.get(long))
        if ran_s >= 2:
            return
    raise AssertionError(f"it ran for {ran_s} s")


def test_sharers_go_on_though_others_keep_coming() -> None:
    machine = Machine(cores=2)
    sharer = machine.submit(2, duration_s=1)
    for step in range(2000):
        machine.now_s = 0.1 * step
        for action_id in [i for i in machine.units if i != sharer][:1]:
            machine.finish(action_id, 0.1)
        machine.submit(0.5, duration_s=0.1)
        machine.submit(1.5, duration_s=0.1)
        machine.decide()
        if machine.units.get(sharer):
            return
    raise AssertionError("it never ran")


def test_an_interruption_of_the_policy_loses_nothing() -> None:
    interrupted: list[bool] = [False]

    def answer(sharers: object, cores: int) -> object:
        if interrupted[0]:
            interrupted[0] = False
            raise KeyboardInterrupt
        return equal_shares().share(sharers, cores, 0)  # type: ignore[arg-type]

    machine = Machine(cores=1, sharing=OwnShares("interrupted", answer))
    action = machine.submit()
    interrupted[0] = True
    with pytest.raises(KeyboardInterrupt):
        machine.decide()
    decided = machine.decide()
    assert [r.pending.id for r in decided.started] == [action]
    assert decided.refused_share is None


def test_a_policy_that_is_wrong_is_refused_and_all_goes_on_with_equal_shares() -> None:
    machine = Machine(cores=2, sharing=OwnShares("greedy", lambda sharers, cores: [s.sizes[-1] for s in sharers]))
    running = [machine.submit(Elastic(1, 4, resizable=True)) for _ in range(2)]
    refused = machine.decide().refused_share
    assert refused == "ValueError: gives 4 cores, there are 2"
    machine.decide(1.0)
    assert machine.units == dict.fromkeys(running, 1)


def test_what_was_never_resized_teaches_what_was_measured_and_what_was_its_work() -> None:
    machine = Machine(cores=4)
    action = machine.submit(Elastic(1, 4, resizable=True, speedup=Linear()))
    machine.decide()
    machine.now_s = 2.0
    machine.finish(action, 2.0)
    assert machine.core.durations.expected_s(machine.demand(1), "") == pytest.approx(8.0)
    other = machine.submit(Elastic(1, 4, resizable=True, speedup=Linear()))
    machine.decide(2.0)
    machine.submit(Elastic(1, 2, resizable=True, speedup=Linear()))
    machine.decide(3.0)
    assert machine.units[other] == 2
    machine.now_s = 5.0
    machine.finish(other, 3.0)
    assert machine.core.durations.expected_s(machine.demand(1), "") == pytest.approx(8.0)


@pytest.mark.parametrize("duration_s", [math.nan, math.inf, -1.0, 0.0, 1e300])
def test_an_absurd_duration_does_no_harm(duration_s: float) -> None:
    machine = Machine(cores=1, sharing=size_aware())
    for _ in range(12):
        action = machine.submit()
        machine.decide()
        machine.now_s += 1
        machine.finish(action, duration_s)
    first, second = machine.submit(), machine.submit()
    machine.decide()
    assert sorted(machine.units.values()) == [1]
    assert {first, second} & machine.units.keys()
