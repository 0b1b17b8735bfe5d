"""A sandbox in a container: the `Sandbox` protocol over its commands, its limits and its files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from arl_tangram.errors import (
    AllocationError,
    InfrastructureError,
    OutOfMemoryError,
    SandboxLostError,
    UsageError,
    WrongLoopError,
)
from arl_tangram.managers.arguments import check_command
from arl_tangram.managers.cores import Placement
from arl_tangram.managers.docker.absence import Absence, DaemonAwayError
from arl_tangram.managers.docker.allotment import SUSPENDED, Wish
from arl_tangram.managers.docker.command import Command
from arl_tangram.managers.docker.commands import Commands
from arl_tangram.managers.docker.containers import Container
from arl_tangram.managers.docker.files import Files
from arl_tangram.managers.docker.limits import Limits
from arl_tangram.managers.ended import NotStartedError
from arl_tangram.managers.environment import granted
from arl_tangram.managers.manager import no_cores
from arl_tangram.managers.usage import UsageMeter
from arl_tangram.model.sandbox import ExecResult
from arl_tangram.uninterrupted import finish_anyway, settled, unstoppable

T = TypeVar("T")


class DockerSandbox:
    """Files and commands of one trajectory in a container; made by `DockerManager.create_sandbox`.

    Args:
        sandbox_id: unique on all machines that use the daemon.
        node: the number of its node.
        container: where it is.
        commands: what runs in it.
        limits: of the container.
        files: makes what reads and writes its files, given what checks that it is not lost.
        prepare: does what must be done in it before anything else, once it has a shell.
        absence: of its daemon.
        remove: removes the container; bounded.
        on_close: called when it is closed.
    """

    def __init__(
        self,
        sandbox_id: str,
        *,
        node: int,
        container: Container,
        commands: Commands,
        limits: Limits,
        files: Callable[[Callable[[], None]], Files],
        prepare: Callable[[], Awaitable[None]],
        absence: Absence,
        remove: Callable[[], Awaitable[None]],
        on_close: Callable[[DockerSandbox], None],
    ) -> None:
        self._id = sandbox_id
        self.node = node
        self.container = container
        self.limits = limits
        self._commands = commands
        self._files = files(self.check)
        self._prepare = prepare
        self._absence = absence
        self._remove = remove
        self._on_close = on_close
        self._grant: Mapping[str, str] | None = None
        self._wish: Wish = None
        self._meter = UsageMeter()
        limits.listen(commands.clock.go_on, self._give_up)
        self._closing: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<DockerSandbox {self._id} in container {self.container.id[:12]}>"

    @property
    def id(self) -> str:
        """A name that is unique on all machines that use the daemon."""
        return self._id

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        max_output_bytes: int = 1 << 20,
        spill: bool = False,
    ) -> ExecResult:
        """Run a command to its end on the cores of the running action; see `Sandbox.exec`.

        What a command leaves running in the background lives on until the action ends; when a command is killed
        and no other one runs, all of that is killed with it. It loses its standard output when the command ends. While
        the action is suspended, a command does not start, and one that runs takes none of its `timeout`.

        Raises:
            AllocationError: the container does not have the cores of the action.
            OutOfMemoryError: the container ended because its commands had used up its memory.
            UsageError: no action has cores in this sandbox now; the running one may have lent them.
        """
        check_command(argv, stdin, env, timeout, max_output_bytes)
        self._check_loop()
        self.check()
        grant, meter = self._check_granted(), self._meter
        async with self._commands.entrance.call():
            self.check()
            self._check_granted(grant)
            entered_s = time.monotonic()
            try:
                await self._absence.outlast()
                await self._settled()
                folder = await self._folder(cwd)
                command = Command(
                    argv=argv,
                    cwd=folder,
                    env={**grant, **(env or {})},
                    stdin=stdin,
                    timeout_s=timeout,
                    max_output_bytes=max_output_bytes,
                    spill=spill,
                )
                ended = await self._commands.run(command, meter.add_command, lambda: self._check_granted(grant))
            except NotStartedError as error:
                raise error.told(program=argv[0], cwd=cwd) from None
            except (AllocationError, SandboxLostError):
                self.check()  # what is known of its end says more
                raise
            finally:
                meter.add_call(entered_s, time.monotonic())
        return ended.result()

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file, creating its folders; see `Sandbox.write_file`."""
        await self._with_files(lambda: self._files.write(path, data))

    async def read_file(self, path: str, *, max_bytes: int = 1 << 28) -> bytes:
        """Return the content of a file; see `Sandbox.read_file`."""
        return await self._with_files(lambda: self._files.read(path, max_bytes))

    async def put_dir(self, source: str | os.PathLike[str], path: str) -> None:
        """Copy a folder of the host into the sandbox; see `Sandbox.put_dir`."""
        await self._with_files(lambda: self._files.put(source, path))

    async def get_dir(self, path: str, target: str | os.PathLike[str]) -> None:
        """Copy a folder of the sandbox to the host; see `Sandbox.get_dir`."""
        await self._with_files(lambda: self._files.get(path, target))

    async def aclose(self) -> None:
        """Kill everything in it and remove it; bounded, idempotent, never raises for a sandbox that is lost."""
        if self._closing is None:
            self._closing = unstoppable(self._close())
        await settled(self._closing)
        self._closing.result()

    # for the manager and its leases

    @property
    def is_usable(self) -> bool:
        """Whether commands can run in it."""
        return self._commands.is_alive and self._closing is None

    @property
    def may_be_alive(self) -> bool:
        """Whether something that was started in it may be alive, or a command is about to."""
        return self._commands.may_be_alive or self._commands.entrance.is_busy

    def check(self) -> None:
        """Raise why it is lost, if it is."""
        self._commands.check()

    def lose(self, reason: str, *, out_of_memory: bool = False) -> None:
        """End its commands at once, and refuse later ones; the first reason counts.

        Args:
            reason: why, to stand behind "is lost".
            out_of_memory: whether its own commands are to blame, having used up its memory.
        """
        self._commands.lose(reason, out_of_memory=out_of_memory)

    def interrupt(self, reason: str) -> None:
        """End its commands, because their end cannot be heard any more; it may live on."""
        self._commands.interrupt(reason)

    def resume(self) -> None:
        """Put its limits in effect once more, now that its daemon is back: that may have changed them."""
        self.limits.forget()
        with contextlib.suppress(OSError):  # of one that is dying, which its own action hears
            self.limits.want(self._wish)

    async def open(self) -> None:
        """Open its first shell, and prepare it.

        Raises:
            DaemonError: the daemon does not do what that needs.
            SandboxLostError: no shell can be had.
            SandboxStartError: its working folder cannot be used.
        """
        await self._commands.open()
        self.limits.see_inside(self._commands.shell)
        await self._prepare()

    def begin(self, milli_cores: int, meter: UsageMeter) -> None:
        """Open it for the commands of an action."""
        self._grant = granted(milli_cores)
        self._meter = meter

    def place(self, placement: Placement) -> None:
        """Let it have these cores, before later commands start; the clock of a suspended one goes on when it has them.

        Raises:
            AllocationError, OSError: see `Limits.want`.
        """
        self._wish = placement
        self._commands.entrance.go_on()  # they wait until the cores are there, and hear if they cannot be had
        self.limits.want(placement)

    def suspend(self) -> None:
        """Let it have next to no time, on the cores that it had, until it is placed again, ended, killed or lost.

        New commands and file operations wait for that, and the deadlines of those that run stand still.

        Raises:
            AllocationError, OSError: see `Limits.want`.
        """
        self._wish = SUSPENDED
        self.limits.want(SUSPENDED)
        self._commands.suspend()

    def end(self, meter: UsageMeter | None = None) -> None:
        """Close it for commands until the next action begins; with a meter, unless that has happened already."""
        if meter is None or meter is self._meter:
            self._grant = self._wish = None
            self._commands.go_on()
            with contextlib.suppress(OSError):  # a container that is gone takes no limits, and needs none
                self.limits.want(None)

    async def kill(self) -> None:
        """Kill everything that was started in it, and start nothing more; see `Commands.kill`."""
        self._grant = None
        self._commands.go_on()
        try:
            await finish_anyway(self._commands.kill())
        except (SandboxLostError, OutOfMemoryError):
            if self._closing is None:  # what survived in it runs on cores that others have by then
                self._closing = unstoppable(self._close())
            raise

    def _give_up(self, error: InfrastructureError) -> None:
        """Let go of it, because what runs in it cannot have the cores of its action, or would keep those of others."""
        self.lose(f"it cannot have what its action has: {error}")
        if self._closing is None:
            self._closing = unstoppable(self._close())

    async def _close(self) -> None:
        self._grant = None
        self.lose("it was closed")
        try:
            async with self.limits.rush():
                await self._commands.aclose()
                await self.limits.aclose()
                await self._remove()
        finally:
            self._on_close(self)

    async def _with_files(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._check_loop()
        self.check()
        await self._going_on()
        try:
            await self._absence.outlast()
            return await work()
        except SandboxLostError:
            self.check()  # what is known of its end says more
            raise

    async def _going_on(self) -> None:
        """Wait while it is suspended; raises why it is lost meanwhile."""
        await self._commands.entrance.until_running()
        self.check()

    async def _settled(self) -> None:
        """Wait until the grant is in effect; if its daemon has gone away meanwhile, until that has seen to it."""
        try:
            await self.limits.settled()
        except DaemonAwayError:
            await self._absence.outlast(unheard=True)
            await self.limits.settled()

    async def _folder(self, cwd: str) -> str:
        """Return the absolute path of a working folder; raises as `exec` does."""
        if cwd == ".":
            return self.container.workdir
        try:
            return await self._files.folder(cwd)
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            raise NotStartedError(error.errno or errno.ENOENT, "cwd") from error

    def _check_granted(self, grant: Mapping[str, str] | None = None) -> Mapping[str, str]:
        """Return the grant of the running action, which must still be `grant` if that is given."""
        if self._grant is None or (grant is not None and grant is not self._grant):
            raise UsageError(no_cores(self._id))
        return self._grant

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoopError(f"sandbox {self._id} belongs to another event loop")
