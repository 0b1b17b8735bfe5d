"""The nodes of a shared runtime as they come, fall silent, come back or are given up, and what that does to grants."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context

from arl_tangram.errors import ConfigurationError, LeaseLostError, NodeLostError, TangramError
from arl_tangram.integrations.ray.naming import named
from arl_tangram.integrations.ray.owner.decider import Decider
from arl_tangram.integrations.ray.owner.nodes import Node, Nodes
from arl_tangram.integrations.ray.owner.roster import LATE_S, Session, Sessions
from arl_tangram.integrations.ray.wire import (
    Command,
    DeviceCapacity,
    NodeCapacity,
    NodeOffer,
    Restored,
    RestoreFailed,
    Roster,
    ServiceLost,
)

_logger = logging.getLogger(__name__)


class NodeKeeper:
    """Keeps the nodes.

    Attributes:
        decider: the scheduler, once it is made.

    Args:
        nodes: those that there are.
        roster: all sessions.
        timeout_s: for how long a node may be away before what only it has is refused.
        answer_s: for how long one may take to answer that somebody suspects to be dead.
        end: ends the session of an agent.
        on_lost: is told of a node that is lost, and why.
    """

    def __init__(
        self,
        nodes: Nodes,
        roster: Sessions,
        *,
        timeout_s: float,
        answer_s: float,
        end: Callable[[Session, TangramError], None],
        on_lost: Callable[[Node, NodeLostError], None],
    ) -> None:
        self.decider: Decider | None = None
        self._nodes = nodes
        self._roster = roster
        self._timeout_s = timeout_s
        self._answer_s = answer_s
        self._end = end
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._greeted: dict[Session, asyncio.Event] = {}
        self._away: dict[str, asyncio.TimerHandle] = {}
        self._suspected: set[str] = set()

    # They come.

    def greeted(self, session: Session) -> None:
        """An agent has greeted, and will say what its node has."""
        self._greeted[session] = asyncio.Event()

    async def until_ready(self) -> None:
        """Wait until all that have greeted have said what they have, or are gone."""
        while self._greeted:
            await next(iter(self._greeted.values())).wait()

    def ready(self, session: Session, offer: NodeOffer) -> None:
        """A node offers what it has."""
        known = self._nodes.find(offer.name)
        if known is not None:
            self._back(known, session, offer)
        elif self.decider is None:
            self._nodes.add(offer, session)
        else:
            text = f"{named(offer.name)} came after the first client, and the shared runtime takes no more nodes"
            self._end(session, ConfigurationError(text))
        self._no_more_greeting(session)

    def _back(self, node: Node, session: Session, offer: NodeOffer) -> None:
        """A node is there again, and nothing is left on it of what was."""
        node.session = session
        if (timer := self._away.pop(offer.name, None)) is not None:
            timer.cancel()
        if self.decider is None:
            node.offer = offer
            return
        for dimension in offer.dimensions:
            self._nodes.resized(node, dimension.name, dimension.capacity)
        self.decider.back(node)
        session.tell(Roster(self._roster.clients()))
        self.decider.remind(session.tell)
        self.decider.reshape()

    def _no_more_greeting(self, session: Session) -> None:
        if (greeted := self._greeted.pop(session, None)) is not None:
            greeted.set()

    async def tell_of_clients(self) -> None:
        """Let the nodes know of all clients, and one of them at least before any of these is granted anything.

        If none of them answers in time, they may be lost, or stand still: that holds no client up for longer.
        """
        told = Roster(self._roster.clients())
        for node in self._nodes.alive():
            node.tell(told)
        if acks := [self._loop.create_task(node.until_acked()) for node in self._nodes.alive()]:
            try:
                await asyncio.wait(acks, timeout=self._answer_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for ack in acks:
                    ack.cancel()

    # What their agents say.

    def take(self, node: Node, command: Command) -> None:
        """Do what an agent says."""
        if isinstance(command, NodeCapacity):
            self._nodes.resized(node, command.name, command.capacity)
        if self.decider is None:
            return
        dispatcher = self.decider.dispatcher
        match command:
            case NodeCapacity(name, capacity):
                self.decider.set_units(name, capacity)
            case Restored(instance, took_s):
                dispatcher.gpus.restored(instance, took_s)
            case RestoreFailed(instance, error):
                dispatcher.gpus.failed(instance, error)
            case ServiceLost(instance, error):
                dispatcher.gpus.lost(instance, error)
            case DeviceCapacity(device, capacity):
                dispatcher.gpus.capacity(device, capacity)
            case _:
                _logger.error("%s is no command of a node", command)

    # They go.

    def begun(self) -> None:
        """There is a scheduler from now on: it has to know of nodes that are lost already."""
        for node in self._nodes:
            if node.session is None:
                self.lost(node)

    def session_over(self, session: Session) -> None:
        """The session of an agent is over: its node is lost until another begins."""
        self._no_more_greeting(session)
        if (node := self._nodes.of(session)) is not None:
            self.lost(node)

    def lost(self, node: Node) -> None:
        """Grant nothing of a node, and wait for it for a while."""
        node.session = None
        error = NodeLostError(f"{named(node.offer.name)} is lost")
        if self.decider is not None:
            for dimension in node.dimensions:
                self.decider.dispatcher.pause(dimension, 2 * self._timeout_s)  # beyond when it is given up
            self._wait_for(node, self._timeout_s)
            self.decider.emptied(node)
        self._on_lost(node, error)
        if self.decider is not None:
            self.decider.reshape()

    def _wait_for(self, node: Node, for_s: float) -> None:
        due_s = self._loop.time() + for_s
        self._away[node.offer.name] = self._loop.call_at(due_s, self._given_up, node, due_s, context=Context())

    def _given_up(self, node: Node, due_s: float) -> None:
        """A node does not come back: who waits for what only it has is refused."""
        if self._loop.time() - due_s > LATE_S:  # it may have, while this process stood still
            self._wait_for(node, self._answer_s)
            return
        self._away.pop(node.offer.name, None)
        assert self.decider is not None
        self.decider.given_up(node)

    async def suspect(self, name: str) -> None:
        """Somebody gets no answer from a node: see whether it hears us, and grant nothing there meanwhile."""
        node = self._nodes.find(name)
        if node is None or node.session is None or self.decider is None or name in self._suspected:
            return
        session, dispatcher = node.session, self.decider.dispatcher
        self._suspected.add(name)
        for dimension in node.dimensions:
            dispatcher.pause(dimension, 2 * self._answer_s)
        session.tell(Roster(self._roster.clients()))
        try:
            if not await self._hears(session) and session.ended is None:
                text = f"{session.name} was asked, and did not answer within {self._answer_s:g} s"
                self._end(session, LeaseLostError(text))
        finally:
            self._suspected.discard(name)
        if node.session is session:
            for dimension in node.dimensions:
                dispatcher.lift(dimension)

    async def _hears(self, session: Session) -> bool:
        """Whether an agent has heard in time all that it was told."""
        while True:
            due_s = self._loop.time() + self._answer_s
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await session.until_acked()
                return True
            if self._loop.time() - due_s <= LATE_S:
                return False

    def close(self) -> None:
        """Wait for nobody any more."""
        for timer in self._away.values():
            timer.cancel()
        for session in list(self._greeted):
            self._no_more_greeting(session)
