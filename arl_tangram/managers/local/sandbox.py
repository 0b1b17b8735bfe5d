"""A sandbox on this machine: the `Sandbox` protocol over a folder, a keeper and cgroups."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import anyio

from arl_tangram.errors import SandboxLostError, UsageError, WrongLoopError
from arl_tangram.managers.arguments import check_command
from arl_tangram.managers.cores import Placement
from arl_tangram.managers.ended import NotStartedError
from arl_tangram.managers.environment import granted
from arl_tangram.managers.host.cgroup import SandboxGroup
from arl_tangram.managers.local.commands import Command, Commands
from arl_tangram.managers.local.files import Folders
from arl_tangram.managers.local.limits import Limits
from arl_tangram.managers.manager import no_cores
from arl_tangram.managers.usage import UsageMeter
from arl_tangram.model.sandbox import ExecResult
from arl_tangram.uninterrupted import finish_anyway, in_thread, unstoppable

T = TypeVar("T")


class LocalSandbox:
    """Files and commands of one trajectory on this machine; made by `LocalManager.create_sandbox`."""

    def __init__(
        self,
        sandbox_id: str,
        *,
        folders: Folders,
        group: SandboxGroup | None,
        limits: Limits,
        commands: Commands,
        env: Mapping[str, str],
        limiter: anyio.CapacityLimiter,
        upkeep: anyio.CapacityLimiter,
        on_close: Callable[[LocalSandbox], None],
    ) -> None:
        self._id = sandbox_id
        self._folders = folders
        self._group = group
        self._limits = limits
        self._commands = commands
        self._env = env
        self._limiter = limiter
        self._upkeep = upkeep
        self._on_close = on_close
        self._grant: Mapping[str, str] | None = None
        self._meter = UsageMeter()
        self._closing: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<LocalSandbox {self._id} in {self._folders.work}>"

    @property
    def id(self) -> str:
        """A name that is unique on this machine."""
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
        and no other one runs, all of that is killed with it. It loses its standard output when the command ends.
        While the action is suspended, commands wait, and the time limits of those that run stand still.

        Raises:
            UsageError: no action has cores in this sandbox now; the running one may have lent them.
        """
        check_command(argv, stdin, env, timeout, max_output_bytes)
        self._check_loop()
        self._commands.check()
        grant, meter = self._check_granted(), self._meter
        async with self._commands.time.call():
            entered_s = time.monotonic()
            folder = (
                self._folders.work if cwd == "." else await self._in_thread(partial(self._folders.resolve, cwd, "cwd"))
            )
            command = Command(
                argv=argv,
                cwd=folder,
                env={**self._env, **grant, **(env or {})},
                stdin=stdin,
                timeout_s=timeout,
                max_output_bytes=max_output_bytes,
                spill_folder=self._folders.spill if spill else None,
            )
            try:
                ended = await self._commands.run(command, meter.add_command, lambda: self._check_granted(grant))
            except NotStartedError as error:
                raise error.told(program=argv[0], cwd=cwd) from None
            except SandboxLostError:
                raise
            except OSError as error:  # the trainer's own trouble, such as too many open files: not the command's
                raise SandboxLostError(f"sandbox {self._id}: a command could not be started: {error}") from error
            finally:
                meter.add_call(entered_s, time.monotonic())
        return ended.result()

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file, creating its folders; see `Sandbox.write_file`."""
        await self._in_thread(partial(self._folders.write, path, data))

    async def read_file(self, path: str, *, max_bytes: int = 1 << 28) -> bytes:
        """Return the content of a file; see `Sandbox.read_file`."""
        return await self._in_thread(partial(self._folders.read, path, max_bytes))

    async def put_dir(self, source: str | os.PathLike[str], path: str) -> None:
        """Copy a folder of the host into the sandbox; see `Sandbox.put_dir`."""
        stop = threading.Event()
        await self._in_thread(partial(self._folders.put, source, path, stop), stop=stop)

    async def get_dir(self, path: str, target: str | os.PathLike[str]) -> None:
        """Copy a folder of the sandbox to the host; see `Sandbox.get_dir`."""
        stop = threading.Event()
        await self._in_thread(partial(self._folders.get, path, target, stop), stop=stop)

    async def aclose(self) -> None:
        """Kill everything in it and remove it; bounded, idempotent, never raises for a sandbox that is lost."""
        if self._closing is None:
            self._closing = unstoppable(self._close())
        await finish_anyway(_joined(self._closing))

    # for the manager and its leases

    @property
    def may_be_alive(self) -> bool:
        """Whether something that was started in it may be alive, or a command is about to."""
        return self._commands.may_be_alive or self._commands.time.is_busy

    async def wait_ready(self) -> None:
        """Wait until the keeper answers.

        Raises:
            SandboxLostError: it ended instead.
        """
        await asyncio.shield(self._commands.ready)

    def complaint(self) -> str:
        """Return what stood in the way of the keeper's start."""
        return self._commands.channel.complaint()

    def check(self) -> None:
        """Raise `SandboxLostError` if it is lost."""
        self._commands.check()

    def begin(self, milli_cores: int, meter: UsageMeter) -> None:
        """Open it for the commands of an action."""
        self._grant = granted(milli_cores)
        self._meter = meter

    def place(self, placement: Placement) -> None:
        """Put all that runs in it on these cores, at once.

        Raises:
            OSError: its cgroup does not take them.
        """
        self._limits.place(placement)
        self._commands.time.go_on()

    def suspend(self) -> None:
        """Let it have next to no time until it is placed again, ended or killed; commands wait for that.

        Raises:
            OSError: its cgroup does not take that.
        """
        self._limits.suspend()
        self._commands.time.stop()

    def end(self, meter: UsageMeter | None = None) -> None:
        """Close it for commands until the next action begins; with a meter, unless that has happened already."""
        if meter is None or meter is self._meter:
            self._grant = None
            self._limits.end()
            self._commands.time.go_on()

    async def kill(self) -> None:
        """Kill everything that was started in it, and start nothing more; see `Commands.kill`."""
        self.end()
        await finish_anyway(self._commands.kill())

    async def _close(self) -> None:
        self.end()
        await self._commands.aclose()
        await in_thread(self._remove, self._upkeep)
        self._on_close(self)

    def _remove(self) -> None:
        if self._group is not None:
            self._group.remove()
        with contextlib.suppress(OSError):
            self._folders.remove()

    def _check_granted(self, grant: Mapping[str, str] | None = None) -> Mapping[str, str]:
        """Return the grant of the running action, which must still be `grant` if that is given."""
        if self._grant is None or (grant is not None and grant is not self._grant):
            raise UsageError(no_cores(self._id))
        return self._grant

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoopError(f"sandbox {self._id} belongs to another event loop")

    async def _in_thread(self, work: Callable[[], T], *, stop: threading.Event | None = None) -> T:
        self._check_loop()
        self._commands.check()
        await self._commands.time.until_running()
        self._commands.check()
        try:
            return await in_thread(work, self._limiter, on_cancel=None if stop is None else stop.set)
        except OSError:
            self._commands.check()  # a sandbox that was closed meanwhile has no files
            raise


async def _joined(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])
    task.result()
