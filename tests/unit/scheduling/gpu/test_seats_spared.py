"""`Seats`: what is idle is left to those who wait for it."""

from __future__ import annotations

import pytest

from arl_tangram.model.gpu import Chunk, Seat
from arl_tangram.scheduling.gpu.eviction import make_eviction
from arl_tangram.scheduling.gpu.request import SeatRequest, Wait
from property.seat_worlds import SeatWorld, service_of
from unit.scheduling.gpu.seat_scenes import A, B, passes, sits, world_of


def cyclic(policy: str) -> SeatWorld:
    """Two services are there, and ten actions wait for four, in turns."""
    world = world_of(*[service_of(name, 50) for name in "abcd"], eviction=make_eviction(policy))  # type: ignore[arg-type]
    passes(world, "a")
    passes(world, "b")
    for _ in range(3):
        for name in "cdab":
            world.ask(name, (1,), (1.0,))
    return world


def sitting(world: SeatWorld) -> str:
    return "".join(sorted(request.service or "-" for request in world.seated.values()))


def test_what_is_idle_serves_those_who_wait_for_it_before_it_goes() -> None:
    world = cyclic("loss")
    for _ in range(3):
        world.decide()
        assert sitting(world) == "ab"
        for action_id in list(world.seated):
            world.rise(action_id)
        world.now += 1.0
    world.decide()
    assert sitting(world) == "cd"
    assert len(world.restores) == 4


@pytest.mark.parametrize("policy", ["lru", "gdsf"])
def test_other_policies_know_nothing_of_those_behind(policy: str) -> None:
    world = cyclic(policy)
    world.decide()
    assert sitting(world) == "cd"


def test_what_nobody_joins_is_left_to_nobody() -> None:
    """Who is behind may want it, and lack something else."""
    world = world_of(service_of("a", 60), service_of("b", 60))
    passes(world, "a")
    asks = SeatRequest(50, "b", (1,), (1.0,))
    assert world.seats.find(asks, world.now, upcoming=["a", "a"]) is None
    wait = world.seats.pass_over(asks, world.now, upcoming=["a", "a"])
    assert wait == Wait(True, world.now + 0.001)
    assert world.seats.find(asks, world.now, upcoming=["a", "a"]) is None, "not at the same moment"
    seat = world.seats.find(asks, world.now + 0.001, upcoming=["a", "a"])
    assert seat == Seat(Chunk(0, 1), B, restores=True, evicts=(A,))


def test_who_waits_is_served_before_what_serves_it_goes() -> None:
    world = world_of(service_of("a", 60, restore_s=1.0), service_of("b", 60, restore_s=1.0))
    passes(world, "a")
    first = world.ask("b", (1,), (5.0,))
    waited = [world.ask("a") for _ in range(5)]
    came: list[int] = []
    while first in [request.action_id for request in world.waiting]:
        world.decide()
        world.now += 1.0
        came.append(world.ask("a"))
        for action_id in list(world.seated):
            if action_id != first:
                world.rise(action_id)
    still = [request.action_id for request in world.waiting]
    assert not set(waited) & set(still)
    assert set(came[1:]) <= set(still), "three times two restores, and one second in which it could be joined"


def test_who_was_called_by_a_running_action_spares_nobody() -> None:
    world = world_of(service_of("a", 60), service_of("b", 60), service_of("c", 10))
    passes(world, "a")
    caller = sits(world, "c")
    asks = SeatRequest(50, "b", (1,), (1.0,), callers=(caller,))
    assert world.seats.find(asks, world.now, upcoming=["a"]) is not None
