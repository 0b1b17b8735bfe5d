"""Write events to a JSONL file from a thread of its own, so that the event loop never waits for the disk."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import threading
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from queue import Empty, SimpleQueue

import anyio
import anyio.to_thread

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.events import Event
from arl_tangram.model.topology import Topology
from arl_tangram.trace.encode import EventEncoder, footer_line, header_line
from arl_tangram.trace.format import Footer, Header

_log = logging.getLogger(__name__)

MONOTONIC = "monotonic clock of the event loop, seconds"

# The thread gathers events for this long before it writes, so that a busy loop is not interrupted for each of them.
_GATHER_S = 0.05
# Encoding holds the interpreter and a write lets go of it: small batches, unless the queue is filling up.
_SMALL_BATCH = 512
_LARGE_BATCH = 4096


@dataclass(frozen=True, slots=True)
class JsonlStatistics:
    """What became of the events that a sink was given.

    Attributes:
        written: events that are in the file.
        queued: events that the thread has not taken yet.
        dropped: events that came while the queue was full, or after closing.
        lost: events that the disk did not take or that could not be encoded.
    """

    written: int
    queued: int
    dropped: int
    lost: int


class JsonlSink:
    """Write a trace; `trace.format` describes the file, `read_trace` reads it back.

    An existing file is overwritten. `write` hands the event to a daemon thread through a bounded
    queue and drops it if that is full: that is logged once, and the footer counts what was dropped.
    Errors of the disk are logged once and counted; they never reach the caller, and writing goes on
    when the disk has room again. A forked child writes nothing.

    Args:
        path: the file; its folder must exist.
        topology: the dimensions of the runtime.
        policy: name of the scheduling policy, for the header.
        clock: what the times of the events are seconds of, for the header.
        queue_size: the most events that wait for the thread.
        close_timeout_s: the longest that closing waits for the thread.

    Raises:
        ConfigurationError: the file cannot be opened, or another run is writing it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        topology: Topology,
        policy: str,
        clock: str = MONOTONIC,
        queue_size: int = 65_536,
        close_timeout_s: float = 5.0,
    ) -> None:
        if queue_size < 1:
            raise ConfigurationError(f"trace {path}: queue_size takes an integer from 1, not {queue_size!r}")
        self._path = path
        self._fd = _open(path)
        self._policy = policy
        self._clock = clock
        self._created_unix_s = time.time()
        self._topology = topology
        self._header = ""
        self._encoder = EventEncoder(topology)
        self._queue: SimpleQueue[Event | None] = SimpleQueue()
        self._queue_size = queue_size
        self._close_timeout_s = close_timeout_s
        self._accepting = True
        self._closing = threading.Event()
        self._whole_bytes = 0  # the file's size without a line that was written in part
        self._broken = False
        self._warned = False
        self._written = 0
        self._dropped = 0
        self._lost = 0
        _sinks[self._fd] = self
        self._thread: threading.Thread | None = threading.Thread(
            target=self._run, name="arl_tangram-trace", daemon=True
        )
        self._thread.start()

    def write(self, event: Event) -> None:
        """Queue one event for the thread; drop and count it if the queue is full or the sink closed."""
        if self._accepting and self._queue.qsize() < self._queue_size:
            self._queue.put(event)
        else:
            self._drop()

    def statistics(self) -> JsonlStatistics:
        """Return what became of the events so far."""
        return JsonlStatistics(self._written, self._queue.qsize(), self._dropped, self._lost)

    async def aclose(self) -> None:
        """Write what is queued and the footer, for at most `close_timeout_s`; a disk that hangs is logged.

        Cancelling stops the waiting, not the writing.
        """
        if self._accepting:
            self._accepting = False
            self._closing.set()
            self._queue.put(None)
        thread = self._thread
        if thread is None:
            return
        # Waits in a thread, because the limit is real time even where a test drives the loop's clock.
        await anyio.to_thread.run_sync(
            thread.join, self._close_timeout_s, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )
        if thread.is_alive():
            _log.warning(
                "trace %s: not written to its end within %g s; more than %d events may be missing",
                self._path,
                self._close_timeout_s,
                self._queue.qsize(),
            )

    def _run(self) -> None:
        """Write until the end mark; the body of the thread."""
        try:
            self._append("", 0)
            ended = False
            while not ended:
                first = self._queue.get()
                self._closing.wait(_GATHER_S)
                ended = self._drain(first)
            self._append(footer_line(Footer(self._written, self._dropped, self._lost)), 0)
        finally:
            _sinks.pop(self._fd, None)
            os.close(self._fd)

    def _drain(self, event: Event | None) -> bool:
        """Write batch after batch until the queue is empty; return whether the end mark was met."""
        while event is not None:
            limit = min(max(_SMALL_BATCH, self._queue.qsize() // 8), _LARGE_BATCH)
            lines: list[str] = []
            empty = False
            while event is not None and not empty and len(lines) < limit:
                self._encode(event, lines)
                try:
                    event = self._queue.get_nowait()
                except Empty:
                    empty = True
            self._append("".join(lines), len(lines))
            if empty:
                return False
        return True

    def _encode(self, event: Event, lines: list[str]) -> None:
        try:
            lines.append(self._encoder.line(event))
        except Exception as error:  # noqa: BLE001 - one event that cannot be written must not end the trace
            self._lose(1, error)

    def _append(self, text: str, events: int) -> None:
        """Write whole lines, or none of them where the disk refuses."""
        if self._broken:
            self._lost += events
            return
        if self._whole_bytes == 0:
            text = self._first_line() + text
        data = text.encode("ascii")
        try:
            _write_all(self._fd, data)
        except OSError as error:
            self._lose(events, error)
            self._cut()
        else:
            self._whole_bytes += len(data)
            self._written += events

    def _first_line(self) -> str:
        """Return the header; made in the thread, because finding out the version reads files."""
        if not self._header:
            header = Header(_library_version(), self._policy, self._clock, self._created_unix_s, self._topology)
            self._header = header_line(header)
        return self._header

    def _cut(self) -> None:
        """Remove the line that a failed write left in part, so that a later one can go on."""
        try:
            os.ftruncate(self._fd, self._whole_bytes)
        except OSError:
            self._broken = True

    def _drop(self) -> None:
        self._dropped += 1
        if self._accepting and self._dropped == 1:
            _log.warning(
                "trace %s: events are being dropped, because the disk takes them more slowly than they come and "
                "%d wait; the end of the file says how many",
                self._path,
                self._queue_size,
            )

    def _lose(self, events: int, error: Exception) -> None:
        self._lost += events
        if not self._warned:
            self._warned = True
            _log.warning("trace %s: events are being lost: %r", self._path, error)

    def disown(self) -> None:
        """Give the file up in a forked child, where the thread does not exist."""
        self._accepting = False
        self._thread = None
        # The lock belongs to all copies of the descriptor: a child that outlives the run must not keep it.
        os.close(self._fd)


# The sinks of this process by their file descriptor, for the children that it forks.
_sinks: dict[int, JsonlSink] = {}


def _disown_all() -> None:
    for sink in list(_sinks.values()):
        sink.disown()
    _sinks.clear()


os.register_at_fork(after_in_child=_disown_all)


def _open(path: str | os.PathLike[str]) -> int:
    """Open, lock and empty the file; lines are appended, each batch in one place.

    Raises:
        ConfigurationError: it cannot be opened, is no file, or another run is writing it.
    """
    if not isinstance(path, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"trace= takes the path of a file, not {path!r}")
    try:
        # Not blocking: without it, opening a pipe waits for its reader.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot open the trace {os.fspath(path)!r}: {error}") from error
    try:
        _claim(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _claim(fd: int, path: str | os.PathLike[str]) -> None:
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
        raise ConfigurationError(f"cannot write the trace to {os.fspath(path)!r}: not a regular file")
    os.set_blocking(fd, True)
    if not stat.S_ISREG(mode):
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigurationError(f"another run is writing the trace {os.fspath(path)!r}") from None
    except OSError as error:
        _log.debug("trace %s: the file system has no locks: %r", path, error)
    try:
        os.ftruncate(fd, 0)
    except OSError as error:
        raise ConfigurationError(f"cannot empty the trace {os.fspath(path)!r}: {error}") from error


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _library_version() -> str:
    try:
        return version("arl-tangram")
    except PackageNotFoundError:
        return "unknown"
