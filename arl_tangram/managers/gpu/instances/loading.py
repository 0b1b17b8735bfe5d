"""Open the services of a pool, and check that each of them can be where it is to be."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

from arl_tangram.errors import ConfigurationError, TangramError
from arl_tangram.managers.gpu.devices.arena import rounded
from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.host.host_memory import HostMemory
from arl_tangram.managers.gpu.instances.backend import Backend
from arl_tangram.managers.gpu.sizes import in_words
from arl_tangram.model.gpu import Footprint, GpuNode, HostedService, chunks_of


async def load(backends: Sequence[Backend], host: HostMemory, devices: Sequence[Device]) -> list[HostedService]:
    """Open services: first those that keep their memory, at once, then the others, one after the other.

    What keeps its memory may need all of a device while it starts; those on one device see to it themselves that they
    start one after the other. The others run code of users that changes what a whole process has in common while it
    loads: the seed and the default type of torch, say; and each has its weights twice in host memory for a moment. If
    one fails, the others are given up.

    Raises:
        ConfigurationError: one cannot be loaded, or hosted; the message names it.
    """
    opened: dict[str, HostedService] = {}

    async def open_one(backend: Backend) -> None:
        opened[backend.name] = await _opened(backend, host, devices)

    await _all([open_one(backend) for backend in backends if backend.keeps_memory])
    for backend in backends:
        if not backend.keeps_memory:
            await open_one(backend)
    return [opened[backend.name] for backend in backends]


async def _all(steps: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do all at once; the first error ends the others, which are waited for."""
    tasks = [asyncio.create_task(each) for each in steps]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _opened(backend: Backend, host: HostMemory, devices: Sequence[Device]) -> HostedService:
    try:
        service = await backend.open(host, devices)
    except TangramError:
        raise
    except Exception as error:
        raise ConfigurationError(f"service {backend.name!r} cannot be loaded: {error!r}") from error
    if service.name != backend.name or not service.footprints or dict(service.restore_s).keys() != set(service.dops):
        raise ConfigurationError(f"service {backend.name!r} does not say what it needs: {service!r}")
    for dop, needs in service.footprints:
        if needs.peak_bytes < needs.resident_bytes or not 0 <= needs.evicted_bytes <= needs.resident_bytes:
            raise ConfigurationError(f"service {service.name!r} says that it needs {needs} with dop {dop}")
        if needs.evicted_bytes and dop not in dict(service.chunks):
            raise ConfigurationError(f"service {service.name!r} keeps memory where it sleeps, and does not say where")
    return service


def counted(service: HostedService, backend: Backend) -> HostedService:
    """Return what the scheduler is to count: what is in an arena occupies whole pieces of it."""
    if backend.keeps_memory:
        return service
    footprints = tuple(
        (dop, Footprint(rounded(needs.resident_bytes), rounded(max(needs.resident_bytes, needs.peak_bytes))))
        for dop, needs in service.footprints
    )
    return replace(service, footprints=footprints)


def with_whole_devices(service: HostedService, devices: Sequence[Device]) -> HostedService:
    """Return what keeps its memory itself as something that needs devices whole, where they hold their arenas."""
    fixed = dict(service.chunks)
    footprints: list[tuple[int, Footprint]] = []
    for dop, needs in service.footprints:
        numbers: Iterable[int] = fixed[dop].devices if dop in fixed else range(len(devices))
        holding = [devices[n].capacity_bytes for n in numbers if n < len(devices) and devices[n].holds_all]
        size = max(needs.peak_bytes, min(holding, default=0))
        footprints.append((dop, replace(needs, resident_bytes=size, peak_bytes=size) if holding else needs))
    return replace(service, footprints=tuple(footprints))


def check(service: HostedService, nodes: Sequence[GpuNode], others: Sequence[HostedService]) -> None:
    """Check that each dop of a service has devices that are large enough, beside what sleeping engines keep there.

    Args:
        service: which.
        nodes: of its pool.
        others: all services of its pool, with this one.

    Raises:
        ConfigurationError: one has not; the message says what it needs and what there is.
    """
    capacities = [device.capacity_bytes for node in nodes for device in node.devices]
    names = [device.name for node in nodes for device in node.devices]
    kept = [0] * len(capacities)
    for other in others:
        for dop, chunk in other.chunks:
            for number in chunk.devices:
                if number < len(kept) and other.name != service.name:
                    kept[number] += dict(other.footprints)[dop].evicted_bytes
    for dop, needs in service.footprints:
        chunks = [chunk for at, chunk in service.chunks if at == dop] or chunks_of(nodes, dop)
        if not chunks:
            raise ConfigurationError(
                f"service {service.name!r} with dop {dop} needs {dop} neighbouring devices, in whole groups of {dop}; "
                f"the pool has {_counted(nodes)}"
            )
        if any(number >= len(capacities) for chunk in chunks for number in chunk.devices):
            raise ConfigurationError(
                f"service {service.name!r} with dop {dop} is on devices up to number {chunks[0].devices[-1]}; "
                f"the pool has {len(capacities)}, from 0"
            )
        room = {chunk: min(capacities[n] - kept[n] for n in chunk.devices) for chunk in chunks}
        best = max(room, key=lambda chunk: room[chunk])
        if room[best] < needs.peak_bytes:
            at = f"{names[best.first]} to {names[best.devices[-1]]}" if dop > 1 else names[best.first]
            beside = " beside what sleeping engines keep there" if any(kept[n] for n in best.devices) else ""
            raise ConfigurationError(
                f"service {service.name!r} with dop {dop} needs {in_words(needs.peak_bytes)} on each device; "
                f"the most that there is, on {at}, is {in_words(room[best])}{beside}"
            )


def _counted(nodes: Sequence[GpuNode]) -> str:
    counts = [len(node.devices) for node in nodes]
    if len(counts) == 1:
        return "1 device" if counts[0] == 1 else f"{counts[0]} devices"
    return f"nodes with {', '.join(str(count) for count in counts)} devices"
