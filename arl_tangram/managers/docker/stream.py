"""The streams of a process in a container: frames in, pieces of output out, with back pressure."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable

from arl_tangram.managers.docker.answers import DaemonError

HIGH_BYTES = 256 << 10  # beyond this much unread output, the daemon is not read from
WRITE_BYTES = 64 << 10

_HEADER_BYTES = 8  # the stream, three zeros, and the length of what follows as a big-endian number


class Frames:
    """Takes frames apart as they arrive and keeps the pieces until they are read.

    It is what aiohttp calls a payload parser. A frame is handed on in pieces, so neither a long frame nor half of one
    is ever kept. What cannot be a frame ends the stream.
    """

    def __init__(self, transport: asyncio.Transport, on_first: Callable[[], None]) -> None:
        self._transport = transport
        self._on_first: Callable[[], None] | None = on_first
        self._header = b""
        self._stream = 0
        self._left = 0
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._unread = 0
        self._waiter: asyncio.Future[None] | None = None
        self.has_ended = False

    async def read(self) -> tuple[int, bytes] | None:
        """Return the next piece and its stream, or None at the end."""
        while not self._pieces:
            if self.has_ended:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        piece = self._pieces.popleft()
        self._unread -= len(piece[1])
        if self._unread <= HIGH_BYTES // 2 and not self._transport.is_closing():
            self._transport.resume_reading()
        return piece

    def end(self, *, discard: bool = False) -> None:
        """End the stream after what has arrived, or at once."""
        self.has_ended = True
        if discard:
            self._pieces.clear()
            self._unread = 0
        self._wake()

    # what aiohttp calls

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take what has arrived; the answer tells aiohttp that all of it is used and more may come."""
        at = 0
        while at < len(data) and not self.has_ended:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                self._pieces.append((self._stream, piece))
                self._unread += len(piece)
            else:
                wanted = _HEADER_BYTES - len(self._header)
                self._header += data[at : at + wanted]
                at += wanted
                if len(self._header) == _HEADER_BYTES:
                    self._begin_frame()
        if self._unread > HIGH_BYTES and not self._transport.is_closing():
            self._transport.pause_reading()
        if self._pieces:
            self._wake()
        return False, b""

    def feed_eof(self) -> None:
        """Learn that the connection has ended."""
        self.end()

    def set_exception(self, _: BaseException, __: BaseException | None = None) -> None:
        """Learn that the connection broke."""
        self.end()

    def is_eof(self) -> bool:
        """Tell whether nothing more will arrive."""
        return self.has_ended

    def _begin_frame(self) -> None:
        stream, zeros, self._left = self._header[0], self._header[1:4], int.from_bytes(self._header[4:])
        self._header = b""
        if stream > 2 or any(zeros):  # not a frame: what follows cannot be told apart any more
            self.end()
            self._transport.abort()
        self._stream = stream or 1

    def _wake(self) -> None:
        if self._on_first is not None:
            on_first, self._on_first = self._on_first, None
            on_first()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ExecStream:
    """The standard streams of one process in a container; made by `Engine.open_exec`.

    Attributes:
        exec_id: the daemon's name for the process.
    """

    def __init__(
        self,
        exec_id: str,
        transport: asyncio.Transport,
        frames: Frames,
        *,
        drain: Callable[[], Awaitable[None]],
        release: Callable[[], None],
    ) -> None:
        self.exec_id = exec_id
        self._transport = transport
        self._frames = frames
        self._drain = drain
        self._release = release
        self._is_closed = False

    async def write(self, data: bytes) -> None:
        """Write to standard input, and wait while too much is under way.

        Raises:
            DaemonError: `gone`: the stream has ended.
        """
        for at in range(0, len(data), WRITE_BYTES):
            if self._is_closed or self._transport.is_closing():
                raise DaemonError("gone", 0, "the stream of the process has ended")
            self._transport.write(data[at : at + WRITE_BYTES])
            try:
                await self._drain()
            except OSError as error:
                raise DaemonError("gone", 0, f"the stream of the process broke: {error}") from error

    async def read(self) -> tuple[int, bytes] | None:
        """Return a piece of output with its stream, 1 or 2; None at the end, whatever ended it.

        Cancelling loses nothing. One task at a time may read. While nobody reads, the process is held up.
        """
        return await self._frames.read()

    def close(self) -> None:
        """Hang up, and drop what was not read; does nothing the second time. It kills nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._frames.end(discard=True)
        # Not close(), which would wait for a daemon that does not read. A transport that its loop has closed after the
        # last of what it had to write knows its loop no more, and does not know that.
        with contextlib.suppress(AttributeError):
            self._transport.abort()
        self._release()
