"""What tests of `Seats` begin with."""

from __future__ import annotations

import pytest

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.gpu import Instance
from arl_tangram.scheduling.gpu.request import SeatRequest
from property.gpu_rooms import nodes_of
from property.seat_worlds import SeatWorld

A, B, C = Instance("a", 1), Instance("b", 1), Instance("c", 1)


def world_of(*services, devices: int = 1, **options) -> SeatWorld:  # type: ignore[no-untyped-def]
    return SeatWorld(nodes_of(devices), services, **options)


def sits(world: SeatWorld, service: str | None, *args, **options) -> int:  # type: ignore[no-untyped-def]
    """An action asks and sits at once, on what is restored for it at once."""
    action_id = world.ask(service, *args, **options)
    assert world.decide() == [action_id]
    for instance in [i for i, there in world.there.items() if there.restoring]:
        world.restored(instance, world.seats.restore_s(instance))
    return action_id


def passes(world: SeatWorld, service: str) -> None:
    """An instance of a service becomes idle and resident."""
    world.rise(sits(world, service))


def refusal(world: SeatWorld, service: str | None, dops: tuple[int, ...]) -> str:
    with pytest.raises(InfeasibleError) as raised:
        world.seats.check(SeatRequest(1, service, dops, (1.0,) * len(dops)), "score")
    return str(raised.value)
