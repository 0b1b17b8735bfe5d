"""Which devices of a pool an engine is on, and how their memory is measured."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import anyio

from arl_tangram.errors import ConfigurationError, MissingExtraError
from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.discovery.nvml import NoGpusError, Nvml, open_nvml
from arl_tangram.managers.gpu.discovery.visible import UUID_PREFIXES
from arl_tangram.model.gpu import Chunk
from arl_tangram.services.engine.memory import MemoryOf
from arl_tangram.uninterrupted import in_thread


def chunk(name: str, dop: int, asked: Sequence[int | str] | None, devices: Sequence[Device]) -> Chunk:
    """Return the chunk of the devices that were asked for.

    Raises:
        ConfigurationError: there are no such devices, or they are no neighbours; the message says what there is.
    """
    names = [device.name for device in devices]
    there = ", ".join(f"{number}: {each}" for number, each in enumerate(names))
    if asked is None and len(devices) != dop:
        raise ConfigurationError(f"{name}: which devices is it on? devices= is needed, as the pool has {there}")
    numbers = sorted(_number(name, each, names, there) for each in (asked if asked is not None else range(dop)))
    first = numbers[0]
    if len(numbers) != dop or numbers != list(range(first, first + dop)) or first % dop:
        raise ConfigurationError(
            f"{name}: {dop} devices must stand beside each other, the first at a multiple of {dop}, not {numbers}; "
            f"the pool has {there}"
        )
    return Chunk(first, dop)


def _number(name: str, asked: int | str, names: Sequence[str], there: str) -> int:
    if isinstance(asked, int) and not isinstance(asked, bool) and 0 <= asked < len(names):
        return asked
    if isinstance(asked, str):
        with suppress(ValueError):
            return names.index(asked)
    raise ConfigurationError(f"{name}: there is no device {asked!r}; the pool has {there}")


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
