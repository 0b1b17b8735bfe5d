"""Which of several places is taken, and what goes for it: situations one can check by hand."""

from __future__ import annotations

from arl_tangram.model.gpu import Chunk, HostedService, Instance
from arl_tangram.scheduling.gpu.chunks import Chunks
from arl_tangram.scheduling.gpu.covering import least
from arl_tangram.scheduling.gpu.eviction import Loss, Lru, Resident
from arl_tangram.scheduling.gpu.victims import PlaceSearch, Wish
from property.gpu_rooms import MadeRoom, chunks_of, empty_room, nodes_of, put

FOUR = chunks_of(4)
NEW = Instance("new", 1)


def resident(name: str, device: int, size: int, *, dop: int = 1, restore_s: float = 1.0) -> Resident:
    return Resident(Instance(name, dop), Chunk(device, dop), size, restore_s)


def room_with(*residents: Resident) -> MadeRoom:
    room = empty_room(FOUR)
    for one in residents:
        put(room, one)
    return room


def wish(more: int, *, dop: int = 1, cost_s: float = 1.0) -> Wish:
    return Wish(Instance("new", dop), FOUR.of_size(dop), more, cost_s)


def test_where_there_is_room_nothing_goes() -> None:
    placing = PlaceSearch(room_with(resident("a", 0, 60), resident("b", 1, 60)), Loss(), ["a", "b"]).best([wish(40)])
    assert placing is not None
    assert placing.victims == ()
    assert placing.cost_s == 1.0


def test_of_places_with_room_the_tightest_is_taken_so_that_the_others_stay_whole() -> None:
    room = room_with(resident("a", 1, 30), resident("b", 2, 55))
    placing = PlaceSearch(room, Loss(), []).best([wish(40)])
    assert placing is not None
    assert placing.chunk == Chunk(2, 1)


def test_but_not_beside_what_is_in_use() -> None:
    room = room_with(resident("a", 1, 30))
    room.used[2], room.held[2] = 55, 1
    placing = PlaceSearch(room, Loss(), []).best([wish(40)])
    assert placing is not None
    assert placing.chunk == Chunk(1, 1)


def test_case_110_the_peak_counts_one_more_goes_or_it_does_not_start() -> None:
    """Size 30, peak 45, free 40: the resting size would fit, the restore does not."""
    chunks = chunks_of(1)
    room = empty_room(chunks)
    room.used[0], room.held[0] = 20, 1
    put(room, resident("a", 0, 40))
    one = Wish(NEW, chunks.of_size(1), 45, 1.0)
    placing = PlaceSearch(room, Loss(), []).best([one])
    assert placing is not None
    assert placing.victims == (Instance("a", 1),)
    room.idle[0].clear()  # the same one, in use
    assert PlaceSearch(room, Loss(), []).best([one]) is None


def test_the_set_that_loses_least_goes() -> None:
    room = room_with(*[resident(name, 0, 30, restore_s=0.6) for name in ("a", "b", "c")])
    put(room, resident("large", 0, 10, restore_s=1.0))
    for other in (1, 2, 3):
        room.used[other], room.held[other] = 100, 1
    placing = PlaceSearch(room, Loss(), ["a", "b", "c", "large"]).best([wish(30)])
    assert placing is not None
    assert placing.victims == (Instance("c", 1),), "third in the queue"
    placing = PlaceSearch(room, Loss(), ["a", "b", "c", "large"]).best([wish(40)])
    assert placing is not None
    assert placing.victims == (Instance("c", 1), Instance("large", 1)), "0.2 + 0.25 s, not 0.2 + 0.3 s"


def test_a_victim_that_spans_devices_makes_room_on_all_of_them() -> None:
    room = room_with(
        resident("wide", 0, 60, dop=4, restore_s=3.0), *[resident(f"s{d}", d, 40, restore_s=1.0) for d in range(4)]
    )
    worth = {one.instance: one.restore_s for on_device in room.idle for one in on_device}
    wide = least(Chunk(0, 4), 50, room, worth)
    assert wide is not None
    assert wide.instances == (Instance("wide", 4),)
    narrow = least(Chunk(0, 2), 30, room, worth)
    assert narrow is not None
    assert narrow.instances == (Instance("s0", 1), Instance("s1", 1)), "two for 1 s each beat one for 3 s"


def test_a_higher_dop_is_taken_only_if_it_saves_more_than_its_victims_cost() -> None:
    room = room_with(resident("a", 0, 80, restore_s=2.0), resident("b", 2, 80, restore_s=2.0))
    search = PlaceSearch(room, Loss(), ["a", "b"])
    on_one, on_two = wish(50, cost_s=5.0), wish(50, dop=2, cost_s=4.2)
    placing = search.best([on_one, on_two])
    assert placing is not None
    assert (placing.chunk.size, placing.cost_s) == (1, 5.0), "0.8 s saved, b would cost 1 s"
    faster = Wish(Instance("new", 2), FOUR.of_size(2), 50, 3.0)
    placing = search.best([on_one, faster])
    assert placing is not None
    assert (placing.chunk, placing.victims, placing.cost_s) == (Chunk(2, 2), (Instance("b", 1),), 4.0)


def test_lru_takes_the_oldest_whatever_it_costs() -> None:
    old, young = resident("old", 0, 80, restore_s=60.0), resident("young", 1, 80, restore_s=0.1)
    room = room_with(old, young)
    room.used[2] = room.used[3] = 100
    policy = Lru()
    policy.used(old)
    policy.used(young)
    placing = PlaceSearch(room, policy, ["old"]).best([wish(50)])
    assert placing is not None
    assert placing.victims == (Instance("old", 1),)


def test_a_service_with_a_place_of_its_own_can_be_nowhere_else() -> None:
    service = HostedService("engine", (), (), chunks=((2, Chunk(2, 2)),))
    assert FOUR.of(service, 2) == (Chunk(2, 2),)
    assert FOUR.of(service, 1) == FOUR.of_size(1)
    assert FOUR.of(service, 3) == ()


def test_nodes_are_counted_on() -> None:
    chunks = Chunks(nodes_of(3, 2))
    assert chunks.of_size(2) == (Chunk(0, 2), Chunk(3, 2))
    assert chunks.free([0, 1, 2, 3]) == (Chunk(0, 2), Chunk(2, 1), Chunk(3, 1))
