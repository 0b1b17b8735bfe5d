"""A device of host memory: what becomes of free pages, and how copies fail, stop, and last."""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import threading
import time
from itertools import accumulate

import pytest
import torch

from arl_tangram.errors import MissingExtraError
from arl_tangram.managers.gpu import extra
from arl_tangram.managers.gpu.devices.cpu import device as cpu_device
from arl_tangram.managers.gpu.devices.cpu.device import CpuDevice, pieces
from arl_tangram.managers.gpu.devices.device import Region
from arl_tangram.managers.gpu.host.pages import Pages

PAGE = mmap.PAGESIZE
KIB = 1024


def ones(size: int) -> torch.Tensor:
    return torch.ones(size, dtype=torch.uint8)


async def filled(device: CpuDevice, size: int) -> Region:
    region = device.allocate(size)
    assert region is not None
    await device.copy_in(region, ones(size))
    return region


def kept(device: CpuDevice, start: int, stop: int) -> int:
    """Return how many bytes of a range are not zero: what was dropped reads as zeros."""
    return int(torch.count_nonzero(device._pages.tensor(start, stop)))


async def test_free_pages_are_kept_for_a_while_and_then_dropped_but_for_those_that_are_shared() -> None:
    device = CpuDevice("cpu:0", 64 * PAGE, drop_after_s=0.05)
    first = await filled(device, 10 * PAGE + 512)
    second = await filled(device, 10 * PAGE)
    device.free(first)
    assert kept(device, 0, 10 * PAGE) == 10 * PAGE
    await asyncio.sleep(0.2)
    await device._upkeep.done(0, device.capacity_bytes)
    assert kept(device, 0, 10 * PAGE) == 0
    assert kept(device, 10 * PAGE, 10 * PAGE + 512) == 512, "the rest of the page belongs to the other one"
    assert torch.equal(device.view(second), ones(10 * PAGE))
    device.free(second)
    await device.drop_free_pages()
    assert kept(device, 0, 64 * PAGE) == 0
    await device.aclose()


async def test_pages_that_are_taken_again_are_not_dropped() -> None:
    device = CpuDevice("cpu:0", 64 * PAGE, drop_after_s=0.02)
    for _ in range(20):
        region = await filled(device, 33 * PAGE)
        await asyncio.sleep(0.005)
        assert torch.equal(device.view(region), ones(33 * PAGE))
        device.free(region)
        await asyncio.sleep(0.005)
    assert device._free_pages.total == 33 * PAGE
    region = device.allocate(20 * PAGE)
    assert region is not None
    assert device._free_pages.total == 13 * PAGE
    assert kept(device, 0, 20 * PAGE) == 20 * PAGE
    await device.copy_in(region, ones(20 * PAGE))
    await asyncio.sleep(0.1)
    await device._upkeep.done(0, device.capacity_bytes)
    assert torch.equal(device.view(region), ones(20 * PAGE))
    assert kept(device, 20 * PAGE, 64 * PAGE) == 0
    await device.aclose()


async def test_a_hole_that_is_taken_while_another_is_dropped_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    device = CpuDevice("cpu:0", 64 * PAGE)
    first, between, second = [await filled(device, 10 * PAGE) for _ in range(3)]
    device.free(first)
    device.free(second)
    began, go_on = threading.Event(), threading.Event()
    drop = Pages.drop

    def slow(pages: Pages, start: int, stop: int) -> None:
        if not start and not go_on.is_set():
            began.set()
            assert go_on.wait(10)
        drop(pages, start, stop)

    monkeypatch.setattr(Pages, "drop", slow)
    # Both holes were freed as one range, as happens when the region between them has moved there meanwhile.
    dropping = asyncio.create_task(device._free_pages._drop([(0, 30 * PAGE)]))
    await asyncio.to_thread(began.wait, 10)
    rest = device.allocate(34 * PAGE + 10 * PAGE)
    assert rest == Region(20 * PAGE, 44 * PAGE), "the second hole, with what is behind it"
    await device.copy_in(rest, ones(rest.size))
    go_on.set()
    await dropping
    assert torch.equal(device.view(rest), ones(rest.size))
    assert torch.equal(device.view(between), ones(10 * PAGE))
    assert kept(device, 0, 10 * PAGE) == 0
    await device.aclose()


async def test_pages_are_dropped_at_once_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 80 << 20
    left = [size + 1]
    asked: list[int] = []

    def available() -> int:
        asked.append(threading.get_ident())
        return left[0]

    monkeypatch.setattr(cpu_device, "available_bytes", available)
    device = CpuDevice("cpu:0", size, drop_after_s=1000)
    for _ in range(2):
        device.free(await filled(device, size))
        for task in list(device._free_pages._tasks):
            await task
        assert kept(device, 0, size) == (size if left[0] > size else 0)
        left[0] = size - 1
    assert len(asked) == 2
    assert threading.get_ident() not in asked, "looking is done off the loop"
    await device.aclose()


async def test_free_memory_is_poisoned_before_anybody_writes_there() -> None:
    device = CpuDevice("cpu:0", 1 << 20, poison=True)
    for size in (1 << 20, 300_000, 700_000, 512):
        region = await filled(device, size)
        view = device.view(region)
        device.free(region)
        again = device.allocate(size // 2)
        assert again is not None
        await device.copy_in(again, ones(size // 2))
        assert torch.equal(device.view(again), ones(size // 2)), "the poison came before the copy"
        await device._upkeep.done(0, 1 << 20)
        assert (view[-(-(size // 2) // 512) * 512 :] == 255).all()
        device.free(again)
    await device.aclose()


@pytest.mark.parametrize(("target", "left"), [(Region(2 * PAGE, 8 * PAGE), 2), (Region(30 * PAGE, 8 * PAGE), 8)])
async def test_what_a_region_leaves_when_it_moves_is_free(target: Region, left: int) -> None:
    device = CpuDevice("cpu:0", 64 * PAGE, poison=True)
    region = await filled(device, 8 * PAGE)
    await device.move(region, target)
    await device._upkeep.done(0, device.capacity_bytes)
    assert torch.equal(device.view(target), ones(8 * PAGE))
    assert (device._pages.tensor(0, left * PAGE) == 255).all(), "poisoned as all that is free"
    await device.drop_free_pages()
    assert kept(device, 0, 64 * PAGE) == 8 * PAGE
    await device.aclose()


async def test_a_copy_that_fails_leaves_the_region_to_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_device, "PIECE_BYTES", 10 * PAGE)
    faults: list[Region] = []

    def fault(region: Region) -> None:
        faults.append(region)
        if len(faults) == 2:
            raise OSError("the link is down")

    device = CpuDevice("cpu:0", 1 << 20, fault=fault)
    region = device.allocate(50 * PAGE)
    assert region is not None
    with pytest.raises(OSError, match="the link is down"):
        await device.copy_in(region, ones(region.size))
    assert kept(device, 0, region.size) == 10 * PAGE
    await device.copy_in(region, ones(region.size))
    assert torch.equal(device.view(region), ones(region.size))
    assert len(faults) == 2 + 5
    faults[:] = faults[:1]
    with pytest.raises(OSError, match="the link is down"):
        await device.move(region, Region(512, region.size))
    device.free(region)
    assert device.largest_hole == 1 << 20
    await device.aclose()


async def test_a_cancelled_copy_ends_at_the_next_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_device, "PIECE_BYTES", 10 * PAGE)
    second, go_on = threading.Event(), threading.Event()
    begun: list[Region] = []

    def fault(region: Region) -> None:
        begun.append(region)
        if len(begun) == 2:
            second.set()
            go_on.wait(10)

    device = CpuDevice("cpu:0", 1 << 20, fault=fault)
    region = device.allocate(50 * PAGE)
    waits = device.allocate(50 * PAGE)
    assert region is not None
    assert waits is not None
    copying = asyncio.create_task(device.copy_in(region, ones(region.size)))
    waiting = asyncio.create_task(device.copy_in(waits, ones(region.size)))
    await asyncio.to_thread(second.wait, 10)
    waiting.cancel()
    await asyncio.wait([waiting])
    copying.cancel()
    await asyncio.sleep(0.01)
    assert not copying.done(), "a piece is still being written"
    go_on.set()
    await asyncio.wait([copying])
    assert copying.cancelled()
    assert waiting.cancelled()
    assert kept(device, 0, 1 << 20) == 20 * PAGE
    assert len(begun) == 2, "the one that waited has not begun"
    await device.aclose()


async def test_closing_ends_what_copies() -> None:
    device = CpuDevice("cpu:0", 1 << 20, delay_s_per_gib=1e6)
    region = device.allocate(1 << 20)
    assert region is not None
    copying = asyncio.create_task(device.copy_in(region, ones(1 << 20)))
    await asyncio.sleep(0.05)
    began_s = time.monotonic()
    await device.aclose()
    assert time.monotonic() - began_s < 5
    await asyncio.wait([copying])


async def test_a_slow_link_can_be_pretended() -> None:
    device = CpuDevice("cpu:0", 1 << 20, delay_s_per_gib=100)
    began_s = time.monotonic()
    device.free(await filled(device, 1 << 20))
    assert time.monotonic() - began_s >= 100 / 1024
    await device.aclose()


@pytest.mark.parametrize(
    "source",
    [torch.ones(100, dtype=torch.float16), torch.ones(200, dtype=torch.uint8)[::2], torch.ones(100, device="meta")],
    ids=["wide", "strided", "elsewhere"],
)
async def test_only_plain_bytes_are_copied(source: torch.Tensor) -> None:
    device = CpuDevice("cpu:0", 1 << 20)
    region = device.allocate(100)
    assert region is not None
    with pytest.raises(ValueError, match="contiguous bytes on the host"):
        await device.copy_in(region, source)
    await device.aclose()


def test_pieces_are_about_equal_and_begin_at_pages() -> None:
    most = cpu_device.PIECE_BYTES
    for size in (1, PAGE, most - 1, most, 2 * most - 1, 2 * most, 7 * most + 12_345):
        found = list(pieces(size))
        assert [start for start, _ in found] == [0, *accumulate(length for _, length in found[:-1])]
        assert sum(length for _, length in found) == size
        assert all(start % PAGE == 0 for start, _ in found)
        assert all(size == one or most - PAGE <= one < 2 * most + PAGE for _, one in found)


async def test_each_view_has_a_storage_of_its_own() -> None:
    device = CpuDevice("cpu:0", 1 << 20)
    region, other = await filled(device, 1000), await filled(device, 1000)
    view = device.view(region)

    def count() -> int:
        return torch._C._storage_Use_Count(view.untyped_storage()._cdata)

    before = count()
    part = view[10:20]
    assert count() > before
    del part
    assert count() == before
    assert device.view(other).untyped_storage().nbytes() == 1000
    assert view.data_ptr() == device._pages.address + region.offset
    ctypes.memset(view.data_ptr(), 7, 5)
    assert device.view(region)[:5].tolist() == [7] * 5
    await device.aclose()


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(extra.importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"arl-tangram\[gpu\]"):
        extra.need_torch()
