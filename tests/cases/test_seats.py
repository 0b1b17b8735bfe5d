"""Cases 106, 110, 116, 118 and 120, where they are decided: who sits on which service, and what goes for whom."""

from __future__ import annotations

import random

from arl_tangram.model.gpu import Chunk, Instance, Seat
from arl_tangram.scheduling.gpu.eviction import Lru
from property.gpu_rooms import nodes_of
from property.seat_worlds import SeatWorld, service_of

A, B = Instance("a", 1), Instance("b", 1)


def world_of(*services, capacity: int = 100, **options) -> SeatWorld:  # type: ignore[no-untyped-def]
    return SeatWorld(nodes_of(1, capacity=capacity), services, **options)


def use(world: SeatWorld, service: str, for_s: float = 0.0) -> None:
    """An action uses a service, alone."""
    action_id = world.ask(service)
    assert action_id in world.decide()
    for instance in [i for i, there in world.there.items() if there.restoring]:
        world.restored(instance)
    world.now += for_s
    world.rise(action_id)


def test_case_106_who_asks_for_what_is_evicted_shares_one_restore() -> None:
    world = world_of(service_of("a", 60, places=32), service_of("b", 60))
    use(world, "a")
    use(world, "b")
    assert set(world.there) == {B}
    world.restores.clear()
    asked = [world.ask("a") for _ in range(32)]
    assert world.decide() == asked
    assert world.restores == [A]
    world.restored(A)
    for action_id in asked:
        world.rise(action_id)
    assert world.restores == [A]


def test_case_110_a_restore_that_needs_more_at_its_peak_than_is_free_evicts_one_more() -> None:
    """Free 40 of 100, size 30, peak 45."""
    world = world_of(service_of("a", 30, 45), service_of("b", 30), service_of("c", 30))
    use(world, "b")
    use(world, "c")
    assert world.seats.free_bytes(0) == 40
    asked = world.ask("a")
    assert world.decide() == [asked]
    seat = world.seats.seat_of(asked)
    assert seat is not None
    assert len(seat.evicts) == 1
    assert world.seats.free_bytes(0) == 25
    world.restored(A)
    assert world.seats.free_bytes(0) == 40


def test_case_110_or_waits_if_nothing_can_go() -> None:
    world = world_of(service_of("a", 30, 45), service_of("b", 30), service_of("c", 30))
    users = [world.ask("b"), world.ask("c")]
    assert world.decide() == users
    world.restored(B)
    world.restored(Instance("c", 1))
    asked = world.ask("a")
    assert world.decide() == []
    world.rise(users[0])
    assert world.decide() == [asked]
    assert world.seats.seat_of(asked) == Seat(Chunk(0, 1), A, restores=True, evicts=(B,))


def test_case_116_an_eviction_of_what_is_idle_and_a_request_for_it_at_about_the_same_time() -> None:
    """At t it goes, for another service or since its device has less room; at t+d, d from -5 to 5 ms, it is wanted."""
    chance = random.Random(116)
    world = world_of(service_of("a", 60, restore_s=0.003), service_of("b", 60, restore_s=0.003), check_every=50)
    evicted = served = 0
    for _ in range(10_000):
        use(world, "a")
        world.now += 1.0
        at_s = world.now
        there = [("evict", at_s), ("ask", at_s + chance.uniform(-0.005, 0.005))]
        for what, when_s in sorted(there, key=lambda one: one[1]):
            world.now = when_s
            if what == "evict" and chance.random() < 0.5:
                world.ask("b")
            elif what == "evict":
                world.set_capacity(0, 60 - chance.randrange(1, 50))
                evicted += A not in world.there
                world.set_capacity(0, 100)
            else:
                world.ask("a")
            world.decide()
            for instance in [i for i, there in world.there.items() if there.restoring and chance.random() < 0.5]:
                world.restored(instance)
        served += len(world.waiting) + len(world.seated)
        world.settle()
    assert 1000 < evicted < 9000, "it was raced both ways"
    assert served > 10_000


def test_case_118_idle_time_counts_from_the_end_of_the_last_action() -> None:
    """`a` is used for 30 s, `b` for a moment meanwhile; when `c` needs room after that, `a` is the more recent one."""
    world = world_of(*[service_of(name, 40) for name in "abc"], eviction=Lru())
    long = world.ask("a")
    world.decide()
    world.restored(A)
    world.now += 15
    use(world, "b")
    world.now += 15
    world.rise(long)
    use(world, "c")
    assert A in world.there
    world.now += 2
    world.restores.clear()
    use(world, "a")
    assert world.restores == [], "no reload"


def test_case_120_what_is_used_does_not_go_for_what_is_wanted() -> None:
    world = world_of(service_of("a", 60), service_of("b", 60))
    long = world.ask("a")
    world.decide()
    world.restored(A)
    wants = world.ask("b")
    for second in range(5):
        world.now = float(second)
        assert world.decide() == []
        assert A in world.there
    world.rise(long)
    assert world.decide() == [wants]
