"""Where the devices of a pool and the host memory for its services come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.host.host_memory import HostMemory


class DeviceSource(Protocol):
    """Opens devices; for one event loop."""

    async def open(self, *, shared: bool, arenas: bool = True) -> Sequence[Device]:
        """Open the devices of the pool, neighbours near each other. If it fails, none of them is open.

        Args:
            shared: whether services of the pool have memory of them outside of the arenas, as engines do, perhaps now
                already: it is part of what the pool has, and arenas take it only when they are told to.
            arenas: whether any service is copied to arenas; if not, those of GPUs take no memory, here and in `lend`.

        Raises:
            ConfigurationError: there are none, or not those that were asked for.
            MissingExtraError: what they need is not installed.
        """
        ...

    async def lend(self, names: Sequence[str]) -> Sequence[Device]:
        """Open other devices of this machine, to be closed again later; raises as `open` does."""
        ...

    async def host_memory(self) -> HostMemory:
        """Return the memory for services that are evicted; after `open`."""
        ...

    def notes(self) -> tuple[str, ...]:
        """Return lines for the report, such as what was left out; none if all is said."""
        ...
