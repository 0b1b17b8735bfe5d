"""Where the memory of devices is read."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from arl_tangram.errors import MissingExtraError
from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.discovery.nvml import NoGpusError, Nvml, open_nvml
from arl_tangram.managers.gpu.discovery.visible import UUID_PREFIXES
from arl_tangram.services.servers.memory import MemoryOf
from arl_tangram.uninterrupted import in_thread


class Gauge:
    """Where the memory of devices is read, for as long as it is open.

    Args:
        given: how a user wants it measured; None for NVML.
    """

    def __init__(self, given: MemoryOf | None) -> None:
        self._given = given
        self._nvml: Nvml | None = None
        self._limiter = anyio.CapacityLimiter(1)

    async def open(self, devices: Sequence[Device]) -> MemoryOf | None:
        """Return what measures them; None if nothing can, as they are no GPUs."""
        if self._given is not None:
            return self._given
        if not all(device.name.startswith(UUID_PREFIXES) for device in devices):
            return None
        try:
            self._nvml = nvml = await in_thread(open_nvml, self._limiter)
        except (MissingExtraError, NoGpusError):
            return None
        return lambda name: nvml.memory(name).free_bytes

    async def aclose(self) -> None:
        """Let go of the library."""
        if self._nvml is not None:
            await in_thread(self._nvml.close, self._limiter)
            self._nvml = None
