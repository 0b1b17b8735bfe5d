"""A module as a service on a device of its own, restored and evicted by hand: what both benches of swaps measure."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from arl_tangram.managers.gpu.devices.device import Device, Region
from arl_tangram.managers.gpu.host.host_memory import HostMemory, Pinner
from arl_tangram.managers.gpu.instances.backend import Backend, DeclaredService, Place
from arl_tangram.model.service import Service


@dataclass(frozen=True, slots=True)
class HostedModule:
    """A service that is open; for one event loop.

    Attributes:
        backend: hosts the module.
        device: where it is restored.
        size: of its packed bytes.
    """

    backend: Backend
    device: Device
    size: int

    async def restore(self, *, gap: int = 0) -> tuple[Region, float]:
        """Make the module usable; return where it is, and the seconds from the request for memory on.

        Args:
            gap: how many bytes further than it would be otherwise.
        """
        before = self.device.allocate(gap)
        began_s = time.perf_counter()
        region = self.device.allocate(self.size)
        assert region is not None, "there is room for it"
        await self.backend.restore(1, [Place(self.device, region)])
        took_s = time.perf_counter() - began_s
        if before is not None:
            self.device.free(before)
        return region, took_s

    async def evict(self, region: Region) -> float:
        """Evict it, and return the seconds until its memory could be taken for others."""
        began_s = time.perf_counter()
        await self.backend.evict(1)
        self.device.free(region)
        return time.perf_counter() - began_s

    async def call(self, *arguments: Any) -> Any:
        """Call it while it is resident, as an action does."""
        service: Service = self.backend.service(1)
        try:
            return await service.call(*arguments)
        finally:
            self.backend.end(service)


@asynccontextmanager
async def hosted_module(
    declared: DeclaredService, device: Device, host_bytes: int, *, pinner: Pinner | None = None
) -> AsyncGenerator[HostedModule]:
    """Open a service with memory of the host for it; the device is the caller's.

    Args:
        declared: the service.
        device: where it is to be restored.
        host_bytes: the budget of host memory.
        pinner: pins that memory; None on a CPU.
    """
    host = HostMemory(host_bytes, pinner=pinner)
    backend = declared.backend()
    try:
        (_, footprint), *_ = (await backend.open(host, [device])).footprints
        yield HostedModule(backend, device, footprint.resident_bytes)
    finally:
        await backend.aclose()
        await host.aclose()
