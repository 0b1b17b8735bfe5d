"""What is kept of a stream of output: its head and its tail, within a bound, while it streams. Pure."""

from __future__ import annotations

from io import BytesIO

_SLACK_BYTES = 1 << 16


class Capture:
    """Keeps the first and the last half of `limit` bytes of a stream of any length.

    The first `limit` bytes are kept together, in a buffer that `content` hands out without a copy. The half of them
    that may belong to the tail goes when the tail is long enough without it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._first = BytesIO()
        self._rest = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take the next piece of the stream."""
        room = self._limit - self.total
        self.total += len(data)
        if room > 0:
            self._first.write(data if len(data) <= room else data[:room])
            if len(data) <= room:
                return
            data = data[room:]
        was_short = len(self._rest) < self._tail_limit
        self._rest += data
        if was_short and len(self._rest) >= self._tail_limit:
            self._first.truncate(self._head_limit)
        if len(self._rest) > 2 * self._tail_limit + _SLACK_BYTES:  # not at every piece: cutting moves the rest
            del self._rest[: -self._tail_limit]

    @property
    def held(self) -> int:
        """Bytes in memory now."""
        return self._first.getbuffer().nbytes + len(self._rest)

    @property
    def is_truncated(self) -> bool:
        """Whether something was left out."""
        return self.total > self._limit

    def content(self) -> bytes:
        """Return head and tail, at most `limit` bytes."""
        if not self._rest:
            return self._first.getvalue()
        first, missing = self._first.getbuffer(), max(0, self._tail_limit - len(self._rest))
        tail = memoryview(self._rest)[-self._tail_limit :]
        return b"".join((first[: self._head_limit], first[self._limit - missing :], tail))
