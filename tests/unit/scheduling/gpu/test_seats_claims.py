"""`Seats`: who waits to be placed, whom that bars, and what it claims in time."""

from __future__ import annotations

from arl_tangram.model.gpu import Chunk, Instance
from property.seat_worlds import service_of
from unit.scheduling.gpu.seat_scenes import passes, sits, world_of


def test_who_waits_to_be_placed_bars_placing_and_not_joining() -> None:
    world = world_of(service_of("a", 60, places=9), service_of("big", 90), service_of("c", 10), devices=1)
    sits(world, "a")
    world.ask("big")
    small = world.ask("c")
    joins = world.ask("a")
    assert world.decide() == [joins], "c would fit beside a, and does not overtake"
    assert small in [r.action_id for r in world.waiting]


def test_joins_pass_until_the_restores_are_waited_for_three_times() -> None:
    world = world_of(service_of("a", 60, places=99, restore_s=2.0), service_of("big", 90, restore_s=3.0))
    sits(world, "a")
    big = world.ask("big")
    assert world.decide() == []
    assert world.next_look_s == 15.0, "three times its own restore, and that of a"
    world.now = 14.9
    passing = world.ask("a")
    assert world.decide() == [passing]
    world.now = 15.0
    late = world.ask("a")
    assert world.decide() == [], "nobody joins any more"
    for action_id in list(world.seated):
        world.rise(action_id)
    assert world.decide() == [big]
    world.restored(Instance("big", 1))
    world.rise(big)
    assert world.decide() == [late]


def test_at_most_64_joins_pass() -> None:
    world = world_of(service_of("a", 60, places=999, restore_s=1e6), service_of("big", 90, restore_s=1e6))
    sits(world, "a")
    world.ask("big")
    world.decide()
    asked = [world.ask("a") for _ in range(80)]
    assert world.decide() == asked[:64]


def test_a_claim_is_over_when_who_made_it_waits_no_more() -> None:
    world = world_of(service_of("a", 60, places=99), service_of("big", 90))
    sits(world, "a")
    big = world.ask("big")
    world.decide()
    world.now = 100.0
    joins = world.ask("a")
    assert world.decide() == []
    world.forget(big)
    assert world.decide() == [joins]


def test_who_has_waited_long_claims_at_once_when_there_is_room_for_it_again() -> None:
    world = world_of(service_of("a", 60, places=99), service_of("big", 90))
    sits(world, "a")
    big = world.ask("big")
    world.decide()
    world.now = 100.0
    joins = world.ask("a")
    assert world.decide() == [], "it has claimed the device"
    world.set_capacity(0, 80)
    assert world.decide() == [joins], "for the moment there is nowhere that it could be"
    for _ in range(2):
        joins = world.ask("a")
        assert world.decide() == [joins]
    world.set_capacity(0, 100)
    late = world.ask("a")
    assert world.decide() == [], "it has waited long enough"
    for action_id in list(world.seated):
        world.rise(action_id)
    assert world.decide() == [big]
    assert late in [request.action_id for request in world.waiting]


def test_a_claim_is_over_for_those_who_are_barred_by_another_one() -> None:
    world = world_of(service_of("a", 60, places=99), service_of("big", 90), service_of("huge", 95, restore_s=1e6))
    sits(world, "a")
    big = world.ask("big")
    world.ask("huge")
    world.decide()
    world.now = 100.0
    joins = world.ask("a")
    assert world.decide() == []
    world.forget(big)
    assert world.decide() == [joins]


def test_a_claim_is_where_compute_is_free_first() -> None:
    services = [service_of("x", 10, exclusive=True), service_of("a", 60, places=9), service_of("b", 60, places=9)]
    world = world_of(*services, devices=2)
    sits(world, "a", (1,), (1000.0,))
    sits(world, "b", (1,), (5.0,))
    world.ask("x")
    world.decide()
    world.now = 50.0
    joins = [world.ask("b"), world.ask("a")]
    assert world.decide() == joins[1:]


def test_who_comes_first_by_priority_joins_what_is_claimed() -> None:
    world = world_of(service_of("a", 60, places=99), service_of("big", 90))
    sits(world, "a")
    world.ask("big")
    world.decide()
    world.now = 100.0
    first = world.ask("a", priority=-1)
    behind = world.ask("a")
    assert world.decide() == [first]
    assert [r.action_id for r in world.waiting if r.service == "a"] == [behind]


def test_a_claim_does_not_bind_those_who_come_before_it_though_somebody_bars_them() -> None:
    services = [service_of("a", 60, places=99), service_of("b", 60)]
    services += [service_of("c", 60, chunks=[(1, Chunk(0, 1))]), service_of("d", 60, chunks=[(1, Chunk(1, 1))])]
    world = world_of(*services, devices=2)
    sits(world, "a")
    sits(world, "b")
    assert [chunk for _, chunk in world.seats.resident()] == [Chunk(0, 1), Chunk(1, 1)]
    world.ask("c")
    world.decide()
    world.now = 10.0
    world.decide()  # c has claimed the first device
    world.ask("d", priority=-2)
    before, behind = world.ask("a", priority=-1), world.ask("a")
    assert world.decide() == [before], "d bars both of them, and waits for the other device"
    assert behind in [request.action_id for request in world.waiting]


def test_an_exclusive_one_that_is_there_claims_its_devices() -> None:
    """It lacks no byte, and yet others that join beside it would keep it from computing for ever."""
    world = world_of(service_of("x", 10, exclusive=True), service_of("a", 10, places=99))
    passes(world, "x")
    sits(world, "a")
    waits = world.ask("x")
    assert world.decide() == []
    world.now = 100.0
    world.ask("a")
    assert world.decide() == []
    for action_id in list(world.seated):
        world.rise(action_id)
    assert waits in world.decide()


def test_what_can_stay_beside_what_is_claimed_is_joined() -> None:
    services = [service_of("a", 40, places=9), service_of("b", 40, places=9), service_of("c", 50)]
    world = world_of(*services)
    sits(world, "a", (1,), (1000.0,))
    sits(world, "b", (1,), (5.0,))
    asks = world.ask("c")
    world.decide()
    world.now = 50.0
    joins, _ = world.ask("a"), world.ask("b")
    assert world.decide() == [joins], "b has to go, and a has not"
    world.rise(2)
    assert world.decide() == [asks]


def test_who_waits_for_an_exclusive_one_to_end_beside_its_own_closes_nothing_else() -> None:
    services = [
        service_of("w", 10, dops=(2,), chunks=[(2, Chunk(0, 2))]),
        service_of("x", 10, exclusive=True, places=9, chunks=[(1, Chunk(0, 1))]),
        service_of("f", 10, places=9, chunks=[(1, Chunk(1, 1))]),
    ]
    world = world_of(*services, devices=2)
    passes(world, "w")
    passes(world, "f")
    user = sits(world, "x")
    waits = world.ask("w")
    assert world.decide() == []
    world.now = 100.0
    late, joins = world.ask("x"), world.ask("f")
    assert world.decide() == [joins], "w has claimed that x is not used again, and f is in nobody's way"
    world.rise(user)
    assert world.decide() == [waits]
    world.rise(waits)
    assert world.decide() == [late]


def test_a_body_claims_all_that_is_on_its_devices() -> None:
    world = world_of(service_of("a", 40, places=9), service_of("b", 40, places=9))
    sits(world, "a")
    sits(world, "b")
    world.ask(None, (1,))
    world.decide()
    world.now = 50.0
    for name in "ab":
        world.ask(name)
    assert world.decide() == []


def test_a_claim_is_on_the_chunk_that_is_free_first() -> None:
    services = [service_of("a", 60), service_of("b", 60, places=9), service_of("c", 60)]
    world = world_of(*services, devices=2)
    sits(world, "a", (1,), (1000.0,))
    sits(world, "b", (1,), (5.0,))
    world.ask("c")
    world.decide()
    world.now = 50.0
    assert world.ask("b")
    assert world.decide() == [], "b's device is claimed"


def test_each_of_two_that_wait_claims_in_its_time() -> None:
    services = [service_of("a", 60, places=99), service_of("b", 60, places=99)]
    services += [service_of("c", 60, restore_s=3.0, chunks=[(1, Chunk(0, 1))])]
    services += [service_of("d", 60, restore_s=9.0, chunks=[(1, Chunk(1, 1))])]
    world = world_of(*services, devices=2)
    sits(world, "a")
    sits(world, "b")
    world.ask("c")
    world.decide()
    world.ask("d", priority=-1)
    world.decide()
    for now, joined in ((11.9, "ab"), (12.0, "b"), (29.9, "b"), (30.0, "")):
        world.now = now
        asked = {name: world.ask(name) for name in "ab"}
        assert world.decide() == [asked[name] for name in joined]
        for name in set("ab") - set(joined):
            world.forget(asked[name])


def test_who_comes_first_takes_what_another_has_claimed_and_that_one_claims_anew() -> None:
    services = [service_of("a", 60, places=99), service_of("b", 60, places=99)]
    services += [service_of("c", 60, restore_s=3.0), service_of("d", 60, restore_s=9.0)]
    world = world_of(*services, devices=2)
    sits(world, "a", (1,), (20.0,))
    sits(world, "b", (1,), (30.0,))
    late = world.ask("c")
    assert world.decide() == []
    early = world.ask("d", priority=-1)
    assert world.decide() == []
    world.now = 12.0  # c, which would have to wait for a least, has claimed its device
    behind = [world.ask("a"), world.ask("b")]
    assert world.decide() == behind[1:]
    world.rise(1)
    assert world.decide() == [early], "who comes first takes what is claimed"
    world.now = 13.0  # and c claims the other
    world.ask("b")
    assert world.decide() == []
    world.restored(Instance("d", 1))
    world.rise(early)
    assert late in world.decide()
