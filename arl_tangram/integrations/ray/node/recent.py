"""Which numbers were seen, of the latest: a set of all of them would grow for ever. Pure."""

from __future__ import annotations

MOST = 10_000


class Recent:
    """A set of numbers that forgets those that were added first.

    Args:
        most: how many it knows; nobody comes back to one after so many others.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._numbers: dict[int, None] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def add(self, number: int) -> bool:
        """Add a number; return whether it is new."""
        if number in self._numbers:
            return False
        self._numbers[number] = None
        if len(self._numbers) > self._most:
            del self._numbers[next(iter(self._numbers))]
        return True
