"""What a service pays for taking more devices than it has to."""

from __future__ import annotations

from collections.abc import Sequence

from arl_tangram.model.gpu import Chunk, Footprint, HostedService, Instance, Seat
from arl_tangram.scheduling.gpu.crowding import Crowding
from arl_tangram.scheduling.gpu.residency import Residency
from arl_tangram.scheduling.gpu.restore_times import RestoreTimes
from property.gpu_rooms import chunks_of


def service(name: str, sizes: dict[int, int], restore_s: Sequence[float] = (4.0, 2.0, 1.0)) -> HostedService:
    """A service that takes so many bytes of each device, by dop."""
    footprints = tuple((dop, Footprint(size, size)) for dop, size in sizes.items())
    return HostedService(name, footprints, tuple(zip(sizes, restore_s, strict=False)))


class Pool:
    """Devices of 100 bytes, and what is in use on them."""

    def __init__(self, devices: int, *services: HostedService) -> None:
        self.residency = Residency(services)
        self.residency.add([100] * devices)
        self.chunks = chunks_of(devices)
        self.crowding = Crowding(self.residency, RestoreTimes(services))

    def price_s(self, service: str, dop: int) -> float:
        return self.crowding.price_s(Instance(service, dop), self.chunks)

    def place(self, service: str, chunk: Chunk) -> None:
        number = len(self.residency.sittings)
        self.residency.sit(number, Seat(chunk, Instance(service, chunk.size), restores=True), 0.0, 1.0)


def test_the_least_dop_costs_nothing() -> None:
    pool = Pool(1, service("a", {1: 60}), service("b", {1: 60}))
    assert pool.price_s("a", 1) == 0.0


def test_a_greater_one_costs_nothing_as_long_as_all_have_room() -> None:
    pool = Pool(4, service("a", {1: 60, 2: 60}), service("b", {1: 60, 2: 60}), service("c", {1: 60}))
    assert pool.price_s("a", 2) == 0.0


def test_who_does_not_fit_beside_it_is_restored_as_fast_as_it_can_be() -> None:
    pool = Pool(2, service("a", {1: 60, 2: 60}), service("b", {1: 60, 2: 60}, (7.0, 5.0)))
    assert pool.price_s("a", 2) == 5.0


def test_who_would_not_fit_anyway_costs_nothing() -> None:
    pool = Pool(2, service("a", {1: 60, 2: 60}), service("large", {2: 90}, (9.0,)))
    assert pool.price_s("a", 2) == 0.0


def test_a_service_that_takes_less_of_each_device_leaves_room_for_others() -> None:
    pool = Pool(2, service("a", {1: 60, 2: 30}), service("b", {1: 60}))
    assert pool.price_s("a", 2) == 0.0


def test_who_fits_beside_it_on_more_devices_costs_nothing() -> None:
    pool = Pool(2, service("a", {1: 60, 2: 60}), service("b", {1: 60, 2: 40}))
    assert pool.price_s("a", 2) == 0.0


def test_what_is_there_counts_as_it_is() -> None:
    others = [service(name, {1: 60, 2: 60}) for name in "bc"]
    pool = Pool(4, service("a", {1: 60, 2: 60}), *others)
    assert pool.price_s("a", 2) == 0.0
    pool.place("b", Chunk(0, 2))
    assert pool.price_s("a", 2) == 2.0, "b has two devices, so that none is left for c"


def test_a_second_instance_pays_for_all_that_it_takes() -> None:
    pool = Pool(3, service("a", {1: 60, 2: 60}), service("b", {1: 60}, (3.0,)))
    pool.place("a", Chunk(2, 1))
    assert pool.price_s("a", 2) == 3.0


def test_the_least_dop_is_the_least_that_fits() -> None:
    pool = Pool(2, service("a", {1: 150, 2: 75}), service("b", {1: 60}))
    assert pool.price_s("a", 2) == 0.0


def test_who_has_a_place_of_its_own_needs_that_one() -> None:
    engine = HostedService("e", ((1, Footprint(60, 60, 10)),), ((1, 6.0),), chunks=((1, Chunk(1, 1)),))
    pool = Pool(4, service("a", {2: 60, 4: 35}), engine)
    assert pool.price_s("a", 4) == 0.0, "35 and 60"
    pool = Pool(4, service("a", {2: 60, 4: 45}), engine)
    assert pool.price_s("a", 4) == 2.0, "either of them"


def test_who_was_not_asked_for_lately_is_not_in_use() -> None:
    pool = Pool(2, service("a", {1: 60, 2: 60}), service("b", {1: 60}))
    for _ in range(255):
        pool.crowding.asked("a")
    assert pool.price_s("a", 2) == 4.0
    pool.crowding.asked("a")
    assert pool.price_s("a", 2) == 0.0
    pool.crowding.asked("b")
    assert pool.price_s("a", 2) == 4.0


def test_what_will_not_be_restored_again_costs_nothing() -> None:
    pool = Pool(4, service("a", {1: 60, 2: 60}), service("large", {4: 90}, (9.0,)))
    pool.place("large", Chunk(0, 4))
    pool.residency.declare(0, 0)
    assert pool.price_s("a", 2) == 0.0


def test_devices_that_are_away_have_room_for_nobody() -> None:
    pool = Pool(4, service("a", {1: 60, 2: 60}), service("b", {1: 60}))
    assert pool.price_s("a", 2) == 0.0
    for device in (2, 3):
        pool.residency.declare(device, 0)
    assert pool.price_s("a", 2) == 4.0
