"""Starts a server as processes of its own, keeps the end of what it prints, and ends all that it has started.

A keeper stands between: it adopts what leaves the server's group, kills everything before it exits itself, and dies
with the trainer. One server has one keeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import anyio

from arl_tangram.errors import RestoreError
from arl_tangram.managers.channel import Channel
from arl_tangram.managers.environment import SANDBOX_VARIABLE, inherited
from arl_tangram.managers.host.owner import kill_marked, new_name
from arl_tangram.managers.local.isolation import without_bwrap
from arl_tangram.managers.local.keeper import children
from arl_tangram.uninterrupted import finish_anyway, in_thread, unstoppable

KILL_LIMIT_S = (
    5.0  # for the keeper to kill everything: a driver takes back the memory of a GPU before a process is gone
)
KEPT_BYTES = 1 << 16
TOLD_LINES = 12
_PIPE_BYTES = 1 << 20  # so that a server which prints much does not wait for a busy event loop
_COMMAND = "1"

# What launchers of distributed training set for the trainer, and servers would take for their own.
_OF_THE_TRAINER = frozenset({
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
})  # fmt: skip
_OF_ITS_LAUNCHER = "TORCHELASTIC_"


class Server:
    """One server process with everything that it starts; for one event loop, on whose thread it is started.

    Args:
        name: of the service, for messages.
        argv: the command; no shell is involved.
        env: variables on top of this process's own, without those of distributed training and of visible GPUs.
    """

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._name = name
        self._argv = tuple(argv)
        self._env = {**_environment(os.environ), **env}
        self._run: _Run | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self._run is not None and not self._run.ended.done()

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it is alive, as far as can be told."""
        return self._run is None or self._run.gone.done()

    @property
    def ended(self) -> asyncio.Future[int | None]:
        """Done when the server itself has ended: its exit code, 128 and more for a signal; None if it cannot be told.

        Must not be cancelled.

        Raises:
            RuntimeError: it was never started.
        """
        if self._run is None:
            raise RuntimeError(f"{self._name}: its server was never started")
        return self._run.ended

    def tail(self) -> str:
        """Return the last lines that it printed, or why it did not start."""
        return self._run.tail() if self._run is not None else ""

    async def start(self) -> None:
        """Start it, again if it has ended; that its program cannot be started is told by `ended` and `tail`.

        Cancelled, nothing is left of it.

        Raises:
            RestoreError: nothing could be started.
        """
        if self.is_alive:
            return
        await self.stop(0)
        around = await in_thread(_look_around, anyio.CapacityLimiter(1))
        try:
            run = self._run = _Run(self._argv, self._env, around)
        except OSError as error:
            raise RestoreError(f"{self._name}: its server cannot be started: {error}") from error
        try:
            await asyncio.wait([run.ready, run.gone], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.stop(0)
            raise

    async def stop(self, grace_s: float) -> bool:
        """End it: ask with SIGTERM, then kill everything that it has started; cancelling takes effect only then.

        Bounded by `grace_s` and a few seconds. Nothing if there is none.

        Args:
            grace_s: how long it may take to end by itself; 0 kills at once.

        Returns:
            Whether it is gone; what the kernel does not kill now, another call tries again.
        """
        if self._run is not None and not self._run.gone.done():
            await finish_anyway(self._run.stop(grace_s))
        return self.is_gone


class _Around(NamedTuple):
    """What is looked up off the event loop.

    Attributes:
        keeper: the command of a keeper.
        folder: where this process is, and the server begins.
    """

    keeper: tuple[str, ...]
    folder: str


class _Run:
    """One life of a server."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], around: _Around) -> None:
        """Start it; raises OSError if there is no keeper for it."""
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[int | None] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._limiter = anyio.CapacityLimiter(1)
        self._mark = f"{new_name()}.service"  # by which the next start finds it, if this one and the keeper were killed
        self._argv = argv
        self._folder = around.folder
        self._hung_up = False
        self._kept = bytearray()
        self._complaint = ""
        self._sweeping: asyncio.Task[None] | None = None
        with contextlib.ExitStack() as stack:
            self._reading, writing = os.pipe()
            for end in (self._reading, writing):
                stack.callback(os.close, end)
            os.set_blocking(self._reading, False)
            with contextlib.suppress(OSError):  # more than this user may have
                fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            sinks = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), os.dup(writing)]
            for end in sinks:
                stack.callback(os.close, end)
            env_of_keeper = inherited(os.environ) | {SANDBOX_VARIABLE: self._mark}
            self._channel = Channel(around.keeper, env=env_of_keeper, entrances=())
            stack.pop_all()
        self._channel.on_reply = self._hear
        self._channel.exited.add_done_callback(self._keeper_ended)
        self._loop.add_reader(self._reading, self._read)
        self._channel.send(self._request(env), [*sinks, writing])

    def tail(self) -> str:
        lines = self._kept.decode(errors="replace").strip().splitlines()[-TOLD_LINES:]
        return "\n".join([*([self._complaint] if self._complaint else []), *lines])

    async def stop(self, grace_s: float) -> None:
        if grace_s > 0 and not self.ended.done():
            await in_thread(partial(_terminate, self._channel.pid), self._limiter)
            await asyncio.wait([self.ended], timeout=grace_s)
        self._hang_up()
        await asyncio.wait([self.gone], timeout=KILL_LIMIT_S)
        if not self.gone.done():
            self._hung_up = False  # so that what it has not killed is looked for
            self._channel.kill()
            await asyncio.wait([self.gone], timeout=KILL_LIMIT_S)

    def _hang_up(self) -> None:
        """Let the keeper kill everything and exit."""
        self._hung_up = True
        self._channel.close()

    def _request(self, env: Mapping[str, str]) -> list[bytes]:
        variables = {**env, SANDBOX_VARIABLE: self._mark}
        words = ["spawn", _COMMAND, self._folder, str(len(self._argv)), *self._argv]
        return [os.fsencode(field) for field in (*words, *(f"{name}={value}" for name, value in variables.items()))]

    def _hear(self, words: list[str]) -> None:
        match words:
            case ["ready"]:
                self.ready.set_result(None)
            case ["done", _, code, *_]:
                self._end(int(code))
            case ["failed", _, number, subject]:
                what = self._argv[0] if subject == "program" else self._folder
                self._complaint = f"{what!r}: {os.strerror(int(number))}"
                self._end(None)
            case _:
                pass

    def _end(self, code: int | None) -> None:
        if not self.ended.done():
            self.ended.set_result(code)
        self._hang_up()  # what it has left behind must not live longer

    def _keeper_ended(self, _: asyncio.Future[None]) -> None:
        if not self._hung_up:
            self._complaint = self._channel.complaint()
        self._channel.release()
        self._read()  # a pipe holds no more than is read at once
        self._loop.remove_reader(self._reading)
        os.close(self._reading)
        self._reading = -1
        if self._hung_up:
            self._set_gone()
        else:
            self._sweeping = unstoppable(self._sweep())

    async def _sweep(self) -> None:
        """Kill what a keeper that was killed itself had to keep."""
        try:
            await in_thread(partial(kill_marked, self._mark.__eq__), self._limiter)
        finally:
            self._set_gone()

    def _set_gone(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        if not self.gone.done():
            self.gone.set_result(None)

    def _read(self) -> None:
        """Take in what was printed, and keep the end of it."""
        try:
            data = os.read(self._reading, _PIPE_BYTES)
        except BlockingIOError:
            return
        if not data:  # nobody can print any more
            self._loop.remove_reader(self._reading)
        self._kept += data
        del self._kept[:-KEPT_BYTES]


def _terminate(keeper: int) -> None:
    """Ask what the keeper has started to end: it leads a group."""
    for pid in children(keeper):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGTERM)


def _look_around() -> _Around:
    keeper = without_bwrap("").keeper
    try:
        return _Around(keeper, os.getcwd())
    except FileNotFoundError:  # it was removed
        return _Around(keeper, "/")


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if name not in _OF_THE_TRAINER and not name.startswith(_OF_ITS_LAUNCHER)
    }
