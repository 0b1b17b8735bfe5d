"""The seats on the GPUs of a node: taken and given back as the owner decides, used by clients by their leases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arl_tangram.errors import RestoreError, ServiceLostError, TangramError, UsageError
from arl_tangram.integrations.ray.answers import of_the_library, served, unpacked, valued
from arl_tangram.integrations.ray.naming import named
from arl_tangram.integrations.ray.node.recent import Recent
from arl_tangram.integrations.ray.wire import (
    AgentReply,
    Command,
    DeviceCapacity,
    Restored,
    RestoreFailed,
    ServiceLost,
    Take,
)
from arl_tangram.managers.gpu.lease import GpuLease
from arl_tangram.managers.gpu.manager import GpuManager
from arl_tangram.model.gpu import Instance


@dataclass(frozen=True, slots=True)
class _Taken:
    session: str
    lease: GpuLease | TangramError


class NodeSeats:
    """The seats of a node, by the number of their lease.

    What the owner decides comes in its order, and is done in the turn in which it comes: see `GpuManager`. A client may
    ask for a seat before that has come.

    Args:
        manager: of the GPUs.
        node: its name, for messages.
        limit_s: the most seconds to wait for what the owner has decided.
    """

    def __init__(self, manager: GpuManager, node: str, limit_s: float) -> None:
        self._manager = manager
        self._node = node
        self._limit_s = limit_s
        self._taken: dict[int, _Taken] = {}
        self._over = Recent()
        self._why_over: dict[int, TangramError] = {}
        self._changed = asyncio.Event()

    # Decisions of the owner.

    def take(self, decided: Take) -> None:
        """Make a seat real."""
        lease: GpuLease | TangramError
        try:
            lease = self._manager.take(decided.seat)
        except TangramError as error:
            lease = error
        self._taken[decided.lease] = _Taken(decided.session, lease)
        self._changed.set()

    def drop(self, lease: int) -> None:
        """Give a seat back; idempotent."""
        self._over.add(lease)
        taken = self._taken.pop(lease, None)
        if taken is not None and isinstance(taken.lease, GpuLease):
            taken.lease.release()
        self._changed.set()

    def evict(self, instances: Sequence[Instance]) -> None:
        """Let services go, for nobody."""
        for instance in instances:
            self._manager.evict(instance)

    def end_session(self, session: str) -> None:
        """Give back all seats of a session."""
        for lease in [lease for lease, taken in self._taken.items() if taken.session == session]:
            self.drop(lease)

    def end_all(self, error: TangramError) -> None:
        """Give back all seats, which their clients learn by an error, and let all services go.

        Whoever decides next begins with nothing resident.
        """
        self._why_over = dict.fromkeys(self._taken, error)
        for lease in list(self._taken):
            self.drop(lease)
        for service in self._manager.services:
            self.evict([Instance(service.name, dop) for dop in service.dops])

    # Calls of clients.

    async def ready(self, lease: int) -> AgentReply:
        """Wait until a seat can be used; the devices of its service, as torch calls them there, are the reply.

        Raises:
            RestoreError: its service could not be restored.
            ServiceLostError: it has died since, or the owner's decision has not come.
            UsageError: it was given back.
        """
        taken = await self._arrived(lease)
        await taken.ready()
        return valued(() if taken.seat.instance is None else tuple(taken.service.devices))

    async def serve(self, lease: int, load: bytes) -> AgentReply:
        """Call the service of a seat that is ready."""
        taken = await self._arrived(lease)
        service = taken.service
        args, kwargs = unpacked(load, service.name, self._node)
        return served(await service.call(*args, **kwargs), service.name, self._node)

    async def _arrived(self, lease: int) -> GpuLease:
        try:
            async with asyncio.timeout(self._limit_s):
                while lease not in self._taken:
                    if (error := self._why_over.get(lease)) is not None:
                        raise type(error)(str(error))
                    if lease in self._over:
                        raise UsageError(f"the seat {lease} on {named(self._node)} was given back")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise ServiceLostError(
                f"{named(self._node)} was not told of the seat {lease} within {self._limit_s:g} s"
            ) from None
        taken = self._taken[lease].lease
        if isinstance(taken, TangramError):
            raise taken
        return taken


class Teller:
    """Tells the owner what becomes of services and devices; a `GpuListener`.

    Args:
        post: sends a command to the owner.
    """

    def __init__(self, post: Callable[[Command], None]) -> None:
        self._post = post

    def restored(self, instance: Instance, took_s: float) -> None:
        """An instance is resident."""
        self._post(Restored(instance, took_s))

    def failed(self, instance: Instance, error: Exception) -> None:
        """An instance could not be restored."""
        self._post(RestoreFailed(instance, of_the_library(error, RestoreError)))

    def lost(self, instance: Instance, error: Exception) -> None:
        """A resident instance has died."""
        self._post(ServiceLost(instance, of_the_library(error, ServiceLostError)))

    def capacity(self, device: int, capacity_bytes: int) -> None:
        """There is more or less on a device."""
        self._post(DeviceCapacity(device, capacity_bytes))
