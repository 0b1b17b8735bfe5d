"""What a torch service answers, and when its calls compute."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from arl_tangram.errors import (
    EvictedServiceError,
    RemoteError,
    RestoreError,
    ServiceLostError,
    UsageError,
)
from arl_tangram.managers.gpu.devices.cpu.device import CpuDevice
from arl_tangram.managers.gpu.devices.device import Region
from arl_tangram.services.modules import hosting
from arl_tangram.services.torch_service import TorchService
from service.hosted_modules import MIB, TOKENS, Odd0, Slow, hosted, until
from service.odd_modules import Odd, looks


async def test_answers_and_weights_are_the_same_after_200_swaps_at_changing_addresses() -> None:
    module = Odd().requires_grad_(False).eval()
    before, answer = looks(module), module(TOKENS)
    draw = random.Random(0)
    async with hosted(TorchService("odd", load=lambda: module)) as odd:
        addresses: set[int] = set()
        for _ in range(200):
            await odd.restore(gap=draw.randrange(0, 16 * MIB))
            addresses.add(module.q.data_ptr())
            assert looks(module) == before
            assert torch.equal(await odd.call(TOKENS), answer)
            await odd.evict()
            assert odd.devices[0].free_bytes == odd.devices[0].capacity_bytes
    assert len(addresses) > 100


async def test_case_112_weights_and_buffers_of_every_kind_come_back_as_they_were() -> None:
    module = Odd().requires_grad_(False).eval()
    before, answer = looks(module), module(TOKENS)
    assert "frequencies" in before
    assert "frequencies" not in module.state_dict()
    async with hosted(TorchService("odd", load=lambda: module, verify=True)) as odd:
        await odd.restore()
        assert torch.equal(await odd.call(TOKENS), answer)
        await odd.evict()
        await odd.restore(gap=MIB)
        assert looks(module) == before
        assert torch.equal(await odd.call(TOKENS), answer)
        await odd.evict()


async def test_bytes_of_the_host_are_summed_once_and_those_of_the_device_after_each_restore(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    summed: list[int] = []
    sums = hosting.checksums

    def told(memory: torch.Tensor) -> torch.Tensor:
        summed.append(memory.data_ptr())
        return sums(memory)

    monkeypatch.setattr(hosting, "checksums", told)
    async with hosted(TorchService("odd", load=Odd0, verify=True)) as odd:
        host, *others = summed
        assert others == []
        for _ in range(3):
            await odd.restore()
            await odd.evict()
    assert len(summed) == 4
    assert summed.count(host) == 1


async def test_case_112_a_restore_that_brings_back_something_else_fails_loudly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with hosted(TorchService("odd", load=Odd0, verify=True)) as odd:
        copy = CpuDevice.copy_in

        async def lossy(device: CpuDevice, region: Region, source: torch.Tensor) -> None:
            changed = source.clone()
            changed[1000:1100] = 0
            await copy(device, region, changed)

        monkeypatch.setattr(CpuDevice, "copy_in", lossy)
        with pytest.raises(RestoreError, match=r"service 'odd': of .* bytes, 1 pieces of 1 MiB .* on cpu:0"):
            await odd.restore()
        assert odd.devices[0].free_bytes == odd.devices[0].capacity_bytes
        monkeypatch.undo()
        await odd.restore()
        await odd.evict()


async def test_case_114_a_tie_is_moved_once_and_is_a_tie_afterwards() -> None:
    embedding = nn.Embedding(512, 64)
    head = nn.Linear(64, 512, bias=False)
    head.weight = embedding.weight
    tied = nn.Sequential(embedding, head)
    async with hosted(TorchService("tied", load=lambda: tied)) as service:
        assert service.facts.footprints[0][1].resident_bytes == 512 * 64 * 4
        await service.restore()
        assert head.weight is embedding.weight
        assert head.weight.data_ptr() == embedding.weight.data_ptr()
        await service.evict()


async def test_the_call_is_off_the_loop_under_inference_mode_in_eval_mode() -> None:
    class Telling(nn.Linear):
        def forward(self, input: torch.Tensor) -> dict[str, Any]:  # noqa: A002
            return {
                "inference": torch.is_inference_mode_enabled(),
                "training": self.training,
                "thread": threading.get_ident(),
                "trained": self.weight.requires_grad,
            }

    async with hosted(TorchService("telling", load=lambda: Telling(2, 2))) as service:
        await service.restore()
        told = await service.call(torch.zeros(2))
        assert told.pop("thread") != threading.get_ident()
        assert told == {"inference": True, "training": False, "trained": False}
        await service.evict()


async def test_several_actions_share_it_at_once() -> None:
    slow = Slow()
    async with hosted(TorchService("slow", load=lambda: slow, max_concurrency=4)) as service:
        assert service.facts.max_concurrency == 4
        await service.restore()
        calls = [asyncio.create_task(service.call(number)) for number in range(4)]
        await until(slow.began)
        slow.go_on.set()
        assert await asyncio.gather(*calls) == [0, 1024, 2048, 3072]
        await service.evict()


async def test_what_the_module_raises_passes_and_keeps_no_weights() -> None:
    class Failing(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
            turned = self.weight.t()
            raise KeyError(tuple(turned.shape))

    async with hosted(TorchService("failing", load=lambda: Failing(2, 3))) as service:
        await service.restore()
        with pytest.raises(KeyError) as caught:
            await service.call(torch.zeros(2))
        assert caught.value.args == ((2, 3),)
        await service.evict()  # though the error, and its traceback with it, is still kept
        assert caught.traceback[-1].name == "forward"


class Failing(nn.Module):
    """Fails in a function that has a view of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def fail(self) -> None:
        view = self.weight[:4]
        raise KeyError(len(view))

    def forward(self, how: str) -> None:
        errors: list[Exception] = []
        try:
            self.fail()
        except KeyError as error:
            errors.append(error)
            if how == "group":
                pass
            elif how == "beside its cause":
                raise ValueError from OSError()
            else:
                raise ValueError from error
        raise ExceptionGroup("all", [ExceptionGroup("some", errors)])


@pytest.mark.parametrize("how", ["group", "cause", "beside its cause"])
async def test_errors_inside_of_errors_keep_no_weights(how: str) -> None:
    async with hosted(TorchService("failing", load=Failing)) as service:
        await service.restore()
        with pytest.raises((ExceptionGroup, ValueError)) as caught:
            await service.call(how)
        await service.evict()
        assert caught.value.__traceback__ is not None


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError("no")])
async def test_a_module_cannot_end_the_program(error: BaseException) -> None:
    class Ending(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
            view = self.weight.t()
            raise error.with_traceback(None) if view.numel() else error

    async with hosted(TorchService("ending", load=lambda: Ending(2, 3))) as service:
        await service.restore()
        with pytest.raises(RemoteError, match=type(error).__name__):
            await service.call(torch.zeros(2))
        error.__traceback__ = None
        await service.evict()


async def test_a_device_that_fails_is_the_infrastructures_fault() -> None:
    class Lost(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
            raise torch.AcceleratorError(f"CUDA error: an illegal memory access {self.weight.shape}")

    async with hosted(TorchService("lost", load=lambda: Lost(2, 3))) as service:
        await service.restore()
        with pytest.raises(ServiceLostError, match="service 'lost': cpu has failed: CUDA error: an illegal memory"):
            await service.call(torch.zeros(2))
        await service.evict()


async def test_a_call_that_writes_to_a_buffer_is_told_which() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self) -> float:
            self.count += 1
            return float(self.count)

    async with hosted(TorchService("counting", load=Counting)) as service:
        await service.restore()
        with pytest.raises(UsageError, match=r"service 'counting': its module has written to 'count'"):
            await service.call()
        await service.evict()


async def test_a_compiled_module_is_compiled_once_and_gives_the_same_answers() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).requires_grad_(False).eval()
    batch = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    answer = module(batch)
    counted = CompileCounter()
    compiled = torch.compile(module, backend=counted)
    async with hosted(TorchService("compiled", load=lambda: compiled)) as service:
        for gap in (0, 1000, 5000):
            await service.restore(gap=gap)
            assert torch.equal(await service.call(batch), answer)
            await service.evict()
            with pytest.raises(EvictedServiceError):
                compiled(batch)
    assert counted.frame_count == 1
    gc.freeze()  # what the compiler has made stays, and need not be looked through after every other test


@pytest.mark.filterwarnings("ignore:`torch.jit")
async def test_a_part_of_torchscript_is_moved_with_the_rest() -> None:
    def load() -> nn.Module:
        draw = torch.Generator().manual_seed(0)
        part = nn.Linear(4, 4, bias=False)
        nn.init.normal_(part.weight, generator=draw)
        return nn.Sequential(torch.jit.trace(part, torch.ones(4)), nn.ReLU())

    alone = load()(torch.ones(4))
    async with hosted(TorchService("script", load=load)) as service:
        for gap in (512, 1024):
            await service.restore(gap=gap)
            assert torch.equal(await service.call(torch.ones(4)), alone)
            await service.evict()


async def test_a_module_of_many_tensors_is_attached_off_the_loop() -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.few = nn.ParameterList(torch.full((2,), float(number)) for number in range(1000))

        def forward(self) -> float:
            return float(sum(each[1] for each in self.few))

    async with hosted(TorchService("many", load=Many)) as service:
        for gap in (0, 4096):
            await service.restore(gap=gap)
            assert await service.call() == sum(range(1000))
            await service.evict()
