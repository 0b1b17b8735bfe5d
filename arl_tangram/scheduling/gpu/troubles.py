"""Where restores have failed: chunks that an instance keeps away from for a while, and for whom one has failed.

A chunk is bad for an instance for half a second after the first failure there, twice as long after each further one,
up to a minute, until a restore there succeeds. An action for which one has failed gives up if no other chunk is left to
try; how often it is sent back to try again is not said here.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from arl_tangram.model.gpu import Chunk, Instance

_FIRST_S, _MOST_S = 0.5, 60.0


class Troubles:
    """The failed restores of one pool."""

    __slots__ = ("_bad", "_tried", "_until_s")

    def __init__(self) -> None:
        self._bad: dict[tuple[Instance, Chunk], tuple[float, int]] = {}
        self._until_s = -inf
        self._tried: set[int] = set()

    def any(self, now_s: float) -> bool:
        """Whether a chunk may be bad now, so that time alone changes what can be had."""
        return now_s < self._until_s

    def failed(self, instance: Instance, chunk: Chunk, seated: Iterable[int], now_s: float) -> None:
        """A restore has failed for these actions."""
        times = self._bad.get((instance, chunk), (0.0, 0))[1]
        until_s = now_s + min(_FIRST_S * 2**times, _MOST_S)
        self._bad[instance, chunk] = until_s, times + 1
        self._until_s = max(self._until_s, until_s)
        self._tried.update(seated)

    def succeeded(self, instance: Instance, chunk: Chunk) -> None:
        """A restore has succeeded."""
        self._bad.pop((instance, chunk), None)

    def bad_until_s(self, instance: Instance, chunk: Chunk, now_s: float) -> float | None:
        """Until when an instance is not restored there; None if it can be now."""
        until_s = self._bad.get((instance, chunk), (now_s, 0))[0]
        return until_s if until_s > now_s else None

    def has_tried(self, action_id: int) -> bool:
        """Whether a restore has failed for an action."""
        return action_id in self._tried

    def forget(self, action_id: int) -> None:
        """An action tries no more."""
        self._tried.discard(action_id)
