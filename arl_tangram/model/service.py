"""What an action sees of the GPU service that it uses."""

from __future__ import annotations

from typing import Any, Protocol


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
