"""Seats in the core: who is looked at, who is barred, and what is forgotten of those who wait no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.elasticity import Elastic, Linear, Measured, Speedup
from arl_tangram.model.gpu import Chunk, Footprint, GpuDevice, GpuNode, HostedService, Instance
from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.topology import GPU
from property.test_seated_core import World

A = Instance("a", 1)


def service(name: str, size: int = 8, places: int = 1, on: int | None = None) -> HostedService:
    chunks = () if on is None else ((1, Chunk(on, 1)),)
    return HostedService(name, ((1, Footprint(size, size)),), ((1, 1.0),), places, chunks=chunks)


def submitted(world: World, name: str, parent: int | None = None) -> int:
    assert world.submit(world.demand(name, 0, 0, None), parent)
    return world.next_id


def sits(world: World, name: str) -> int:
    """An action sits on a service that is restored for it."""
    action_id = submitted(world, name)
    world.decide()
    assert action_id in world.running
    for instance in list(world.restoring):
        world.restored(instance)
    return action_id


# Many who wait for one service.


def test_many_who_wait_for_one_service_hold_up_nobody_who_wants_another() -> None:
    world = World(2, [service("a", places=200), service("b"), service("c", 2, 4)], "loss")
    for name in "bc":
        sits(world, name)
    world.finish(2)
    held = world.seats.seat_of(1)
    assert held is not None
    other = 1 - held.chunk.first
    world.core.seating.set_device(other, 3, world.now)
    waiting = [submitted(world, "a") for _ in range(150)]
    last = submitted(world, "c")
    assert world.decide()
    assert last in world.running
    assert set(waiting) == world.waiting.keys()
    assert not world.core.decide(world.now).more


# Calls of running actions.


def test_a_call_that_needs_a_restore_is_served_though_others_keep_what_is_there_busy() -> None:
    world = World(1, [service("judge", places=4), service("teach")], "loss")
    caller = submitted(world, "judge")
    world.decide()
    world.restored(Instance("judge", 1))
    world.finish(caller)
    sits(world, "judge")
    parent = world.submit(world.demand(None, 0, 1, None)) and world.next_id
    world.decide()
    assert parent in world.running
    call = submitted(world, "teach", parent)
    world.core.lend(parent, world.now)
    world.lent.add(parent)
    for _ in range(50):  # a seat on the judge is taken again before the last one is given back
        submitted(world, "judge")
        world.decide()
        oldest = min(i for i, r in world.running.items() if r.seat is not None)
        world.now += 1.0
        world.finish(oldest)
        world.decide()
        if call in world.running:
            return
    raise AssertionError("it waits for ever")


def parent(world: World) -> int:
    """A running action without a seat, to call others."""
    assert world.submit(world.demand(None, 0, 0.1, None))
    world.decide()
    assert world.next_id in world.running
    return world.next_id


def called(world: World, name: str, caller: int | None = None) -> int:
    """A call of an action that has no seat, or of this one, which waits for it."""
    caller = parent(world) if caller is None else caller
    call = submitted(world, name, caller)
    world.core.lend(caller, world.now)
    world.lent.add(caller)
    return call


def go_on(world: World, seconds: float = 0.1) -> None:
    """Let time pass, and do what is decided; what is restored is there at once."""
    world.now += seconds
    while world.decide() or world.restoring:
        for instance in list(world.restoring):
            world.restored(instance)


def end(world: World, call: int) -> None:
    """A call ends, and then its caller."""
    caller = world.running[call].pending.parent
    world.finish(call)
    if caller is not None and not world.children.get(caller):
        world.reclaim(caller)
        go_on(world, 0.0)
        world.finish(caller)


@pytest.mark.parametrize("victim_is_called", [True, False])
def test_calls_do_not_keep_one_that_came_long_before_from_a_restore(victim_is_called: bool) -> None:
    """A call of another service is always there before the last one has ended."""
    world = World(1, [service("x"), service("y", places=2)], "loss")
    calls = [called(world, "y")]
    go_on(world)
    victim = called(world, "x") if victim_is_called else submitted(world, "x")
    if not victim_is_called:
        world.next_id += 1000  # a call stands where its caller stood, with a lead of so many places
    for _ in range(300):
        go_on(world)
        if victim in world.running:
            break
        calls.append(called(world, "y"))
        go_on(world)
        if calls[0] in world.running and len(calls) > 1:
            end(world, calls.pop(0))
    assert victim in world.running, "others have kept it waiting for a minute"
    assert world.now < 20
    end(world, victim)
    go_on(world)
    assert set(calls) & world.running.keys(), "then it is their turn"


@pytest.mark.parametrize("victim_is_called", [True, False])
def test_calls_of_earlier_callers_do_not_keep_one_from_a_restore(victim_is_called: bool) -> None:
    """Each of two callers that came before it calls again before the other one's call has ended."""
    world = World(1, [service("x"), service("y", places=2)], "loss")
    callers = [parent(world), parent(world)]
    calls = [call_again(world, "y", callers[0])]
    go_on(world)
    victim = called(world, "x") if victim_is_called else submitted(world, "x")
    for turn in range(1, 600):
        go_on(world)
        if victim in world.running:
            break
        calls.append(call_again(world, "y", callers[turn % 2]))
        go_on(world)
        if calls[0] in world.running and len(calls) > 1:
            world.finish(calls.pop(0))
    assert victim in world.running, "they have kept it waiting for two minutes"
    assert world.now < 20
    end(world, victim)
    go_on(world)
    assert set(calls) & world.running.keys(), "then it is their turn"


def test_calls_are_barred_by_nobody_who_lacks_something_else() -> None:
    """It has waited for long, and would bar calls now; but it waits for cores, too."""
    world = World(1, [service("x"), service("y", places=9), service("z", 1)], "loss")
    callers = [parent(world), parent(world)]
    call_again(world, "y", callers[0])
    go_on(world)
    assert world.submit(world.demand("x", 0, 2, None))
    go_on(world)
    assert world.core.next_wakeup_s() is not None
    assert world.submit(world.demand(None, 0, 3, None))
    go_on(world, 1.2)
    assert world.next_id in world.running
    call = call_again(world, "z", callers[1])
    go_on(world, 0.0)
    assert call in world.running


def waits_long(world: World) -> tuple[list[int], int]:
    """Return two callers, and who waits for a GPU that somebody uses who came before it."""
    callers = [parent(world), parent(world)]
    sits(world, "h")
    waits = submitted(world, "x")
    go_on(world, 0.0)
    return callers, waits


def test_calls_keep_off_what_others_claim_than_the_one_that_bars_them() -> None:
    """`x` has waited longest, for another GPU; what calls keep busy has to go for an urgent one that came later."""
    hosted = [service("h", on=0), service("x", on=0), service("y", places=2, on=1), service("z", on=1)]
    world = World(2, hosted, "loss")
    urgent = replace(world.demand(None, 0, 0.1, None), priority=-1)
    callers, _ = waits_long(world)
    for _ in callers:
        world.submit(urgent)
    go_on(world)
    callers = [world.next_id - 1, world.next_id]
    calls = [call_again(world, "y", callers[0])]
    go_on(world)
    world.submit(replace(world.demand("z", 0, 0, None), priority=-1))
    victim = world.next_id
    for turn in range(1, 300):
        go_on(world)
        if victim in world.running:
            break
        calls.append(call_again(world, "y", callers[turn % 2]))
        go_on(world)
        if calls[0] in world.running and len(calls) > 1:
            world.finish(calls.pop(0))
    assert victim in world.running
    assert world.now < 30


def test_what_a_call_has_claimed_that_is_barred_is_used_by_other_calls() -> None:
    hosted = [service("h", on=0), service("x", on=0), service("y", places=2, on=1), service("z", on=1)]
    world = World(2, hosted, "loss")
    callers, _ = waits_long(world)
    call_again(world, "y", callers[0])
    go_on(world, 6.5)  # calls pass
    claims = call_again(world, "z", callers[1])
    for _ in range(8):
        go_on(world, 1.0)
    assert world.seats._claims.heeded(0, claims.__eq__), "it has claimed the GPU"
    go_on(world, 3.0)  # calls are barred, between 16 and 24 seconds
    joins = call_again(world, "y", callers[0])
    go_on(world, 0.0)
    assert joins in world.running
    assert claims in world.waiting


def test_calls_are_barred_by_one_that_stands_behind_more_of_them_than_are_looked_at_together() -> None:
    world = World(1, [service("h"), service("x"), service("w", places=200)], "loss")
    callers, waits = waits_long(world)
    for _ in range(150):
        call_again(world, "w", callers[0])
    go_on(world, 1.2)  # calls are barred, between 1 and 1.5 seconds
    world.finish(waits - 1)
    go_on(world, 0.0)
    assert waits in world.running


def test_a_call_is_looked_at_again_when_the_one_that_barred_it_has_a_seat() -> None:
    world = World(2, [service("h", on=0), service("x", on=0), service("z", on=1)], "loss")
    callers, waits = waits_long(world)
    world.now += 1.2  # calls are barred, between 1 and 1.5 seconds
    call = call_again(world, "z", callers[0])
    assert not world.decide()
    world.finish(waits - 1)
    world.decide()
    assert waits in world.running
    assert call in world.waiting
    at_s = world.core.next_wakeup_s()
    assert at_s is not None
    assert at_s < world.now + 0.01
    world.now = at_s
    world.decide()
    assert call in world.running
    assert world.core.next_wakeup_s() is None


def test_who_has_no_place_for_a_moment_has_waited_all_along() -> None:
    world = World(1, [service("y", places=9), service("x")], "loss")
    callers = [parent(world), parent(world)]
    call_again(world, "y", callers[0])
    go_on(world)
    submitted(world, "x")
    for _ in range(17):
        go_on(world, 1.0)
    world.core.seating.set_device(0, 5, world.now)
    go_on(world, 0.0)
    world.core.seating.set_device(0, 10, world.now)
    go_on(world, 0.0)
    call = call_again(world, "y", callers[1])
    go_on(world, 0.0)
    assert call in world.waiting, "calls are barred, between 16 and 24 seconds"


def call_again(world: World, name: str, caller: int) -> int:
    """A call of an action that may wait for others that it has called."""
    call = submitted(world, name, caller)
    if caller not in world.lent:
        world.core.lend(caller, world.now)
        world.lent.add(caller)
    return call


def test_a_call_that_bars_others_is_not_waited_for_by_those_whom_it_waits_for() -> None:
    """`first` has waited longest, for `user` to end, who waits for `holder`'s seat, who waits for a call on `y`."""
    world = World(2, [service("x"), service("y", places=3), service("z"), service("w")], "loss")
    early = parent(world)
    user = submitted(world, "y")
    go_on(world)
    holder = submitted(world, "w")
    go_on(world)
    first = called(world, "x", early)
    go_on(world)
    for _ in range(40):  # until it bars calls
        go_on(world)
    wanted = called(world, "z", user)
    needed = called(world, "y", holder)
    assert world.seats.seat_of(needed) is None
    for _ in range(600):
        go_on(world)
        for call in (needed, wanted, first):
            if call in world.running:
                end(world, call)
        if not world.running:
            break
    assert not world.gave_up
    assert not world.waiting
    assert world.running.keys() == set()


# Bodies with GPUs of their own, as many as there are of a range.


def gpus(world: World, speedup: Speedup | None = None) -> Demand:
    return world.demand(None, Elastic(1, 4, speedup=speedup), 0, None)


def test_a_body_gets_all_gpus_that_are_of_use_and_they_count_as_used() -> None:
    world = World(4, [], "loss")
    counted = world.topology.index[GPU]
    assert world.submit(gpus(world, Linear()))
    world.decide()
    seat = world.running[1].seat
    assert seat is not None
    assert seat.chunk == Chunk(0, 4)
    assert world.core.used(counted) == 4
    world.check()
    world.finish(1)
    assert world.core.free(counted) == 4


def test_bodies_that_come_together_share_the_gpus() -> None:
    world = World(4, [], "loss")
    for _ in range(3):
        assert world.submit(gpus(world, Linear()))
    while world.decide():
        world.check()
    assert sorted(running.seat.chunk.size for running in world.running.values() if running.seat) == [1, 1, 2]
    world.check()


def test_how_it_speeds_up_is_declared_or_learned() -> None:
    for speedup in (Measured({1: 1, 4: 1}), None):
        world = World(4, [], "loss")
        for run in range(40):  # every second one finds three GPUs in use
            others = [world.submit(world.demand(None, size, 0, None)) for size in (1, 2)] if run % 2 else []
            world.decide()
            assert world.submit(gpus(world, speedup))
            world.decide()
            world.finish(world.next_id, 10.0)
            for number in range(len(others)):
                world.finish(world.next_id - 1 - number)
        expected_s = world.core.seating.request(PendingAction(1000, gpus(world, speedup), 0.0)).expected_s
        assert expected_s == pytest.approx((10.0, 10.0, 10.0), rel=0.1), "more GPUs are of no use"


def test_one_whose_gpus_could_not_be_emptied_can_have_fewer_next_time() -> None:
    world = World(2, [], "loss")
    counted = world.topology.index[GPU]
    assert world.submit(gpus(world, Linear()))
    world.decide()
    assert world.core.used(counted) == 2
    world.send_back(1)
    world.check()
    other = world.demand(None, 1, 0, None)
    world.core.withdraw(1)
    world.forget(1)
    assert world.submit(other)
    world.decide()
    assert world.submit(gpus(world, Linear()))
    world.decide()
    assert world.running.keys() == {2, 3}
    world.check()


def test_gpus_that_are_reclaimed_under_a_body_leave_the_others_to_bodies() -> None:
    world = World(2, [], "loss")
    world.core.seating.lend(2, GpuNode("lent", (GpuDevice("lent0", 10), GpuDevice("lent1", 10))), 0.0)
    own = world.demand(None, 2, 0, None)
    for _ in range(2):
        assert world.submit(own)
    world.decide()
    world.finish(next(i for i, r in world.running.items() if r.seat is not None and r.seat.chunk.first == 0))
    world.core.seating.reclaim(2, 0.0)
    assert world.submit(gpus(world, Linear()))
    world.decide()
    assert len(world.running) == 2 or world.core.free(world.topology.index[GPU]) == 0
    world.check()


# The calls of one round.


def test_who_waits_to_be_placed_bars_placing_in_all_calls_of_a_round() -> None:
    world = World(1, [service("b", 5), service("s", 8), service("t", 4)], "loss")
    user = sits(world, "b")
    assert world.submit(world.demand("s", 0, 1, None))
    waits = world.next_id
    world.submit(world.demand(None, 0, 2, None))  # cores are planned, so that later calls of the round pass them by
    for _ in range(600):
        world.submit(world.demand(None, 0, 0, None))
    assert world.core.decide(world.now).more
    behind = submitted(world, "t")
    started = world.core.decide(world.now).started
    assert started
    assert all(running.pending.id != behind for running in started)
    world.core.finish(user, world.now, 1.0)
    assert waits in [running.pending.id for running in world.core.decide(world.now).started]


def test_who_bars_calls_does_so_in_all_calls_of_a_round() -> None:
    world = World(2, [service("h", on=0), service("x", on=0), service("u", on=0), service("z", on=1)], "loss")
    caller = parent(world)
    sits(world, "h")
    assert world.submit(world.demand("x", 0, 1, None))
    go_on(world, 0.0)
    world.now += 1.1
    world.submit(replace(world.demand("u", 0, 0, None), priority=-1))  # stands before it, and has not waited for long
    world.decide()
    call = call_again(world, "z", caller)
    world.submit(world.demand(None, 0, 2, None))  # cores are planned, so that later calls of the round pass them by
    for _ in range(600):
        world.submit(world.demand(None, 0, 0, None))
    decisions = world.core.decide(world.now)
    assert decisions.more
    started = [*decisions.started, *world.core.decide(world.now).started]
    assert len(started) == 601
    assert all(running.pending.id != call for running in started)


# Who waits no more.


def test_who_gives_its_turn_away_claims_nothing() -> None:
    world = World(1, [service("a", places=4), service("b")], "loss")
    world.core.open(PendingAction(1000, Demand("trajectory", ()), 0.0))
    assert world.core.decide(0.0).opened == [1000]
    sits(world, "a")
    holder = PendingAction(1001, world.demand("b", 0, 0, None), 0.0, trajectory=1000, turn=True)
    world.core.submit(holder)
    world.core.decide(0.0)
    assert world.core.next_wakeup_s() is not None
    parent = submitted(world, "a")
    world.decide()
    assert parent in world.running
    at_s = world.core.next_wakeup_s()
    assert at_s is not None
    world.core.decide(at_s)  # it claims the only GPU
    call = PendingAction(1002, world.demand("a", 0, 0, None), at_s, trajectory=1000, turn=True, parent=parent)
    world.core.submit(call)
    assert holder.id not in world.seats._claims
    world.core.lend(parent, at_s)
    assert [running.pending.id for running in world.core.decide(at_s).started] == [call.id]
    world.core.withdraw(holder.id)
    assert world.core.next_wakeup_s() is None


def test_who_is_refused_claims_nothing() -> None:
    world = World(2, [service("a"), service("b")], "loss")
    sits(world, "b")
    asks = submitted(world, "a")
    world.decide()
    seat = world.running[asks].seat
    assert seat is not None
    world.failed(A)
    world.send_back(asks)
    world.decide()
    assert asks in world.seats._claims  # it waits for the other GPU
    world.core.seating.set_device(1 - seat.chunk.first, 3, world.now)
    world.decide()
    assert asks in world.gave_up
    assert asks not in world.seats._claims


# Devices that come and go.


def test_a_body_that_waits_for_gpus_that_are_taken_away_is_refused_though_there_are_as_many() -> None:
    apart = [GpuNode(name, (GpuDevice(f"gpu-{name}", 10),)) for name in "xy"]
    together = GpuNode("z", (GpuDevice("gpu-z0", 10), GpuDevice("gpu-z1", 10)))
    world = World(2, [service("a", 5, 9)], "loss", nodes=apart)
    world.core.seating.lend(2, together, 0.0)
    demand = world.demand(None, 2, 0, None)
    world.submit(demand)
    world.decide()
    assert len(world.running) == 1
    world.submit(demand)
    behind = submitted(world, "a")
    world.decide()
    world.core.seating.reclaim(2, 0.0)
    world.decide()
    assert isinstance(world.gave_up[2], InfeasibleError)
    world.decide()
    assert behind in world.running
    with pytest.raises(InfeasibleError, match="at most 1 together"):
        world.submit(demand)


def test_a_body_is_not_sent_to_the_same_gpu_again_that_could_not_be_emptied() -> None:
    world = World(2, [service("a"), service("b")], "loss")
    first, second = sits(world, "a"), sits(world, "b")
    there = world.running[first].seat
    assert there is not None
    world.finish(first)
    world.submit(world.demand(None, 1, 0, None))
    body = world.next_id
    world.decide()
    seat = world.running[body].seat
    assert seat is not None
    assert (seat.chunk, seat.evicts) == (there.chunk, (A,))
    world.core.seating.set_device(seat.chunk.first, 2, world.now)  # the manager has not got it out
    world.unseated.add(body)
    world.send_back(body)
    world.decide()
    assert body in world.waiting
    world.finish(second)
    world.decide()
    seat = world.running[body].seat
    assert seat is not None
    assert seat.chunk != there.chunk


def test_a_body_that_cannot_have_its_gpus_for_the_moment_holds_up_nobody_who_wants_fewer() -> None:
    world = World(4, [service("a")], "loss")
    for device in (0, 2):
        world.core.seating.set_device(device, 2, world.now)
    for gpus in (2, 1):
        world.submit(world.demand(None, gpus, 0, None))
    world.decide()
    assert list(world.running) == [2]
    world.core.seating.set_device(0, 10, world.now)
    world.finish(2)
    world.decide()
    assert list(world.running) == [1]
