"""When calls of a torch service begin and how they end: held back, in turns, settled on their devices."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
import torch
from torch import nn

from arl_tangram.errors import ServiceLostError, WrongLoopError
from arl_tangram.managers.threads import BodyThreads
from arl_tangram.services.modules import calls
from arl_tangram.services.modules.instance import ModuleInstance
from arl_tangram.services.modules.packing import Packing
from arl_tangram.services.torch_service import TorchService
from service.hosted_modules import TOKENS, Odd0, hosted
from service.odd_modules import Odd


async def test_who_was_admitted_is_held_back_if_that_changed_before_he_went_on() -> None:
    instance = ModuleInstance("name", [], [])
    instance.hold_back()
    waits = asyncio.create_task(instance.admitted())
    await asyncio.sleep(0)
    instance.admit()
    instance.hold_back()
    await asyncio.sleep(0.01)
    assert not waits.done()
    instance.admit()
    await waits


async def test_who_waits_for_calls_waits_for_one_that_began_before_he_went_on() -> None:
    instance = ModuleInstance("name", [], [])
    instance.begin()
    waits = asyncio.create_task(instance.idle(60))
    await asyncio.sleep(0)
    instance.finish()
    instance.begin()
    await asyncio.sleep(0.01)
    assert not waits.done()
    instance.finish()
    await waits


async def test_it_is_called_on_the_event_loop_of_its_action() -> None:
    async with hosted(TorchService("odd", load=Odd0)) as service:
        await service.restore()
        resident = service.backend.service(1)
        with pytest.raises(WrongLoopError, match="service 'odd' belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, resident.call(TOKENS))
        await resident.call(TOKENS)
        service.backend.end(resident)
        await service.evict()


async def test_a_thousand_calls_at_once_have_as_many_threads_as_actions_may_use_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computing, most, lock = 0, 0, threading.Lock()

    class Counted(nn.Linear):
        def forward(self, input: int) -> int:  # type: ignore[override]  # noqa: A002
            nonlocal computing, most
            with lock:
                computing += 1
                most = max(most, computing)
            time.sleep(0)
            with lock:
                computing -= 1
            return input

    spawned: list[BodyThreads] = []
    spawn = BodyThreads._spawn

    def counted(threads: BodyThreads) -> object:
        spawned.append(threads)
        return spawn(threads)

    monkeypatch.setattr(BodyThreads, "_spawn", counted)
    async with hosted(TorchService("counted", load=lambda: Counted(1, 1), max_concurrency=3)) as service:
        await service.restore()
        resident = service.backend.service(1)
        assert await asyncio.gather(*(resident.call(number) for number in range(1000))) == list(range(1000))
        assert most <= 3
        assert spawned.count(service.backend._threads) <= 4
        given_up = [asyncio.create_task(resident.call(number)) for number in range(9)]
        await asyncio.sleep(0)
        for call in given_up:
            call.cancel()
        await asyncio.wait(given_up)
        assert await asyncio.gather(*(resident.call(number) for number in range(9))) == list(range(9))
        service.backend.end(resident)
        await service.evict()


@pytest.mark.parametrize("started", [0, 1])
async def test_where_no_thread_can_be_started_the_service_goes_on_afterwards(
    started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        nonlocal started
        if not started:
            raise RuntimeError("can't start new thread")
        started -= 1
        start(_thread)

    start = threading.Thread.start
    async with hosted(TorchService("odd", load=Odd0, dops=(2,)), devices=2) as service:
        await service.restore(2)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        service.backend._threads.close()
        service.backend._threads._closed = False  # with no thread any more
        with pytest.raises(ServiceLostError, match="service 'odd': no thread can be started: can't start new thread"):
            await service.call(TOKENS, dop=2)
        monkeypatch.undo()
        async with asyncio.timeout(20):
            assert (await service.call(TOKENS, dop=2)).shape == (3, 4, 32)
            await service.evict(2)


async def test_devices_are_settled_however_a_call_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(nn.Linear):
        def forward(self, input: torch.Tensor, *, fails: bool) -> torch.Tensor:  # type: ignore[override]  # noqa: A002
            if fails:
                raise KeyError("its own")
            return super().forward(input)

    settled: list[object] = []
    monkeypatch.setattr(calls, "_settle", settled.append)
    async with hosted(TorchService("failing", load=lambda: Failing(2, 3))) as service:
        await service.restore()
        await service.call(torch.zeros(2), fails=False)
        with pytest.raises(KeyError):
            await service.call(torch.zeros(2), fails=True)
        assert len(settled) == 2

        def failing(_places: object) -> None:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

        monkeypatch.setattr(calls, "_settle", failing)
        for fails in (False, True):
            with pytest.raises(ServiceLostError, match="service 'failing': a device has failed: CUDA error"):
                await service.call(torch.zeros(2), fails=fails)
        await service.evict()


async def test_modules_are_attached_to_all_devices_or_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Odd()
    attach, attached = Packing.attach, 0

    def second_fails(packing: Packing, memory: torch.Tensor) -> None:
        nonlocal attached
        attached += 1
        if attached == 2:
            raise BufferError("another device is the current one")
        attach(packing, memory)

    async with hosted(TorchService("odd", load=lambda: module, dops=(2,)), devices=2) as odd:
        monkeypatch.setattr(Packing, "attach", second_fails)
        with pytest.raises(BufferError):
            await odd.restore(2)
        assert module.q.numel() == 0
        assert odd.backend._instances[2].held == 0
        await odd.restore(2)
        assert torch.equal(await odd.call(TOKENS, dop=2), Odd().eval()(TOKENS))
        await odd.evict(2)


async def test_a_move_after_which_modules_cannot_be_attached_ends_where_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = Odd()

    def failing(_packing: Packing, _memory: torch.Tensor) -> None:
        raise BufferError("no")

    async with hosted(TorchService("odd", load=lambda: module)) as odd:
        await odd.restore(gap=8192)
        monkeypatch.setattr(Packing, "attach", failing)
        with pytest.raises(BufferError):
            await odd.move(512)
        monkeypatch.undo()
        assert module.q.numel() == 0
        await odd.backend.restore(1, odd.places[1])
        assert torch.equal(await odd.call(TOKENS), Odd().eval()(TOKENS))
        await odd.evict()


@pytest.mark.gpu
async def test_a_module_is_attached_whichever_device_is_the_current_one() -> None:
    packing = Packing.of(Odd0())
    packing.pack(torch.empty(packing.size_bytes, dtype=torch.uint8))
    for index in range(torch.cuda.device_count()):
        memory = torch.zeros(packing.size_bytes, dtype=torch.uint8, device=f"cuda:{index}")
        with torch.cuda.device(0):
            packing.attach(memory)
        assert packing.detach() == 0
