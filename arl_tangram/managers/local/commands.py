"""Runs and kills the commands of one sandbox through its keeper."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio

from arl_tangram.errors import SandboxLostError
from arl_tangram.managers.channel import Channel, close_all, memory_file
from arl_tangram.managers.ended import Ended, NotStartedError
from arl_tangram.managers.local.output import FileOutput, Output, PipeOutput
from arl_tangram.managers.running_time import RunningTime
from arl_tangram.uninterrupted import finish_anyway, in_thread, unstoppable

KILL_REPLY_S = 1.5  # the keeper gives up after 1 s
KILLED_CODE = 137
INLINE_STDIN_BYTES = 1 << 16  # more is copied off the loop

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Command:
    """A command, checked and resolved."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    stdin: bytes
    timeout_s: float | None
    max_output_bytes: int
    spill_folder: str | None


@dataclass(slots=True)
class _Status:
    exit_code: int
    start_s: float
    end_s: float
    cpu_s: float


class Commands:
    """The running commands of one sandbox.

    Args:
        channel: the connection to the keeper, which has just been started.
        sandbox_id: the name in messages.
        force: kills all but the keeper by stronger means; blocking; returns whether it could.
        destroy: kills everything, the keeper too; blocking.
        rush: lets what is being killed have all the time that it needs for that, even if it is suspended.
        limiter: the threads for `force` and `destroy`.

    Attributes:
        time: stands still while the sandbox is suspended, and with it the time limits of commands.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        sandbox_id: str,
        force: Callable[[], bool],
        destroy: Callable[[], None],
        rush: Callable[[], AbstractContextManager[None]],
        limiter: anyio.CapacityLimiter,
    ) -> None:
        self._id = sandbox_id
        self._force = force
        self._destroy = destroy
        self._rush = rush
        self._limiter = limiter
        self._numbers = itertools.count(1)
        self._running: dict[str, asyncio.Future[_Status]] = {}
        self._kills: dict[str, asyncio.Future[bool]] = {}
        self._left = False
        self._lost: str | None = None
        self._ending: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self.time = RunningTime()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.channel = channel
        self.channel.on_reply = self._on_reply
        self.channel.exited.add_done_callback(self._on_exit)

    @property
    def may_be_alive(self) -> bool:
        """Whether a command, or something that one has left behind, may be alive."""
        return bool(self._running) or self._left

    def check(self) -> None:
        """Raise `SandboxLostError` if the sandbox is dead."""
        if self._lost is not None:
            raise SandboxLostError(f"sandbox {self._id} is lost: {self._lost}")

    async def run(
        self, command: Command, ran: Callable[[float, float, float], None], check_open: Callable[[], object]
    ) -> Ended:
        """Run a command to its end; cancelling, and the time limit, kill it with all that it started first.

        `ran` is told start, end and CPU seconds of the command whichever way it ends. `check_open` raises if no
        command may start any more; it is asked right before this one does.
        """
        self.check()
        number = str(next(self._numbers))
        request = _spawn_request(number, command)
        outputs: list[Output] = []
        status: asyncio.Future[_Status] = self._loop.create_future()
        try:
            spilled = await self._open_outputs(outputs, command, number)
            descriptors = [await self._open_stdin(command.stdin)]
            try:
                self.check()
                check_open()
                for output in outputs:
                    descriptors.append(output.take_sink())  # noqa: PERF401 - each must be closed
            except BaseException:
                close_all(descriptors)
                raise
            self._running[number] = status
            stood_s = self.time.stood_s()
            self.channel.send(request, descriptors)
            timed_out = await self._wait_or_kill(number, status, command.timeout_s)
            ended = await status
            stood_s = self.time.stood_s() - stood_s
            stdout, stderr = [await output.finish() for output in outputs]
        finally:
            self._running.pop(number, None)
            if status.done() and status.exception() is None:
                ran(status.result().start_s, status.result().end_s, status.result().cpu_s)
            for output in outputs:
                output.close()
        code = KILLED_CODE if timed_out else ended.exit_code
        return Ended(code, ended.start_s, ended.end_s, ended.cpu_s, timed_out, stdout, stderr, spilled, stood_s)

    async def kill(self, number: str = "*") -> None:
        """Kill a command with all that it started, or everything; bounded, a few seconds at most.

        Raises:
            SandboxLostError: something survived, and the sandbox was destroyed.
        """
        self.check()
        with self._rush():
            for attempt in range(2):
                if await self._ask_to_kill(number):
                    return
                self.check()
                if attempt == 0 and not await in_thread(self._force, self._limiter):
                    break
            self._lose("something that its commands started could not be killed")
            await self._end()
        self.check()

    def pin(self, core_ids: Sequence[int]) -> None:
        """Let the keeper set the affinity of everything, before any later command."""
        self.channel.send([b"pin", ",".join(map(str, core_ids)).encode()])

    async def aclose(self) -> None:
        """Kill everything, the keeper included; bounded."""
        self._lose("it was closed")
        self.channel.close()
        if not await _within(self.channel.exited, KILL_REPLY_S):
            await self._end()
        elif self._ending is not None:
            await asyncio.wait([self._ending])
        self._fail_all()
        self.channel.release()

    # what happens

    async def _open_outputs(self, outputs: list[Output], command: Command, number: str) -> tuple[str, str] | None:
        """Fill `outputs`, which the caller closes, with standard output and error; return the paths of files."""
        folder = command.spill_folder
        if folder is None:
            outputs.extend(PipeOutput(command.max_output_bytes) for _ in range(2))
            return None
        names = [f"{number}.{stream}" for stream in ("stdout", "stderr")]

        def open_files() -> None:
            outputs.extend(FileOutput(folder, name, command.max_output_bytes, self._limiter) for name in names)

        try:
            await in_thread(open_files, self._limiter)
        except OSError:
            self.check()  # a sandbox that was closed meanwhile has no folders
            raise
        return (f"{folder}/{names[0]}", f"{folder}/{names[1]}")

    async def _open_stdin(self, data: bytes) -> int:
        if len(data) <= INLINE_STDIN_BYTES:
            return memory_file(data)
        opened: list[int] = []
        try:
            await in_thread(lambda: opened.append(memory_file(data)), self._limiter)
        except BaseException:
            for fd in opened:
                os.close(fd)
            raise
        return opened[0]

    async def _wait_or_kill(self, number: str, status: asyncio.Future[_Status], timeout_s: float | None) -> bool:
        """Wait for the end of a command; kill it when the time is up, which is returned, or when cancelled."""
        try:
            done = await self.time.wait(status, timeout_s)
            if not done:
                await finish_anyway(self.kill(number))
        except asyncio.CancelledError:
            with contextlib.suppress(SandboxLostError):
                await finish_anyway(self.kill(number))
            raise
        return not done

    async def _ask_to_kill(self, number: str) -> bool:
        token = str(next(self._numbers))
        clean = self._kills[token] = self._loop.create_future()
        self.channel.send([b"kill", token.encode(), number.encode()])
        try:
            return await _within(clean, KILL_REPLY_S) and clean.result()
        finally:
            del self._kills[token]

    def _on_reply(self, words: list[str]) -> None:
        match words:
            case ["done", number, code, start, end, cpu, left]:
                self._left = left == "1"
                _resolve(self._running.get(number), _Status(int(code), float(start), float(end), float(cpu)))
            case ["failed", number, errno, subject]:
                _fail(self._running.get(number), NotStartedError(int(errno), subject))
            case ["killed", token, clean, left]:
                self._left = left == "1"
                _resolve(self._kills.get(token), clean == "1")
            case ["ready"]:
                _resolve(self.ready, None)
            case _:
                self._lose("its keeper answered nonsense")

    def _on_exit(self, _: asyncio.Future[None]) -> None:
        """The keeper has ended; unless that was asked for, kill what it had to keep before anybody hears of it."""
        if self._lost is None:
            complaint = self.channel.complaint()
            self._lose(f"its keeper ended: {complaint}" if complaint else "its keeper ended")
            self._ending = unstoppable(self._end())

    def _lose(self, reason: str) -> None:
        if self._lost is None:
            self._lost = reason
            self.time.go_on()  # who waits for that is told

    async def _end(self) -> None:
        with self._rush():
            await in_thread(self._destroy, self._limiter)
            self.channel.kill()
            await _within(self.channel.exited, KILL_REPLY_S)
        self._left = False
        self._fail_all()

    def _fail_all(self) -> None:
        error = SandboxLostError(f"sandbox {self._id} is lost: {self._lost}")
        _fail(self.ready, error)
        for future in self._running.values():
            _fail(future, error)
        for killing in self._kills.values():
            _resolve(killing, False)


def _spawn_request(number: str, command: Command) -> list[bytes]:
    env = {**command.env, "ARL_TANGRAM_EXEC": number}
    fields = [b"spawn", number.encode(), os.fsencode(command.cwd), str(len(command.argv)).encode()]
    fields += map(os.fsencode, command.argv)
    fields += (os.fsencode(f"{name}={value}") for name, value in env.items())
    return fields


async def _within(future: asyncio.Future[Any], limit_s: float) -> bool:
    done, _ = await asyncio.wait([future], timeout=limit_s)
    return bool(done)


def _resolve(future: asyncio.Future[T] | None, value: T) -> None:
    if future is not None and not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any] | None, error: Exception) -> None:
    if future is not None and not future.done():
        future.set_exception(error)
        future.exception()  # nobody may be waiting
