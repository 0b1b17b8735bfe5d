"""The victim set is the least one that makes room, on one chunk and over all; equal to brute force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arl_tangram.model.gpu import CHUNK_SIZES, Chunk, Instance
from arl_tangram.scheduling.gpu.chunks import Chunks
from arl_tangram.scheduling.gpu.covering import everything, least
from arl_tangram.scheduling.gpu.eviction import Resident
from arl_tangram.scheduling.gpu.victims import PlaceSearch, Wish
from property.gpu_rooms import CAPACITY, MadeRoom, chunks_of, empty_room, freed_by, nodes_of, put, rooms

FOUR = chunks_of(4)
Drawn = tuple[MadeRoom, dict[Instance, float]]


class Known:
    """A policy that puts given values on residents."""

    name = "known"

    def __init__(self, worth: dict[Instance, float], *, in_seconds: bool = True) -> None:
        self.worth = worth
        self.in_seconds = in_seconds

    def used(self, resident: Resident) -> None: ...

    def left(self, instance: Instance) -> None: ...

    def evicted(self, instance: Instance) -> None: ...

    def values(self, residents: Sequence[Resident], upcoming: Sequence[str]) -> list[float]:
        return [self.worth[resident.instance] for resident in residents]


def brute_force(room: MadeRoom, worth: dict[Instance, float], chunk: Chunk, more: int) -> float:
    """Return the least value of a set after which there is room; infinite if there is none."""
    least_value = math.inf
    for number in range(len(worth) + 1):
        for gone in itertools.combinations(worth, number):
            free = freed_by(room, gone)
            if all(free[device] >= more for device in chunk.devices):
                least_value = min(least_value, math.fsum(worth[instance] for instance in gone))
    return least_value


@given(rooms(FOUR), st.sampled_from([c for size in CHUNK_SIZES for c in FOUR.of_size(size)]), st.integers(0, CAPACITY))
@settings(max_examples=300)
def test_the_set_on_a_chunk_is_the_least_and_makes_room(drawn: Drawn, chunk: Chunk, more: int) -> None:
    room, worth = drawn
    found = least(chunk, more, room, worth)
    best = brute_force(room, worth, chunk, more)
    if found is None:
        assert math.isinf(best)
        return
    assert found.value == pytest.approx(best)
    assert found.value == pytest.approx(math.fsum(worth[instance] for instance in found.instances))
    assert [worth[i] for i in found.instances] == sorted(worth[i] for i in found.instances)
    free = freed_by(room, found.instances)
    assert all(free[device] >= more for device in chunk.devices)
    for spared in found.instances:
        fewer = freed_by(room, tuple(i for i in found.instances if i != spared))
        assert any(fewer[device] < more for device in chunk.devices), f"{spared} goes for nothing"


@given(rooms(FOUR), st.integers(0, CAPACITY), st.floats(0, 50))
def test_a_limit_hides_only_what_is_worth_more(drawn: Drawn, more: int, limit: float) -> None:
    room, worth = drawn
    for chunk in FOUR.of_size(2):
        free, bound = least(chunk, more, room, worth), least(chunk, more, room, worth, limit)
        if free is not None and free.value <= limit:
            assert bound is not None
            assert bound.value == pytest.approx(free.value)
        else:
            assert bound is None


@given(
    rooms(FOUR), st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.integers(0, CAPACITY), st.floats(0, 50)), max_size=3)
)
@settings(max_examples=150)
def test_the_place_is_the_cheapest_of_all_dops_and_chunks(drawn: Drawn, dops: list[tuple[int, int, float]]) -> None:
    room, worth = drawn
    wishes = [Wish(Instance("new", dop), FOUR.of_size(dop), more, cost_s) for dop, more, cost_s in dops]
    search = PlaceSearch(room, Known(worth), ())
    best = search.best(wishes)
    costs = [
        wish.cost_s + brute_force(room, worth, chunk, wish.more_bytes or 0) for wish in wishes for chunk in wish.chunks
    ]
    if best is None:
        assert all(math.isinf(cost_s) for cost_s in costs)
        return
    assert best.cost_s == pytest.approx(min(costs))
    everywhere = search.everywhere(wishes)
    assert min(placing.cost_s for placing in everywhere.values()) == pytest.approx(best.cost_s)
    for chunk, placing in everywhere.items():
        assert placing.chunk == chunk
        assert placing.cost_s == pytest.approx(
            min(w.cost_s + brute_force(room, worth, chunk, w.more_bytes or 0) for w in wishes if chunk in w.chunks)
        )


@given(rooms(FOUR), st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(0, CAPACITY), st.floats(0, 5)), max_size=3))
def test_where_values_are_no_seconds_the_duration_comes_first(drawn: Drawn, dops: list[tuple[int, int, float]]) -> None:
    room, worth = drawn
    wishes = [Wish(Instance("new", dop), FOUR.of_size(dop), more, cost_s) for dop, more, cost_s in dops]
    best = PlaceSearch(room, Known(worth, in_seconds=False), ()).best(wishes)
    costs = [
        (wish.cost_s, value)
        for wish in wishes
        for chunk in wish.chunks
        for value in [brute_force(room, worth, chunk, wish.more_bytes or 0)]
        if not math.isinf(value)
    ]
    if best is None:
        assert not costs
    else:
        assert (best.cost_s, best.value) == (min(costs)[0], pytest.approx(min(costs)[1]))


@given(rooms(FOUR))
def test_a_body_takes_whole_devices_and_only_those_that_nobody_holds(drawn: Drawn) -> None:
    room, worth = drawn
    for chunk in FOUR.of_size(2):
        found = everything(chunk, room, worth)
        if any(room.held[device] for device in chunk.devices):
            assert found is None
        else:
            assert found is not None
            assert set(found.instances) == {r.instance for d in chunk.devices for r in room.idle[d]}


@given(st.data())
@settings(max_examples=8)
def test_however_many_residents_there_are_the_work_is_bounded_and_there_is_room(data: st.DataObject) -> None:
    """Thousands of small residents of all sizes on one node: cut off, the set still makes room."""
    chunks = Chunks(nodes_of(8, capacity=100_000))
    room = empty_room(chunks)
    worth: dict[Instance, float] = {}
    seed = data.draw(st.integers(0, 2**16))
    for number in range(2000):
        size = (1, 2, 4, 8)[(number + seed) % 4]
        choice = chunks.of_size(size)
        chunk = choice[(number * 7 + seed) % len(choice)]
        resident = Resident(Instance(f"s{number}", size), chunk, 1 + (number * 31 + seed) % 67, 1.0)
        worth[resident.instance] = float((number * 17 + seed) % 97)
        put(room, resident)
    more = min(room.capacity) - max(room.used) + data.draw(st.integers(1, 1000))
    found = least(Chunk(0, 8), more, room, worth)
    assert found is not None
    free = freed_by(room, found.instances)
    assert all(free[device] >= more for device in range(8))
