"""Who is told what becomes of the services of a pool: the scheduler, through its dispatcher."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from arl_tangram.model.gpu import Instance

_logger = logging.getLogger("arl_tangram")


class GpuListener(Protocol):
    """Is told on the event loop, never inside a call of the manager; what it decides then may be taken at once."""

    def restored(self, instance: Instance, took_s: float) -> None:
        """An instance is resident from now on: what it needed for the restore beyond that is free.

        Args:
            instance: the instance.
            took_s: seconds of the restore itself, without waiting for evictions or for other copies.
        """
        ...

    def failed(self, instance: Instance, error: Exception) -> None:
        """An instance could not be restored, and has nothing any more; who waits for it is told afterwards."""
        ...

    def lost(self, instance: Instance, error: Exception) -> None:
        """A resident instance has died, and has nothing any more; actions may still hold it."""
        ...

    def capacity(self, device: int, capacity_bytes: int) -> None:
        """There is less on a device than before, because something that was evicted still has memory, or more again."""
        ...


class Telling:
    """Passes on what is told, as long as somebody is to know; errors of who listens are only logged.

    Attributes:
        listener: who is told; nobody at first, and nobody any more at the end.
    """

    def __init__(self) -> None:
        self.listener: GpuListener | None = None

    def restored(self, instance: Instance, took_s: float) -> None:
        """Tell of a restore."""
        self._tell(lambda listener: listener.restored(instance, took_s))

    def failed(self, instance: Instance, error: Exception) -> None:
        """Tell of a restore that failed."""
        self._tell(lambda listener: listener.failed(instance, error))

    def lost(self, instance: Instance, error: Exception) -> None:
        """Tell of a death."""
        self._tell(lambda listener: listener.lost(instance, error))

    def capacity(self, device: int, capacity_bytes: int) -> None:
        """Tell what there is of a device."""
        self._tell(lambda listener: listener.capacity(device, capacity_bytes))

    def _tell(self, say: Callable[[GpuListener], None]) -> None:
        if self.listener is None:
            return
        try:
            say(self.listener)
        except Exception:
            _logger.exception("what became of a GPU service could not be told")
