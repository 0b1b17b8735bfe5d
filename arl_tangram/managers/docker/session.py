"""One session: a shell in a container that runs commands one after the other, over the streams of an exec."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
import time
from collections.abc import Collection, Mapping

import anyio

from arl_tangram.managers.capture import Capture
from arl_tangram.managers.docker import script
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.daemon import Daemon, Stream
from arl_tangram.managers.docker.exchange import Exchange, cpu_seconds
from arl_tangram.managers.docker.group import SessionGroup
from arl_tangram.managers.docker.guards import Guard
from arl_tangram.managers.docker.sentinel import Report, ReportFinder
from arl_tangram.managers.running_time import RunningTime
from arl_tangram.uninterrupted import in_thread

OPEN_LIMIT_S = 60.0
FEED_LIMIT_S = 60.0  # and for the data:
FEED_BYTES_S = 1 << 20  # on the little time of an idle container
POLL_S = 0.005  # the daemon prints the first output of a process before it tells its number, by very little
YIELD_BYTES = 1 << 18
_COMPLAINT_BYTES = 4096


class SessionError(Exception):
    """A session could not be opened, or has ended; the message says what was heard of it last."""


class Session:
    """A shell in a container; made by `open_session`.

    Attributes:
        number: unique in its container.
        id: the session id of its processes, as the container counts.
        reads_bytes: whether it reads its text byte by byte, so that long text takes long.
        group: its cgroup, if this process can have one.
        own: the processes of the session itself in its cgroup; what is there besides, a command has started.
        left_alive: opened with `clean`, what could not be killed.
        is_spoilt: whether it may take what it is sent next for something else.
        is_killed: whether we have ended it, with all that it ran.
        interrupted: why its command has no known end, if it was hung up for that.
        gone: done when its stream has ended.
    """

    def __init__(
        self,
        number: int,
        stream: Stream,
        secret: str,
        *,
        guard: Guard,
        group: SessionGroup | None,
        clock: RunningTime,
    ) -> None:
        self.number = number
        self.id = 0
        self.reads_bytes = False
        self.group = group
        self.own: frozenset[int] = frozenset()
        self.left_alive: list[str] | None = None
        self.is_spoilt = False
        self.is_killed = False
        self.interrupted: str | None = None
        self._stream = stream
        self._secret = secret
        self._guard = guard
        self._clock = clock
        self._finders = {1: ReportFinder(secret), 2: ReportFinder(secret)}
        self._exchange: Exchange | None = None
        self._loose = bytearray()
        self._cpu_s = 0.0
        loop = asyncio.get_running_loop()
        self._hello: asyncio.Future[None] = loop.create_future()
        self._cleaned: asyncio.Future[None] = loop.create_future()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._takes: asyncio.Future[None] = loop.create_future()
        self._took: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self._refuses = False
        self._writing: asyncio.Task[None] | None = None
        self._reading = loop.create_task(self._read(), name=f"session {number}")

    def __repr__(self) -> str:
        return f"<Session {self.number}{' ended' if self.gone.done() else ''}>"

    @property
    def exec_id(self) -> str:
        """The daemon's name for it."""
        return self._stream.exec_id

    @property
    def is_usable(self) -> bool:
        """Whether it can run a command now."""
        return not self.gone.done() and not self.is_spoilt and self._exchange is None and self._writing is None

    @property
    def complaint(self) -> str:
        """What was printed before it was ready, in one line: the daemon tells there why it could not start it."""
        return " ".join(bytes(self._loose).decode(errors="replace").split())

    def begin(self, text: bytes, limit: int, *, parts: str = "Ee") -> Exchange:
        """Send the text of a command, and return what becomes of it.

        Args:
            text: what a function of `script` made; `script.END` follows if it is one of the parts.
            limit: bytes kept of each stream.
            parts: the reports that its end consists of; `z` is a `Z` on standard error.

        Raises:
            SessionError: the session has ended.
        """
        if not self.is_usable:
            raise SessionError(self.complaint)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        exchange = self._exchange = Exchange(Capture(limit), Capture(limit), time.monotonic(), done, set(parts))
        self._writing = asyncio.get_running_loop().create_task(self._write(text + script.END if "E" in parts else text))
        return exchange

    async def feed(self, data: bytes, path: str, stale: Collection[str] = ()) -> None:
        """Write data to a file of the container; stale ones are removed first.

        Cancelled or failed, it leaves a session that must be ended: it could take the rest of the data for commands.

        Raises:
            OSError: the file cannot be written.
            SessionError: the session has ended, or does not take it.
        """
        if not self.is_usable:
            raise SessionError(self.complaint)
        self.is_spoilt = True
        feeding = asyncio.get_running_loop().create_task(self._feed(data, path, stale))
        limit_s = FEED_LIMIT_S + len(data) / FEED_BYTES_S
        try:
            if not await self._clock.wait(feeding, limit_s):
                raise SessionError(f"it has not taken {len(data)} bytes in {limit_s:.0f} s")
            feeding.result()
        finally:
            feeding.cancel()
            if feeding.done() and not feeding.cancelled():
                feeding.exception()  # heard
        self.is_spoilt = False

    async def _feed(self, data: bytes, path: str, stale: Collection[str]) -> None:
        loop = asyncio.get_running_loop()
        self._takes, self._took = loop.create_future(), loop.create_future()
        try:
            await self._stream.write(script.take(len(data), path, sorted(stale)))
            await self._until(self._takes)
            writing = loop.create_task(self._stream.write(data))
            try:  # nobody may be reading it any more
                await asyncio.wait([writing, self._took, self.gone], return_when=asyncio.FIRST_COMPLETED)
                if writing.done():
                    writing.result()
            finally:
                writing.cancel()
        except DaemonError as error:  # the stream has ended, and what it tells last is still to be read
            await asyncio.wait([self._took, self.gone], timeout=OPEN_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
            if not self._refuses:
                raise SessionError(str(error)) from error
        await self._until(self._took, None)
        if self._refuses:
            raise OSError(errno.ENOSPC, "the container cannot keep the input", path)

    async def end(self, limit_s: float) -> bool:
        """End an idle session, and nothing else; return whether it ended in time."""
        if not self.gone.done():
            with contextlib.suppress(DaemonError):
                await self._stream.write(script.end())
            await asyncio.wait([self.gone], timeout=limit_s)
        return self.gone.done()

    def hang_up(self, *, killed: bool = False, reason: str | None = None) -> None:
        """End its streams at once: unless it has ended, its guard kills everything in the container.

        Args:
            killed: whether that is what its command ends by.
            reason: why its command has no known end.
        """
        self.interrupted = self.interrupted or reason
        self.is_killed = self.is_killed or killed
        self._stream.close()
        self._fail("it was closed")
        self._reading.cancel()
        if self._writing is not None:
            self._writing.cancel()

    async def settled(self) -> None:
        """Wait for its tasks, after `hang_up`."""
        tasks = [task for task in (self._reading, self._writing) if task is not None]
        await asyncio.wait(tasks)

    # opening

    async def open(self, daemon: Daemon, limiter: anyio.CapacityLimiter, *, clean: bool) -> None:
        """Wait for its first word, put it into its cgroup, let it begin, and wait until it is ready.

        Raises:
            SessionError: it ended, or is late.
            OSError: the cgroup is gone.
            DaemonError: the daemon does not answer.
        """
        if self.group is not None:
            await self._until(self._hello)
            pid = await self._pid(daemon)
            group = self.group
            await in_thread(lambda: group.enter(pid), limiter)
        await self._stream.write(
            script.opening(self._secret, self._guard.path, clean=clean, tells_children=self.group is None)
        )
        if clean:
            await self._until(self._cleaned)
        await self._until(self._ready)
        if self.group is not None:
            self.own = frozenset(self.group.processes())

    async def _pid(self, daemon: Daemon) -> int:
        for _ in range(round(OPEN_LIMIT_S / POLL_S)):
            state = await daemon.exec_state(self.exec_id)
            if state.pid:
                return state.pid
            if not state.running:
                break
            await asyncio.sleep(POLL_S)
        raise SessionError("it ended before it began")

    async def _until(self, future: asyncio.Future[None], limit_s: float | None = OPEN_LIMIT_S) -> None:
        if not await self._clock.wait(future, limit_s, self.gone):
            ended = self.gone.done()
            raise SessionError(self.complaint or ("it ended" if ended else f"it is not ready after {limit_s} s"))

    # what arrives

    async def _write(self, text: bytes) -> None:
        try:
            await self._stream.write(text)
        except DaemonError:
            return  # the end of the stream tells
        finally:
            self._writing = None

    async def _read(self) -> None:
        unyielded = 0
        try:
            while (piece := await self._stream.read()) is not None:
                stream, data = piece
                for part in self._finders[stream].feed(data):
                    if isinstance(part, Report):
                        self._on_report(stream, part)
                    else:
                        self._on_output(stream, part)
                unyielded += len(data)
                if unyielded > YIELD_BYTES:  # reading what is there already does not wait
                    unyielded = 0
                    await asyncio.sleep(0)
            for stream, finder in self._finders.items():
                self._on_output(stream, finder.finish())
        finally:
            self._fail("its stream ended")

    def _on_output(self, stream: int, data: bytes) -> None:
        if self._exchange is not None:
            self._exchange.capture(stream).add(data)
        elif not self._ready.done() and len(self._loose) < _COMPLAINT_BYTES:
            self._loose += data[:_COMPLAINT_BYTES]
            if self._loose.startswith(script.HELLO):
                del self._loose[: len(script.HELLO)]
                _resolve(self._hello)

    def _on_report(self, stream: int, report: Report) -> None:
        exchange = self._exchange
        match report.kind, report.words:
            case "C", pids:
                self.left_alive = [*pids]
                _resolve(self._cleaned)
            case "R", (number, manner):
                self.id = int(number)
                self.reads_bytes = manner == "bytes"
                _resolve(self._ready)
            case "T", ():
                _resolve(self._takes)
            case (("U" | "V"), ()):
                self._refuses = report.kind == "V"
                _resolve(self._took)
            case "S", (uptime,) if exchange is not None:
                exchange.begin(float(uptime))
            case "F", (number, subject) if exchange is not None:
                exchange.refusal = (int(number), subject)
            case "E", (code, uptime, *children) if exchange is not None:
                exchange.end(int(code), float(uptime), self._cpu_since_last(report.times))
                exchange.children = None if children == ["?"] else frozenset(children)
                self._on_part(exchange, "E")
            case "e", () if exchange is not None:
                self._on_part(exchange, "e")
            case "Z", (size,) if exchange is not None:
                exchange.capture(stream).total = int(size)
                self._on_part(exchange, "Z" if stream == 1 else "z")
            case _:
                pass  # `X`: the end of the stream follows

    def _cpu_since_last(self, times: tuple[str, ...]) -> float:
        before_s, self._cpu_s = self._cpu_s, cpu_seconds(times[-1]) if times else 0.0
        return max(0.0, self._cpu_s - before_s)

    def _on_part(self, exchange: Exchange, part: str) -> None:
        exchange.parts.discard(part)
        if not exchange.parts:
            self._exchange = None
            _resolve(exchange.done)

    def _fail(self, reason: str) -> None:
        _resolve(self.gone)
        self._guard.end()
        exchange, self._exchange = self._exchange, None
        if exchange is not None and not exchange.done.done():
            exchange.done.set_exception(SessionError(reason))
            exchange.done.exception()  # nobody may be waiting


async def open_session(
    daemon: Daemon,
    container_id: str,
    *,
    number: int,
    env: Mapping[str, str],
    guard: Guard,
    group: SessionGroup | None,
    limiter: anyio.CapacityLimiter,
    clock: RunningTime,
    clean: bool = False,
) -> Session:
    """Open a session; if that fails or is cancelled, what is left of it does nothing and ends.

    Args:
        daemon: the daemon.
        container_id: the container.
        number: unique in the container.
        env: variables of its commands, on top of those of the container.
        guard: what is known of its guard.
        group: the cgroup to put it into.
        limiter: of the threads for what blocks.
        clock: of the sandbox.
        clean: kill everything else in the container first; see `Session.left_alive`.

    Raises:
        SessionError: it ended, or is late.
        OSError: the cgroup is gone.
        DaemonError: the daemon refuses, or does not answer.
    """
    stream = await daemon.open_exec(container_id, script.session_argv(), env=env, workdir="/")
    session = Session(number, stream, secrets.token_hex(16), guard=guard, group=group, clock=clock)
    try:
        await session.open(daemon, limiter, clean=clean)
    except BaseException:
        try:
            if group is not None:  # first, so that its guard, which may have begun, does not kill all others
                await in_thread(lambda: group.kill() and group.remove(), limiter)
        finally:
            session.hang_up()
        raise
    return session


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
