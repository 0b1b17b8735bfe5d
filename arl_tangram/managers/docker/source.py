"""Chunks that are sent to a daemon, and what went wrong on this side of it."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator


class Source:
    """Chunks to be sent, and what iterating over them raised: the client library tells only that sending failed."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = chunks
        self._error: Exception | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._chunks:
                yield chunk
        except Exception as error:
            self._error = error
            raise

    def check(self) -> None:
        """Raise what was raised."""
        if self._error is not None:
            raise self._error
