"""Which numbers were seen: they ascend, mostly, so that a set of all of them would grow for nothing. Pure."""

from __future__ import annotations

MOST_BEYOND = 10_000


class Once:
    """A set of positive numbers in little memory.

    Those that never come, as what carried them was lost, count as seen when very many later ones were.
    """

    def __init__(self) -> None:
        self._upto = 0
        self._beyond: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number <= self._upto or number in self._beyond

    def add(self, number: int) -> bool:
        """Add a number; return whether it is new."""
        if number in self:
            return False
        self._beyond.add(number)
        if len(self._beyond) > MOST_BEYOND:
            latest = sorted(self._beyond)
            self._upto = latest[MOST_BEYOND // 2]
            self._beyond = {each for each in latest if each > self._upto}
        while self._upto + 1 in self._beyond:
            self._upto += 1
            self._beyond.discard(self._upto)
        return True
