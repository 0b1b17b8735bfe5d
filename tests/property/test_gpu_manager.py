"""Whatever is asked for, cancelled and broken: seats become real, nobody computes with others' bytes, all comes back.

The scheduler and the manager are the real ones; devices and services are fakes that check how they are treated. In
virtual time.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from arl_tangram.errors import InfeasibleError, RestoreError, ServiceLostError
from arl_tangram.managers.gpu.devices.device import Region
from arl_tangram.managers.gpu.lease import GpuLease
from arl_tangram.managers.gpu.manager import GpuManager
from arl_tangram.model.gpu import Chunk
from fake_services import MIB, FakeService, FakeSource
from gpu_driver import Driver
from virtual_time import run_virtually, virtual

SIZES = (5, 10, 17, 30, 44)


@dataclass
class World:
    """What a run is made of."""

    devices: int
    mib: int
    sizes: list[int]
    wide: bool
    engine: bool
    seed: int
    jobs: int
    trouble: float
    move_mib: float = 1e6


worlds = st.builds(
    World,
    devices=st.sampled_from([1, 2, 4]),
    mib=st.sampled_from([60, 64, 100]),
    sizes=st.lists(st.sampled_from(SIZES), min_size=2, max_size=6),
    wide=st.booleans(),
    engine=st.booleans(),
    seed=st.integers(0, 2**32),
    jobs=st.integers(1, 60),
    trouble=st.sampled_from([0.0, 0.05, 0.3]),
    move_mib=st.sampled_from([1e6, 20.0]),
)


class Chaos:
    """Breaks things, as often as it is told to."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._rng = rng
        self._trouble = world.trouble
        self.is_over = False

    def strikes(self) -> bool:
        return not self.is_over and self._rng.random() < self._trouble

    def copy(self, _: Region) -> None:
        if self.strikes():
            raise OSError("the copy failed")


class Fragile(FakeService):
    """A service that fails to be evicted, and dies, now and then."""

    chaos: Chaos

    async def evict(self, dop: int) -> None:
        if self.chaos.strikes():
            self.evict_errors.append(RestoreError("its memory did not become free"))
        await super().evict(dop)


@given(worlds)
@settings(max_examples=120)
def test_seats_become_real(world: World) -> None:
    run_virtually(lives(world))


async def lives(world: World) -> None:
    rng = random.Random(world.seed)
    chaos = Chaos(world, rng)
    source = FakeSource(*[world.mib] * world.devices, bytes_per_s=50 * MIB, move_bytes_per_s=world.move_mib * MIB)
    for device in source.devices:
        device._fault = chaos.copy
    dops = tuple(dop for dop in (1, 2, 4) if dop <= world.devices) if world.wide else (1,)
    services = [
        Fragile(f"s{n}", mib=size, dops=dops, max_concurrency=rng.choice([1, 2, 8]), evict_s=rng.choice([0.0, 0.3]))
        for n, size in enumerate(world.sizes)
    ]
    if world.engine:
        services.append(Fragile("e", mib=20, asleep_mib=2, peak_mib=25, keeps_memory=True, chunks=((1, Chunk(0, 1)),)))
    for service in services:
        service.chaos = chaos
    manager = GpuManager(services, source)
    await manager.start()
    driver = Driver(manager)
    jobs = [asyncio.create_task(job(driver, rng, services)) for _ in range(world.jobs)]
    await asyncio.gather(*jobs)
    chaos.is_over = True
    await asyncio.sleep(200)  # what was stuck is tried again
    await everything_works_and_comes_back(driver, manager, source, services)
    driver.close()
    await manager.aclose()


async def job(driver: Driver, rng: random.Random, services: list[Fragile]) -> None:
    await asyncio.sleep(rng.random() * 20)
    name = rng.choice([*(s.name for s in services), None]) if rng.random() < 0.2 else rng.choice(services).name
    lasts_s, gives_up_s = rng.random() * 3, rng.random() * 40

    async def body(lease: GpuLease) -> None:
        if lease.seat.instance is None:
            await asyncio.sleep(lasts_s)
            return
        for _ in range(3):
            await lease.service.call(s=lasts_s / 3)
            await asyncio.sleep(0.1)

    try:
        async with asyncio.timeout(gives_up_s if rng.random() < 0.3 else None):
            await driver.run(name, body)
    except (TimeoutError, RestoreError, ServiceLostError, InfeasibleError):
        pass


async def everything_works_and_comes_back(
    driver: Driver, manager: GpuManager, source: FakeSource, services: list[Fragile]
) -> None:
    async def body(lease: GpuLease) -> Any:
        return await lease.service.call(s=0.1)

    for service in services:
        await asyncio.wait_for(driver.run(service.name, body), 300)
    assert not any(service.open_handles for service in services)
    for instance, _ in driver.seats.resident():
        manager.evict(instance)
    await asyncio.sleep(10)
    for number, device in enumerate(source.devices):
        assert device.free_bytes == device.capacity_bytes, f"{device} has something left"
        assert driver.seats.capacity_bytes(number) == device.capacity_bytes
    assert not any(service.resident for service in services)


@virtual
async def test_what_is_big_is_not_starved_by_what_is_small() -> None:
    """Two small services are always asked for; the big one needs the room of both, and gets it in bounded time."""
    small = [FakeService(name, mib=30, max_concurrency=4) for name in ("a", "b")]
    big = FakeService("big", mib=80)
    manager = GpuManager([*small, big], FakeSource(100, bytes_per_s=100 * MIB))
    await manager.start()
    driver = Driver(manager)
    is_over = False

    async def again_and_again(name: str) -> None:
        while not is_over:
            await driver.run(name, lambda lease: lease.service.call(s=1.0))

    loads = [asyncio.create_task(again_and_again(name)) for name in ("a", "b") for _ in range(6)]
    try:
        await asyncio.sleep(5)
        for _ in range(5):
            await asyncio.wait_for(driver.run("big", lambda lease: lease.service.call(s=1.0)), 10)
    finally:
        is_over = True
        await asyncio.gather(*loads)
    driver.close()
    await manager.aclose()
