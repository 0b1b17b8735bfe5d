"""What every device promises about its memory: on the CPU, on a GPU, and on the devices that only pretend."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest
import torch

from arl_tangram.managers.gpu.devices.arena_device import ArenaDevice
from arl_tangram.managers.gpu.devices.cpu.device import CpuDevice
from arl_tangram.managers.gpu.devices.cuda.device import CudaDevice
from arl_tangram.managers.gpu.devices.cuda.memory import CudaMemory
from arl_tangram.managers.gpu.devices.device import Device, Region
from arl_tangram.managers.gpu.devices.fake_device import FakeDevice
from arl_tangram.managers.gpu.devices.off_loop import Line
from fake_cuda import FakeCuda

CAPACITY = 1 << 20
KINDS = ("cpu", "cpu, poisoned", "fake", "cuda, over host memory", pytest.param("cuda", marks=pytest.mark.gpu))


@pytest.fixture(params=KINDS)
async def device(request: pytest.FixtureRequest) -> AsyncIterator[ArenaDevice]:
    """A device of 1 MiB."""
    made: ArenaDevice
    if request.param == "fake":
        made = FakeDevice("cpu:0", CAPACITY, bytes_per_s=1e12)
    elif request.param == "cuda":
        uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
        made = await CudaDevice.open(uuid, CAPACITY, poison=True)
    elif request.param == "cuda, over host memory":
        made = CudaDevice("GPU-0", "cuda:0", CAPACITY, CudaMemory(FakeCuda(), CAPACITY), Line(), poison=True)
    else:
        made = CpuDevice("cpu:0", CAPACITY, poison="poisoned" in request.param)
    yield made
    await made.aclose()


def some_bytes(size: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 255, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def holds(device: Device, region: Region, source: torch.Tensor) -> bool:
    """Tell whether these bytes are in a region; of a device without bytes, whether they were copied there."""
    if isinstance(device, FakeDevice):
        return device.content(region) is source
    return torch.equal(device.view(region).cpu(), source)


async def filled(device: Device, size: int, seed: int) -> tuple[Region, torch.Tensor]:
    region, source = device.allocate(size), some_bytes(size, seed)
    assert region is not None
    await device.copy_in(region, source)
    return region, source


async def test_what_was_copied_is_there_until_it_is_freed(device: ArenaDevice) -> None:
    sizes = (1, 511, 512, 513, 100_000, 300_000)
    there = [await filled(device, size, seed) for seed, size in enumerate(sizes)]
    assert all(holds(device, region, source) for region, source in there)
    assert device.free_bytes == CAPACITY - sum(-(-size // 512) * 512 for size in sizes)
    for number, (region, _) in enumerate(there):
        device.free(region)
        assert all(holds(device, *other) for other in there[number + 1 :])
    assert device.free_bytes == device.largest_hole == device.capacity_bytes == CAPACITY


async def test_memory_that_is_used_again_holds_the_last_copy(device: ArenaDevice) -> None:
    for seed in range(50):
        region, source = await filled(device, CAPACITY - 512 * seed, seed)
        assert holds(device, region, source)
        device.free(region)


async def test_a_region_moves_with_its_bytes(device: ArenaDevice) -> None:
    first = device.allocate(3_000)
    assert first is not None
    region, source = await filled(device, 200_000, 1)
    other, others = await filled(device, 50_000, 2)
    device.free(first)
    free = device.free_bytes
    for offset in (0, 1024, 512, 1024 * 500, 1024 * 400, 1024 * 500 + 512, 512 * 3):
        target = Region(offset, region.size)
        await device.move(region, target)
        region = target
        assert holds(device, region, source)
        assert holds(device, other, others)
        assert device.free_bytes == free
    device.free(region)
    device.free(other)
    assert device.largest_hole == CAPACITY


async def test_moves_make_room(device: ArenaDevice) -> None:
    there = [await filled(device, CAPACITY // 8, seed) for seed in range(8)]
    for region, _ in there[::2]:
        device.free(region)
    assert device.largest_hole == CAPACITY // 8
    places = dict(there[1::2])
    moves = device.make_room(CAPACITY // 2, list(places))
    assert moves
    for source, target in moves:
        await device.move(source, target)
        places[target] = places.pop(source)
    assert device.allocate(CAPACITY // 2) is not None
    assert device.make_room(1, list(places)) is None
    assert all(holds(device, region, source) for region, source in places.items())


async def test_nobody_gets_what_is_not_there(device: ArenaDevice) -> None:
    assert device.allocate(CAPACITY + 1) is None
    region = device.allocate(CAPACITY - 511)
    assert region == Region(0, CAPACITY - 511)
    assert (device.free_bytes, device.largest_hole, device.allocate(1)) == (0, 0, None)
    empty = device.allocate(0)
    assert empty is not None
    await device.copy_in(empty, some_bytes(0, 1))
    assert device.view(empty).numel() == 0
    device.free(empty)
    device.free(region)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda device, region: device.copy_in(region, some_bytes(region.size + 1, 1)),
        lambda device, region: device.copy_in(Region(region.offset, region.size - 1), some_bytes(region.size - 1, 1)),
        lambda device, region: device.copy_in(Region(512, 10), some_bytes(10, 1)),
        lambda device, region: device.move(region, Region(CAPACITY - 512, region.size)),
        lambda device, region: device.move(region, Region(region.offset, region.size - 1)),
        lambda device, region: device.move(Region(512 * 9, 5), Region(0, 5)),
        lambda device, region: device.vacate(),
    ],
    ids=["larger", "a part", "elsewhere", "out of it", "a smaller one", "no region", "given back"],
)
async def test_what_is_no_region_is_not_written_or_moved(device: ArenaDevice, wrong: Callable[..., object]) -> None:
    region, source = await filled(device, 1000, 3)
    with pytest.raises(ValueError, match=r"region|not free"):
        await wrong(device, region)  # type: ignore[misc]
    assert holds(device, region, source)
    assert device.free_bytes == CAPACITY - 1024
    device.free(region)
    with pytest.raises(ValueError, match="no region that is taken"):
        device.free(region)
    with pytest.raises(ValueError, match="no region that is taken"):
        device.view(region)


async def test_memory_that_is_given_back_can_be_taken_again(device: ArenaDevice) -> None:
    region, _ = await filled(device, 1000, 1)
    device.free(region)
    await device.vacate()
    assert device.allocate(1) is None
    assert device.allocate(0) is not None
    await device.vacate()
    await device.occupy()
    await device.occupy()
    region, source = await filled(device, CAPACITY, 2)
    assert holds(device, region, source)


async def test_copies_at_once_do_not_disturb_each_other(device: ArenaDevice) -> None:
    regions = [device.allocate(CAPACITY // 16) for _ in range(16)]
    sources = [some_bytes(CAPACITY // 16, seed) for seed in range(16)]
    tasks = [
        asyncio.create_task(device.copy_in(region, source))
        for region, source in zip(regions, sources, strict=True)
        if region is not None
    ]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(error, asyncio.CancelledError) or error is None for error in ended)
    assert ended[1::2] == [None] * 8
    assert all(holds(device, regions[number], sources[number]) for number in range(1, 16, 2))  # type: ignore[arg-type]


class Crowd:
    """Users of one device who allocate, copy, give up and free, while somebody makes room by moving what is idle."""

    def __init__(self, device: ArenaDevice) -> None:
        self.device = device
        self.idle: dict[Region, torch.Tensor] = {}
        self.verified = self.moved = self.given_up = 0

    async def use(self, seed: int, steps: int) -> None:
        chance = random.Random(seed)
        for step in range(steps):
            region = self.device.allocate(chance.randrange(1, CAPACITY // 6))
            if region is not None:
                await self.fill(region, some_bytes(region.size, 1000 * seed + step), gives_up=chance.random() < 0.2)
            if region is None or chance.random() < 0.7:
                self.verify(chance)
            await asyncio.sleep(0)

    async def fill(self, region: Region, source: torch.Tensor, *, gives_up: bool) -> None:
        copying = asyncio.create_task(self.device.copy_in(region, source))
        if gives_up:
            await asyncio.sleep(0)
            copying.cancel()
        await asyncio.wait([copying])
        if copying.cancelled():
            self.given_up += 1
            self.device.free(region)
        else:
            copying.result()
            self.idle[region] = source

    def verify(self, chance: random.Random) -> None:
        if self.idle:
            region = chance.choice(list(self.idle))
            assert holds(self.device, region, self.idle.pop(region))
            self.device.free(region)
            self.verified += 1

    async def make_room(self) -> None:
        while True:
            moves = self.device.make_room(CAPACITY // 4, list(self.idle))
            for source, target in moves or ():
                content = self.idle.pop(source, None)
                if content is None:  # freed meanwhile
                    break
                try:
                    await self.device.move(source, target)
                except ValueError:  # somebody has taken the place meanwhile
                    self.idle[source] = content
                    break
                self.idle[target] = content
                self.moved += 1
            await asyncio.sleep(0)


async def test_whoever_has_a_region_reads_what_he_wrote_whatever_others_do(device: ArenaDevice) -> None:
    crowd = Crowd(device)
    tidying = asyncio.create_task(crowd.make_room())
    await asyncio.gather(*(crowd.use(seed, 40) for seed in range(8)))
    tidying.cancel()
    await asyncio.wait([tidying])
    while crowd.idle:
        crowd.verify(random.Random(1))
    assert crowd.verified > 150
    assert crowd.given_up > 5
    assert crowd.moved > 5


async def test_a_closed_device_copies_nothing(device: ArenaDevice) -> None:
    region, source = await filled(device, 1000, 1)
    await device.aclose()
    with pytest.raises(OSError, match="closed"):
        await device.copy_in(region, source)
