"""The device that is measured, as the measurements see it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.host.host_memory import Pinner


@dataclass(frozen=True, slots=True)
class Moved:
    """A module that was moved by `.to()`.

    Attributes:
        took_s: what that took.
    """

    took_s: float


@dataclass(frozen=True, slots=True)
class Pool:
    """What makes a `GpuPool`.

    Attributes:
        devices: their names.
        reserve: the share of the memory that is left for what is computed.
        arena: bytes for services, as they are known.
    """

    devices: tuple[str, ...]
    reserve: float
    arena: int


class Plain(Protocol):
    """Bytes on the host and as many on the device, for copies without a service."""

    @property
    def source(self) -> torch.Tensor:
        """Those on the host, pinned where there is a GPU."""
        ...

    def copy(self, size: int) -> float:
        """Copy so many of them with one `copy_`, and return the seconds until they have arrived; it blocks."""
        ...


class Card(Protocol):
    """One device. Whatever takes long blocks, unless it is awaited."""

    @property
    def name(self) -> str:
        """What it is called: `NVIDIA H200`."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        ...

    @property
    def pinner(self) -> Pinner | None:
        """What pins memory of the host for it."""
        ...

    async def open(self, capacity: int) -> Device:
        """Take an arena of it."""
        ...

    def pool(self, arena: int) -> Pool:
        """Return what makes a `GpuPool` with an arena of about so many bytes."""
        ...

    def plain(self, size: int) -> Plain:
        """Take memory on both sides."""
        ...

    def moved(self, model: nn.Module) -> AbstractContextManager[Moved]:
        """Return a context in which a module is where `.to()` has moved it from the host; its value is a `Moved`."""
        ...

    def free_bytes(self) -> int:
        """Return how much of its memory nobody uses."""
        ...

    def used_bytes(self) -> int:
        """Return how much of its memory is in use: of a GPU as NVML tells it, of a CPU by this process."""
        ...

    def tidy(self) -> None:
        """Let go of what torch keeps for later."""
        ...
