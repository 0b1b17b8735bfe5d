"""`Seats`: where actions sit, what goes for them, and in which order they are served."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.gpu import Chunk, Instance, Seat
from arl_tangram.scheduling.gpu.eviction import make_eviction
from arl_tangram.scheduling.gpu.places import Offer, Places
from arl_tangram.scheduling.gpu.request import SeatRequest, Wait
from property.gpu_rooms import nodes_of
from property.seat_worlds import SeatWorld, service_of

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


# In order.


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


# What is wanted by those behind is left to them.


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


# Restores that fail, and what dies.


def test_a_failed_restore_is_tried_elsewhere() -> None:
    world = world_of(service_of("a", 60), devices=2)
    asked = world.ask("a")
    world.decide()
    first = world.there[A].chunk
    assert world.failed(A) == [asked]
    assert [world.seats.used_bytes(d) for d in (0, 1)] == [0, 0]
    assert world.decide() == [asked]
    assert world.there[A].chunk != first


def test_after_all_chunks_an_action_gives_up() -> None:
    world = world_of(service_of("a", 60), devices=2)
    asked = world.ask("a")
    for _ in range(2):
        world.decide()
        world.failed(A)
    assert world.decide() == []
    assert world.gave_up == [asked]


def test_chunks_where_it_does_not_fit_are_none_to_try() -> None:
    world = world_of(service_of("a", 60), devices=2)
    world.set_capacity(1, 50)
    asked = world.ask("a")
    world.decide()
    world.failed(A)
    assert world.decide() == []
    assert world.gave_up == [asked]
    world.ask("a")
    world.decide()
    assert world.next_look_s == 0.5


def test_who_has_failed_gives_up_where_nothing_fits_any_more() -> None:
    world = world_of(service_of("a", 60))
    asked = world.ask("a")
    world.decide()
    world.failed(A)
    world.seats.set_capacity(0, 50, world.now)
    world.now += 100.0
    request = next(r for r in world.waiting if r.action_id == asked)
    assert world.seats.find(request, world.now) is None
    assert world.seats.hopeless(request, world.now)
    assert not world.seats.hopeless(request._replace(action_id=77), world.now), "who has not tried waits"


def test_who_can_wait_for_what_is_there_does_not_give_up() -> None:
    world = world_of(service_of("a", 30, dops=(1, 2)), devices=2)
    user = sits(world, "a", (2,), (1.0,))
    asked = world.ask("a")
    for _ in range(2):
        assert world.decide() == [asked]
        world.failed(A)
    assert world.decide() == []
    assert world.gave_up == []
    world.rise(user)
    assert world.decide() == [asked]


def test_who_has_failed_goes_on_as_long_as_there_are_chunks_to_try() -> None:
    world = world_of(service_of("a", 60), devices=8)
    asked = world.ask("a")
    for _ in range(8):
        assert world.decide() == [asked]
        world.failed(A)
    assert world.decide() == []
    assert world.gave_up == [asked]


def test_after_a_failure_and_a_while_who_found_nothing_is_not_searched_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_of(service_of("a", 60), service_of("b", 60))
    world.ask("a")
    world.decide()
    world.failed(A)
    world.decide()  # it gives up; nothing is restored there for half a second
    assert world.seats.find(SeatRequest(98, "a", (1,), (1.0,)), world.now) is None
    world.now = 0.5
    assert world.seats.find(SeatRequest(98, "a", (1,), (1.0,)), world.now) is not None, "time has changed it"
    sits(world, "b")
    searches: list[str | None] = []
    join = Places.join

    def counted(places: Places, request: SeatRequest, now_s: float, closed: Collection[int]) -> Offer | None:
        searches.append(request.service)
        return join(places, request, now_s, closed)

    monkeypatch.setattr(Places, "join", counted)
    for _ in range(3):
        assert world.seats.find(SeatRequest(99, "a", (1,), (1.0,)), world.now) is None
    assert searches == ["a"]


def test_a_body_keeps_away_from_devices_that_cannot_be_emptied() -> None:
    world = world_of(service_of("a", 60), devices=2)
    user = sits(world, "a")
    stuck = world.seats.seat_of(user)
    assert stuck is not None
    world.rise(user)
    other = 1 - stuck.chunk.first
    world.set_capacity(stuck.chunk.first, 40)  # the manager has not got it out
    body = world.ask(None)
    assert world.decide() == [body]
    seat = world.seats.seat_of(body)
    assert seat is not None
    assert seat.chunk == Chunk(other, 1)
    late = world.ask(None)
    assert world.decide() == []
    assert world.seats.possible(SeatRequest(late, None, (1,), (1.0,)), ())
    world.set_capacity(stuck.chunk.first, 100)
    assert world.decide() == [late]


def test_who_comes_after_a_failure_waits_a_moment_and_bars_nobody_else() -> None:
    world = world_of(service_of("a", 10), service_of("b", 10))
    world.ask("a")
    world.decide()
    world.failed(A)
    world.decide()
    late, other = world.ask("a"), world.ask("b")
    assert world.decide() == [other]
    assert world.next_look_s == 0.5
    world.now = 0.5
    assert world.decide() == [late]


def test_it_is_tried_less_and_less_often_until_it_succeeds() -> None:
    world = world_of(service_of("a", 10))
    pauses = []
    for _ in range(9):
        world.ask("a")
        world.decide()
        world.failed(A)
        world.decide()
        late = world.ask("a")
        world.decide()
        assert world.next_look_s is not None
        pauses.append(world.next_look_s - world.now)
        world.forget(late)
        world.now = world.next_look_s
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    world.ask("a")
    world.decide()
    world.restored(A)
    world.rise(next(iter(world.seated)))
    world.lost(A)
    world.ask("a")
    world.decide()
    world.failed(A)
    world.decide()
    assert world.seats.pass_over(SeatRequest(999, "a", (1,), (1.0,)), world.now) == Wait(False, world.now + 0.5)


def test_all_who_wait_for_a_restore_that_fails_lose_their_seats() -> None:
    world = world_of(service_of("a", places=8), devices=2)
    asked = [world.ask("a") for _ in range(5)]
    world.decide()
    assert world.failed(A) == asked
    assert world.decide() == asked
    assert len(world.restores) == 2


def test_what_dies_frees_its_bytes_and_its_users_rise_without_harm() -> None:
    world = world_of(service_of("a", 60, places=4), service_of("b", 60))
    users = [sits(world, "a"), sits(world, "a")]
    waits = world.ask("b")
    assert world.decide() == []
    assert world.lost(A) == users
    assert world.decide() == [waits]


def test_news_of_what_is_not_there_is_ignored() -> None:
    world = world_of(service_of("a"))
    assert world.seats.failed(A, 0.0) == ()
    assert world.seats.lost(A, 0.0) == ()
    world.seats.restored(A, 1.0, 0.0)
    world.seats.rise(7, 0.0)
    sits(world, "a")
    assert world.seats.failed(A, 0.0) == (), "it is resident"


# Devices that come and go.


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


# What can never be.


def refusal(world: SeatWorld, service: str | None, dops: tuple[int, ...]) -> str:
    with pytest.raises(InfeasibleError) as raised:
        world.seats.check(SeatRequest(1, service, dops, (1.0,) * len(dops)), "score")
    return str(raised.value)


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
