"""`Seats`: restores that fail, and what dies."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from arl_tangram.model.gpu import Chunk
from arl_tangram.scheduling.gpu.places import Offer, Places
from arl_tangram.scheduling.gpu.request import SeatRequest, Wait
from property.seat_worlds import service_of
from unit.scheduling.gpu.seat_scenes import A, sits, world_of


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
    user = sits(world, "a", (2,), (100.0,))
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
