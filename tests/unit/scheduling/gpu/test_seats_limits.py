"""`Seats`: what can never be, by itself or beside what callers keep."""

from __future__ import annotations

import pytest

from arl_tangram.model.gpu import Chunk, Seat
from arl_tangram.scheduling.gpu.request import SeatRequest
from property.gpu_rooms import nodes_of
from property.seat_worlds import SeatWorld, service_of
from unit.scheduling.gpu.seat_scenes import A, B, passes, refusal, sits, world_of


def test_refusals_say_what_is_asked_and_what_there_is() -> None:
    gib = 1 << 30
    services = [
        service_of("judge", 90 * gib, 120 * gib, dops=(1, 2)),
        service_of("wide", gib, dops=(4,)),
        service_of("ok", gib),
    ]
    world = SeatWorld(nodes_of(2, 1, capacity=80 * gib), services)
    assert refusal(world, "jugde", (1,)) == (
        "score asks for the service 'jugde'; this runtime has only 'judge', 'ok', 'wide'"
    )
    assert refusal(world, "judge", (1, 2)) == (
        "score asks for 'judge', which needs 120 GiB on each of 2 devices while it is restored; "
        "there are at most 80 GiB"
    )
    assert refusal(world, "judge", (8,)) == "score asks for 'judge' on 8 devices; it is there on 1 or 2"
    assert refusal(world, "wide", (4,)) == (
        "score asks for 'wide' on 4 devices of one node; there are at most 2 together"
    )
    assert refusal(world, None, (4,)) == "score asks for 4 devices of one node; there are at most 2 together"
    assert refusal(world, None, (3,)) == "score asks for 3 devices; a body can have 1, 2, 4 or 8"
    assert refusal(SeatWorld(nodes_of(1), []), "a", (1,)) == (
        "score asks for the service 'a'; this runtime has no services"
    )
    world.seats.check(SeatRequest(1, "ok", (1,), (1.0,)))


def test_seats_there_can_be() -> None:
    world = world_of(service_of("a", 10, dops=(1, 2, 4), places=3), devices=2)
    assert world.seats.capacity_of("a") == 6
    world.lend(2, nodes_of(4)[0])
    assert world.seats.capacity_of("a") == 9


def test_a_call_is_possible_if_its_callers_leave_room() -> None:
    world = world_of(service_of("a", 60), service_of("b", 60), service_of("c", 10), devices=1)
    caller = sits(world, "a")
    needs_its_place = SeatRequest(90, "b", (1,), (1.0,), callers=(caller,))
    assert not world.seats.possible(needs_its_place, {caller})
    assert world.seats.possible(needs_its_place, ())
    assert world.seats.possible(SeatRequest(91, "c", (1,), (1.0,)), {caller})
    assert not world.seats.possible(SeatRequest(92, "a", (1,), (1.0,)), {caller}), "it has the only seat itself"
    assert not world.seats.possible(SeatRequest(93, None, (1,), (1.0,)), {caller})


def test_a_call_joins_what_its_caller_keeps_though_that_is_to_go() -> None:
    """It cannot go before its caller has risen, who waits for the call."""
    world = world_of(service_of("a", 60, places=4), devices=1)
    caller = sits(world, "a")
    world.reclaim(0, 1)
    world.lend(0, nodes_of(1)[0])
    world.reclaim(0, 1)
    called = SeatRequest(50, "a", (1,), (1.0,), callers=(caller,))
    stranger = SeatRequest(51, "a", (1,), (1.0,), callers=(999,))
    assert world.seats.possible(called, {caller})
    assert not world.seats.possible(stranger, {caller})
    assert world.seats.find(stranger, 0.0) is None
    assert world.seats.find(called, 0.0) == Seat(Chunk(0, 1), A)
    world.rise(caller)
    assert world.seats.is_clear(0)


def test_a_call_claims_nothing_that_its_caller_keeps() -> None:
    """Its caller would not rise before it has run, so it waits for the other device."""
    world = world_of(service_of("a", 60), service_of("b", 60, places=99), service_of("c", 60), devices=2)
    caller = sits(world, "a", (1,), (0.1,))
    sits(world, "b", (1,), (1000.0,))
    called = world.ask("c", callers=(caller,))
    assert world.decide() == []
    world.now = 500.0
    world.ask("b")
    assert world.decide() == []
    world.rise(next(i for i, r in world.seated.items() if r.service == "b"))
    assert called in world.decide()


def test_a_call_does_not_wait_to_compute_beside_its_caller() -> None:
    services = [service_of("x", 30, exclusive=True), service_of("y", 30), service_of("z", 90, places=99)]
    world = world_of(*services, devices=2)
    world.set_capacity(1, 0)
    passes(world, "x")
    caller = sits(world, "y", (1,), (0.1,))
    world.set_capacity(1, 100)
    other = sits(world, "z", (1,), (1000.0,))
    called = world.ask("x", callers=(caller,))
    assert world.decide() == []
    world.now = 500.0
    behind = world.ask("z")
    assert world.decide() == [], "the other device is claimed, where it can move to"
    world.rise(other)
    assert world.decide() == [called]
    world.rise(called)
    assert behind in [request.action_id for request in world.waiting]


def test_a_seat_that_is_not_there_is_refused() -> None:
    world = world_of(service_of("a", 60), service_of("b", 60))
    sits(world, "a")
    for seat in (
        Seat(Chunk(0, 1), B, restores=True),
        Seat(Chunk(0, 1), B, restores=True, evicts=(A,)),
        Seat(Chunk(0, 1), A),
        Seat(Chunk(0, 1), B),
        Seat(Chunk(0, 1)),
    ):
        with pytest.raises(ValueError, match="is not there for action 50"):
            world.seats.sit(SeatRequest(50, "b", (1,), (1.0,)), seat, 0.0)
        world.check()
