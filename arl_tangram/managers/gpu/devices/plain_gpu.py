"""A GPU of a pool in which nothing needs an arena: it is only counted, without torch and without a context of CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from arl_tangram.managers.gpu.devices.arena_device import ArenaDevice
from arl_tangram.managers.gpu.devices.device import Region

if TYPE_CHECKING:
    import torch


class PlainGpu(ArenaDevice):
    """A GPU whose memory is that of servers and of `gpu=` bodies.

    Args:
        name: its UUID.
        torch_name: what torch would call it in this process; its UUID if that is not known.
        capacity_bytes: what services may have of it.
    """

    def allocate(self, size: int) -> Region | None:
        """Give regions of no bytes only."""
        return None if size else super().allocate(0)

    def view(self, region: Region) -> torch.Tensor:
        """Fail: there are no bytes."""
        self._fail()

    async def aclose(self) -> None:
        """It has nothing."""

    async def _copy_in(self, region: Region, source: torch.Tensor) -> None:
        self._fail()

    async def _move(self, source: Region, target: Region) -> None:
        self._fail()

    async def _vacate(self) -> None:
        """Others have its memory anyway."""

    async def _occupy(self) -> None:
        """It takes none."""

    def _taken(self, start: int, stop: int) -> None:
        """There are no bytes."""

    def _freed(self, start: int, stop: int) -> None:
        """There are no bytes."""

    def _fail(self) -> NoReturn:
        raise ValueError(f"{self.name} has no arena")
