"""The beginning of an owner that was started again: it grants nothing until it knows what is held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace

from arl_tangram.integrations.ray.owner.adopting import adopt, reclaim_again, wait_again
from arl_tangram.integrations.ray.owner.breaking import OwnerBreakers
from arl_tangram.integrations.ray.owner.decider import Decider
from arl_tangram.integrations.ray.owner.earlier import Earlier
from arl_tangram.integrations.ray.owner.holdings import Holdings
from arl_tangram.integrations.ray.owner.nodes import Nodes
from arl_tangram.integrations.ray.owner.rebuilding import Rebuilt, rebuild, taken_by
from arl_tangram.integrations.ray.owner.roster import Session
from arl_tangram.integrations.ray.wire import CalledOff, Command, EndSession, Kept, Resume, Shape, Submit


@dataclass(slots=True, eq=False)
class ResumedClient:
    """A client that has resumed its session.

    Attributes:
        session: its session.
        resume: what it holds and waits for.
        told_s: when it has told that.
        said: what it has said since.
    """

    session: Session
    resume: Resume
    told_s: float
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
        self._clients: dict[str, ResumedClient] = {}
        self._known: set[str] = set()
        self._taken: list[tuple[int, int, float]] = []
        self._has_roster = False
        self._is_late = False
        self._ending: dict[str, set[str]] = {}
        loop = asyncio.get_running_loop()
        self._now_s = loop.time
        self._earlier = Earlier(loop.time)
        self._timer = loop.call_later(limit_s, self._late, context=Context())

    def client(self, session: Session, resume: Resume) -> None:
        """A client has resumed."""
        self._clients[session.name] = ResumedClient(session, resume, self._now_s())
        self._earlier.learn(resume.shape, resume.kept)
        self._look()

    def node(self, session: Session, name: str, resume: Resume) -> None:
        """The agent of a node has resumed; the node is among `nodes`, and is told of sessions that others ended."""
        for ended, nodes in self._ending.items():
            session.tell(EndSession(ended))
            nodes.add(name)
        if resume.sessions is not None:
            self._known.update(resume.sessions)
            self._has_roster = True
        self._earlier.learn(resume.shape, resume.kept)
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
        if name in self._clients:
            self._forget(name)
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
        self._earlier.learn(shape, None)
        self._look()

    def node_lost(self, node: str) -> None:
        """A node is lost: when it is there again, nothing is left on it of any session."""
        for nodes in self._ending.values():
            nodes.discard(node)
        self._look()

    def remembered(self, kept: Kept | None) -> None:
        """Somebody who resumes nothing was to remember this."""
        self._earlier.learn(None, kept)

    def cancel(self) -> None:
        """Wait no longer."""
        self._timer.cancel()
        self.over.set()

    def _forget(self, name: str) -> None:
        """A client is gone: all that it took counts on."""
        gone = self._clients.pop(name)
        self._taken += [(dimension, units, gone.told_s - age_s) for dimension, units, age_s in _taken_by(gone)]

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
            expected = None if self._earlier.shape is None else {offer.name for offer in self._earlier.shape.nodes}
            if not expected or not self._has_roster or not expected <= alive or self._missing():
                return
        self._timer.cancel()
        self.over.set()
        self._on_end()

    # The end.

    @property
    def is_empty(self) -> bool:
        """Whether nobody has come that knew the owner before: nobody holds anything."""
        return self._earlier.shape is None

    def add_lost_nodes(self) -> tuple[str, ...]:
        """Let nodes that have not come back be lost ones; return the names of all in the order that sessions know."""
        return () if self._earlier.shape is None else self._nodes.add_lost(self._earlier.shape)

    def kept(self) -> Kept:
        """Return what the owner before knew beside what is held now, with what those took that are gone since."""
        now_s, kept = self._now_s(), self._earlier.kept() or Kept(0)
        gone = [(dimension, units, now_s - at_s) for dimension, units, at_s in self._taken]
        return replace(kept, charges=(*kept.charges, *gone))

    def give_up(self) -> tuple[Shape | None, Kept]:
        """Forget all clients; return what there was, and what is to be known nevertheless."""
        for name in list(self._clients):
            self._forget(name)
        kept = self.kept()
        return self._earlier.shape, replace(kept, version=kept.version + 1)  # it has more than others were told

    def finish(self, decider: Decider, make: Callable[[Session], Holdings]) -> None:
        """Let a new scheduler hold what is held, and do what was said since.

        Args:
            decider: the scheduler.
            make: returns what a client has, empty.
        """
        if self._earlier.shape is not None:
            decider.keep_version(self._earlier.shape.version)
        told, now_s = list(self._clients.values()), self._now_s()
        resumed = [one.resume.aged(now_s - one.told_s) for one in told]
        kept = self.kept()
        gone = Resume(self._earlier.shape, charges=kept.charges)
        dispatcher = decider.dispatcher
        with decider.plenty(() if self._earlier.shape is None else self._earlier.shape.dimensions):
            rebuilt = rebuild(decider.core, [*resumed, gone], dispatcher.now_s(), dispatcher.new_id)
        made = [make(one.session) for one in told]
        for resume, holdings, ids in zip(resumed, made, rebuilt.ids[: len(told)], strict=True):
            adopt(holdings, resume, ids, rebuilt.running, dispatcher.now_s())
        for held, local, error in rebuilt.refused:
            told[held].session.tell(CalledOff(local, error))
        for held, call in rebuilt.ended:
            made[held].spending.took_over(taken_by(resumed[held], call))
        decider.memory.recall(kept, rebuilt.running.values())
        if decider.breakers is not None:
            _tell_who_was_called(decider.breakers, rebuilt, made)
        for held, number, item in rebuilt.waiting:
            wait_again(made[held], number, item)
        for one, holdings in zip(told, made, strict=True):
            reclaim_again(holdings, one.resume)
            for command in one.said:
                holdings.take(command)


def _tell_who_was_called(breakers: OwnerBreakers, rebuilt: Rebuilt, made: Sequence[Holdings]) -> None:
    """Let no call of a probe wait for that probe."""
    for running in rebuilt.running.values():
        breakers.called_before(running.pending.demand, running.pending.parent, rebuilt.running)
    for held, _, item in rebuilt.waiting:
        if isinstance(item, Submit) and item.parent is not None:
            parent = rebuilt.ids[held].get(item.parent)
            breakers.called_before(made[held].demands.get(item.demand), parent, rebuilt.running)


def _taken_by(left: ResumedClient) -> Iterator[tuple[int, int, float]]:
    """Return what a client took of rates and budgets that is gone, also with calls that ran: see `Resume.charges`."""
    yield from left.resume.charges
    for call in left.resume.running:
        yield from taken_by(left.resume, call)
