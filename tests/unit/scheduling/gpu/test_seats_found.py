"""`Seats`: where actions sit, and what goes for them."""

from __future__ import annotations

import pytest

from arl_tangram.model.gpu import Chunk, Instance, Seat
from arl_tangram.scheduling.gpu.eviction import make_eviction
from arl_tangram.scheduling.gpu.request import SeatRequest
from property.seat_worlds import service_of
from unit.scheduling.gpu.seat_scenes import A, B, C, passes, sits, world_of

# Joining and placing.


def test_one_that_is_there_is_joined_up_to_its_places() -> None:
    world = world_of(service_of("a", places=3))
    first = sits(world, "a")
    others = [world.ask("a") for _ in range(3)]
    assert world.decide() == others[:2]
    assert world.restores == [A]
    world.rise(first)
    assert world.decide() == others[2:]


def test_one_that_is_being_restored_is_joined() -> None:
    world = world_of(service_of("a", places=2))
    asked = [world.ask("a"), world.ask("a")]
    assert world.decide() == asked
    seat = world.seats.seat_of(asked[1])
    assert seat == Seat(Chunk(0, 1), A)
    assert world.seats.is_restoring(A)


def test_what_is_idle_goes_and_only_as_much_as_is_needed() -> None:
    world = world_of(*[service_of(name, 30) for name in "abcd"])
    for name in "abc":
        passes(world, name)
    action_id = world.ask("d")
    assert world.decide() == [action_id]
    seat = world.seats.seat_of(action_id)
    assert seat is not None
    assert len(seat.evicts) == 1


def test_what_somebody_uses_does_not_go() -> None:
    world = world_of(service_of("a", 60), service_of("b", 60))
    first = sits(world, "a")
    second = world.ask("b")
    assert world.decide() == []
    world.rise(first)
    assert world.decide() == [second]
    assert set(world.there) == {B}


def test_what_is_being_restored_does_not_go_though_nobody_waits_for_it_any_more() -> None:
    world = world_of(service_of("a", 60), service_of("b", 60))
    first = world.ask("a")
    world.decide()
    world.rise(first)  # cancelled
    second = world.ask("b")
    assert world.decide() == []
    world.restored(A)
    assert world.decide() == [second]


def test_who_had_it_restored_is_served_before_it_can_go() -> None:
    world = world_of(service_of("a", 60), service_of("b", 60))
    first = world.ask("a")
    world.decide()
    world.restored(A)
    second = world.ask("b")
    assert world.decide() == []
    assert world.seats.seat_of(first) is not None
    world.rise(first)
    assert world.decide() == [second]


def test_two_share_a_device_by_bytes() -> None:
    world = world_of(service_of("a", 50), service_of("b", 50))
    asked = [world.ask("a"), world.ask("b")]
    assert world.decide() == asked


def test_the_peak_is_given_back_once_it_is_restored() -> None:
    world = world_of(service_of("a", 30, 60), service_of("b", 60))
    world.ask("a")
    second = world.ask("b")
    assert len(world.decide()) == 1
    world.restored(A)
    assert world.decide() == [second]


def test_an_engine_that_sleeps_keeps_some_bytes_of_its_devices() -> None:
    engine = service_of("e", 60, dops=(2,), evicted=10, chunks=[(2, Chunk(0, 2))])
    world = world_of(engine, service_of("a", 90), service_of("b", 91), devices=2)
    assert [world.seats.used_bytes(d) for d in (0, 1)] == [10, 10]
    assert world.ask("b") == 0, "too large beside it"
    sits(world, "a")
    world.ask("e")
    assert world.decide() == []
    world.rise(1 if 1 in world.seated else next(iter(world.seated)))
    world.decide()
    assert [world.seats.used_bytes(d) for d in (0, 1)] == [60, 60]


def test_an_exclusive_one_computes_alone() -> None:
    world = world_of(service_of("a", 10, exclusive=True), service_of("b", 10), devices=1)
    passes(world, "b")
    first = sits(world, "a")
    second = world.ask("b")
    assert world.decide() == []
    world.rise(first)
    assert world.decide() == [second]
    third = world.ask("a")
    assert world.decide() == [], "nor does it begin beside another one"
    world.rise(second)
    assert world.decide() == [third]


def test_the_dop_is_taken_where_it_ends_first_restore_included() -> None:
    service = service_of("a", dops=(1, 2, 4), restore_s=1.0)
    world = world_of(service, devices=4)
    sits(world, "a", (1, 2, 4), (10.0, 5.0, 2.5))
    assert set(world.there) == {Instance("a", 4)}
    # Another 2.5 s on four devices, once they are free; there is none.
    world = world_of(service, service_of("b", 90, restore_s=100.0), devices=4)
    sits(world, "b")
    sits(world, "a", (1, 2, 4), (10.0, 5.0, 2.5))
    assert Instance("a", 2) in world.there, "not worth 100 s"


def test_joining_is_weighed_against_placing() -> None:
    service = service_of("a", 10, dops=(1, 4), restore_s=1.0, places=8)
    world = world_of(service, devices=8)
    sits(world, "a", (1,), (3.0,))
    sits(world, "a", (1, 4), (3.0, 2.5))
    assert set(world.there) == {A}, "a restore of 1 s is too much to save 0.5 s"
    sits(world, "a", (1, 4), (30.0, 10.0))
    assert set(world.there) == {A, Instance("a", 4)}


def test_of_several_that_are_there_the_one_is_joined_where_it_ends_first() -> None:
    world = world_of(service_of("a", 10, dops=(1, 2), restore_s=5.0, places=8), devices=4)
    sits(world, "a", (1,), (9.0,))
    sits(world, "a", (2,), (6.0,))
    assert set(world.there) == {A, Instance("a", 2)}
    joins = sits(world, "a", (1, 2), (9.0, 6.0))
    assert world.seats.seat_of(joins) == Seat(world.there[Instance("a", 2)].chunk, Instance("a", 2))
    world.lost(Instance("a", 2))
    world.ask("a", (2,), (6.0,))
    world.decide()
    joins = world.ask("a", (1, 2), (9.0, 6.0))
    world.decide()
    assert world.seats.seat_of(joins) == Seat(world.there[A].chunk, A), "the other one is still being restored"


def test_the_least_valuable_goes_by_the_queue() -> None:
    world = world_of(*[service_of(name, 50) for name in "abc"])
    for name in "abbb":
        passes(world, name)
    third, waits = world.ask("c"), world.ask("a")
    assert world.decide() == [third, waits]
    assert world.seats.seat_of(third) == Seat(Chunk(0, 1), C, restores=True, evicts=(B,)), "a waits, b does not"


@pytest.mark.parametrize(("policy", "gone"), [("lru", "a"), ("loss", "b")])
def test_policies_differ(policy: str, gone: str) -> None:
    services = [service_of("a", 50, restore_s=100.0), service_of("b", 50, restore_s=0.1), service_of("c", 50)]
    world = world_of(*services, eviction=make_eviction(policy))  # type: ignore[arg-type]
    passes(world, "a")
    passes(world, "b")
    third = world.ask("c")
    world.decide()
    seat = world.seats.seat_of(third)
    assert seat is not None
    assert seat.evicts == (Instance(gone, 1),)


def test_a_measured_restore_counts_instead_of_the_declared_one() -> None:
    world = world_of(service_of("a", restore_s=5.0))
    world.ask("a")
    world.decide()
    assert world.seats.restore_s(A) == 5.0
    world.restored(A, took_s=2.0)
    assert world.seats.restore_s(A) == 2.0


def test_what_others_keep_from_computing_where_it_is_moves() -> None:
    world = world_of(service_of("x", 30, exclusive=True), service_of("y", 30), devices=2)
    passes(world, "x")
    sits(world, "y", (1,), (1000.0,))
    world.rise(next(iter(world.seated)))
    world.set_capacity(1, 0)  # so that y is beside x
    world.lost(Instance("y", 1))
    sits(world, "y", (1,), (1000.0,))
    world.set_capacity(1, 100)
    moves = world.ask("x")
    assert world.decide() == [moves]
    x = Instance("x", 1)
    assert world.seats.seat_of(moves) == Seat(Chunk(1, 1), x, restores=True, evicts=(x,))


# Devices of one's own.


def test_a_body_has_its_devices_for_itself() -> None:
    world = world_of(service_of("a", 10), service_of("b", 10), devices=2)
    passes(world, "a")
    passes(world, "b")
    body = sits(world, None, (2,))
    seat = world.seats.seat_of(body)
    assert seat is not None
    assert set(seat.evicts) == {A, B}
    assert [world.seats.free_bytes(d) for d in (0, 1)] == [0, 0]
    waits = world.ask("a")
    assert world.decide() == []
    world.rise(body)
    assert world.decide() == [waits]


def test_a_body_takes_what_nobody_uses() -> None:
    world = world_of(service_of("a", 10), devices=4)
    sits(world, "a")
    body = sits(world, None, (2,))
    seat = world.seats.seat_of(body)
    assert seat is not None
    assert set(seat.chunk.devices).isdisjoint(world.there[A].chunk.devices)
    assert world.ask(None, (4,))
    assert world.decide() == []


# Several at once.


def test_several_share_what_is_free() -> None:
    """Each alone would take all four devices."""
    services = [service_of(name, dops=(1, 2, 4), restore_s=0.1) for name in "abcd"]
    world = world_of(*services, devices=4)
    asked = [world.ask(name, (1, 2, 4), (8.0, 4.4, 2.4)) for name in "abcd"]
    assert world.decide(together=True) == asked
    assert {there.chunk.size for there in world.there.values()} == {1}


def test_one_restore_serves_several_that_ask_together() -> None:
    world = world_of(service_of("a", dops=(1, 2), places=4), devices=2)
    asked = [world.ask("a", (1, 2), (8.0, 7.9)) for _ in range(4)]
    assert world.decide(together=True) == asked
    assert len(world.restores) == 1


def test_to_arrange_changes_nothing() -> None:
    world = world_of(*[service_of(name, 60) for name in "abc"], devices=2)
    for name in "ab":
        passes(world, name)
    requests = [SeatRequest(90 + i, "c" if i else None, (1,), (1.0,)) for i in range(2)]
    before = (world.seats.resident(), [world.seats.used_bytes(d) for d in (0, 1)])
    seats = world.seats.arrange(requests, 0.0)
    assert len(seats) == 2
    assert set(world.seats.resident()) == set(before[0])
    assert [world.seats.used_bytes(d) for d in (0, 1)] == before[1]
    assert world.seats.arrange(requests, 0.0) == seats
