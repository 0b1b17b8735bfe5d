"""A torch service that is open on devices made of host memory, without a manager, and modules for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from arl_tangram.managers.gpu.devices.cpu.device import CpuDevice
from arl_tangram.managers.gpu.devices.device import Device, Region
from arl_tangram.managers.gpu.host.host_memory import HostMemory, Pinner
from arl_tangram.managers.gpu.instances.backend import Place
from arl_tangram.model.gpu import HostedService
from arl_tangram.services.modules.backend import ModuleBackend
from arl_tangram.services.torch_service import TorchService
from service.odd_modules import Odd

MIB = 1 << 20
TOKENS = torch.arange(12).view(3, 4)


@dataclass
class Hosted:
    """A service that is open, on its devices."""

    backend: ModuleBackend
    devices: Sequence[Device]
    facts: HostedService
    places: dict[int, list[Place]] = field(default_factory=dict)

    async def restore(self, dop: int = 1, *, gap: int = 0) -> None:
        """Restore an instance to the first devices, some bytes further than it would be otherwise."""
        size = dict(self.facts.footprints)[dop].resident_bytes
        places = []
        for device in self.devices[:dop]:
            before = device.allocate(gap)
            region = device.allocate(size)
            assert before is not None
            assert region is not None
            device.free(before)
            places.append(Place(device, region))
        try:
            await self.backend.restore(dop, places)
        except BaseException:
            for place in places:
                place.device.free(place.region)
            raise
        self.places[dop] = places

    async def evict(self, dop: int = 1) -> None:
        await self.backend.evict(dop)
        for place in self.places.pop(dop):
            place.device.free(place.region)

    async def move(self, by: int) -> None:
        """Move the instance of dop 1 towards the beginning of its device, as compaction does."""
        (place,) = self.places[1]
        assert place.region is not None
        to = [Place(place.device, Region(place.region.offset - by, place.region.size))]
        await self.backend.move(1, to)
        self.places[1] = to

    async def call(self, *args: Any, dop: int = 1, **kwargs: Any) -> Any:
        service = self.backend.service(dop)
        try:
            return await service.call(*args, **kwargs)
        finally:
            self.backend.end(service)


@asynccontextmanager
async def hosted(
    declared: TorchService,
    *,
    devices: int = 1,
    capacity: int = 64 * MIB,
    fault: Callable[[Region], None] | None = None,
    longest_call_s: float = 60,
    on: Sequence[Device] = (),
    pinner: Pinner | None = None,
) -> AsyncIterator[Hosted]:
    """Open a service on its own; free memory of its devices is overwritten."""
    host = HostMemory(4 * capacity, pinner=pinner)
    there = on or [CpuDevice(f"cpu:{number}", capacity, poison=True, fault=fault) for number in range(devices)]
    backend = ModuleBackend(declared, longest_call_s=longest_call_s)
    try:
        yield Hosted(backend, there, await backend.open(host, there))
    finally:
        await backend.aclose()
        assert host.used_bytes == 0
        for device in there:
            await device.aclose()
        await host.aclose()


class Slow(nn.Module):
    """Computes for as long as a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1024))
        self.began, self.go_on = threading.Event(), threading.Event()

    def forward(self, number: float) -> float:
        self.began.set()
        assert self.go_on.wait(20)
        return float(self.weight.sum()) * number


class Growing(nn.Module):
    """Keeps a table in a buffer that no state dict has, and makes a longer one when it needs that."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("table", torch.arange(4.0), persistent=False)

    def forward(self, length: int) -> float:
        if length > len(self.table):
            self.register_buffer("table", torch.arange(float(length), device=self.weight.device), persistent=False)
        return float(self.table[:length].sum() + self.weight.sum())


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 20)


class Odd0(Odd):
    """As a `load` that takes no argument: all of its own have defaults."""
