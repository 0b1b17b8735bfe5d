"""What is kept of the output of a command: head and tail, within a bound, while it streams."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import termios
from typing import Protocol

import anyio

from arl_tangram.managers.capture import Capture
from arl_tangram.uninterrupted import in_thread

CHUNK_BYTES = 1 << 16


class Output(Protocol):
    """One stream of a command: where it writes, and what is kept of it."""

    def take_sink(self) -> int:
        """Return the descriptor that the command writes to; the caller closes it."""
        ...

    async def finish(self) -> Capture:
        """Read what there is at the end of the command, close, and return what is kept."""
        ...

    def close(self) -> None:
        """Close without reading; idempotent."""
        ...


class PipeOutput:
    """Reads a pipe on the event loop as the command writes; nothing beyond the bound is kept."""

    def __init__(self, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._capture = Capture(limit)
        self._source, self._sink = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._source, False)  # its end only: the command's must block
        self._loop.add_reader(self._source, self._read)

    def take_sink(self) -> int:
        """Return the descriptor that the command writes to; the caller closes it."""
        sink, self._sink = self._sink, -1
        return sink

    async def finish(self) -> Capture:
        """Read what is in the pipe now; what a process left behind writes later has no reader."""
        if self._source >= 0:
            waiting = array.array("i", [0])
            fcntl.ioctl(self._source, termios.FIONREAD, waiting)
            left = waiting[0]
            while left > 0 and (got := self._read(left)):
                left -= got
        self.close()
        return self._capture

    def close(self) -> None:
        """Close without reading; idempotent."""
        if self._source >= 0:
            self._loop.remove_reader(self._source)
            os.close(self._source)
            self._source = -1
        if self._sink >= 0:
            os.close(self._sink)
            self._sink = -1

    def _read(self, size: int = CHUNK_BYTES) -> int:
        try:
            data = os.read(self._source, min(size, CHUNK_BYTES))
        except BlockingIOError:
            return 0
        if data:
            self._capture.add(data)
        else:
            self._loop.remove_reader(self._source)
        return len(data)


class FileOutput:
    """Lets the command write into a file of the sandbox; head and tail are read at the end."""

    def __init__(self, folder: str, name: str, limit: int, limiter: anyio.CapacityLimiter) -> None:
        """Create the file; blocks."""
        self._limit = limit
        self._limiter = limiter
        # The folder could be swapped for a link by what runs in the sandbox: never follow one.
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(name, flags, 0o600, dir_fd=place)
        finally:
            os.close(place)

    def take_sink(self) -> int:
        """Return the descriptor that the command writes to; the caller closes it."""
        return os.dup(self._file)

    async def finish(self) -> Capture:
        """Read head and tail of the file, at most `limit` bytes."""
        capture = await in_thread(self._read, self._limiter)
        self.close()
        return capture

    def close(self) -> None:
        """Close; idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _read(self) -> Capture:
        size = os.fstat(self._file).st_size
        capture = Capture(self._limit)
        capture.add(os.pread(self._file, self._limit // 2, 0))
        rest = min(max(size - capture.total, 0), self._limit - self._limit // 2)
        skipped = max(size - capture.total - rest, 0)
        capture.add(os.pread(self._file, rest, size - rest))
        capture.total += skipped
        return capture
