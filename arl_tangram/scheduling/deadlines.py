"""Know whose wait ends next: the `queue_timeout`s of those who wait, in a heap that forgets the others in time."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Deadlines:
    """Moments at which waiting actions give up.

    Args:
        is_waiting: tells whether an action still waits; who does not needs no deadline.
        waiting: tells how many wait, so that memory follows them.
    """

    def __init__(self, is_waiting: Callable[[int], bool], waiting: Callable[[], int]) -> None:
        self._is_waiting = is_waiting
        self._waiting = waiting
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        """How many it remembers, those of actions that do not wait any more included."""
        return len(self._heap)

    def add(self, at_s: float, action_id: int) -> None:
        """Let an action give up at `at_s`."""
        if len(self._heap) > 64 + 2 * self._waiting():
            self._heap = [entry for entry in self._heap if self._is_waiting(entry[1])]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (at_s, action_id))

    def pop_due(self, now_s: float) -> int | None:
        """Return an action that waits and whose deadline has come, once; None if there is none."""
        next_s = self.next_s()
        return heapq.heappop(self._heap)[1] if next_s is not None and next_s <= now_s else None

    def next_s(self) -> float | None:
        """The earliest deadline of those who wait."""
        while self._heap and not self._is_waiting(self._heap[0][1]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
