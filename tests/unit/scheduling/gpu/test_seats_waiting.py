"""`Seats`: who waits for a seat on what is full, and for how long, and who is placed instead."""

from __future__ import annotations

import pytest

from arl_tangram.model.gpu import Chunk, Instance
from arl_tangram.scheduling.gpu.eviction import EvictionName, make_eviction
from arl_tangram.scheduling.gpu.request import SeatRequest
from property.seat_worlds import SeatWorld, service_of
from unit.scheduling.gpu.seat_scenes import sits, world_of

ON_ONE, ON_TWO = Instance("a", 1), Instance("a", 2)


def full(seconds: float, *, restore_s: float = 5.0, policy: EvictionName = "loss") -> tuple[SeatWorld, int]:
    """One sits on the only seat of a service on two of four devices, and is expected to do so for so many seconds."""
    services = [service_of("a", 30, dops=(1, 2), restore_s=restore_s), service_of("b", 30)]
    world = world_of(*services, devices=4, eviction=make_eviction(policy))
    user = sits(world, "a", (2,), (seconds,))
    world.now = restore_s
    return world, user


@pytest.mark.parametrize("policy", ["loss", "lru", "gdsf"])
def test_a_seat_that_is_free_soon_is_waited_for(policy: EvictionName) -> None:
    world, user = full(1.0, restore_s=1.0, policy=policy)
    waits = world.ask("a")
    assert world.decide() == [], "6 s on two devices, or 1 + 10 s on another one"
    world.rise(user)
    assert world.decide() == [waits]
    assert world.restores == [ON_TWO]


def test_who_waits_for_a_seat_bars_nobody_else() -> None:
    world, _ = full(1.0)
    world.ask("a")
    other = world.ask("b")
    assert world.decide() == [other]
    assert Instance("b", 1) in world.there


def test_a_seat_that_is_free_late_is_not() -> None:
    world, _ = full(20.0)
    waits = world.ask("a")
    assert world.decide() == [waits]
    assert set(world.there) == {ON_ONE, ON_TWO}


def test_what_lasts_longer_than_expected_is_expected_to_last_as_long_again() -> None:
    world, _ = full(1.0)
    waits = world.ask("a")
    assert world.decide() == []
    assert world.next_look_s == 14.0
    world.now = 14.0
    assert world.decide() == []
    assert world.next_look_s == 16.0
    world.now = 16.001
    assert world.decide() == [waits], "10 + 5 s on two devices, or 5 + 10 s on another one"


def test_who_is_as_well_off_waiting_looks_again_a_moment_later() -> None:
    world, _ = full(1.0)
    waits = world.ask("a")
    for _ in range(3):
        assert world.decide() == []
        before_s, world.now = world.now, world.next_look_s
        assert world.now > before_s, "or it would look for ever"
    assert world.now == 16.001
    assert world.decide() == [waits]


def test_where_many_wait_another_one_is_restored() -> None:
    world, _ = full(1.0)
    asked = [world.ask("a") for _ in range(3)]
    assert world.decide() == asked[:1], "1 + 5 + 2 x 5 s for the last of them, or 5 + 10 s on another one"
    assert set(world.there) == {ON_ONE, ON_TWO}


def test_nor_do_others_take_the_seat_for_ever() -> None:
    world, user = full(1.0)
    waits = world.ask("a")
    assert world.decide() == []
    began_s, sat = world.now, [user]
    while sat == [user]:
        world.now += 0.5
        world.rise(user)
        user = world.ask("a", (2,), (1.0,), priority=-1)
        sat = world.decide()
    assert sat == [user, waits]
    assert world.now - began_s == 15.0, "three times its restore"


def test_who_was_called_by_the_one_that_sits_there_does_not_wait_for_it() -> None:
    world, caller = full(1.0)
    called = world.ask("a", callers=(caller,))
    assert world.decide() == [called]
    assert set(world.there) == {ON_ONE, ON_TWO}


def test_a_seat_on_what_is_being_restored_is_free_when_that_is_there_and_was_used() -> None:
    world = world_of(service_of("a", 30, dops=(1, 2), restore_s=5.0, places=2), devices=4)
    asked = [world.ask("a", (1, 2), (3.0, 1.0)) for _ in range(3)]
    assert world.decide() == asked[:2], "5 + 1 + 1 s, or 5 + 3 s"
    assert world.next_look_s == 1.0
    assert set(world.there) == {ON_TWO}


def test_several_who_are_arranged_together_wait_as_they_would_alone() -> None:
    together, apart = full(1.0)[0], full(1.0)[0]
    for world in (together, apart):
        for _ in range(2):
            world.ask("a")
        world.ask("b")
    assert together.decide(together=True) == apart.decide() != []


def test_what_keeps_the_room_of_others_is_not_taken() -> None:
    """A service that is asked for first leaves so many devices as all need, though it is faster on more."""
    services = [service_of(name, 60, dops=(1, 2), restore_s=4.0) for name in "abc"]
    world = world_of(*services, devices=4)
    asked = [world.ask(name, (1, 2), (10.0, 7.0)) for name in "abc"]
    assert world.decide() == asked
    assert {(i.service, i.dop) for i in world.there} == {("a", 2), ("b", 1), ("c", 1)}
    assert not any(seat is None or seat.evicts for seat in map(world.seats.seat_of, asked))


def test_a_greater_dop_is_taken_where_it_is_worth_what_others_lose() -> None:
    services = [service_of(name, 60, dops=(1, 2), restore_s=4.0) for name in "ab"]
    world = world_of(*services, devices=2)
    request = SeatRequest(1, "a", (1, 2), (10.0, 5.9))
    seat = world.seats.find(request, 0.0)
    assert seat is not None
    assert seat.chunk.size == 2, "4.1 s are saved, and b is restored once more in 4 s"
    seat = world.seats.find(request._replace(action_id=2, expected_s=(10.0, 6.1)), 0.0)
    assert seat is not None
    assert seat.chunk == Chunk(0, 1)
