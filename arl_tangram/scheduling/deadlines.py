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
        self._last_id = -1
        # Who is tried again has its id again, and another deadline: this one counts.
        self._latest: dict[int, float] = {}

    def __len__(self) -> int:
        """How many it remembers, those of actions that do not wait any more included."""
        return len(self._heap)

    def add(self, at_s: float, action_id: int) -> None:
        """Let an action give up at `at_s`, and not when it was to give up before."""
        if len(self._heap) > 64 + 2 * self._waiting():
            self._heap = [entry for entry in self._heap if self._holds(*entry)]
            heapq.heapify(self._heap)
            if self._latest:
                left = {action_id for _, action_id in self._heap}
                self._latest = {other: latest_s for other, latest_s in self._latest.items() if other in left}
        if action_id > self._last_id:  # ids ascend, so that nearly all are new
            self._last_id = action_id
        else:
            self._latest[action_id] = at_s
        heapq.heappush(self._heap, (at_s, action_id))

    def pop_due(self, now_s: float) -> int | None:
        """Return an action that waits and whose deadline has come, once; None if there is none."""
        next_s = self.next_s()
        if next_s is None or next_s > now_s:
            return None
        return self._pop()

    def next_s(self) -> float | None:
        """The earliest deadline of those who wait."""
        while self._heap and not self._holds(*self._heap[0]):
            self._pop()
        return self._heap[0][0] if self._heap else None

    def _pop(self) -> int:
        at_s, action_id = heapq.heappop(self._heap)
        if self._latest and self._latest.get(action_id) == at_s:
            del self._latest[action_id]
        return action_id

    def _holds(self, at_s: float, action_id: int) -> bool:
        return self._is_waiting(action_id) and self._latest.get(action_id, at_s) == at_s
