"""What an action sees of the GPU service that it uses."""

from __future__ import annotations

from typing import Any, Protocol

from arl_tangram.errors import NoServiceError, UsageError
from arl_tangram.model.gpu import Seat


class Service(Protocol):
    """A service that is resident for as long as the running action lasts."""

    @property
    def name(self) -> str:
        """The name that it was declared with."""
        ...

    @property
    def dop(self) -> int:
        """On how many devices it is."""
        ...

    @property
    def devices(self) -> tuple[str, ...]:
        """Its devices, as torch calls them here: `cuda:0`, or `cpu`; a server's by UUID if that is not known."""
        ...

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        """Use it, off the event loop; what the arguments and the result are, the kind of the service says.

        Cancelling gives up the result; what computes goes on to its end, and keeps the service resident until then.

        Raises:
            ServiceLostError: the service has died.
            UsageError: the action that had it has ended.
            WrongLoopError: another event loop runs here than that of the action.
        """
        ...


def service_of(seat: Seat, service: Service | None) -> Service:
    """Return the service of a seat; None if it cannot be used yet, or not any more.

    Raises:
        NoServiceError: the seat is one of devices, without a service.
        UsageError: it cannot be used now.
    """
    if seat.instance is None:
        raise NoServiceError("this action has devices of its own (gpu=), and no service")
    if service is None:
        raise UsageError(f"the seat on {seat.instance} is not ready, or was given back")
    return service
