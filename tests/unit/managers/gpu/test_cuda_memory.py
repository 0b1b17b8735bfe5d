"""How copies to a GPU are cut and ordered, over host memory that does each step only when somebody waits for it."""

from __future__ import annotations

import asyncio
import threading

import pytest
import torch

from arl_tangram.managers.gpu import cuda_memory
from arl_tangram.managers.gpu.cuda_device import CudaDevice
from arl_tangram.managers.gpu.cuda_memory import CudaMemory
from arl_tangram.managers.gpu.cuda_pinning import CudaPinner, pieces
from arl_tangram.managers.gpu.device import Region
from arl_tangram.managers.gpu.last_uses import LastUses
from arl_tangram.managers.gpu.off_loop import Line
from fake_cuda import FakeCuda, FakeEvent

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
    memory.copy_in(Region(512, 10_000), source, (), threading.Event())
    assert len(cuda.steps) == cuda.done == 3
    assert torch.equal(memory.view(Region(512, 10_000)), source)
    assert not memory.view(Region(0, 512)).any()
    assert not memory.view(Region(10_512, 1000)).any()


def test_a_copy_is_cut_where_addresses_are_round_so_that_none_spans_two_registrations() -> None:
    cuda = FakeCuda()
    memory = CudaMemory(cuda, SIZE)
    source = aligned(12_288)[100:9_000]
    memory.copy_in(Region(0, source.numel()), source, (), threading.Event())
    assert len(cuda.steps) == 3, "100 to 4096, to 8192, to 9000"
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
        memory.copy_in(Region(0, 40_000), aligned(40_000), (), stop)
    assert cuda.done == len(cuda.steps) == 2
    assert not memory.view(Region(8192, 40_000)).any()


@pytest.mark.parametrize("size", [1000, 2048, 5000, 20_000])
@pytest.mark.parametrize("apart", [0, 512, 1024, 2048, 2560, 8192, 30_000])
@pytest.mark.parametrize("up", [True, False])
def test_a_region_moves_over_itself(size: int, apart: int, up: bool) -> None:
    cuda = FakeCuda()
    memory = CudaMemory(cuda, SIZE)
    source, target = Region(0 if up else apart, size), Region(apart if up else 0, size)
    memory.copy_in(source, aligned(size), (), threading.Event())
    begun = len(cuda.steps)
    memory.move(source, target, ())
    assert torch.equal(memory.view(target), counted(size))
    assert cuda.done == len(cuda.steps)
    if apart >= size:
        assert len(cuda.steps) == begun + 1, "one copy is enough"
    taken = [one for one in cuda.taken if one != SIZE]
    assert taken == ([min(2048, size)] if apart < min(2048, size) else [])


async def test_memory_is_written_only_when_what_used_it_before_has_ended() -> None:
    cuda = FakeCuda()
    device = CudaDevice("GPU-0", "cuda:0", SIZE, CudaMemory(cuda, SIZE), Line())
    used, unused = device.allocate(8192), device.allocate(8192)
    assert used is not None
    assert unused is not None
    view = device.view(used)
    device.free(unused)
    cuda.models_run = True
    device.free(used)
    (_, use) = cuda.uses
    young = device.allocate(8192)
    assert young == used
    other = device.allocate(4096)
    assert other == Region(8192, 4096)
    await device.copy_in(other, counted(4096))
    assert torch.equal(device.view(other), counted(4096)), "nothing used this part"
    copying = asyncio.create_task(device.copy_in(young, counted(8192)))
    await asyncio.sleep(0.02)
    assert not view.any(), "it is still being read"
    assert not copying.done()
    use.come_to_pass()
    await copying
    assert torch.equal(view, counted(8192))
    device.free(other)
    moved = Region(8192, 8192)
    moving = asyncio.create_task(device.move(young, moved))
    await asyncio.sleep(0.02)
    assert not moving.done(), "the freed one was used, too, as far as anybody knows"
    cuda.uses[-1].come_to_pass()
    await moving
    assert torch.equal(device.view(moved), counted(8192))
    cuda.models_run = False
    await device.aclose()
    assert cuda.given_back == 1


async def test_free_memory_is_poisoned_after_its_last_use() -> None:
    cuda = FakeCuda()
    device = CudaDevice("GPU-0", "cuda:0", SIZE, CudaMemory(cuda, SIZE), Line(), poison=True)
    old = device.allocate(8192)
    assert old is not None
    cuda.models_run = True
    device.free(old)
    young = device.allocate(4096)
    assert young == Region(0, 4096)
    cuda.uses[0].come_to_pass()
    await device.copy_in(young, counted(4096))
    assert torch.equal(device.view(young), counted(4096))
    rest = device.allocate(4096)
    assert rest == Region(4096, 4096)
    assert (device.view(rest) == 255).all()
    cuda.models_run = False
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


def test_events_that_have_come_to_pass_are_forgotten() -> None:
    cuda = FakeCuda()
    uses: LastUses[FakeEvent] = LastUses()
    first, second = FakeEvent(cuda, None), FakeEvent(cuda, None)
    uses.add(0, 10, first)
    uses.add(10, 20, second)
    assert uses.of(5, 10) == (first,)
    assert uses.of(5, 11) == (first, second)
    assert uses.of(20, 30) == ()
    first.come_to_pass()
    assert uses.of(0, 30) == (second,)
    second.come_to_pass()
    uses.add(0, 1, FakeEvent(cuda, None))
    assert len(uses._uses) == 1


class Cudart:
    """The part of the CUDA runtime that pins, with a limit."""

    def __init__(self, most: int = 100) -> None:
        self.most = most
        self.registered: dict[int, int] = {}

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        assert flags == 1, "for all GPUs"
        if len(self.registered) == self.most:
            return 2
        assert address not in self.registered
        self.registered[address] = size
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        del self.registered[address]
        return 0

    def cudaGetErrorString(self, error: int) -> str:  # noqa: N802
        return {2: "out of memory"}[error]


GIB = 1 << 30


def test_memory_is_pinned_in_pieces_and_unpinned() -> None:
    cudart = Cudart()
    pinner = CudaPinner(cudart)
    pinner.pin(5 * GIB + 4096, 2 * GIB)
    assert cudart.registered == {5 * GIB + 4096: GIB - 4096, 6 * GIB: GIB, 7 * GIB: 4096}
    pinner.unpin(5 * GIB + 4096, 2 * GIB)
    assert cudart.registered == {}
    pinner.unpin(5 * GIB, GIB)  # it never raises


def test_memory_that_cannot_be_pinned_is_not_pinned_in_part() -> None:
    cudart = Cudart(most=2)
    with pytest.raises(OSError, match=r"cudaHostRegister of 4,096 bytes: out of memory \(2\)"):
        CudaPinner(cudart).pin(5 * GIB + 4096, 2 * GIB)
    assert cudart.registered == {}


def test_pieces_cover_memory_without_overlap() -> None:
    assert list(pieces(10, 0, 8)) == []
    assert list(pieces(10, 3, 8)) == [(10, 3)]
    assert list(pieces(10, 25, 8)) == [(10, 6), (16, 8), (24, 8), (32, 3)]
