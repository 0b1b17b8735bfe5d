"""What only a GPU can show: pinned memory, copies beside computing, and the order of streams."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
import torch

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.devices.cuda.device import CudaDevice
from arl_tangram.managers.gpu.devices.cuda.pinning import CudaPinner
from arl_tangram.managers.gpu.devices.device import Region
from arl_tangram.managers.gpu.host.host_memory import HostMemory

pytestmark = pytest.mark.gpu

GIB = 1 << 30


@pytest.fixture
async def device() -> AsyncIterator[CudaDevice]:
    """Two GiB of the first GPU; the test sees what is written to free memory."""
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    made = await CudaDevice.open(uuid, 2 * GIB, cuda_index=0)
    yield made
    await made.aclose()


@pytest.fixture
async def host() -> AsyncIterator[HostMemory]:
    """Two GiB of pinned memory."""
    made = HostMemory(2 * GIB, pinner=CudaPinner("cuda:0"))
    yield made
    await made.aclose()


async def test_host_memory_is_pinned_and_arrives_bit_by_bit(device: CudaDevice, host: HostMemory) -> None:
    buffer = await host.allocate("model", GIB + 512)
    source = buffer.tensor()
    assert buffer.pinned, host.notes
    assert source.is_pinned()
    source.copy_(torch.randint(0, 255, source.shape, dtype=torch.uint8))
    region = device.allocate(buffer.size)
    assert region is not None
    for _ in range(3):
        began_s = time.perf_counter()
        await device.copy_in(region, source)
        took_s = time.perf_counter() - began_s
    assert torch.equal(device.view(region).cpu(), source)
    print(f"{torch.cuda.get_device_name(0)}: {buffer.size / took_s / 1e9:.1f} GB/s from pinned memory")
    target = Region(1024 * 1024, region.size)
    await device.move(region, target)
    assert torch.equal(device.view(target).cpu(), source)
    await device.move(target, region)
    assert torch.equal(device.view(region).cpu(), source)
    device.free(region)


async def test_an_arena_is_not_written_before_models_that_had_its_memory_have_ended(host: HostMemory) -> None:
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    source = (await host.allocate("model", 64 << 20)).tensor()
    source.fill_(1)
    before = torch.full((64 << 20,), 7, dtype=torch.uint8, device="cuda:0")
    square = torch.rand(8192, 8192, device="cuda:0")
    for _ in range(20):  # keeps the default stream busy for a while
        square = (square @ square).clamp(0, 1)
    seen = before.clone()  # reads the old bytes after that
    before.fill_(3)
    del before  # torch keeps its memory for whoever allocates next
    device = await CudaDevice.open(uuid, 64 << 20, cuda_index=0)
    region = device.allocate(source.numel())
    assert region is not None
    await device.copy_in(region, source)
    assert bool((seen == 7).all()), "the copy has waited for what still read the memory"
    assert bool((device.view(region) == 1).all())
    device.free(region)
    await device.aclose()


async def test_copies_do_not_wait_for_what_models_compute(device: CudaDevice, host: HostMemory) -> None:
    source = (await host.allocate("model", 1 << 20)).tensor()
    region = device.allocate(source.numel())
    assert region is not None
    square = torch.rand(8192, 8192, device=device.torch_name)
    for _ in range(50):  # a second and more on slow ones, and far longer than the copy on all
        square = (square @ square).clamp(0, 1)
    computed = torch.cuda.Event()
    computed.record()
    device.free(region)
    region = device.allocate(source.numel())
    assert region is not None
    await device.copy_in(region, source)
    assert not computed.query()
    device.free(region)


async def test_a_view_keeps_a_count_of_its_own(device: CudaDevice) -> None:
    first, second = device.allocate(1000), device.allocate(1000)
    assert first is not None
    assert second is not None
    view, other = device.view(first), device.view(second)
    assert view.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()
    before = torch._C._storage_Use_Count(view.untyped_storage()._cdata)
    part = view[3:5]
    assert torch._C._storage_Use_Count(view.untyped_storage()._cdata) > before
    del part
    assert torch._C._storage_Use_Count(view.untyped_storage()._cdata) == before


async def test_memory_that_is_given_back_is_free_for_others(device: CudaDevice) -> None:
    before, _ = torch.cuda.mem_get_info(0)
    await device.vacate()
    after, _ = torch.cuda.mem_get_info(0)
    assert after - before >= 2 * GIB - (64 << 20)
    await device.occupy()
    region = device.allocate(2 * GIB)
    assert region is not None
    device.free(region)


async def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match="CUDA does not show GPU-00000000-0000"):
        await CudaDevice.open("GPU-00000000-0000-0000-0000-000000000000", GIB)
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    with pytest.raises(ConfigurationError, match="has no 1,125,899,906,842,624 bytes for services"):
        await CudaDevice.open(uuid, 1 << 50)
