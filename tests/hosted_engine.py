"""An engine's backend at work in a test, with the memory of its devices measured at a stand-in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.devices.fake_device import FakeDevice
from arl_tangram.managers.gpu.host.host_memory import HostMemory
from arl_tangram.managers.gpu.instances.backend import Place
from arl_tangram.model.gpu import HostedService
from arl_tangram.services.engine.backend import EngineBackend
from arl_tangram.services.sglang import SglangService
from arl_tangram.services.vllm import VllmService
from standin_engines import GIB, StandIn, StandInSglang, StandInVllm

DECLARATIONS: dict[type[StandIn], Any] = {StandInVllm: VllmService, StandInSglang: SglangService}


class HostedEngine:
    """What a manager does with an engine.

    Attributes:
        backend: the engine.
        hosted: what it said of itself when it was opened.
        lost: what was told of its death.
    """

    def __init__(self, backend: EngineBackend, devices: Sequence[Device]) -> None:
        self.backend = backend
        self.devices = devices
        self.hosted: HostedService | None = None
        self.lost: list[tuple[int, Exception]] = []

    @property
    def dop(self) -> int:
        assert self.hosted is not None
        return self.hosted.dops[0]

    async def restore(self) -> None:
        await self.backend.restore(self.dop, [Place(device, None) for device in self.devices])

    async def evict(self) -> None:
        await self.backend.evict(self.dop)

    async def ask(self, *args: Any, **options: Any) -> Any:
        """Use it as an action does, and return its answer."""
        service = self.backend.service(self.dop)
        try:
            return await service.call(*args, **options)
        finally:
            self.backend.end(service)


def declare(server: StandIn, **options: Any) -> Any:
    """Return the declaration of a stand-in that runs."""
    given = {"name": "judge", "url": server.url, "gpu_gib": 8, "settle_s": 0.2}
    return DECLARATIONS[type(server)](**{**given, "memory_of": lambda _: server.free_bytes(), **options})


@contextlib.asynccontextmanager
async def hosting(
    declared: Any, *, devices: Sequence[str] = ("gpu:0",), host_gib: int = 64
) -> AsyncGenerator[HostedEngine]:
    """Open an engine, and close it."""
    there = [FakeDevice(name, 16 * GIB) for name in devices]
    backend: EngineBackend = declared.backend()
    hosted = HostedEngine(backend, there)
    backend.on_lost(lambda dop, error: hosted.lost.append((dop, error)))
    host = HostMemory(host_gib * GIB)
    try:
        hosted.hosted = await backend.open(host, there)
        yield hosted
    finally:
        await backend.aclose()
        await host.aclose()
        for device in there:
            await device.aclose()


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that has no event."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - what is asked has no event
            await asyncio.sleep(0.005)
