"""Runs and kills the commands of one sandbox in sessions of its container."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from arl_tangram.errors import SandboxLostError
from arl_tangram.managers.docker import script
from arl_tangram.managers.docker.absence import Absence
from arl_tangram.managers.docker.broken import explain
from arl_tangram.managers.docker.command import Command, check_size, refused
from arl_tangram.managers.docker.daemon import Engine
from arl_tangram.managers.docker.life import Life
from arl_tangram.managers.docker.limits import Limits
from arl_tangram.managers.docker.own_scripts import OwnScripts
from arl_tangram.managers.docker.session import SessionError
from arl_tangram.managers.docker.sessions import Sessions
from arl_tangram.managers.docker.shells import ATTEMPTS, Running, Shells, mark
from arl_tangram.managers.ended import Ended, NotStartedError
from arl_tangram.managers.environment import SANDBOX_VARIABLE
from arl_tangram.managers.running_time import RunningTime
from arl_tangram.uninterrupted import finish_anyway

KILLED_CODE = 137


class Commands:
    """The commands of one sandbox.

    Args:
        engine: the daemon.
        container_id: the container, which runs.
        pid: its first process, as the daemon tells it; 0 if that is not known.
        sandbox_id: the name in messages.
        remove: removes the container, sooner or later; never raises.
        limits: of the container.
        env: the container's own variables.
        workdir: its working folder.
        absence: of the daemon.
        channel: `session` runs commands in sessions that stay open, `exec` each in a new one.

    Attributes:
        clock: of the sandbox; while it stands still, so do the deadlines of commands.
        entrance: stands still while the sandbox is suspended: new commands wait for that. It goes on sooner than the
            clock where cores are only had when the daemon has seen to it, which they wait for, then.
    """

    def __init__(
        self,
        engine: Engine,
        container_id: str,
        *,
        pid: int = 0,
        sandbox_id: str,
        remove: Callable[[], Awaitable[None]],
        limits: Limits,
        env: Mapping[str, str],
        workdir: str,
        absence: Absence,
        channel: Literal["session", "exec"] = "session",
    ) -> None:
        self._engine = engine
        # A shell hands no variables on that it could not set itself.
        self._odd_env = {name: value for name, value in env.items() if not script.is_plain(name) and name.isprintable()}
        self._limits = limits
        self._remove = remove
        self._keeps = channel == "session"
        self._numbers = itertools.count(1)
        self.clock = RunningTime()
        self.entrance = RunningTime()
        self._life = Life(
            engine,
            container_id,
            pid=pid,
            sandbox_id=sandbox_id,
            remove=self._remove_at_once,
            on_lost=self._end,
        )
        sessions = Sessions(engine, container_id, env={SANDBOX_VARIABLE: sandbox_id}, limits=limits, clock=self.clock)
        self._shells = Shells(sessions, limits, self._life, absence)
        self._scripts = OwnScripts(self._shells, self._life, workdir, self.clock)

    @property
    def may_be_alive(self) -> bool:
        """Whether a command, or something that one has left behind, may be alive."""
        return self._shells.may_be_alive

    @property
    def is_alive(self) -> bool:
        """Whether the sandbox is not known to be dead."""
        return self._life.goes_on

    def check(self) -> None:
        """Raise `SandboxLostError` or `OutOfMemoryError` if the sandbox is dead."""
        self._life.check()

    async def open(self) -> None:
        """Open the first session.

        Raises:
            SandboxLostError: no shell can be started.
        """
        await self._shells.open()

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
        check_size(command, env)
        running, spill = await self._begin(command, env, check_open)
        timed_out, stood_s = False, self.clock.stood_s()
        try:
            if not await self.clock.wait(running.exchange.done, command.timeout_s):
                timed_out = True
                await finish_anyway(self._shells.kill_one(running))
            code = await self._outcome(running, command, env, timed_out)
        except asyncio.CancelledError:
            with contextlib.suppress(SandboxLostError):
                await finish_anyway(self._shells.kill_one(running))
            raise
        finally:
            start_s, end_s, cpu_s = self._shells.end(running, keep=self._keeps)
            stood_s = self.clock.stood_s() - stood_s
            ran(start_s, end_s, cpu_s)
        captures = (running.exchange.stdout, running.exchange.stderr)
        if spill is not None:
            captures = await finish_anyway(self._scripts.read_back(spill, command.max_output_bytes))
        return Ended(code, start_s, end_s, cpu_s, timed_out, *captures, spill, stood_s)

    async def kill(self) -> None:
        """Kill everything that was started; bounded, a few seconds at most.

        Raises:
            SandboxLostError: something survived, and the sandbox was destroyed.
        """
        await self._shells.kill()

    async def shell(self, text: str, stdin: bytes = b"", *, max_bytes: int = 1 << 20) -> tuple[int, bytes, bytes]:
        """Run a script of ours, which may be run twice; return exit code, output and errors, at most `max_bytes` each.

        It is no command of an action, and runs between them, too. Cancelled, it may still go on for a while.

        Raises:
            SandboxLostError: the sandbox is lost.
            OSError: no process can be started.
        """
        return await self._scripts.shell(text, stdin, max_bytes=max_bytes)

    def lose(self, reason: str, *, out_of_memory: bool = False) -> None:
        """Take note that the sandbox is dead: running commands fail at once; the first reason counts.

        Args:
            reason: why, to stand behind "is lost".
            out_of_memory: whether its own commands are to blame, having used up its memory.
        """
        self._life.lose(reason, out_of_memory=out_of_memory)

    def interrupt(self, reason: str) -> None:
        """Let running commands fail at once, because their end cannot be heard any more; the sandbox may live on."""
        self._shells.interrupt(reason)

    async def aclose(self) -> None:
        """Let running commands fail, and kill everything as far as that is possible from outside; bounded."""
        self.lose("it was closed")
        await self._shells.aclose()
        await self._life.settled()

    def _end(self) -> None:
        """Let what runs fail, and what waits for the sandbox to go on, now that it is lost."""
        self._shells.hang_up()
        self.go_on()

    def suspend(self) -> None:
        """Let the deadlines of commands stand still, and new ones wait."""
        self.entrance.stop()
        self.clock.stop()

    def go_on(self) -> None:
        """Let the deadlines of commands go on, and new ones begin."""
        self.entrance.go_on()
        self.clock.go_on()

    async def _remove_at_once(self) -> None:
        async with self._limits.rush():
            await self._remove()

    # beginning

    async def _begin(
        self, command: Command, env: Mapping[str, str], check_open: Callable[[], object]
    ) -> tuple[Running, tuple[str, str] | None]:
        """Prepare a command and begin it, in another session if one ends meanwhile."""
        number = next(self._numbers)
        env = {**env, script.EXEC_VARIABLE: mark(number)}
        stdin = bytes(command.stdin)
        spill = await self._scripts.scratch.spill(number) if command.spill else None
        if len(stdin) > script.INLINE_STDIN_BYTES:
            await self._scripts.scratch.folder()  # with a session that is not taken yet
        for attempt in range(ATTEMPTS):
            session = await self._shells.take(fresh=not self._keeps)
            try:
                redirection = await self._scripts.scratch.feed(session, stdin, spill)
                text = script.command(command.argv, cwd=command.cwd, env=env, redirection=redirection)
                text = await self._scripts.scratch.shortened(session, text)
                self.check()
                check_open()
                return self._shells.begin(number, session, text, command.max_output_bytes), spill
            except SessionError as error:
                self._shells.give_back(session)
                if attempt == ATTEMPTS - 1:
                    raise self._life.no_shell(error) from error
            except BaseException:
                await finish_anyway(self._shells.give_up(session))
                raise
        raise AssertionError("unreachable")

    # ending

    async def _outcome(self, running: Running, command: Command, env: Mapping[str, str], timed_out: bool) -> int:
        exchange = running.exchange
        if exchange.done.exception() is not None:
            self.check()
            if not running.session.is_killed:
                await explain(
                    running,
                    daemon=self._engine,
                    life=self._life,
                    shells=self._shells,
                    guards=self._shells.guards,
                    shell=self._scripts.shell,
                )
            return KILLED_CODE
        if timed_out:
            return KILLED_CODE
        if exchange.refusal is not None:
            raise refused(*exchange.refusal, command, env)
        if exchange.start is None:
            raise NotStartedError(errno.EAGAIN, "program")
        assert exchange.code is not None
        return exchange.code
