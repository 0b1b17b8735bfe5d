"""The beginning of an owner that was started again: it grants nothing until it knows what is held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field, replace

from arl_tangram.integrations.ray.decider import Decider
from arl_tangram.integrations.ray.holdings import Holdings
from arl_tangram.integrations.ray.nodes import Nodes
from arl_tangram.integrations.ray.recovery import rebuild
from arl_tangram.integrations.ray.roster import Session
from arl_tangram.integrations.ray.wire import CalledOff, Command, EndSession, Kept, Resume, Shape


@dataclass(slots=True, eq=False)
class Resumed:
    """A client that has resumed its session.

    Attributes:
        session: its session.
        resume: what it holds and waits for.
        said: what it has said since.
    """

    session: Session
    resume: Resume
    said: list[Command] = field(default_factory=list[Command])


class Recovering:
    """Gathers what sessions of the owner before hold.

    It ends when all clients that the nodes know have resumed, or the nodes have ended what they had. Those that have
    not resumed within their lease have let go themselves. If no node knows the clients, as all were cut off too long,
    that is waited for.

    Args:
        nodes: that are there so far.
        limit_s: for how long clients and nodes may take to resume.
        on_end: is called when all is known.
    """

    def __init__(self, nodes: Nodes, limit_s: float, on_end: Callable[[], None]) -> None:
        self.over = asyncio.Event()
        self._nodes = nodes
        self._on_end = on_end
        self._clients: dict[str, Resumed] = {}
        self._known: set[str] = set()
        self._shape: Shape | None = None
        self._kept: Kept | None = None
        self._charges: list[tuple[int, int, float]] = []
        self._has_roster = False
        self._is_late = False
        self._ending: dict[str, set[str]] = {}
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(limit_s, self._late, context=Context())

    def client(self, session: Session, resume: Resume) -> None:
        """A client has resumed."""
        self._clients[session.name] = Resumed(session, resume)
        self._take_kept(resume.kept)
        self._take_shape(resume.shape)
        self._look()

    def node(self, session: Session, name: str, resume: Resume) -> None:
        """The agent of a node has resumed; the node is among `nodes`, and is told of sessions that others ended."""
        for ended, nodes in self._ending.items():
            session.tell(EndSession(ended))
            nodes.add(name)
        if resume.sessions is not None:
            self._known.update(resume.sessions)
            self._has_roster = True
        self._take_kept(resume.kept)
        self._take_shape(resume.shape)
        self._look()

    def is_ended(self, name: str) -> bool:
        """Whether a session is too late, as nodes were told to end what it had."""
        return name in self._ending

    def said(self, session: Session, command: Command) -> None:
        """A client says something, which is to be done at the end."""
        self._clients[session.name].said.append(command)

    def resumes_again(self, name: str) -> None:
        """A client resumes once more: what it has told and said before counts for nothing."""
        self._clients.pop(name, None)

    def left(self, name: str) -> None:
        """A client is silent, or has left."""
        if (left := self._clients.pop(name, None)) is not None:
            self._charges += left.resume.charges
        self._end_on_nodes(name)
        self._look()

    def session_ended(self, name: str, node: str) -> None:
        """Nothing of a session is left on a node, which may have been told to end it by the owner before."""
        if name not in self._ending and name not in self._clients:
            self._end_on_nodes(name)
        if name in self._ending:
            self._ending[name].discard(node)
            self._look()

    def node_ready(self, shape: Shape | None) -> None:
        """A node is there, and nothing is left on it; it knows of other nodes."""
        self._take_shape(shape)
        self._look()

    def node_lost(self, node: str) -> None:
        """A node is lost: when it is there again, nothing is left on it of any session."""
        for nodes in self._ending.values():
            nodes.discard(node)
        self._look()

    def cancel(self) -> None:
        """Wait no longer."""
        self._timer.cancel()
        self.over.set()

    def _take_shape(self, shape: Shape | None) -> None:
        if shape is not None and (self._shape is None or shape.version > self._shape.version):
            self._shape = shape

    def _take_kept(self, kept: Kept | None) -> None:
        if kept is not None and (self._kept is None or kept.version > self._kept.version):
            self._kept = kept

    def _late(self) -> None:
        """Whoever has not resumed by now has let go; nodes end what is left of it."""
        self._is_late = True
        for name in self._missing():
            self._end_on_nodes(name)
        self._look()

    def _missing(self) -> set[str]:
        return self._known - set(self._clients) - set(self._ending)

    def _end_on_nodes(self, name: str) -> None:
        self._ending[name] = {node.offer.name for node in self._nodes if node.session is not None}
        for session in self._nodes.alive():
            session.tell(EndSession(name))

    def _look(self) -> None:
        """End if all is known."""
        if self.over.is_set():
            return
        alive = {node.offer.name for node in self._nodes if node.session is not None}
        if any(nodes & alive for nodes in self._ending.values()):
            return
        if not self._is_late:
            expected = None if self._shape is None else {offer.name for offer in self._shape.nodes}
            if not expected or not self._has_roster or not expected <= alive or self._missing():
                return
        self._timer.cancel()
        self.over.set()
        self._on_end()

    # The end.

    @property
    def is_empty(self) -> bool:
        """Whether nobody has come that knew the owner before: nobody holds anything."""
        return self._shape is None

    def add_lost_nodes(self) -> tuple[str, ...]:
        """Let nodes that have not come back be lost ones; return the names of all in the order that sessions know."""
        return () if self._shape is None else self._nodes.add_lost(self._shape)

    def finish(self, decider: Decider, make: Callable[[Session], Holdings]) -> None:
        """Let a new scheduler hold what is held, and do what was said since.

        Args:
            decider: the scheduler.
            make: returns what a client has, empty.
        """
        if self._shape is not None:
            decider.keep_version(self._shape.version)
        told = list(self._clients.values())
        kept = replace(self._kept or Kept(0), charges=(*(self._kept.charges if self._kept else ()), *self._charges))
        gone = Resume(self._shape, charges=kept.charges)
        dispatcher = decider.dispatcher
        with decider.plenty(() if self._shape is None else self._shape.dimensions):
            rebuilt = rebuild(
                decider.core, [*(one.resume for one in told), gone], dispatcher.now_s(), dispatcher.new_id
            )
        made = [make(one.session) for one in told]
        for one, holdings, ids in zip(told, made, rebuilt.ids[: len(told)], strict=True):
            for declared in one.resume.demands:
                holdings.take(declared)
            holdings.adopt(one.resume, ids, rebuilt.running)
        for held, local, error in rebuilt.refused:
            told[held].session.tell(CalledOff(local, error))
        decider.memory.recall(kept, rebuilt.running.values())
        for held, number, item in rebuilt.waiting:
            made[held].wait_again(number, item)
        for one, holdings in zip(told, made, strict=True):
            holdings.reclaim_again(one.resume)
            for command in one.said:
                holdings.take(command)
