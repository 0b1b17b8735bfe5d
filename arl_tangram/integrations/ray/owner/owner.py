"""The owner of a shared runtime: one scheduler for the sessions of all clients and nodes. Its actor only forwards.

Calls never occupy it: a frame is answered after the next decision, and what is decided later goes to who listens.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arl_tangram.errors import (
    BackendDownError,
    ConfigurationMismatchError,
    LeaseLostError,
    NodeLostError,
    OwnerLostError,
    ShutdownError,
    TangramError,
)
from arl_tangram.integrations.ray.answers import raised, valued
from arl_tangram.integrations.ray.configuration import refusal
from arl_tangram.integrations.ray.owner.asking import TAKES_LONG, Asking
from arl_tangram.integrations.ray.owner.decider import Decider
from arl_tangram.integrations.ray.owner.earlier import Earlier
from arl_tangram.integrations.ray.owner.endings import Endings
from arl_tangram.integrations.ray.owner.holdings import Holdings
from arl_tangram.integrations.ray.owner.keeping import NodeKeeper
from arl_tangram.integrations.ray.owner.nodes import Node, Nodes
from arl_tangram.integrations.ray.owner.recovering import Recovering
from arl_tangram.integrations.ray.owner.roster import Session, Sessions
from arl_tangram.integrations.ray.sessions.greeting import (
    NODE,
    NotYetError,
    check_versions,
    kept_of,
    known_of,
    not_yet_answer,
    refusal_answer,
    resume_of,
    welcome_answer,
)
from arl_tangram.integrations.ray.sessions.pump import BEATS
from arl_tangram.integrations.ray.wire import (
    AgentReply,
    ClientFrame,
    Command,
    Event,
    Kept,
    Leave,
    NodeReady,
    OwnerFrame,
    Resume,
    Roster,
    SessionEnded,
    Shape,
    Welcome,
)
from arl_tangram.model.lifecycle import Demand
from arl_tangram.setup import Setup

GRACE_S = 5.0
"""Beyond the grace time of bodies: what the owner waits longer than a client that is cut off."""
NOT_YET_S = 2.0
"""For how long who comes, or asks, during a recovery waits for an answer, which then says so."""
_LAST_TURNS = 5
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OwnerSettings:
    """What a shared runtime is declared as.

    Attributes:
        setup: what the user's factory has returned.
        lines: the configuration, to say what differs.
        lease_s: what is held without a word for so long is lost.
        node_timeout_s: for how long a node may be away before what only it has is refused.
    """

    setup: Setup
    lines: tuple[str, ...]
    lease_s: float
    node_timeout_s: float = 60.0


class Owner:
    """The owner, on the running event loop.

    Args:
        settings: what is declared.
        epoch: unique for this incarnation.
        restarted: whether there was one before, whose sessions may be going on.
    """

    def __init__(self, settings: OwnerSettings, *, epoch: str, restarted: bool = False) -> None:
        self._settings = settings
        self._epoch = epoch
        self._grace_s = settings.setup.kill_grace_s + GRACE_S
        self._loop = asyncio.get_running_loop()
        self._roster = Sessions(settings.lease_s + self._grace_s, self._silent)
        self._nodes = Nodes(first_lease=_first_lease(epoch))
        self._decider: Decider | None = None
        self._holdings: dict[str, Holdings] = {}
        self._endings = Endings(self._nodes, self._roster.clients)
        self._keeper = NodeKeeper(
            self._nodes,
            self._roster,
            timeout_s=settings.node_timeout_s,
            answer_s=settings.lease_s / BEATS,
            end=self._end,
            on_lost=self._node_lost,
        )
        self._sessions = 0
        self._closed: ShutdownError | None = None
        self._recovering: Recovering | None = None
        self._earlier = Earlier(self._loop.time)
        if restarted:
            self._recovering = self._new_recovering()

    # Sessions begin.

    async def hello(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Begin a session."""
        try:
            check_versions(message)
            self._check(message)
            session = self._roster.begun(message["token"])
            if session is None:
                session = await self._begin(message)
            if session.ended is not None:
                raise session.ended
            self._roster.heard(session)  # also if it has greeted before: it counts from when it greeted last
            if session.kind != NODE and self._recovering is None:
                await self._keeper.tell_of_clients()
        except TangramError as error:
            return refusal_answer(error)
        except NotYetError as error:
            return not_yet_answer(error)
        resume = resume_of(message)
        known = None if resume is None else resume.shape
        shape = known if self._decider is None else self._decider.shape
        return welcome_answer(Welcome(self._epoch, session.name, self._settings.lease_s, self._grace_s, shape))

    def _check(self, message: Mapping[str, Any]) -> None:
        if self._closed is not None:
            raise self._closed
        if (why := refusal(message, self._settings.lines)) is not None:
            raise ConfigurationMismatchError(why)

    async def _begin(self, message: Mapping[str, Any]) -> Session:
        resume = resume_of(message)
        if resume is not None:
            return self._resumed(message, resume)
        self._learn(known_of(message), kept_of(message))
        if message["kind"] == NODE:
            return self._begin_node(message)
        await self._until_recovered()
        decider = await self._opened()
        if (session := self._roster.begun(message["token"])) is not None:  # greeted twice, and waited twice
            return session
        session = self._new_session(message)
        self._new_holdings(session)
        decider.remind(session.tell)
        return session

    def _learn(self, known: Shape | None, kept: Kept | None) -> None:
        """Take note of what there was with an earlier owner; of what several know, the last counts."""
        if self._recovering is not None:
            self._recovering.remembered(kept)
        if self._decider is not None:
            self._decider.memory.outlive(0 if kept is None else kept.version)
        else:
            self._earlier.learn(known, kept)

    def _resumed(self, message: Mapping[str, Any], resume: Resume) -> Session:
        """Take a session over from the owner before."""
        name, recovering = message["session"], self._recovering
        if recovering is None or recovering.is_ended(name):
            raise LeaseLostError("the owner of the shared runtime was started again, and what was held is lost")
        before = self._roster.find(name)
        if before is not None and before.about["turn"] > message["turn"]:
            raise LeaseLostError("another greeting, which came before this one, was sent after it")
        if before is not None:  # an answer was lost, and so was what it said since
            self._roster.end(before, LeaseLostError("this session was resumed"))
            recovering.resumes_again(name)
        session = self._new_session(message, name)
        if session.kind != NODE:
            recovering.client(session, resume)
            return session
        if resume.offer is not None:
            self._keeper.ready(session, resume.offer)
        else:
            self._keeper.greeted(session)
        recovering.node(session, message["name"], resume)
        return session

    def _begin_node(self, message: Mapping[str, Any]) -> Session:
        """Let an agent begin; it is the only one of its node, so that the one before it is gone."""
        before = self._nodes.find(message["name"])
        if before is not None and before.session is not None:
            self._end(before.session, LeaseLostError(f"the agent {before.session.name} has begun anew"))
        session = self._new_session(message)
        self._keeper.greeted(session)
        return session

    def _new_session(self, message: Mapping[str, Any], name: str | None = None) -> Session:
        self._sessions += 1
        about = {key: message.get(key) for key in ("kind", "name", "host", "pid", "node_id", "turn")}
        session = Session(name or f"{about['kind']}-{self._epoch}-{self._sessions}", about, self._take)
        self._roster.add(session, message["token"])
        return session

    async def _until_recovered(self) -> None:
        """Wait for the end of a recovery, but not so long that who waits takes us for dead.

        Raises:
            NotYetError: it goes on.
        """
        if self._recovering is None or self._closed is not None:
            return
        try:
            async with asyncio.timeout(NOT_YET_S):
                await self._recovering.over.wait()
        except TimeoutError:
            why = "it was started again, and waits for all that held something, or for the end of what they held"
            raise NotYetError(why, 2 * (self._settings.lease_s + self._grace_s)) from None

    async def _opened(self) -> Decider:
        """Return the scheduler, which is made when all nodes that have greeted are ready."""
        while self._recovering is not None and self._closed is None:
            await self._recovering.over.wait()
        if self._decider is None:
            await self._keeper.until_ready()
        if self._closed is not None:
            raise self._closed
        if self._decider is None:
            known = self._earlier.shape
            decider = self._new_decider(None if known is None else self._nodes.add_lost(known))
            self._earlier.go_on(decider)
            self._decider = self._keeper.decider = decider
            self._keeper.begun()
            decider.reshape()  # so that each node can tell another owner of all nodes
        return self._decider

    def _recovered(self) -> None:
        """All is known that is held: decide from now on."""
        recovering, self._recovering = self._recovering, None
        assert recovering is not None
        if recovering.is_empty:  # nobody holds anything, and nodes may still come: as with a first owner
            return
        try:
            self._take_over(recovering)
        except Exception:
            _logger.exception("what was held could not be taken over: it is ended, and then all begins anew")
            self._take_over_nothing(recovering)

    def _take_over(self, recovering: Recovering) -> None:
        """Let a new scheduler hold what is held."""
        decider = self._new_decider(recovering.add_lost_nodes())
        self._decider = self._keeper.decider = decider
        recovering.finish(decider, self._new_holdings)
        self._keeper.begun()
        for session in self._nodes.alive():
            session.tell(Roster(self._roster.clients()))
        decider.reshape()

    def _take_over_nothing(self, recovering: Recovering) -> None:
        """End all sessions of clients, and begin as a first owner does when the nodes have ended what these had."""
        if self._decider is not None:
            self._decider.dispatcher.stop()
            self._decider.memory.stop()
        self._decider = self._keeper.decider = None
        self._holdings.clear()
        self._learn(*recovering.give_up())
        self._recovering = self._new_recovering()
        for session in self._roster:
            if session.kind != NODE:
                self._end(session, LeaseLostError("the owner of the shared runtime was started again, and has failed"))

    def _new_recovering(self) -> Recovering:
        return Recovering(self._nodes, self._settings.lease_s + self._grace_s, self._recovered)

    def _new_decider(self, order: Sequence[str] | None = None) -> Decider:
        return Decider(self._settings.setup, self._nodes, self._refuse, self._tell_all, order)

    def _refuse(self, concerns: Callable[[Demand], bool], error: Callable[[], BackendDownError]) -> None:
        """What is behind a quota is down."""
        for holdings in self._holdings.values():
            holdings.refuse_waiting(concerns, error)

    def _new_holdings(self, session: Session) -> Holdings:
        assert self._decider is not None
        made = self._holdings[session.name] = Holdings(
            session.name,
            self._decider.dispatcher,
            self._nodes,
            session.tell,
            interned=self._decider.interned,
            why=self._decider.why,
            breakers=self._decider.breakers,
            memory=self._decider.memory,
        )
        return made

    # Frames.

    async def exchange(self, frame: ClientFrame) -> OwnerFrame:
        """Take a frame, and answer with another."""
        if frame.epoch != self._epoch:
            return OwnerFrame(self._epoch, 1, (), 0)
        session = self._roster.find(frame.session)
        if session is None:
            return OwnerFrame(self._epoch, 1, (), 0, self._closed or self._roster.why_over(frame.session))
        self._roster.heard(session)
        return await session.exchange(frame, self._epoch)

    def _take(self, session: Session, command: Command) -> None:
        """Do what a session says; what goes wrong with one command is not the end of those behind it."""
        if session.ended is not None:
            return
        try:
            self._take_one(session, command)
        except Exception:
            _logger.exception("%s of %s failed", type(command).__name__, session.name)

    def _take_one(self, session: Session, command: Command) -> None:
        if isinstance(command, Leave):
            self._end(session, LeaseLostError(f"{session.name} has left the shared runtime"))
        elif session.kind == NODE:
            self._take_of_node(session, command)
        elif self._recovering is not None:
            self._recovering.said(session, command)
        else:
            self._holdings[session.name].take(command)

    def _take_of_node(self, session: Session, command: Command) -> None:
        if isinstance(command, NodeReady):
            self._keeper.ready(session, command.offer)
            if self._recovering is not None:
                self._recovering.node_ready(command.shape)
            return
        node = self._nodes.of(session)
        if node is None:
            return
        if isinstance(command, SessionEnded):
            self._session_ended(command.session, node)
        else:
            self._keeper.take(node, command)

    def _node_lost(self, node: Node, error: NodeLostError) -> None:
        """End what clients have on a node that is lost."""
        self._endings.node_lost(node.offer.name)
        if self._recovering is not None:
            self._recovering.node_lost(node.offer.name)
        if self._decider is None:
            return
        number, dispatcher = self._nodes.number(node), self._decider.dispatcher
        for holdings in self._holdings.values():
            for held in holdings.all():
                is_there = held.is_admitted and dispatcher.node_of(held.pending.id) == number
                if is_there or (held.lease and node.seated):
                    holdings.call_off(held, error)

    # Sessions end.

    def _silent(self, session: Session) -> None:
        after_s = self._settings.lease_s + self._grace_s
        self._end(session, LeaseLostError(f"{session.name} was not heard of for {after_s:g} s"))

    def _end(self, session: Session, error: TangramError) -> None:
        self._roster.end(session, error)
        if session.kind == NODE:
            self._keeper.session_over(session)
        elif self._recovering is not None:
            self._recovering.left(session.name)
        else:
            holdings = self._holdings.pop(session.name)
            holdings.spending.leave()
            self._endings.begin(holdings)

    def _session_ended(self, name: str, node: Node) -> None:
        """Nothing of a client is left on a node."""
        if self._recovering is not None:
            self._recovering.session_ended(name, node.offer.name)
        self._endings.ended(name, node.offer.name)

    def _tell_all(self, event: Event) -> None:
        for session in self._roster:
            session.tell(event)

    # Looks, and the end.

    async def ask(self, session: str, what: str, arguments: Mapping[str, Any]) -> AgentReply:
        """Do or look up something that is no part of a call; nothing is raised, the reply tells of errors."""
        try:
            if self._closed is not None:
                raise self._closed
            if (asking := self._roster.find(session)) is None:
                if self._recovering is not None and not self._recovering.is_ended(session):
                    raise OwnerLostError("the owner of the shared runtime has begun again, and this client is still to")
                raise self._roster.why_over(session)
            said = arguments.get("said")
            if isinstance(said, ClientFrame) and said.epoch == self._epoch:
                asking.take(said)  # who asks sees what it has said before
            if what == "node_lost":
                await self._keeper.suspect(arguments["name"])
                return valued(None)
            if what not in TAKES_LONG:  # who asks gives up soon, and must not be obeyed later
                await self._until_recovered()
            return valued(await Asking(await self._opened(), self._holdings).answer(what, arguments))
        except NotYetError as error:
            return raised(OwnerLostError(f"the owner of the shared runtime does not answer yet: {error}"))
        except Exception as error:  # noqa: BLE001 - told to who asks
            return raised(error)

    async def aclose(self) -> None:
        """Call off all that waits and runs; bounded."""
        if self._closed is not None:
            return
        self._closed = ShutdownError("the shared runtime was closed")
        self._keeper.close()
        if self._recovering is not None:
            self._recovering.cancel()
        for session in self._roster:
            self._roster.end(session, self._closed)
        for _ in range(_LAST_TURNS):  # in which those that listen are answered
            await asyncio.sleep(0)
        if self._decider is not None:
            await self._decider.aclose()


def _first_lease(epoch: str) -> int:
    """Return where the numbers of leases begin: agents know some of other owners, and no clock is the same for all."""
    return int.from_bytes(hashlib.sha256(epoch.encode()).digest()[:5], "big") << 40
