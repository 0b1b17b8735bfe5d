"""Runs and kills the commands of one sandbox in sessions of its container."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from arl_tangram.errors import SandboxLostError
from arl_tangram.managers.capture import Capture
from arl_tangram.managers.docker import script
from arl_tangram.managers.docker.answers import ContainerState, DaemonError
from arl_tangram.managers.docker.limits import Limits
from arl_tangram.managers.docker.scratch import Scratch
from arl_tangram.managers.docker.session import Daemon, Exchange, Session, SessionError
from arl_tangram.managers.docker.sessions import Sessions, SurvivorsError
from arl_tangram.managers.environment import SANDBOX_VARIABLE
from arl_tangram.uninterrupted import finish_anyway

KILLED_CODE = 137
ATTEMPTS = 4  # of an idle session, or one that is being opened: what else is killed can take it along
SHELL_GRACE_S = 1.0
READ_BACK_S = 30.0


class Engine(Daemon, Protocol):
    """The daemon, as far as commands are concerned."""

    async def inspect(self, container_id: str) -> ContainerState:
        """Return how the container is."""
        ...

    async def remove(self, container_id: str) -> None:
        """Remove it, with all that runs in it."""
        ...


@dataclass(frozen=True, slots=True)
class Command:
    """A command, checked; `env` goes on top of the container's own, and `cwd` is absolute."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    stdin: bytes
    timeout_s: float | None
    max_output_bytes: int
    spill: bool


class NotStartedError(Exception):
    """A command could not be started: `subject` is `program` or `cwd`."""

    def __init__(self, number: int, subject: str) -> None:
        super().__init__(f"{subject}: {os.strerror(number)}")
        self.errno = number
        self.subject = subject


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended; `start_s` and `end_s` are on the monotonic clock, their difference measured beside it."""

    exit_code: int
    start_s: float
    end_s: float
    cpu_s: float
    timed_out: bool
    stdout: Capture
    stderr: Capture
    spilled: tuple[str, str] | None


@dataclass(eq=False, slots=True)
class _Running:
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


class Commands:
    """The commands of one sandbox.

    Args:
        engine: the daemon.
        container_id: the container, which runs.
        sandbox_id: the name in messages.
        limits: of the container.
        env: the container's own variables.
        workdir: its working folder.
        channel: `session` runs commands in sessions that stay open, `exec` each in a new one.
    """

    def __init__(
        self,
        engine: Engine,
        container_id: str,
        *,
        sandbox_id: str,
        limits: Limits,
        env: Mapping[str, str],
        workdir: str,
        channel: Literal["session", "exec"] = "session",
    ) -> None:
        self._engine = engine
        self._container_id = container_id
        self._id = sandbox_id
        self._limits = limits
        # A shell hands no variables on that it could not set itself.
        self._odd_env = {name: value for name, value in env.items() if not script.is_plain(name) and name.isprintable()}
        self._keeps = channel == "session"
        self._sessions = Sessions(engine, container_id, env={SANDBOX_VARIABLE: sandbox_id}, limits=limits)
        self._numbers = itertools.count(1)
        self._running: dict[Session, _Running] = {}
        self._own: dict[Session, Exchange] = {}
        self._begun = 0
        self._has_opened = False
        self._left = False
        self._lost: str | None = None
        self._scratch = Scratch(self.shell, workdir)

    @property
    def may_be_alive(self) -> bool:
        """Whether a command, or something that one has left behind, may be alive."""
        return bool(self._running) or self._left or self._sessions.has_left_alive

    @property
    def is_alive(self) -> bool:
        """Whether the sandbox is not known to be dead."""
        return self._lost is None

    def check(self) -> None:
        """Raise `SandboxLostError` if the sandbox is dead."""
        if self._lost is not None:
            raise SandboxLostError(f"sandbox {self._id} is lost: {self._lost}")

    async def open(self) -> None:
        """Open the first session.

        Raises:
            SandboxLostError: no shell can be started.
        """
        self._sessions.give_back(await self._take())
        self._has_opened = True

    async def run(
        self, command: Command, ran: Callable[[float, float, float], None], check_open: Callable[[], object]
    ) -> Ended:
        """Run a command to its end; cancelling, and the time limit, kill it with all that it started first.

        `ran` is told start, end and CPU seconds of the command whichever way it ends. `check_open` raises if no
        command may start any more; it is asked right before this one does.

        Raises:
            NotStartedError: it could not be started.
            OSError: its output cannot be spilled.
            ValueError: its environment needs the program `env`, which there is not.
            SandboxLostError: the sandbox is lost, or what became of the command cannot be known.
        """
        self.check()
        env = {**self._odd_env, **command.env}
        _check_size(command, env)
        running, spill = await self._begin(command, env, check_open)
        timed_out = False
        try:
            done, _ = await asyncio.wait([running.exchange.done], timeout=command.timeout_s)
            if not done:
                timed_out = True
                await finish_anyway(self._kill_one(running))
            code = await self._outcome(running, command, env, timed_out)
        except asyncio.CancelledError:
            with contextlib.suppress(SandboxLostError):
                await finish_anyway(self._kill_one(running))
            raise
        finally:
            start_s, end_s, cpu_s = self._end(running)
            ran(start_s, end_s, cpu_s)
        captures = (running.exchange.stdout, running.exchange.stderr)
        if spill is not None:
            captures = await finish_anyway(self._read_back(spill, command.max_output_bytes))
        return Ended(code, start_s, end_s, cpu_s, timed_out, *captures, spill)

    async def kill(self) -> None:
        """Kill everything that was started; bounded, a few seconds at most.

        Raises:
            SandboxLostError: something survived, and the sandbox was destroyed.
        """
        self.check()
        if self.may_be_alive:
            busy = {running.session: running.exchange for running in self._running.values()}
            try:
                await self._sessions.kill(busy, self._own.values())
            except SurvivorsError as error:
                await self._destroy(str(error))
            self._left = False

    async def shell(self, text: str, stdin: bytes = b"", *, max_bytes: int = 1 << 20) -> tuple[int, bytes, bytes]:
        """Run a script of ours, which may be run twice; return exit code, output and errors, at most `max_bytes` each.

        It is no command of an action, and runs between them, too. Cancelled, it may still go on for a while.

        Raises:
            SandboxLostError: the sandbox is lost.
            OSError: no process can be started.
        """
        stdin = bytes(stdin)
        for attempt in range(ATTEMPTS):
            try:
                session = await self._take()
            except NotStartedError as error:
                raise OSError(error.errno, os.strerror(error.errno), "a shell in the sandbox") from None
            try:
                redirection = await self._scratch.feed(session, stdin)
                line = await self._scratch.shortened(session, script.own(text, redirection))
                exchange = self._own[session] = session.begin(line, max_bytes)
            except SessionError as error:
                self._sessions.give_back(session)
                if attempt == ATTEMPTS - 1:
                    raise self._as_lost(error) from error
                continue
            except BaseException:
                await finish_anyway(self._give_up(session))
                raise
            self._begun += 1
            if await self._own_ended(session, exchange):
                if exchange.start is None or exchange.code is None:
                    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), "a shell in the sandbox")
                return exchange.code, exchange.stdout.content(), exchange.stderr.content()
        raise SandboxLostError(f"sandbox {self._id}: a script of ours does not come to its end")

    def lose(self, reason: str) -> None:
        """Take note that the sandbox is dead: running commands fail at once."""
        if self._lost is None:
            self._lost = reason
        self._sessions.hang_up([*self._running, *self._own])

    def interrupt(self, reason: str) -> None:
        """Let running commands fail at once, because their end cannot be heard any more; the sandbox may live on."""
        self._left = self._left or bool(self._running)
        self._sessions.hang_up([*self._running, *self._own], reason=reason)

    async def aclose(self) -> None:
        """Let running commands fail, and kill everything as far as that is possible from outside; bounded."""
        self.lose("it was closed")
        await self._sessions.aclose([*self._running, *self._own])
        self._left = False

    # beginning

    async def _begin(
        self, command: Command, env: Mapping[str, str], check_open: Callable[[], object]
    ) -> tuple[_Running, tuple[str, str] | None]:
        """Prepare a command and begin it, in another session if one ends meanwhile."""
        number = next(self._numbers)
        env = {**env, script.EXEC_VARIABLE: _mark(number)}
        stdin = bytes(command.stdin)
        spill = await self._scratch.spill(number) if command.spill else None
        if len(stdin) > script.INLINE_STDIN_BYTES:
            await self._scratch.folder()  # with a session that is not taken yet
        for attempt in range(ATTEMPTS):
            session = await self._take(fresh=not self._keeps)
            try:
                redirection = await self._scratch.feed(session, stdin, spill)
                text = script.command(command.argv, cwd=command.cwd, env=env, redirection=redirection)
                text = await self._scratch.shortened(session, text)
                self.check()
                check_open()
                before_cpu_s = None if self._running or self._own or self.may_be_alive else self._limits.cpu_s()
                exchange = session.begin(text, command.max_output_bytes)
            except SessionError as error:
                self._sessions.give_back(session)
                if attempt == ATTEMPTS - 1:
                    raise self._as_lost(error) from error
            except BaseException:
                await finish_anyway(self._give_up(session))
                raise
            else:
                self._begun += 1
                running = self._running[session] = _Running(number, self._begun, session, exchange, before_cpu_s)
                return running, spill
        raise AssertionError("unreachable")

    async def _take(self, *, fresh: bool = False) -> Session:
        self.check()
        try:
            return await self._sessions.take(fresh=fresh)
        except (SessionError, DaemonError, OSError) as error:
            self.check()
            number = _own_doing(error)
            if number is not None and self._has_opened:
                raise NotStartedError(number, "program") from error
            raise self._as_lost(error) from error

    async def _give_up(self, session: Session) -> None:
        """Take back a session in which nothing was begun; what was half fed to it could pass for a command."""
        if session.is_spoilt and not session.gone.done():
            with contextlib.suppress(SandboxLostError):
                await self._kill_session(session, None)
        self._sessions.give_back(session)

    # ending

    async def _outcome(self, running: _Running, command: Command, env: Mapping[str, str], timed_out: bool) -> int:
        exchange = running.exchange
        if exchange.done.exception() is not None:
            self.check()
            if not running.session.is_killed:
                await self._explain(running)
            return KILLED_CODE
        if timed_out:
            return KILLED_CODE
        if exchange.refusal is not None:
            raise _refused(*exchange.refusal, command, env)
        if exchange.start is None:
            raise NotStartedError(errno.EAGAIN, "program")
        assert exchange.code is not None
        return exchange.code

    async def _explain(self, running: _Running) -> None:
        """Find out why a session has ended; return if its command has killed it.

        Raises:
            SandboxLostError: something else has happened.
        """
        if running.session.interrupted is not None:
            raise SandboxLostError(f"sandbox {self._id}: a command has no known end: {running.session.interrupted}")
        try:
            await self._check_running()
            ended = not (await self._engine.exec_state(running.session.exec_id)).running
        except DaemonError as error:
            self._check_there(error)
            raise SandboxLostError(f"sandbox {self._id}: a command has no known end: {error}") from error
        finally:
            self._left = True
        await finish_anyway(self._kill_one(running))
        if not ended:
            raise SandboxLostError(f"sandbox {self._id}: the stream of a command broke off")
        await self._check_usable()

    async def _check_running(self) -> None:
        state = await self._engine.inspect(self._container_id)
        if not state.running:
            memory = ", out of memory" if state.oom_killed else ""
            self.lose(f"its container ended with exit code {state.exit_code}{memory}")
            self.check()

    def _check_there(self, error: DaemonError) -> None:
        self.check()
        if error.status == 404 and "ontainer" in error.message:
            self.lose("its container is gone")
            self.check()

    async def _check_usable(self) -> None:
        """Open a new session: a container that is being killed loses its commands before it counts as ended."""
        try:
            with contextlib.suppress(NotStartedError):  # there may be no shell any more
                self._sessions.give_back(await self._take())
        except SandboxLostError:
            try:
                await self._check_running()
            except DaemonError as error:
                self._check_there(error)
            raise

    def _end(self, running: _Running) -> tuple[float, float, float]:
        """Take back the session of a command; return its start and end on the monotonic clock, and its CPU time."""
        exchange, now_s = running.exchange, time.monotonic()
        del self._running[running.session]
        alone = running.before_cpu_s is not None and running.turn == self._begun
        after_cpu_s = self._limits.cpu_s() if alone else None
        cpu_s = exchange.cpu_s
        if after_cpu_s is not None and running.before_cpu_s is not None:
            cpu_s = max(0.0, after_cpu_s - running.before_cpu_s)
        with contextlib.suppress(OSError):
            self._sessions.give_back(running.session, exchange, keep=self._keeps)
        if exchange.code is None:
            return (exchange.start[0] if exchange.start else exchange.sent_s), now_s, cpu_s
        return max(exchange.sent_s, exchange.end_s - exchange.duration_s), exchange.end_s, cpu_s

    async def _read_back(self, spill: tuple[str, str], limit: int) -> tuple[Capture, Capture]:
        """Return head and tail of what a command has written to files."""
        session = await self._take()
        try:
            exchange = self._own[session] = session.begin(script.read_back(spill, limit), limit, parts="Zz")
        except SessionError as error:
            self._sessions.give_back(session)
            raise self._as_lost(error) from error
        await asyncio.wait([exchange.done], timeout=READ_BACK_S)
        del self._own[session]
        self._sessions.give_back(session)
        if not exchange.done.done() or exchange.done.exception() is not None:
            self.check()
            raise SandboxLostError(f"sandbox {self._id}: the output of a command could not be read back")
        return exchange.stdout, exchange.stderr

    async def _own_ended(self, session: Session, exchange: Exchange) -> bool:
        """Wait for a script of ours and take its session back; return whether it came to an end of its own."""
        try:
            await asyncio.wait([exchange.done])
        except asyncio.CancelledError:
            await finish_anyway(self._wait(exchange.done, SHELL_GRACE_S))
            raise
        finally:
            if exchange.done.done():
                self._own_done(session)
            else:
                exchange.done.add_done_callback(lambda _: self._own_done(session))
        self.check()
        return exchange.done.exception() is None

    def _own_done(self, session: Session) -> None:
        del self._own[session]
        self._sessions.give_back(session)

    @staticmethod
    async def _wait(future: asyncio.Future[None], limit_s: float) -> None:
        await asyncio.wait([future], timeout=limit_s)

    # killing

    async def _kill_one(self, running: _Running) -> None:
        """Kill a command with all that it started; if it is the only one, everything.

        Raises:
            SandboxLostError: something survived, and the sandbox was destroyed.
        """
        self.check()
        await self._kill_session(running.session, running.exchange)

    async def _kill_session(self, session: Session, exchange: Exchange | None) -> None:
        if session.is_killed:
            return
        others = [each for each in self._running if each is not session]
        try:
            if others:
                marks = [_mark(self._running[each].number) for each in others]
                await self._sessions.kill_one(session, exchange, [*others, *self._own], marks)
            else:
                await self._sessions.kill({session: exchange}, self._own.values())
                self._left = False
        except SurvivorsError as error:
            await self._destroy(str(error))

    async def _destroy(self, reason: str) -> None:
        """Remove the container, and say so."""
        self.lose(f"{reason}, so it was destroyed")
        try:
            await self._engine.remove(self._container_id)
        except DaemonError as error:
            raise SandboxLostError(
                f"sandbox {self._id} is lost: {reason}; its container could not be removed: {error}"
            ) from error
        self.check()

    def _as_lost(self, error: Exception) -> SandboxLostError:
        return SandboxLostError(f"sandbox {self._id}: no shell can be started in it: {error}")


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


def _mark(number: int) -> str:
    return f"{number}."


def _check_size(command: Command, env: Mapping[str, str]) -> None:
    words = [*command.argv, *(f"{name}={value}" for name, value in env.items())]
    if any(len(word) > script.MAX_WORD_BYTES // 4 and len(os.fsencode(word)) > script.MAX_WORD_BYTES for word in words):
        raise NotStartedError(errno.E2BIG, "program")


def _refused(number: int, subject: str, command: Command, env: Mapping[str, str]) -> Exception:
    """Return the error for what a shell reports."""
    if subject == "env":
        odd = [name for name in env if not script.is_plain(name)]
        return ValueError(f"variables named {', '.join(map(repr, odd))} need the program `env`, which there is not")
    if subject == "spill":
        return OSError(number, "no file for the output can be written", command.argv[0])
    size = sum(map(len, command.argv)) + sum(map(len, env.values()))
    return NotStartedError(errno.E2BIG if number == errno.EACCES and size > 1 << 20 else number, subject)
