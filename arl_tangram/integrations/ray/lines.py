"""The ways from a client to the owner and to the agents: all that the rest of this package knows of Ray."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from arl_tangram.integrations.ray.wire import AgentCall, AgentReply, CallId, ClientFrame, NodeOffer, OwnerFrame

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


def pause_s(failures: int) -> float:
    """Return how long to wait before something is sent again over a line that has failed so often in a row."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * (1 << min(failures, 10)))


class LineError(Exception):
    """There is no answer, and it is not known whether what was sent has arrived.

    Attributes:
        gone: whether the other side is known to have ended, though another may be started in its place.
        for_good: whether no other will be started.
        unmade: whether it has never been there, as what it is made of cannot be imported, or raises, there.
    """

    def __init__(self, text: str, *, gone: bool = False, for_good: bool = False, unmade: bool = False) -> None:
        super().__init__(text)
        self.unmade = unmade
        self.gone = gone
        self.for_good = for_good


class OwnerLine(Protocol):
    """From a client or an agent to the owner; what is sent may be lost, late, doubled or in another order."""

    async def hello(self, greeting: Mapping[str, Any]) -> Mapping[str, Any]:
        """Begin, or resume, a session; builtins only, so that another version of the library can read it.

        Raises:
            LineError: no answer.
        """
        ...

    async def exchange(self, frame: ClientFrame) -> OwnerFrame:
        """Send a frame; cancelling gives up the answer.

        Raises:
            LineError: no answer.
        """
        ...

    async def ask(self, session: str, what: str, arguments: Mapping[str, Any]) -> AgentReply:
        """Let the owner do or look up something that is no part of a call, such as `statistics`; at most once.

        Raises:
            LineError: no answer.
        """
        ...

    def ask_now(self, session: str, what: str, arguments: Mapping[str, Any], limit_s: float) -> AgentReply:
        """The same, and block for it.

        Raises:
            LineError: no answer within the limit.
        """
        ...


class AgentLine(Protocol):
    """From a client to the agent of a node; what is sent arrives once, or not."""

    async def call(self, request: AgentCall) -> AgentReply:
        """Let the agent do something; calls may begin in another order. Cancelling only gives up the answer.

        Raises:
            LineError: no answer.
        """
        ...

    def cancel(self, id: CallId) -> None:  # noqa: A002 - what it is
        """Cancel a call at the agent, if it goes on there; needs no answer."""
        ...


class Reached(Protocol):
    """A shared runtime that was found, or made, by a `Shared`."""

    @property
    def owner(self) -> OwnerLine:
        """The way to its owner."""
        ...

    @property
    def greeting(self) -> Mapping[str, Any]:
        """What is known of this process where Ray is known; a part of what it says with `hello`."""
        ...

    def agent(self, offer: NodeOffer) -> AgentLine:
        """Return the way to the agent of a node."""
        ...

    async def aclose(self) -> None:
        """End the owner and the agents, if they were made here; bounded, idempotent."""
        ...


Reach = Callable[[], Awaitable[Reached]]
"""Finds or makes a shared runtime; called on the event loop of a `Shared`, when that is opened."""
