"""Rates and pauses: windows are exact, and the core knows the next moment at which something changes by itself."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.scheduling.policies import paper
from property.worlds import World, make_demand, make_topology

CALLS, CONCURRENCY = 3, 4  # indices of the dimensions


def started_at(world: World) -> list[float]:
    return [running.started_at_s for running in world.running.values()]


def test_units_of_a_rate_return_exactly_after_their_window_and_not_when_the_call_ends() -> None:
    topology = make_topology(calls=2, period_s=10, concurrency=5)
    world = World(topology, paper())
    call = make_demand(topology, "call", search=1)
    first = world.submit(call)
    world.settle()
    world.advance(4)
    second, third = world.submit(call), world.submit(call)
    world.settle()
    world.finish(first)
    world.settle()
    assert (set(world.running), world.core.next_wakeup_s()) == ({second}, 10)
    world.now = 9.999
    world.settle()
    assert third in world.waiting
    world.now = 10.0
    world.settle()
    assert third in world.running
    world.submit(call)
    assert world.core.next_wakeup_s() == 14


@given(
    arrivals=st.lists(st.integers(0, 40), min_size=1, max_size=40),
    weights=st.lists(st.sampled_from([0.5, 1, 2]), min_size=1, max_size=5),
    calls=st.integers(2, 4),
    lasts=st.integers(0, 30),
)
def test_no_window_ever_sees_more_than_its_calls(
    arrivals: list[int], weights: list[float], calls: int, lasts: int
) -> None:
    """Times are multiples of 1/4 s, so that the sums are exact: every window is half open, [t, t + period)."""
    period_s = 2.0
    topology = make_topology(calls=calls, period_s=period_s, concurrency=calls)
    world = World(topology, paper())
    demands = [make_demand(topology, f"c{w}", search=w) for w in weights]
    due = sorted(tick / 4 for tick in arrivals)
    starts: list[tuple[float, float]] = []
    while due or world.waiting or world.running:
        while due and due[0] <= world.now:
            due.pop(0)
            world.submit(demands[len(due) % len(demands)])
        for running in list(world.running.values()):
            if running.started_at_s + lasts / 4 <= world.now:
                world.finish(running.pending.id)
        known = set(world.running)
        world.settle()
        new = [dict(world.running[i].pending.demand.fixed) for i in world.running if i not in known]
        starts += [(world.now, fixed[CALLS] / 1000) for fixed in new]
        world.advance(0.25)
        assert world.now < 1000
    for at_s, _ in starts:
        assert sum(amount for when_s, amount in starts if at_s <= when_s < at_s + period_s) <= calls
    assert len(starts) == len(arrivals)


def test_a_window_is_used_to_the_full() -> None:
    topology = make_topology(calls=3, period_s=6, concurrency=50)
    world = World(topology, paper())
    call = make_demand(topology, "call", search=1)
    for _ in range(12):
        world.submit(call)
    while world.waiting:
        world.settle()
        at_s = world.core.next_wakeup_s()
        if at_s is not None:
            world.now = at_s
    assert started_at(world) == [0.0] * 3 + [6.0] * 3 + [12.0] * 3 + [18.0] * 3


def test_a_slow_rate_looked_at_often_does_not_drift() -> None:
    """One call a minute, looked at every millisecond by others that come and go."""
    topology = make_topology(calls=1, period_s=60)
    world = World(topology, paper())
    call = make_demand(topology, "call", search=1)
    world.submit(call)
    world.settle()
    world.finish(1)
    second = world.submit(call)
    for tick in range(0, 61_000, 50):
        world.now = tick / 1000
        world.decide()
        if second in world.running:
            break
    assert world.now == 60.0


def test_slot_and_token_are_granted_as_one() -> None:
    topology = make_topology(calls=5, period_s=10, concurrency=1)
    world = World(topology, paper())
    call = make_demand(topology, "call", search=1)
    world.submit(call)
    world.submit(call)
    world.settle()
    assert world.core.used(CALLS) == 1000, "who waits for the slot has used no token"


@pytest.mark.parametrize("order", [(5.0, 2.0), (2.0, 5.0)])
def test_the_latest_end_of_a_pause_counts(order: tuple[float, float]) -> None:
    topology = make_topology(calls=5, period_s=1)
    world = World(topology, paper())
    for for_s in order:
        world.pause(CALLS, for_s)
    waiting = world.submit(make_demand(topology, "call", search=1))
    other = world.submit(make_demand(topology, "other", cpu=1))
    world.settle()
    assert set(world.running) == {other}
    assert world.core.next_wakeup_s() == 5
    world.now = 4.999
    world.settle()
    assert waiting in world.waiting
    world.now = 5.0
    world.settle()
    assert waiting in world.running


def test_a_pause_does_not_touch_what_runs_and_counts_from_its_own_time() -> None:
    topology = make_topology()
    world = World(topology, paper())
    call = make_demand(topology, "call", search=1)
    world.submit(call)
    world.settle()
    world.advance(1)
    world.pause(CONCURRENCY, 3)
    world.finish(1)
    world.submit(call)
    world.settle()
    assert world.core.next_wakeup_s() == 4


def test_nothing_wakes_up_for_nobody() -> None:
    topology = make_topology()
    world = World(topology, paper())
    world.submit(make_demand(topology, "call", search=1))
    world.settle()
    world.pause(CALLS, 100)
    assert world.core.next_wakeup_s() is None, "nobody waits"


def test_waking_up_by_the_clock_alone_takes_as_many_steps_as_there_are_changes() -> None:
    """A driver that does nothing but sleep until `next_wakeup_s` makes no idle rounds."""
    topology = make_topology(calls=2, period_s=3, concurrency=50)
    world = World(topology, paper())
    call = make_demand(topology, "call", search=1)
    for _ in range(20):
        world.submit(call)
    rounds = 0
    while world.waiting:
        world.settle()
        rounds += 1
        at_s = world.core.next_wakeup_s()
        if at_s is not None:
            world.now = at_s
    assert rounds == 10


@given(st.lists(st.integers(1, 100), min_size=1, max_size=6), st.integers(1, 7))
def test_decimal_weights_fill_a_rate_exactly(tenths: list[int], calls: int) -> None:
    topology = make_topology(calls=calls, period_s=1, concurrency=50)
    world = World(topology, paper())
    used = Fraction(0)
    for tenth in tenths:
        if Fraction(tenth, 10) > calls:
            continue
        action = world.submit(make_demand(topology, "call", search=tenth / 10))
        world.settle()
        fits = used + Fraction(tenth, 10) <= calls
        assert (action in world.running) is fits
        if not fits:
            break
        used += Fraction(tenth, 10)
    assert world.core.used(CALLS) == used * 1000
