"""A torch service on a real GPU: the same bits after many restores, answers on the host, memory that comes back."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import torch

from arl_tangram.errors import RestoreError
from arl_tangram.managers.gpu.devices.cuda.device import CudaDevice
from arl_tangram.managers.gpu.devices.cuda.pinning import CudaPinner
from arl_tangram.managers.gpu.discovery.found import find_gpus
from arl_tangram.services.torch_service import TorchService
from service.hosted_modules import MIB, TOKENS, Growing, hosted
from service.odd_modules import Odd, looks

pytestmark = pytest.mark.gpu


@pytest_asyncio.fixture
async def gpu() -> AsyncIterator[CudaDevice]:
    found = (await asyncio.to_thread(find_gpus, os.environ)).gpus[0]
    yield await CudaDevice.open(found.uuid, 256 * MIB, cuda_index=found.cuda_index, poison=True)


async def test_weights_and_answers_are_the_same_after_200_swaps(gpu: CudaDevice) -> None:
    module = Odd().requires_grad_(False).eval()
    before = looks(module)
    draw = random.Random(0)
    async with hosted(TorchService("odd", load=lambda: module), on=[gpu], pinner=CudaPinner(gpu.torch_name)) as odd:
        answer: torch.Tensor | None = None
        for _ in range(200):
            await odd.restore(gap=draw.randrange(0, 100 * MIB))
            assert module.q.device == torch.device(gpu.torch_name)
            assert looks(module) == before
            result = await odd.call(TOKENS)
            assert result.device.type == "cpu"
            answer = result if answer is None else answer
            assert torch.equal(result, answer)
            await odd.evict()
            assert gpu.free_bytes == gpu.capacity_bytes
    assert torch.allclose(answer, Odd().eval()(TOKENS), rtol=1e-2, atol=1e-2)


async def test_a_leaked_view_is_found_on_a_gpu(gpu: CudaDevice) -> None:
    module = Odd()
    async with hosted(TorchService("odd", load=lambda: module), on=[gpu]) as odd:
        await odd.restore()
        leaked = [module.turned.t()[:4]]
        with pytest.raises(RestoreError, match="1 views"):
            await odd.evict()
        leaked.clear()
        await odd.evict()


async def test_a_table_that_a_module_has_made_leaves_the_gpu_with_it(gpu: CudaDevice) -> None:
    module = Growing()
    async with hosted(TorchService("growing", load=lambda: module), on=[gpu]) as service:
        await service.restore()
        assert await service.call(8) == 32
        await service.move(0)
        assert module.table.device == torch.device(gpu.torch_name)
        await service.evict()
        assert module.table.device == torch.device("cpu")
        assert len(module.table) == 8
        await service.restore(gap=MIB)
        assert module.table.device == torch.device(gpu.torch_name)
        assert await service.call(8) == 32
        await service.evict()


async def test_a_move_on_a_gpu_changes_nothing(gpu: CudaDevice) -> None:
    module = Odd().requires_grad_(False).eval()
    async with hosted(TorchService("odd", load=lambda: module), on=[gpu]) as odd:
        await odd.restore(gap=8192)
        before, answer = looks(module), await odd.call(TOKENS)
        await odd.move(512)
        assert looks(module) == before
        assert torch.equal(await odd.call(TOKENS), answer)
        await odd.evict()
