"""Where a torch service lies: its memory comes back, goes to nobody while it is used, and can be moved."""

from __future__ import annotations

import asyncio
import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from arl_tangram.errors import (
    EvictedServiceError,
    RestoreError,
    ServiceLostError,
    UsageError,
)
from arl_tangram.managers.gpu.devices.cpu.device import CpuDevice
from arl_tangram.managers.gpu.devices.device import Region
from arl_tangram.managers.gpu.instances.backend import StillHeldError
from arl_tangram.managers.gpu.manager import GpuManager
from arl_tangram.model.gpu import Chunk, Instance, Seat
from arl_tangram.services.torch_service import TorchService
from fake_services import FakeSource
from service.hosted_modules import MIB, TOKENS, Odd0, Slow, hosted, until
from service.odd_modules import Odd, looks


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Big(nn.Module):
    """48 MiB in a few tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ParameterList(torch.full((1 << 20,), float(number)) for number in range(12))

    def forward(self) -> float:
        return float(sum(layer[0] for layer in self.layers))


async def test_memory_is_back_after_each_eviction_and_does_not_creep() -> None:
    device = CpuDevice("cpu:0", 64 * MIB)
    async with hosted(TorchService("big", load=Big), on=[device]) as service:
        evicted: list[int] = []
        draw = random.Random(0)
        for _ in range(10):
            await device.drop_free_pages()
            evicted.append(await asyncio.to_thread(resident_bytes))
            await service.restore(gap=draw.randrange(0, 14 * MIB))
            assert await service.call() == 66
            assert await asyncio.to_thread(resident_bytes) - evicted[-1] > 44 * MIB
            await service.evict()
    # One rest of a restore in each round would add up to ten times 48 MiB. What varies is what Python and torch keep.
    assert max(evicted[1:]) - evicted[1] < 8 * MIB


async def test_loading_keeps_one_copy_on_the_host() -> None:
    before = await asyncio.to_thread(resident_bytes)
    async with hosted(TorchService("big", load=Big)):
        assert await asyncio.to_thread(resident_bytes) - before < (48 + 24) * MIB


async def test_a_stray_call_while_evicted_fails_loudly() -> None:
    class Elementwise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    module = nn.Sequential(Elementwise())
    async with hosted(TorchService("stray", load=lambda: module)) as service:
        for _ in range(2):
            with pytest.raises(EvictedServiceError, match="service 'stray' is called while it is evicted"):
                module(torch.ones(1))
            with pytest.raises(RuntimeError, match="must match"):
                module[0](torch.ones(2))
            await service.restore()
            assert module(torch.ones(1)) == 2  # a stray call, but a right answer
            await service.evict()


async def test_a_leaked_view_keeps_its_memory_from_being_given_away() -> None:
    module = Odd()
    async with hosted(TorchService("odd", load=lambda: module)) as odd:
        await odd.restore()
        leaked = [module.turned.t()[:4]]
        content = leaked[0].clone()
        for _ in range(2):
            with pytest.raises(RestoreError, match=r"service 'odd': 1 views of its .* still held"):
                await odd.evict()
        with pytest.raises(StillHeldError):
            await odd.restore(gap=4096)
        assert torch.equal(leaked[0], content)
        leaked.clear()
        await odd.evict()
        await odd.restore()
        await odd.evict()


async def test_a_view_in_a_cycle_that_nobody_uses_is_no_leak() -> None:
    module = Odd()
    async with hosted(TorchService("odd", load=lambda: module)) as odd:
        await odd.restore()
        cycle: list[Any] = [module.turned.t()]
        cycle.append(cycle)
        del cycle
        await odd.evict()


async def test_results_that_are_weights_are_copies() -> None:
    class Giving(nn.Linear):
        def forward(self, input: torch.Tensor) -> Any:  # noqa: A002
            return {"all": (self.weight, [self.bias[:1]])}

    async with hosted(TorchService("giving", load=lambda: Giving(2, 2))) as service:
        await service.restore()
        result = await service.call(torch.zeros(2))
        kept = result["all"][0].clone()
        await service.evict()
        assert torch.equal(result["all"][0], kept)


async def test_an_eviction_waits_for_what_still_computes_after_its_action_has_gone() -> None:
    slow = Slow()
    async with hosted(TorchService("slow", load=lambda: slow)) as service:
        await service.restore()
        resident = service.backend.service(1)
        call = asyncio.create_task(resident.call(1))
        await until(slow.began)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        service.backend.end(resident)
        eviction = asyncio.create_task(service.evict())
        await asyncio.sleep(0.02)
        assert not eviction.done()
        assert slow.weight.numel() == 1024
        slow.go_on.set()
        await eviction
        assert slow.weight.numel() == 0


async def test_an_eviction_gives_up_on_a_call_that_does_not_end_and_can_be_tried_again() -> None:
    slow = Slow()
    async with hosted(TorchService("slow", load=lambda: slow), longest_call_s=0.05) as service:
        await service.restore()
        call = asyncio.create_task(service.call(1))
        await until(slow.began)
        with pytest.raises(RestoreError, match=r"service 'slow': a call computed for 0.05 s and longer"):
            await service.evict()
        slow.go_on.set()
        assert await call == 1024
        await service.evict()


async def test_what_an_action_got_is_of_no_use_after_its_end() -> None:
    async with hosted(TorchService("odd", load=Odd0)) as odd:
        await odd.restore()
        service = odd.backend.service(1)
        assert (service.name, service.dop, service.devices) == ("odd", 1, ("cpu",))
        await service.call(TOKENS)
        odd.backend.end(service)
        odd.backend.end(service)
        with pytest.raises(UsageError, match="service 'odd' is called after the action that had it has ended"):
            await service.call(TOKENS)
        await odd.evict()


async def test_a_failed_copy_fails_the_restore_and_the_next_one_works() -> None:
    faults = [OSError("the link is down")]

    def fault(_region: Region) -> None:
        if faults:
            raise faults.pop()

    async with hosted(TorchService("odd", load=Odd0), fault=fault) as odd:
        with pytest.raises(RestoreError, match="service 'odd' could not be copied to its device: the link is down"):
            await odd.restore()
        assert odd.devices[0].free_bytes == odd.devices[0].capacity_bytes
        await odd.restore()
        await odd.call(TOKENS)
        await odd.evict()


async def test_a_move_to_overlapping_memory_changes_nothing_and_calls_wait_for_it() -> None:
    module = Odd().requires_grad_(False).eval()
    before, answer = looks(module), module(TOKENS)
    async with hosted(TorchService("odd", load=lambda: module)) as odd:
        await odd.restore(gap=8192)
        resident = odd.backend.service(1)
        address = module.q.data_ptr()
        move = asyncio.create_task(odd.move(512))
        await asyncio.sleep(0)
        assert torch.equal(await resident.call(TOKENS), answer)
        await move
        assert module.q.data_ptr() == address - 512
        assert looks(module) == before
        odd.backend.end(resident)
        await odd.evict()


async def test_a_move_waits_for_a_call_and_holds_back_the_next() -> None:
    slow = Slow()
    async with hosted(TorchService("slow", load=lambda: slow, max_concurrency=2)) as service:
        await service.restore(gap=8192)
        first = asyncio.create_task(service.call(1))
        await until(slow.began)
        move = asyncio.create_task(service.move(4096))
        await asyncio.sleep(0.01)
        slow.began.clear()
        second = asyncio.create_task(service.call(2))
        await asyncio.sleep(0.01)
        assert not move.done()
        assert not slow.began.is_set()
        slow.go_on.set()
        assert await asyncio.gather(first, move, second) == [1024, None, 2048]
        await service.evict()


async def test_a_move_that_fails_can_be_mended_by_a_restore() -> None:
    broken: list[OSError] = []

    def fault(_region: Region) -> None:
        if broken:
            raise broken.pop()

    async with hosted(TorchService("odd", load=Odd0), fault=fault) as odd:
        await odd.restore(gap=8192)
        answer = await odd.call(TOKENS)
        broken.append(OSError("an ECC error"))
        waits = asyncio.create_task(odd.call(TOKENS))
        await asyncio.sleep(0)
        with pytest.raises(RestoreError, match="service 'odd' could not be moved on its device: an ECC error"):
            await odd.move(512)
        with pytest.raises(EvictedServiceError):
            await asyncio.to_thread(odd.backend._instances[1].modules[0], TOKENS)
        await odd.backend.restore(1, odd.places[1])
        assert torch.equal(await waits, answer)
        assert torch.equal(await odd.call(TOKENS), answer)
        await odd.evict()


async def test_calls_after_a_move_and_a_restore_that_failed_are_told_so() -> None:
    broken: list[OSError] = []

    def fault(_region: Region) -> None:
        if broken:
            raise broken.pop()

    async with hosted(TorchService("odd", load=Odd0), fault=fault) as odd:
        await odd.restore(gap=8192)
        resident = odd.backend.service(1)
        broken.extend([OSError("again"), OSError("an ECC error")])
        with pytest.raises(RestoreError, match="ECC"):
            await odd.move(512)
        call = asyncio.create_task(resident.call(TOKENS))
        await asyncio.sleep(0)
        with pytest.raises(RestoreError, match="again"):
            await odd.backend.restore(1, odd.places[1])
        with pytest.raises(ServiceLostError, match="service 'odd' was lost while it was moved"):
            await call


class Turned(nn.Module):
    """Keeps a view of its weight, as it must not."""

    def __init__(self, mib: int = 1, *, leaks: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((256 * mib, 1024), 2.0))
        self.leaks = leaks
        self.turned: torch.Tensor | None = None

    def forward(self) -> float:
        if self.leaks:
            self.turned = self.weight.t()
        return float(self.weight[0].sum())


async def test_a_service_that_would_have_to_go_where_a_view_is_held_is_refused_and_others_go_on() -> None:
    async def use(name: str, *, restores: bool = True) -> float:
        lease = manager.take(Seat(Chunk(0, 1), Instance(name, 1), restores=restores))
        try:
            await lease.ready()
            answer: float = await lease.service.call()
            return answer
        finally:
            lease.release()

    leaky, source = Turned(leaks=True), FakeSource()
    source.devices = [CpuDevice("cpu:0", 3 * MIB)]  # type: ignore[list-item]
    loads = {"first": Turned, "leaky": lambda: leaky, "wide": partial(Turned, 2), "other": Turned}
    manager = GpuManager([TorchService(name, load=load) for name, load in loads.items()], source)
    await manager.start()
    try:
        assert [await use(name) for name in ("first", "leaky")] == [2048, 2048]
        manager.evict(Instance("first", 1))  # 1 free, leaky, 1 free
        with pytest.raises(RestoreError, match=r"wide/1 could not be restored on cpu:0: no 2\.0 MiB in one piece"):
            async with asyncio.timeout(20):
                await use("wide")
        assert await use("leaky", restores=False) == 2048
        leaky.leaks, leaky.turned = False, None
        assert await use("wide") == 2048
        assert await use("leaky", restores=False) == 2048
        manager.evict(Instance("wide", 1))
        assert await use("other") == 2048
        assert manager.statistics()["leaky"].moves == 1
    finally:
        leaky.turned = None
        await manager.aclose()


async def test_a_move_with_a_leaked_view_is_given_up_and_the_service_is_where_it_was() -> None:
    module = Odd()
    async with hosted(TorchService("odd", load=lambda: module)) as odd:
        await odd.restore(gap=8192)
        answer, address = await odd.call(TOKENS), module.q.data_ptr()
        leaked = [module.turned.t()]
        with pytest.raises(RestoreError, match="1 views"):
            await odd.move(512)
        await odd.backend.restore(1, odd.places[1])  # as its manager does: there is nothing to copy
        assert module.q.data_ptr() == address
        assert torch.equal(await odd.call(TOKENS), answer)
        leaked.clear()
        await odd.evict()
