"""The smallest capacity that will do, where more is not always better."""

from __future__ import annotations

from collections.abc import Callable, Iterator

_CHECKS = 8


def smallest(keeps: Callable[[int], bool], least: int, most: int, *, checks: int = _CHECKS) -> int:
    """Return the smallest capacity found from which on all that were tried will do.

    Whether a capacity will do is no monotone function of it: with one core more, other calls start together, and the
    mean may rise. Bisection alone would return any edge. So each edge that it finds is checked upwards, at some
    capacities between it and the most, equally spaced in ratio: if one of them will not do, the search goes on above
    it. What is returned will do, as does every larger capacity that was tried; one less will not, or is too small.

    Args:
        keeps: whether a capacity will do; asked once for each.
        least: the smallest to try, from 1.
        most: the largest; it is known to do.
        checks: at how many capacities an edge is checked, at most.
    """
    known = {most: True}

    def will_do(capacity: int) -> bool:
        if capacity not in known:
            known[capacity] = keeps(capacity)
        return known[capacity]

    while True:
        failing = max((capacity for capacity, kept in known.items() if not kept), default=least - 1)
        keeping = min(capacity for capacity in known if capacity > failing)
        if keeping > failing + 1:
            will_do((failing + keeping) // 2)
        elif all(will_do(capacity) for capacity in _above(keeping, most, checks)):
            return keeping


def _above(capacity: int, most: int, checks: int) -> Iterator[int]:
    """Yield capacities between two, the largest first: where one will not do, all below it are of no use."""
    ratio = most / capacity
    found = {round(capacity * ratio ** (step / (checks + 1))) for step in range(1, checks + 1)}
    yield from sorted(found - {capacity, most}, reverse=True)
