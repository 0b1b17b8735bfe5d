"""A stream of bytes from the event loop to one thread that reads it, with back pressure."""

from __future__ import annotations

import asyncio

_CHUNKS_AHEAD = 8


class Feed:
    """Hands chunks over; made on the loop, read on a thread."""

    def __init__(self) -> None:
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(_CHUNKS_AHEAD)
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._has_ended = False

    async def put(self, chunk: bytes) -> bool:
        """Hand a chunk over once there is room, an empty one for the end; return whether it is wanted."""
        if not self._is_closed:
            await self._chunks.put(chunk)
        return not self._is_closed

    def close(self) -> None:
        """Show the reader the end, in place of what it has not read; nobody waits for room any more. Idempotent."""
        self._is_closed = True
        while not self._chunks.empty():
            self._chunks.get_nowait()
        self._chunks.put_nowait(b"")

    def read(self, size: int, /) -> bytes:
        """Return the next chunk, of whatever size; none at the end."""
        if not self._has_ended:
            chunk = asyncio.run_coroutine_threadsafe(self._chunks.get(), self._loop).result()
            self._has_ended = not chunk
            return chunk
        return b""
