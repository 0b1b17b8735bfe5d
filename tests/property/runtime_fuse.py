"""What a breaker must do: a second opinion on `arl_tangram.managers.breaker`, for one quota without keys."""

from __future__ import annotations

import math


class Fuse:
    """A breaker, told how calls ended in the order of their answers.

    Attributes:
        certain: whether all was known that it depends on; if not, nothing can be said of it any more.
        changed_at_s: when it last began to stop calls, or to let them through.
    """

    def __init__(self, failures: int, pause_s: float) -> None:
        self.certain = True
        self.changed_at_s = -math.inf
        self._most = failures
        self._pause_s = pause_s
        self._in_a_row = 0
        self._state = "closed"  # → open → closed or down → closed or down → ...
        self._until_s = -math.inf

    def state(self, now_s: float) -> str:
        """Return its state, in the words of the statistics."""
        return "probing" if self._state != "closed" and now_s >= self._until_s else self._state

    def is_probe(self, began_at_s: float) -> bool:
        """Whether a call that began then began after the last pause."""
        return began_at_s >= self._until_s

    def count(self, began_at_s: float, now_s: float, *, failed: bool) -> None:
        """A call that began then has succeeded or failed."""
        if began_at_s < self._until_s:
            return
        if not failed:
            self._in_a_row = 0
            if self._state != "closed":
                self._state, self.changed_at_s = "closed", now_s
            return
        self._in_a_row += 1
        if self._state != "closed" or self._in_a_row >= self._most:
            self._state = "open" if self._state == "closed" else "down"
            self._until_s, self.changed_at_s = now_s + self._pause_s, now_s
