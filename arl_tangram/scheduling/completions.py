"""Know when running actions are expected to give units back, in order, per dimension."""

from __future__ import annotations

from bisect import bisect_left, insort

_MOST = 1024
_SOON_S = 0.01


class Completions:
    """Expected ends of running actions, kept sorted."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, int, int]] = []

    def add(self, end_s: float, action_id: int, units: int) -> None:
        """Expect `units` (whole) back at `end_s`."""
        insort(self._ends, (end_s, action_id, units))

    def remove(self, end_s: float, action_id: int, units: int) -> None:
        """Forget an expectation that `add` was given."""
        at = bisect_left(self._ends, (end_s, action_id, units))
        del self._ends[at]

    def next_s(self, now_s: float) -> float | None:
        """When to look again: at the next expected end, or, overdue, after as long again; None if nothing runs."""
        if not self._ends:
            return None
        end_s = self._ends[0][0]
        return end_s if end_s > now_s else now_s + max(now_s - end_s, _SOON_S)

    def upcoming(self, now_s: float) -> tuple[tuple[float, int], ...]:
        """Return (expected end, units) of the next 1,024, ascending.

        What is overdue is expected to take as long again as it is overdue: the longer a
        heavy-tailed run has lasted, the longer it is likely to last.
        """
        overdue = [(2 * now_s - end_s, units) for end_s, _, units in self._ends[:_MOST] if end_s < now_s]
        on_time = [(end_s, units) for end_s, _, units in self._ends[len(overdue) : _MOST]]
        return tuple(sorted(overdue + on_time)) if overdue else tuple(on_time)
