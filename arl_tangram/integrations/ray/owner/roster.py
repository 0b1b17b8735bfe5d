"""The sessions of an owner: what goes in and out of each, when it was heard of last, and when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context
from typing import Any

from arl_tangram.errors import LeaseLostError, TangramError
from arl_tangram.integrations.ray.sessions.greeting import NODE
from arl_tangram.integrations.ray.sessions.numbering import Receiver, Sender
from arl_tangram.integrations.ray.wire import ClientFrame, Command, Event, OwnerFrame

_MOST_ENDED = 10_000
LATE_S = 1.0
"""A timer that fires so late tells that this process stood still: what came meanwhile is still to be read."""


class Session:
    """A client, or the agent of a node, at the owner.

    Attributes:
        name: unique, also among those of earlier owners.
        kind: `CLIENT` or `NODE`.
        about: what it has said of itself.
        ended: why it is over, if it is.

    Args:
        take: does what it says.
    """

    def __init__(self, name: str, about: Mapping[str, Any], take: Callable[[Session, Command], None]) -> None:
        self.name = name
        self.kind: str = about["kind"]
        self.about = about
        self.ended: TangramError | None = None
        self.heard_s = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._sender: Sender[Event] = Sender()
        self._receiver: Receiver[Command] = Receiver()
        self._answered = 0
        self._exchanging = 0
        self._listening: set[asyncio.Future[None]] = set()
        self._until_acked: list[tuple[int, asyncio.Future[None]]] = []
        self._is_waking = False

    def tell(self, event: Event) -> None:
        """Send an event with the next answer."""
        if self.ended is not None:
            return
        self._sender.put(event)
        if self._listening and not self._is_waking:
            self._is_waking = True
            self._loop.call_soon(self._wake, context=Context())

    async def exchange(self, frame: ClientFrame, epoch: str) -> OwnerFrame:
        """Take a frame; answer after the next decision, or, if it listens, when there is something to say."""
        self.take(frame)
        if frame.wait_s:
            await self._news(frame.wait_s)
        else:
            self._exchanging += 1
            try:
                await asyncio.sleep(0)  # the decision was scheduled before this, if there is one
            finally:
                self._exchanging -= 1
        if self.ended is not None:
            return OwnerFrame(epoch, 1, (), self._receiver.upto, self.ended)
        first, events = self._sender.unacked()
        if not frame.wait_s:
            self._answered = max(self._answered, first + len(events) - 1)
            if self._until_acked or self._is_news:  # that is too much for one answer
                self._let_listen_again()
        return OwnerFrame(epoch, first, events, self._receiver.upto)

    def take(self, frame: ClientFrame) -> None:
        """Do what a frame says that was not said before."""
        self._acked(frame.ack)
        for command in self._receiver.take(frame.first, frame.commands):
            self._take(self, command)

    async def until_acked(self) -> None:
        """Wait until it has all events so far, or is over."""
        if self.ended is None and self._sender.upto < self._sender.last:
            acked = self._loop.create_future()
            self._until_acked.append((self._sender.last, acked))
            if self._answered >= self._sender.last:
                self._let_listen_again()
            await acked

    def _let_listen_again(self) -> None:
        """Answer those who listen: what an exchange has taken along is acknowledged with the next frame only."""
        for news in self._listening:
            _end(news)

    def end(self, error: TangramError) -> None:
        """It is over: whatever it sends is answered with that."""
        self.ended = error
        if self.timer is not None:
            self.timer.cancel()
        self._wake()
        self._tell_acked(self._sender.last)

    async def _news(self, wait_s: float) -> None:
        """Wait until there are events that no other answer takes along."""
        if self._is_news or self.ended is not None:
            return
        news = self._loop.create_future()
        self._listening.add(news)
        timer = self._loop.call_later(wait_s, _end, news, context=Context())
        try:
            await news
        finally:
            timer.cancel()
            self._listening.discard(news)

    @property
    def _is_news(self) -> bool:
        """Whether there is something that it does not have, and that no answer to an exchange has taken along.

        If such an answer is lost, there is another exchange at once. If one to who listens is lost, it listens again.
        """
        return self._sender.last > max(self._sender.upto, self._answered)

    def _wake(self) -> None:
        """Answer those who listen, unless what is new goes with the answer to an exchange: two would be too many."""
        self._is_waking = False
        if self.ended is not None or (not self._exchanging and self._is_news):
            for news in self._listening:
                _end(news)

    def _acked(self, upto: int) -> None:
        self._sender.acked(upto)
        self._tell_acked(upto)

    def _tell_acked(self, upto: int) -> None:
        while self._until_acked and self._until_acked[0][0] <= upto:
            _end(self._until_acked.pop(0)[1])


class Sessions:
    """All sessions, each until it is over.

    Args:
        silence_s: for how long a session may be silent.
        on_silent: is told of one that was silent for longer.
    """

    def __init__(self, silence_s: float, on_silent: Callable[[Session], None]) -> None:
        self._silence_s = silence_s
        self._on_silent = on_silent
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[str, Session] = {}
        self._by_token: dict[str, Session] = {}
        self._ended: dict[str, TangramError] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def add(self, session: Session, token: str) -> None:
        """Let a session begin; a second greeting with this token is of the same."""
        self._sessions[session.name] = session
        self._by_token[token] = session
        self.heard(session)
        self._watch(session)

    def begun(self, token: str) -> Session | None:
        """Return the session that began with a greeting of this token, also if it is over."""
        return self._by_token.get(token)

    def find(self, name: str) -> Session | None:
        """Return a session that is not over."""
        return self._sessions.get(name)

    def why_over(self, name: str) -> TangramError:
        """Return why there is no session of a name."""
        return self._ended.get(name) or LeaseLostError(f"the owner of the shared runtime knows no session {name!r}")

    def clients(self) -> tuple[str, ...]:
        """Return the names of all sessions of clients."""
        return tuple(session.name for session in self if session.kind != NODE)

    def heard(self, session: Session) -> None:
        """It is alive."""
        session.heard_s = self._loop.time()

    def end(self, session: Session, error: TangramError) -> None:
        """Let a session be over."""
        del self._sessions[session.name]
        session.end(error)
        self._ended[session.name] = error
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        for token, other in list(self._by_token.items()):
            if other.ended is not None and other is not session:
                del self._by_token[token]

    def close(self) -> None:
        """Watch no session any more."""
        for session in self:
            if session.timer is not None:
                session.timer.cancel()

    def _watch(self, session: Session) -> None:
        due_s = session.heard_s + self._silence_s
        session.timer = self._loop.call_at(due_s, self._look, session, due_s, context=Context())

    def _look(self, session: Session, due_s: float) -> None:
        """See whether a session was silent for too long."""
        now_s = self._loop.time()
        if now_s - due_s > LATE_S:
            self.heard(session)
        if session.heard_s + self._silence_s > now_s:
            self._watch(session)
        else:
            self._on_silent(session)


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
