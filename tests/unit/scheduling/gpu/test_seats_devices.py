"""`Seats`: devices that come and go, or have less for a while."""

from __future__ import annotations

import pytest

from arl_tangram.model.gpu import Chunk
from arl_tangram.scheduling.gpu.request import SeatRequest
from property.gpu_rooms import nodes_of
from property.seat_worlds import service_of
from unit.scheduling.gpu.seat_scenes import A, B, passes, refusal, sits, world_of


def test_a_reclaimed_device_drains() -> None:
    world = world_of(service_of("a", 60), service_of("b", 60, places=4), devices=1)
    sits(world, "a")
    world.lend(1, nodes_of(1)[0])
    user = sits(world, "b")
    assert world.there[B].chunk == Chunk(1, 1)
    world.reclaim(1, 1)
    assert not world.seats.is_clear(1)
    world.ask("b")
    assert world.decide() == [], "nobody joins, nor is it placed there"
    world.rise(user)
    assert world.seats.is_clear(1)
    assert set(world.there) == {A}


def test_an_idle_one_leaves_a_reclaimed_device_at_once() -> None:
    world = world_of(service_of("a", 60), service_of("b", 60), devices=1)
    sits(world, "a")
    world.lend(1, nodes_of(1)[0])
    passes(world, "b")
    world.reclaim(1, 1)
    assert world.seats.is_clear(1)
    world.lend(1, nodes_of(1)[0])
    sits(world, "b")


def test_one_being_restored_leaves_a_reclaimed_device_after_its_action() -> None:
    world = world_of(service_of("a", 60), devices=1)
    world.lend(1, nodes_of(1)[0])
    world.set_capacity(0, 0)
    user = world.ask("a")
    world.decide()
    world.reclaim(1, 1)
    world.restored(A)
    assert not world.seats.is_clear(1)
    world.rise(user)
    assert world.seats.is_clear(1)


@pytest.mark.parametrize("less_before", [True, False])
def test_a_reclaimed_device_has_no_room_whatever_is_said_of_it_until_it_is_lent_again(less_before: bool) -> None:
    """Something that was evicted still has memory there, from before the reclaim or since, and lets go."""
    world = world_of(service_of("a", 60), service_of("b", 60), devices=1)
    sits(world, "a")
    world.lend(1, nodes_of(1)[0])
    if less_before:
        world.set_capacity(1, 20)
    world.reclaim(1, 1)
    world.ask("b")
    for capacity in (20, 100):
        world.set_capacity(1, capacity)
        assert world.decide() == []
    world.lend(1, nodes_of(1)[0])
    assert len(world.decide()) == 1


def test_less_capacity_evicts_what_is_idle_as_far_as_needed() -> None:
    world = world_of(*[service_of(name, 30) for name in "abc"])
    for name in "abc":
        passes(world, name)
    world.set_capacity(0, 65)
    assert len(world.there) == 2
    world.set_capacity(0, 100)
    assert world.seats.free_bytes(0) == 40


def test_who_needs_what_is_missing_for_the_moment_waits_for_it() -> None:
    world = world_of(service_of("a", 60))
    world.set_capacity(0, 0)
    asked = world.ask("a")
    assert asked, "not refused"
    body = world.ask(None)
    assert world.decide() == []
    assert world.seats.possible(SeatRequest(90, "a", (1,), (1.0,)), ())
    assert world.seats.capacity_of("a") == 1
    world.set_capacity(0, 100)
    assert world.decide() == [asked]
    world.restored(A)
    world.rise(asked)
    assert world.decide() == [body]


def test_who_needs_what_is_gone_is_refused() -> None:
    world = world_of(service_of("a", 60), devices=1)
    world.reclaim(0, 1)
    assert refusal(world, "a", (1,)) == "score asks for 'a' on 1 device of one node; there are none now"


def test_lending_checks_its_numbers() -> None:
    world = world_of(service_of("a"), devices=2)
    with pytest.raises(ValueError, match="inside of a node"):
        world.seats.lend(1, nodes_of(1)[0], 0.0)
    with pytest.raises(ValueError, match="has 2 devices"):
        world.seats.lend(0, nodes_of(1)[0], 0.0)
    with pytest.raises(ValueError, match="no node begins"):
        world.seats.reclaim(1, 0.0)
