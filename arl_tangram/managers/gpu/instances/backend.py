"""A service as its manager sees it: the protocols behind `TorchService`, `VllmService` and their kin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from arl_tangram.errors import RestoreError
from arl_tangram.managers.gpu.devices.device import Device, Region
from arl_tangram.managers.gpu.host.host_memory import HostMemory
from arl_tangram.model.gpu import HostedService
from arl_tangram.model.service import Service


@dataclass(frozen=True, slots=True)
class Place:
    """One device of the chunk of an instance.

    Attributes:
        device: the device.
        region: of its arena, of `resident_bytes`; None for a service that keeps its memory itself.
    """

    device: Device
    region: Region | None


class StillHeldError(RestoreError):
    """A restore has failed, and what it holds could not be made free: as after an `evict` that has failed."""


class DeclaredService(Protocol):
    """A service as a user declares it, such as `TorchService(...)`; immutable, and checked when it is made."""

    @property
    def name(self) -> str:
        """By which actions ask for it; unique in its pool."""
        ...

    def backend(self) -> Backend:
        """Return a new backend for one runtime; it does nothing before its `open`."""
        ...


class Backend(Protocol):
    """One service at work, for one event loop. Its manager makes one transition of an instance at a time.

    A transition is a `restore`, an `evict` or a `move`. The calls come in this order: `on_lost`, `open`, all others,
    `aclose`; and `aclose` also if `open` has failed.
    """

    @property
    def name(self) -> str:
        """The name that it was declared with."""
        ...

    @property
    def keeps_memory(self) -> bool:
        """Whether its memory is outside of the arenas, as that of another process is."""
        ...

    def on_lost(self, tell: Callable[[int, Exception], None]) -> None:
        """Take what is told, on the event loop, when a resident instance (its dop) has died by itself.

        What it had on its devices is free then: it counts as evicted, and the next `restore` begins from nothing. After
        a `StillHeldError` it is not: `evict` is called until it is. Not told of what a transition finds out and raises.
        """
        ...

    async def open(self, host: HostMemory, devices: Sequence[Device]) -> HostedService:
        """Load it once, for all devices, and say what it needs; afterwards it is evicted, and its name is in messages.

        Cancelled, it ends soon; `aclose` follows.

        Raises:
            ConfigurationError: it cannot be loaded, or hosted here; the message says why.
        """
        ...

    async def restore(self, dop: int, places: Sequence[Place]) -> None:
        """Make an instance usable on these places, one for each of its devices; bounded.

        The manager never cancels it. If it fails, nothing of it is in use, and `places` can be used for others at once.

        Raises:
            RestoreError: it does not work there; the message says why.
            StillHeldError: the same, but its memory is not free, as far as is known.
        """
        ...

    async def evict(self, dop: int) -> None:
        """Make an instance unusable; afterwards its places can be used for others; bounded.

        No action holds it any more; what still computes for one that has ended is waited for. After a failure it counts
        as neither resident nor evicted, and `evict` is called again from time to time.

        Raises:
            RestoreError: its memory did not become free; the message says how much of it.
        """
        ...

    async def move(self, dop: int, places: Sequence[Place]) -> None:
        """Carry a resident instance to other regions of its devices, which may overlap those where it is; bounded.

        Actions may hold it: calls that compute are waited for, and those that come meanwhile begin afterwards. Never
        called for one that keeps its memory itself.

        Raises:
            RestoreError: its contents are lost, and nothing of it is in use any more. `restore` to where it was, or
                `evict`, follows; calls wait until then.
        """
        ...

    def service(self, dop: int) -> Service:
        """Return what an action gets that uses this instance, for as long as it runs: a new one for each action."""
        ...

    def end(self, service: Service) -> None:
        """The action ends: what it got is of no use any more, and what it still computes is waited for by `evict`."""
        ...

    async def aclose(self) -> None:
        """Let go of everything; bounded, never raises."""
        ...
