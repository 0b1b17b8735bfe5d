"""The GPUs of a node and the services on them, as a client sees them: over calls to the node's agent.

The owner decides who sits where, and tells the agent in the order of its decisions; the client only waits until its
seat is ready, and uses it. What it has done with it, the owner knows from the end of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from arl_tangram.errors import NodeLostError, ServiceLostError, TangramError, UsageError
from arl_tangram.integrations.ray.answers import answer_of, packed
from arl_tangram.integrations.ray.client.calls import AgentCalls
from arl_tangram.integrations.ray.lines import AgentLine
from arl_tangram.integrations.ray.naming import named
from arl_tangram.integrations.ray.wire import Shape
from arl_tangram.model.gpu import HostedService, Instance, Seat
from arl_tangram.model.service import Service, service_of


@dataclass(frozen=True, slots=True)
class GrantedSeat(Seat):
    """A seat that a client was granted.

    Attributes:
        lease: the number of the grant, by which the agent knows it.
    """

    lease: int = 0

    @classmethod
    def of(cls, seat: Seat, lease: int) -> GrantedSeat:
        """Return a seat with its lease."""
        return cls(seat.chunk, seat.instance, seat.restores, seat.evicts, lease)


class RemoteGpus:
    """The GPUs of the node that has them; a `GpuSeats`.

    Attributes:
        on_node_lost: is told the number of the node if its agent does not answer.

    Args:
        session: the name that the owner has given to this client.
        shape: what there is.
        line: returns the way to the agent of a node.
    """

    on_node_lost: Callable[[int, NodeLostError], None] | None = None

    def __init__(self, session: str, shape: Shape, line: Callable[[int], AgentLine]) -> None:
        self._session = session
        self._shape = shape
        self._line = line
        self._calls: AgentCalls | None = None

    @property
    def services(self) -> Sequence[HostedService]:
        """What is hosted, as the scheduler counts it."""
        return tuple(service for offer in self._shape.nodes for service in offer.services)

    def take(self, seat: Seat) -> RemoteGpuLease:
        """Hold a seat that the owner has granted, and that the agent makes real.

        Raises:
            UsageError: it is none that was granted, or no node has GPUs.
        """
        if not isinstance(seat, GrantedSeat):
            raise UsageError(f"{seat} was not granted by the owner of the shared pool")
        node = self._node()
        if self._calls is None:

            def lost(error: NodeLostError) -> None:
                if self.on_node_lost is not None:
                    self.on_node_lost(node, error)

            self._calls = AgentCalls(self._session, self._shape.nodes[node].name, self._line(node), lost)
        names = [name for name, _ in self._shape.nodes[node].devices]
        return RemoteGpuLease(seat, tuple(names[number] for number in seat.chunk.devices), self._calls)

    def reshape(self, shape: Shape) -> None:
        """There is more or less of something; if the node is lost now, calls that go on end with that."""
        if self._calls is not None and self._node() in set(shape.lost) - set(self._shape.lost):
            self.lost(NodeLostError(f"{named(self._calls.node)} is lost"))
        self._shape = shape

    def lost(self, error: TangramError) -> None:
        """The session is over: end all calls with an error."""
        if self._calls is not None:
            self._calls.end(error)
            self._calls = None

    def reopen(self, session: str, shape: Shape) -> None:
        """Begin anew under another name, after `lost`."""
        self._session = session
        self._shape = shape

    def _node(self) -> int:
        for number, offer in enumerate(self._shape.nodes):
            if offer.devices:
                return number
        raise UsageError("no node of the shared pool has GPUs")


class RemoteGpuLease:
    """What one action has of the GPUs of a node; a `GpuHold`, made by `RemoteGpus.take`.

    Attributes:
        seat: what was decided.
        devices: by which its devices are known on the node.
    """

    def __init__(self, seat: GrantedSeat, devices: tuple[str, ...], calls: AgentCalls) -> None:
        self.seat: Seat = seat
        self.devices = devices
        self._lease = seat.lease
        self._calls = calls
        self._service: RemoteService | None = None
        self._is_ready = False
        self._is_released = False

    async def ready(self) -> None:
        """Wait until its service is resident, or nothing else is on its devices; cancelling only ends the wait.

        Raises:
            RestoreError: it failed.
            ServiceLostError: the service has died since the decision, or its node is lost.
        """
        try:
            devices = await self._calls.do("seat", {"lease": self._lease})
        except NodeLostError as error:
            raise ServiceLostError(str(error)) from error
        if self._is_released:
            raise UsageError("a GPU lease is used after release()")
        self._is_ready = True
        if self.seat.instance is not None:
            self._service = RemoteService(self.seat.instance, tuple(devices), self._lease, self._calls)

    @property
    def service(self) -> Service:
        """What the action uses, from `ready` to `release`.

        Raises:
            NoServiceError: it has devices, and no service.
            UsageError: it is not ready, or released.
        """
        return service_of(self.seat, None if self._is_released else self._service)

    def release(self) -> None:
        """Use it no more; idempotent, synchronous, cannot fail. The owner gives it back at the end of the call."""
        self._is_released = True
        if self._service is not None:
            self._service.end()


class RemoteService:
    """What `current_service()` returns for a service on a node.

    Args:
        instance: which it is.
        devices: as torch calls them there.
        lease: the number of the seat.
        calls: to the agent of the node.
    """

    def __init__(self, instance: Instance, devices: tuple[str, ...], lease: int, calls: AgentCalls) -> None:
        self._instance = instance
        self._devices = devices
        self._lease = lease
        self._calls = calls
        self._is_over = False

    def __repr__(self) -> str:
        return f"<RemoteService {self._instance} on {self._calls.node or 'its node'}>"

    @property
    def name(self) -> str:
        """The name that it was declared with."""
        return self._instance.service

    @property
    def dop(self) -> int:
        """On how many devices it is."""
        return self._instance.dop

    @property
    def devices(self) -> tuple[str, ...]:
        """Its devices, as torch calls them on its node."""
        return self._devices

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        """Use it; arguments and answer are pickled. Cancelling gives up the answer.

        Raises:
            RemoteError: the node cannot make the arguments again, as when it lacks their module.
            ResultError: the answer cannot be sent, or not be made again here.
            ServiceLostError: the service has died, or its node is lost.
            TypeError: the arguments cannot be pickled.
            UsageError: the action that had it has ended.
        """
        if self._is_over:
            raise UsageError(f"{self.name} is called by an action that has ended")
        load = packed(args, kwargs, self.name)
        try:
            reply = await self._calls.ask("serve", {"lease": self._lease}, load=load)
        except NodeLostError as error:
            raise ServiceLostError(f"{self.name}: {error}") from error
        return answer_of(reply, self.name)

    def end(self) -> None:
        """The action that had it has ended."""
        self._is_over = True
