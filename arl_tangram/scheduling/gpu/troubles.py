"""Where restores have failed: chunks that an instance keeps away from for a while, and when an action gives up.

A chunk is bad for an instance for half a second after the first failure there, twice as long after each further one,
up to a minute, until a restore there succeeds. An action gives up after three failed restores, or after one if no other
chunk is left to try.
"""

from __future__ import annotations

from collections.abc import Iterable

from arl_tangram.model.gpu import Chunk, Instance

_FIRST_S, _MOST_S = 0.5, 60.0
_MOST_TRIES = 3


class Troubles:
    """The failed restores of one pool."""

    __slots__ = ("_bad", "_tries")

    def __init__(self) -> None:
        self._bad: dict[tuple[Instance, Chunk], tuple[float, int]] = {}
        self._tries: dict[int, int] = {}

    @property
    def any(self) -> bool:
        """Whether a restore has failed where none has succeeded since."""
        return bool(self._bad)

    def failed(self, instance: Instance, chunk: Chunk, seated: Iterable[int], now_s: float) -> None:
        """A restore has failed for these actions."""
        times = self._bad.get((instance, chunk), (0.0, 0))[1]
        self._bad[instance, chunk] = now_s + min(_FIRST_S * 2**times, _MOST_S), times + 1
        for action_id in seated:
            self._tries[action_id] = self.tries(action_id) + 1

    def succeeded(self, instance: Instance, chunk: Chunk) -> None:
        """A restore has succeeded."""
        self._bad.pop((instance, chunk), None)

    def bad_until_s(self, instance: Instance, chunk: Chunk, now_s: float) -> float | None:
        """Until when an instance is not restored there; None if it can be now."""
        until_s = self._bad.get((instance, chunk), (now_s, 0))[0]
        return until_s if until_s > now_s else None

    def tries(self, action_id: int) -> int:
        """How many restores have failed for an action."""
        return self._tries.get(action_id, 0)

    def gives_up(self, action_id: int) -> bool:
        """Whether an action has tried often enough."""
        return self.tries(action_id) >= _MOST_TRIES

    def forget(self, action_id: int) -> None:
        """An action tries no more."""
        self._tries.pop(action_id, None)
