"""How copies to a GPU are cut and ordered, over host memory that does each step only when somebody waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from arl_tangram.managers.gpu.devices.cuda import memory as cuda_memory
from arl_tangram.managers.gpu.devices.cuda.device import CudaDevice
from arl_tangram.managers.gpu.devices.cuda.memory import CudaMemory
from arl_tangram.managers.gpu.devices.cuda.pinning import CudaPinner, pieces
from arl_tangram.managers.gpu.devices.device import Region
from arl_tangram.managers.gpu.devices.off_loop import Line
from fake_cuda import FakeCuda

SIZE = 1 << 16


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_memory, "PIECE_BYTES", 4096)
    monkeypatch.setattr(cuda_memory, "STAGE_BYTES", 2048)


def counted(size: int) -> torch.Tensor:
    return (torch.arange(size) % 251).to(torch.uint8)


def aligned(size: int) -> torch.Tensor:
    """Return bytes that begin at a multiple of 4096."""
    source = torch.zeros(size + 4096, dtype=torch.uint8)
    start = -source.data_ptr() % 4096
    return source[start : start + size].copy_(counted(size))


def test_two_pieces_are_in_flight_and_all_is_done_in_the_end() -> None:
    cuda = FakeCuda()
    memory = CudaMemory(cuda, SIZE)
    source = aligned(10_000)
    memory.copy_in(Region(512, 10_000), source, threading.Event())
    assert len(cuda.steps) == cuda.done == 1 + 3, "what the arena waits for, and three pieces"
    assert torch.equal(memory.view(Region(512, 10_000)), source)
    assert not memory.view(Region(0, 512)).any()
    assert not memory.view(Region(10_512, 1000)).any()


def test_a_copy_is_cut_where_addresses_are_round_so_that_none_spans_two_registrations() -> None:
    cuda = FakeCuda()
    memory = CudaMemory(cuda, SIZE)
    source = aligned(12_288)[100:9_000]
    memory.copy_in(Region(0, source.numel()), source, threading.Event())
    assert len(cuda.steps) == 1 + 3, "the wait of the arena; 100 to 4096, to 8192, to 9000"
    assert torch.equal(memory.view(Region(0, source.numel())), source)


def test_a_copy_that_is_stopped_writes_no_more_than_is_in_flight() -> None:
    cuda = FakeCuda()
    memory = CudaMemory(cuda, SIZE)
    stop = threading.Event()
    run = cuda.run

    def stop_at_the_first_piece(until: int) -> None:
        stop.set()
        run(until)

    cuda.run = stop_at_the_first_piece  # type: ignore[method-assign]
    with pytest.raises(OSError, match="ended early"):
        memory.copy_in(Region(0, 40_000), aligned(40_000), stop)
    assert cuda.done == len(cuda.steps) == 1 + 2
    assert not memory.view(Region(8192, 40_000)).any()


@pytest.mark.parametrize("size", [1000, 2048, 5000, 20_000])
@pytest.mark.parametrize("apart", [0, 512, 1024, 2048, 2560, 8192, 30_000])
@pytest.mark.parametrize("up", [True, False])
def test_a_region_moves_over_itself(size: int, apart: int, up: bool) -> None:
    cuda = FakeCuda()
    memory = CudaMemory(cuda, SIZE)
    source, target = Region(0 if up else apart, size), Region(apart if up else 0, size)
    memory.copy_in(source, aligned(size), threading.Event())
    begun = len(cuda.steps)
    memory.move(source, target)
    assert torch.equal(memory.view(target), counted(size))
    assert cuda.done == len(cuda.steps)
    if apart >= size:
        assert len(cuda.steps) == begun + 1, "one copy is enough"
    taken = [one for one in cuda.taken if one != SIZE]
    assert taken == ([min(2048, size)] if apart < min(2048, size) else [])


async def test_an_arena_is_written_only_when_models_that_had_its_memory_before_have_ended() -> None:
    cuda = FakeCuda()
    cuda.models_run = True
    device = CudaDevice("GPU-0", "cuda:0", SIZE, CudaMemory(cuda, SIZE), Line())
    for _ in range(2):
        region = device.allocate(8192)
        assert region is not None
        copying = asyncio.create_task(device.copy_in(region, counted(8192)))
        await asyncio.sleep(0.02)
        assert not copying.done()
        cuda.uses[-1].come_to_pass()
        await copying
        assert torch.equal(device.view(region), counted(8192))
        device.free(region)
        cuda.models_run = False
        await device.vacate()
        cuda.models_run = True
        await device.occupy()
    cuda.uses[-1].come_to_pass()
    cuda.models_run = False
    await device.aclose()
    assert cuda.given_back == 3


async def test_copies_do_not_wait_for_what_models_compute_and_their_buffer_is_not_of_models() -> None:
    cuda = FakeCuda()
    device = CudaDevice("GPU-0", "cuda:0", SIZE, CudaMemory(cuda, SIZE), Line())
    cuda.models_run = True
    first, region = device.allocate(512), device.allocate(8192)
    assert first is not None
    assert region is not None
    await device.copy_in(region, counted(8192))
    device.free(first)
    await device.move(region, Region(0, 8192))
    assert cuda.taken == [SIZE, 2048]
    assert torch.equal(device.view(Region(0, 8192)), counted(8192))
    cuda.models_run = False
    await device.aclose()


async def test_free_memory_is_poisoned_before_it_is_written_again() -> None:
    cuda = FakeCuda()
    device = CudaDevice("GPU-0", "cuda:0", SIZE, CudaMemory(cuda, SIZE), Line(), poison=True)
    old = device.allocate(8192)
    assert old is not None
    device.free(old)
    young = device.allocate(4096)
    assert young == Region(0, 4096)
    await device.copy_in(young, counted(4096))
    assert torch.equal(device.view(young), counted(4096))
    rest = device.allocate(4096)
    assert rest == Region(4096, 4096)
    assert (device.view(rest) == 255).all()
    await device.aclose()


async def test_what_cuda_fails_with_is_an_os_error_and_the_device_goes_on() -> None:
    cuda = FakeCuda()
    device = CudaDevice("GPU-0", "cuda:0", SIZE, CudaMemory(cuda, SIZE), Line())
    region = device.allocate(1000)
    assert region is not None
    cuda.error = RuntimeError("an illegal memory access was encountered")
    with pytest.raises(OSError, match="illegal memory access"):
        await device.copy_in(region, counted(1000))
    with pytest.raises(OSError, match="illegal memory access"):
        await device.move(region, Region(4096, 1000))
    device.free(region)  # it is where it was
    cuda.error = None
    await device.vacate()
    cuda.error = RuntimeError("an illegal memory access was encountered")
    with pytest.raises(OSError, match="illegal memory access"):
        await device.occupy()
    assert device.allocate(1000) is None
    cuda.error = None
    await device.occupy()
    again = device.allocate(1000)
    assert again is not None
    await device.copy_in(again, counted(1000))
    assert torch.equal(device.view(again), counted(1000))
    await device.aclose()


current: list[str] = []


@pytest.fixture(autouse=True)
def _current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def device(name: str) -> Iterator[None]:
        current.append(name)
        try:
            yield
        finally:
            current.remove(name)

    monkeypatch.setattr(torch.cuda, "device", device)


class Cudart:
    """The part of the CUDA runtime that pins, with a limit."""

    def __init__(self, most: int = 100) -> None:
        self.most = most
        self.registered: dict[int, int] = {}

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        assert flags == 1, "for all GPUs"
        assert current == ["cuda:1"]
        if len(self.registered) == self.most:
            return 2
        assert address not in self.registered
        self.registered[address] = size
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        assert current == ["cuda:1"]
        del self.registered[address]
        return 0

    def cudaGetErrorString(self, error: int) -> str:  # noqa: N802
        return {2: "out of memory"}[error]


GIB = 1 << 30


def test_memory_is_pinned_in_pieces_and_unpinned() -> None:
    cudart = Cudart()
    pinner = CudaPinner("cuda:1", cudart=cudart)
    pinner.pin(5 * GIB + 4096, 2 * GIB)
    assert cudart.registered == {5 * GIB + 4096: GIB - 4096, 6 * GIB: GIB, 7 * GIB: 4096}
    pinner.unpin(5 * GIB + 4096, 2 * GIB)
    assert cudart.registered == {}
    pinner.unpin(5 * GIB, GIB)  # it never raises


def test_memory_that_cannot_be_pinned_is_not_pinned_in_part() -> None:
    cudart = Cudart(most=2)
    with pytest.raises(OSError, match=r"cudaHostRegister of 4,096 bytes: out of memory \(2\)"):
        CudaPinner("cuda:1", cudart=cudart).pin(5 * GIB + 4096, 2 * GIB)
    assert cudart.registered == {}


def test_pieces_cover_memory_without_overlap() -> None:
    assert list(pieces(10, 0, 8)) == []
    assert list(pieces(10, 3, 8)) == [(10, 3)]
    assert list(pieces(10, 25, 8)) == [(10, 6), (16, 8), (24, 8), (32, 3)]
