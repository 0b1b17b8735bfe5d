"""A device without bytes: copies last as long as they would, in virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from arl_tangram.managers.gpu.devices.device import Region
from arl_tangram.managers.gpu.devices.fake_device import FakeDevice

pytestmark = pytest.mark.looptime

GB = 10**9


def so_many(size: int) -> Any:
    """Return what stands for so many bytes."""
    return SimpleNamespace(numel=lambda: size)


async def test_copies_share_the_link_one_after_the_other() -> None:
    device = FakeDevice("gpu:0", 200 * GB, bytes_per_s=10 * GB)
    regions = [device.allocate(20 * GB), device.allocate(30 * GB)]
    loop = asyncio.get_running_loop()
    ended_s: list[float] = []

    async def copy(region: Region | None) -> None:
        assert region is not None
        await device.copy_in(region, so_many(region.size))
        ended_s.append(loop.time())

    began_s = loop.time()
    await asyncio.gather(*(copy(region) for region in regions))
    assert [at_s - began_s for at_s in ended_s] == pytest.approx([2, 5])
    await device.aclose()


async def test_a_copy_that_fails_in_the_middle_leaves_no_content() -> None:
    broken = True

    def fault(region: Region) -> None:
        if broken:
            raise OSError("the link is down")

    device = FakeDevice("gpu:0", 100 * GB, bytes_per_s=10 * GB, move_bytes_per_s=100 * GB, fault=fault)
    loop = asyncio.get_running_loop()
    region, source = device.allocate(20 * GB), so_many(20 * GB)
    assert region is not None
    began_s = loop.time()
    with pytest.raises(OSError, match="the link is down"):
        await device.copy_in(region, source)
    assert loop.time() - began_s == pytest.approx(1)
    assert device.content(region) is None
    broken = False
    await device.copy_in(region, source)
    assert device.content(region) is source
    began_s = loop.time()
    target = Region(512 * 1000, region.size)
    await device.move(region, target)
    assert loop.time() - began_s == pytest.approx(0.2)
    assert device.content(target) is source
    broken = True
    with pytest.raises(OSError, match="the link is down"):
        await device.move(target, region)
    assert device.content(target) is None, "what is there may be damaged"
    device.free(target)
    assert device.free_bytes == device.capacity_bytes
    await device.aclose()


async def test_a_cancelled_copy_gives_the_link_to_the_next_one() -> None:
    device = FakeDevice("gpu:0", 100 * GB, bytes_per_s=10 * GB)
    first, second = device.allocate(40 * GB), device.allocate(20 * GB)
    assert first is not None
    assert second is not None
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    copying = asyncio.create_task(device.copy_in(first, so_many(first.size)))
    waiting = asyncio.create_task(device.copy_in(second, so_many(second.size)))
    await asyncio.sleep(1)
    copying.cancel()
    await waiting
    assert loop.time() - began_s == pytest.approx(3)
    assert copying.cancelled()
    assert device.content(first) is None
    await device.aclose()


async def test_a_cancelled_move_goes_to_its_end() -> None:
    device = FakeDevice("gpu:0", 100 * GB, move_bytes_per_s=10 * GB)
    region, source = device.allocate(20 * GB), so_many(20 * GB)
    assert region is not None
    await device.copy_in(region, source)
    target = Region(512, region.size)
    moving = asyncio.create_task(device.move(region, target))
    await asyncio.sleep(1)
    assert device.free_bytes == 100 * GB // 512 * 512 - 20 * GB - 512, "both places are taken"
    moving.cancel()
    await asyncio.wait([moving])
    assert moving.cancelled()
    assert device.content(target) is source
    await device.aclose()
