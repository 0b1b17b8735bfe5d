"""The part of the dispatcher for GPUs: what becomes of services and devices, and what the core decides of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from arl_tangram.errors import ShutdownError
from arl_tangram.model.gpu import GpuNode, Instance
from arl_tangram.scheduling.core import SchedulerCore

_logger = logging.getLogger(__name__)


class GpuDispatch:
    """Feeds what becomes of services and devices to the core, and carries evictions to the manager of the pool.

    It is what the manager tells (`GpuListener`).

    Attributes:
        on_evicted: is told of services that have to go, before those are granted who get what they had.

    Args:
        core: the scheduler.
        loop: its event loop.
        now_s: tells the time; never before the last decision.
        wake: lets the scheduler decide in the next turn of the loop.
    """

    def __init__(
        self,
        core: SchedulerCore,
        loop: asyncio.AbstractEventLoop,
        now_s: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self.on_evicted: Callable[[Sequence[Instance]], None] | None = None
        self._core = core
        self._loop = loop
        self._now_s = now_s
        self._wake = wake
        self._until_clear: list[tuple[int, asyncio.Future[None]]] = []
        self._stopped = False

    # What comes in.

    def restored(self, instance: Instance, took_s: float) -> None:
        """A service can be used; to make it so took so many seconds."""
        self._core.seating.restored(instance, took_s, self._now_s())
        self._wake()

    def failed(self, instance: Instance, error: Exception) -> None:
        """A service could not be restored; who waits for it learns of it from its lease."""
        _logger.warning("%s could not be restored: %s", instance, error)
        self._core.seating.failed(instance, self._now_s())
        self._wake()

    def lost(self, instance: Instance, error: Exception) -> None:
        """A service has died; who uses it learns of it from its calls."""
        _logger.warning("%s was lost: %s", instance, error)
        self._core.seating.lost(instance, self._now_s())
        self._wake()

    def capacity(self, device: int, capacity_bytes: int) -> None:
        """Services can have so many bytes of a device."""
        self._core.seating.set_device(device, capacity_bytes, self._now_s())
        self._wake()

    def lend(self, first: int, node: GpuNode) -> None:
        """There are the devices of one more node, numbered from `first`."""
        self._core.seating.lend(first, node, self._now_s())
        self._wake()

    def reclaim(self, first: int) -> None:
        """Let nobody new sit on the devices of a node that was lent."""
        self._core.seating.reclaim(first, self._now_s())
        self._wake()

    async def until_clear(self, first: int) -> None:
        """Wait until nothing is on the devices of a node any more, which were reclaimed.

        Raises:
            ShutdownError: the runtime closes before that, or has closed.
        """
        if self._stopped:
            raise _closed_before_clear()
        clear = self._loop.create_future()
        self._until_clear.append((first, clear))
        self._wake()
        await clear

    # What goes out.

    def evict(self, instances: Sequence[Instance]) -> None:
        """Tell the manager which services have to go."""
        if self.on_evicted is not None:
            self.on_evicted(instances)

    def tell_clear(self) -> None:
        """Tell those who wait for devices on which nothing is any more."""
        if not self._until_clear:
            return
        for first, clear in self._until_clear:
            if not clear.done() and self._core.seating.seats.is_clear(first):
                clear.set_result(None)
        self._until_clear = [waiting for waiting in self._until_clear if not waiting[1].done()]

    def stop(self) -> None:
        """The runtime closes: nobody waits for devices any more."""
        self._stopped = True
        for _, clear in self._until_clear:
            if not clear.done():
                clear.set_exception(_closed_before_clear())


def _closed_before_clear() -> ShutdownError:
    return ShutdownError("the runtime was closed before the devices were free")
