"""What is kept of a stream of output: its head and its tail, within a bound, while it streams. Pure."""

from __future__ import annotations

_SLACK_BYTES = 1 << 16


class Capture:
    """Keeps the first and the last half of `limit` bytes of a stream of any length."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take the next piece of the stream."""
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit + _SLACK_BYTES:  # not at every piece: cutting moves the tail
            del self._tail[: -self._tail_limit]

    @property
    def held(self) -> int:
        """Bytes in memory now."""
        return len(self._head) + len(self._tail)

    @property
    def is_truncated(self) -> bool:
        """Whether something was left out."""
        return self.total > self._head_limit + self._tail_limit

    def content(self) -> bytes:
        """Return head and tail, at most `limit` bytes."""
        return bytes(self._head + self._tail[-self._tail_limit :])
