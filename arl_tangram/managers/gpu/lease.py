"""A seat in the real world: what a running action has of a GPU pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from arl_tangram.errors import ServiceLostError, UsageError
from arl_tangram.managers.gpu.instances.backend import Backend
from arl_tangram.managers.gpu.instances.hosted import Stay, ended
from arl_tangram.model.gpu import Seat
from arl_tangram.model.service import Service, service_of


class GpuLease:
    """What one action has: a service that is resident, or devices to itself; made by `GpuManager.take`.

    Attributes:
        seat: what was decided.
        devices: by which its devices are known outside: UUIDs of GPUs, or `cpu:0`.
    """

    __slots__ = ("_backend", "_coming", "_on_release", "_released", "_service", "_stay", "devices", "seat")

    def __init__(
        self,
        seat: Seat,
        devices: tuple[str, ...],
        coming: asyncio.Future[None],
        backend: Backend | None,
        on_release: Callable[[GpuLease], None],
        *,
        stay: Stay | None = None,
    ) -> None:
        self.seat = seat
        self.devices = devices
        self._coming = coming
        self._stay = stay
        self._backend = backend
        self._on_release = on_release
        self._service: Service | None = None
        self._released = False

    async def ready(self) -> None:
        """Wait until its service is resident, or nothing else is on its devices.

        Cancelling only ends the wait: the restore goes on, and the lease must still be released.

        Raises:
            RestoreError: it failed; the listener of the manager was told before.
            ServiceLostError: the service has died since the decision.
            ShutdownError: the pool was closed meanwhile.
            UsageError: the lease was released.
        """
        if not self._coming.done():
            await ended([self._coming])
        if (error := self._coming.exception()) is not None:
            raise type(error)(str(error)) from error  # one of its own for each who waits
        if self._released:
            raise UsageError("a GPU lease is used after release()")
        if self._stay is not None and self._stay.over:
            raise ServiceLostError(f"{self.seat.instance} was restored, and has died since")
        if self._backend is not None and self._service is None and self.seat.instance is not None:
            self._service = self._backend.service(self.seat.instance.dop)

    @property
    def service(self) -> Service:
        """What the action uses, from `ready` to `release`.

        Raises:
            NoServiceError: it has devices, and no service.
            UsageError: it is not ready, or released.
        """
        return service_of(self.seat, None if self._released else self._service)

    def release(self) -> None:
        """Give it back; idempotent, synchronous, cannot fail. Before the scheduler is told that the seat is free."""
        if self._released:
            return
        self._released = True
        if self._service is not None and self._backend is not None:
            self._backend.end(self._service)
        self._on_release(self)
