"""Devices that a pool of GPUs has for a phase, and gives back when nothing is on them any more."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

from arl_tangram.dispatch import Dispatcher
from arl_tangram.doorway import Doorway
from arl_tangram.errors import UsageError
from arl_tangram.managers.gpu.manager import GpuManager
from arl_tangram.uninterrupted import finish_anyway


class LentDevices:
    """Devices that are lent from entering to leaving; see `Tangram.lend`.

    Attributes:
        devices: by which they are known, as they were given.

    Args:
        gpu: the manager of the pool.
        dispatcher: the scheduler on its event loop.
        doorway: the way onto that loop.
        devices: by which they are known.
        on_change: called when there are more or fewer devices.
    """

    def __init__(
        self,
        gpu: GpuManager,
        dispatcher: Dispatcher,
        doorway: Doorway,
        devices: Sequence[str],
        *,
        on_change: Callable[[], None],
    ) -> None:
        self.devices = tuple(devices)
        self._gpu = gpu
        self._dispatcher = dispatcher
        self._doorway = doorway
        self._on_change = on_change
        self._first: int | None = None
        self._is_new = True

    async def __aenter__(self) -> Self:
        """Open them; from now on services are restored to them, too. Cancelled, it lends nothing.

        Raises:
            ConfigurationError: there are no such devices, or the pool has one of them.
            UsageError: it was entered before.
        """
        if not self._is_new:
            raise UsageError("these devices were lent before; call lend() again")
        self._is_new = False
        await self._at_home(self._lend)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Place nothing there any more, wait until what runs there has ended, and give all their memory back.

        Cancelled, it stops waiting for what runs there: then the runtime keeps some of their memory until it closes.

        Raises:
            RestoreError: a service does not leave them; its memory is still in use there.
            ShutdownError: the runtime is closed meanwhile, which gives them back as well.
        """
        await self._at_home(self._reclaim)

    async def _at_home(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._doorway.is_here:
            await work()
        else:
            await self._doorway.visit(work)

    async def _lend(self) -> None:
        self._first, node = await self._gpu.lend(self.devices)
        self._dispatcher.lend_devices(self._first, node)
        self._on_change()

    async def _reclaim(self) -> None:
        first, self._first = self._first, None
        if first is None:
            return
        self._dispatcher.reclaim_devices(first)
        self._on_change()
        await self._dispatcher.until_clear(first)
        await finish_anyway(self._gpu.reclaim(first))
