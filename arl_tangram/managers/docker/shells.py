"""The shells of one sandbox at work: hands them out, knows what runs in them, and kills it."""

from __future__ import annotations

import contextlib
import errno
import time
from dataclasses import dataclass

from arl_tangram.errors import SandboxLostError
from arl_tangram.managers.docker.absence import Absence
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.exchange import Exchange
from arl_tangram.managers.docker.life import Life
from arl_tangram.managers.docker.limits import Limits
from arl_tangram.managers.docker.session import Session, SessionError
from arl_tangram.managers.docker.sessions import Sessions, SurvivorsError
from arl_tangram.managers.ended import NotStartedError

ATTEMPTS = 4  # of an idle session, or one that is being opened: what else is killed can take it along


@dataclass(eq=False, slots=True)
class Running:
    """A command that is running.

    Attributes:
        number: what its processes are marked with.
        turn: how many commands and scripts had begun when it began, itself included.
        before_cpu_s: CPU time of the container until then; None if something else ran.
    """

    number: int
    turn: int
    session: Session
    exchange: Exchange
    before_cpu_s: float | None


class Shells:
    """The sessions of one sandbox, with the commands and the scripts of ours that run in them.

    Args:
        sessions: of its container.
        limits: of the container.
        life: of the sandbox.
        absence: of its daemon.

    Attributes:
        guards: of its sessions.
        begun: how many commands and scripts have begun.
        has_left: whether something that has not been killed yet may be alive, whatever the sessions know of it.
    """

    def __init__(self, sessions: Sessions, limits: Limits, life: Life, absence: Absence) -> None:
        self.guards = sessions.guards
        self.begun = 0
        self.has_left = False
        self._sessions = sessions
        self._limits = limits
        self._life = life
        self._absence = absence
        self._running: dict[Session, Running] = {}
        self._own: dict[Session, Exchange] = {}
        self._has_opened = False

    @property
    def may_be_alive(self) -> bool:
        """Whether a command, or something that one has left behind, may be alive."""
        return bool(self._running) or self.has_left or self._sessions.has_left_alive

    # handing out

    async def open(self) -> None:
        """Open the first session.

        Raises:
            SandboxLostError: no shell can be started.
        """
        self.give_back(await self.take())
        self._has_opened = True

    async def take(self, *, fresh: bool = False) -> Session:
        """Return a session that is free, a new one if it is to be fresh; `give_back` it.

        A daemon that is away is waited for: nothing has begun yet, and the sandbox may live on.

        Raises:
            NotStartedError: a command has brought about that no shell can be started.
            SandboxLostError: the sandbox is dead, or no shell can be started in it.
        """
        self._life.check()
        try:
            try:
                return await self._sessions.take(fresh=fresh)
            except DaemonError as error:
                if error.kind != "gone":
                    raise
                await self._absence.outlast(unheard=True)
                self._life.check()
                return await self._sessions.take(fresh=fresh)
        except (SessionError, DaemonError, OSError) as error:
            self._life.check()
            await self._life.ask_patiently()  # what stands in the way may be its end
            number = _own_doing(error)
            if number is not None and self._has_opened:
                raise NotStartedError(number, "program") from error
            raise self._life.no_shell(error) from error

    def give_back(self, session: Session) -> None:
        """Take back a session in which nothing was begun."""
        self._sessions.give_back(session)

    async def give_up(self, session: Session) -> None:
        """Take back a session in which nothing was begun; what was half fed to it could pass for a command."""
        if session.is_spoilt and not session.gone.done():
            with contextlib.suppress(SandboxLostError):
                await self._kill_session(session, None)
        self._sessions.give_back(session)

    # what runs

    def begin(self, number: int, session: Session, text: bytes, limit: int) -> Running:
        """Begin a command; raises SessionError if the session has ended."""
        before_cpu_s = None if self._running or self._own or self.may_be_alive else self._limits.cpu_s()
        exchange = session.begin(text, limit)
        self.begun += 1
        running = self._running[session] = Running(number, self.begun, session, exchange, before_cpu_s)
        return running

    def end(self, running: Running, *, keep: bool) -> tuple[float, float, float]:
        """Take back the session of a command; return its start and end on the monotonic clock, and its CPU time."""
        exchange, now_s = running.exchange, time.monotonic()
        del self._running[running.session]
        alone = running.before_cpu_s is not None and running.turn == self.begun
        after_cpu_s = self._limits.cpu_s() if alone else None
        cpu_s = exchange.cpu_s
        if after_cpu_s is not None and running.before_cpu_s is not None:
            cpu_s = max(0.0, after_cpu_s - running.before_cpu_s)
        with contextlib.suppress(OSError):
            self._sessions.give_back(running.session, exchange, keep=keep)
        if exchange.code is None:
            return (exchange.start[0] if exchange.start else exchange.sent_s), now_s, cpu_s
        return max(exchange.sent_s, exchange.end_s - exchange.duration_s), exchange.end_s, cpu_s

    def begin_own(self, session: Session, text: bytes, limit: int, *, parts: str = "Ee") -> Exchange:
        """Begin a script of ours; raises SessionError if the session has ended."""
        exchange = self._own[session] = session.begin(text, limit, parts=parts)
        return exchange

    async def give_up_own(self, session: Session, exchange: Exchange) -> None:
        """Kill a script of ours that is late, with its session."""
        with contextlib.suppress(SandboxLostError):
            await self._kill_session(session, exchange)

    def end_own(self, session: Session) -> None:
        """Take back the session of a script of ours."""
        del self._own[session]
        self._sessions.give_back(session)

    # killing

    async def kill(self) -> None:
        """Kill everything that was started.

        Raises:
            SandboxLostError: something survived, and the sandbox was destroyed.
        """
        async with self._sessions.killing, self._limits.rush():
            self._life.check()
            if self.may_be_alive:
                busy = {running.session: running.exchange for running in self._running.values()}
                try:
                    await self._sessions.kill(busy, self._own.values())
                except SurvivorsError as error:
                    await self._life.destroy(str(error))
                self.has_left = False

    async def kill_one(self, running: Running) -> None:
        """Kill a command with all that it started; if it is the only one, everything.

        Raises:
            SandboxLostError: something survived, and the sandbox was destroyed.
        """
        self._life.check()
        await self._kill_session(running.session, running.exchange)

    async def _kill_session(self, session: Session, exchange: Exchange | None) -> None:
        async with self._sessions.killing, self._limits.rush():
            self._life.check()
            if session.is_killed:
                return
            others = [each for each in self._running if each is not session and not each.is_killed]
            try:
                if others:
                    marks = [mark(self._running[each].number) for each in others]
                    spared = [*others, *(each for each in self._own if each is not session)]
                    await self._sessions.kill_one(session, exchange, spared, marks)
                else:
                    own = [each for each in self._own.values() if each is not exchange]
                    await self._sessions.kill({session: exchange}, own)
                    self.has_left = False
            except SurvivorsError as error:
                await self._life.destroy(str(error))

    def hang_up(self) -> None:
        """End the streams of all sessions: what runs in them fails at once."""
        self._sessions.hang_up([*self._running, *self._own])

    def interrupt(self, reason: str) -> None:
        """Let running commands fail at once, because their end cannot be heard any more."""
        self.has_left = self.has_left or bool(self._running)
        self._sessions.hang_up([*self._running, *self._own], reason=reason)

    async def aclose(self) -> None:
        """Hang up, and kill everything as far as that is possible from outside; bounded."""
        await self._sessions.aclose([*self._running, *self._own])
        self.has_left = False


def mark(number: int) -> str:
    """Return what the processes of a command are marked with."""
    return f"{number}."


def _own_doing(error: Exception) -> int | None:
    """Return the error that a command has brought about if no shell can be started: too many processes, or no shell."""
    if not isinstance(error, SessionError):
        return None
    told = str(error).lower()
    if "fork" in told or "resource temporarily unavailable" in told:
        return errno.EAGAIN
    if "no such file" in told or "not found" in told:
        return errno.ENOENT
    return errno.EACCES if "permission denied" in told else None
