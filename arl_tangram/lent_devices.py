"""Devices that a pool of GPUs has for a phase, and gives back when nothing is on them any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

import anyio

from arl_tangram.dispatch import Dispatcher
from arl_tangram.doorway import Doorway
from arl_tangram.errors import RuntimeClosedError, ShutdownError, TangramError, UsageError
from arl_tangram.managers.gpu.manager import GpuManager
from arl_tangram.model.gpu import GpuNode
from arl_tangram.uninterrupted import finish_anyway

_logger = logging.getLogger(__name__)


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
        self._lent: tuple[int, GpuNode] | None = None
        self._is_new = True
        self._giving_back = asyncio.Lock()  # waited for on the runtime's loop only

    async def __aenter__(self) -> Self:
        """Open them; from now on services are restored to them, too.

        Cancelled, it lends nothing. If it is entered on another loop than the runtime's, that may come just after they
        were lent: then they are given back first, as on leaving.

        Raises:
            ConfigurationError: there are no such devices, or the pool has one of them.
            UsageError: it was entered before.
        """
        if not self._is_new:
            raise UsageError("these devices were lent before; call lend() again")
        self._is_new = False
        try:
            await self._at_home(self._lend)
        except asyncio.CancelledError:
            if self._lent is not None:
                with anyio.CancelScope(shield=True):  # a task that is cancelled again does not wait any longer
                    await self._give_back_quietly()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give them back; see `give_back`."""
        await self.give_back()

    async def give_back(self) -> None:
        """Place nothing there any more, wait until what runs there has ended, and give all their memory back.

        Leaving does that. Where leaving has failed or was cancelled, the library keeps some of their memory, and places
        nothing there; this asks once more. Nothing happens if they were given back, also by closing the runtime.

        Cancelled, it stops waiting for what runs there.

        Raises:
            RestoreError: a service does not leave them; its memory is still in use there.
            ShutdownError: the runtime is closed meanwhile, which gives them back as well.
        """
        try:
            await self._at_home(self._reclaim)
        except RuntimeClosedError:
            if not self._gpu.is_closed:
                raise

    async def _give_back_quietly(self) -> None:
        try:
            await self.give_back()
        except TangramError as error:
            _logger.warning("%s were lent for a moment and are not given back: %s", ", ".join(self.devices), error)

    async def _at_home(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._doorway.is_here:
            await work()
        else:
            await self._doorway.visit(work)

    async def _lend(self) -> None:
        first, node = self._lent = await self._gpu.lend(self.devices)
        self._dispatcher.gpus.lend(first, node)
        self._on_change()

    async def _reclaim(self) -> None:
        async with self._giving_back:
            if self._lent is None or not self._is_there(*self._lent):
                return
            first, node = self._lent
            self._dispatcher.gpus.reclaim(first)
            self._on_change()
            try:
                await self._dispatcher.gpus.until_clear(first)
                if self._is_there(first, node):
                    await finish_anyway(self._gpu.reclaim(first))
            except TangramError as error:
                if self._dispatcher.is_stopped and not isinstance(error, ShutdownError):
                    raise ShutdownError("the runtime was closed while devices were given back") from error
                raise
            self._lent = None

    def _is_there(self, first: int, node: GpuNode) -> bool:
        """Whether this loan has devices still; those that were closed meanwhile may be there by a later one."""
        return not self._gpu.is_closed and self._gpu.is_lent(first, node)
