"""The devices of this machine that a `GpuPool` names: its GPUs, or parts of its memory in their place."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import cast

import anyio.to_thread

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.devices.cpu.device import CpuDevice
from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.devices.plain_gpu import PlainGpu
from arl_tangram.managers.gpu.discovery.found import FoundGpus, Gpu, choose, find_gpus
from arl_tangram.managers.gpu.host.free_memory import available_bytes
from arl_tangram.managers.gpu.host.host_memory import HostMemory
from arl_tangram.managers.gpu.sizes import in_words
from arl_tangram.model.quantities import GIB
from arl_tangram.uninterrupted import finish_anyway

AUTO = "auto"
HOST_SHARE = 0.8
"""Of what is available of the machine's memory when the pool is opened, CPU devices apart, if no budget is named."""

_CPU = re.compile(r"(?P<name>cpu:\d{1,4}):(?P<size>\d+(\.\d+)?)(?P<unit>GiB|MiB)")


def check_names(names: object, what: str) -> tuple[str, ...]:
    """Return what devices are asked for, checked as far as can be without looking at the machine.

    Raises:
        ConfigurationError: none, one twice, or one that cannot be a device.
    """
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise ConfigurationError(f"{what} takes {AUTO!r} or names of devices, not {names!r}")
    found: list[str] = []
    for name in cast(Sequence[object], names):
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"{what}: {name!r} is no name of a device")
        if name.startswith("cpu") and cpu_size(name) < 1:
            raise ConfigurationError(
                f"{what}: {name!r} is no device; a part of the machine's memory is called like 'cpu:0:4GiB'"
            )
        found.append(name)
    own = [name.rpartition(":")[0] if name.startswith("cpu") else name for name in found]
    if not own:
        raise ConfigurationError(f"{what} takes at least one device")
    if twice := [name for number, name in enumerate(own) if name in own[:number]]:
        raise ConfigurationError(f"{what}: {twice[0]!r} is there twice")
    return tuple(found)


def cpu_size(name: str) -> int:
    """Return how many bytes a device like `cpu:0:4GiB` is to have; 0 for what is not called so."""
    matched = _CPU.fullmatch(name)
    return int(float(matched["size"]) * (GIB if matched["unit"] == "GiB" else GIB >> 10)) if matched else 0


class MachineDevices:
    """Opens devices of this machine.

    Args:
        names: what `GpuPool` was given, or None for all GPUs.
        reserve: the share of the memory of a GPU that is left for what is computed.
        host_bytes: the budget of host memory; None for most of what is available.
        find: looks for GPUs; it blocks.
    """

    def __init__(
        self,
        names: tuple[str, ...] | None,
        *,
        reserve: float,
        host_bytes: int | None,
        find: Callable[[], FoundGpus] = find_gpus,
    ) -> None:
        self._names = names
        self._reserve = reserve
        self._host_bytes = host_bytes
        self._find = find
        self._gpu: Device | None = None
        self._arenas = True
        self._cpu_bytes = 0
        self._notes: tuple[str, ...] = ()

    async def open(self, *, shared: bool, arenas: bool = True) -> Sequence[Device]:
        """Open the devices of the pool.

        Args:
            shared: whether what is in use of a GPU may be that of the pool's own services.
            arenas: whether any service is copied to arenas; if not, GPUs are opened without torch, here and in `lend`.

        Raises:
            ConfigurationError: there are none, or not those that were asked for.
            MissingExtraError: what they need is not installed.
        """
        self._arenas = arenas
        opened = await self._opened(self._names, shared=shared)
        self._cpu_bytes = sum(device.capacity_bytes for device in opened if isinstance(device, CpuDevice))
        return opened

    async def lend(self, names: Sequence[str]) -> Sequence[Device]:
        """Open other devices of this machine; raises as `open` does."""
        return await self._opened(check_names(names, "lend()"), shared=False)

    async def host_memory(self) -> HostMemory:
        """Return the memory for services that are evicted, after `open`; pinned if there are GPUs with arenas."""
        budget = self._host_bytes
        if budget is None:
            available = await anyio.to_thread.run_sync(available_bytes)
            budget = int(max(0, available - self._cpu_bytes) * HOST_SHARE)  # devices get their pages later
        if self._gpu is None:
            return HostMemory(budget)
        from arl_tangram.managers.gpu.devices.cuda.pinning import CudaPinner  # noqa: PLC0415 - for GPUs only

        return HostMemory(budget, pinner=CudaPinner(self._gpu.torch_name))

    def notes(self) -> tuple[str, ...]:
        """Return what was left out of the GPUs, or is in use by others."""
        return self._notes

    async def _opened(self, names: tuple[str, ...] | None, *, shared: bool) -> Sequence[Device]:
        opened: list[Device] = []
        try:
            gpus = await self._gpus(names)
            await _check_memory([name for name in names or () if cpu_size(name)])
            opened += [CpuDevice(name.rpartition(":")[0], cpu_size(name)) for name in names or () if cpu_size(name)]
            for gpu in gpus:
                opened.append(await self._open_gpu(gpu, shared=shared))
        except BaseException:
            await finish_anyway(_closed(opened))
            raise
        return opened

    async def _gpus(self, names: tuple[str, ...] | None) -> Sequence[Gpu]:
        wanted = None if names is None else [name for name in names if not cpu_size(name)]
        if wanted == []:
            return ()
        found = await anyio.to_thread.run_sync(self._find)
        self._notes = tuple(dict.fromkeys((*self._notes, *found.notes)))
        if wanted is not None:
            return choose(found, wanted)
        if not found.gpus:
            raise ConfigurationError(
                f"GpuPool(devices={AUTO!r}): there are no GPUs: {found.reason}. With devices=['cpu:0:4GiB'], the same "
                "services run on a part of this machine's memory"
            )
        return found.gpus

    async def _open_gpu(self, gpu: Gpu, *, shared: bool) -> Device:
        has = gpu.total_bytes if shared else gpu.free_bytes
        size = has - int(gpu.total_bytes * self._reserve)
        if size <= 0:
            raise ConfigurationError(
                f"{gpu.uuid}: {in_words(has)} of {in_words(gpu.total_bytes)} can be used, and "
                f"reserve={self._reserve:g} of all is to be left for what is computed: nothing is left for services"
            )
        if not self._arenas:
            known = gpu.cuda_index is not None
            return PlainGpu(gpu.uuid, f"cuda:{gpu.cuda_index}" if known else gpu.uuid, size)
        from arl_tangram.managers.gpu.devices.cuda.device import CudaDevice  # noqa: PLC0415 - for GPUs only

        opened = await CudaDevice.open(gpu.uuid, size, cuda_index=gpu.cuda_index, vacated=shared)
        self._gpu = self._gpu or opened
        return opened


async def _check_memory(names: Sequence[str]) -> None:
    """Refuse devices that the memory of this machine could not hold: what fills them would be killed."""
    if not names:
        return
    usable = await anyio.to_thread.run_sync(available_bytes)
    if sum(map(cpu_size, names)) > usable:
        asked = ", ".join(f"{name.rpartition(':')[0]} with {in_words(cpu_size(name))}" for name in names)
        raise ConfigurationError(f"{asked}: of this machine's memory, {in_words(usable)} can be used")


async def _closed(devices: Sequence[Device]) -> None:
    await asyncio.gather(*(device.aclose() for device in devices), return_exceptions=True)
