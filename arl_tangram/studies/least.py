"""The smallest capacity that keeps a time, although the time may rise where capacity rises.

Bisection finds a capacity that keeps the time, and one just below it that does not. That alone would be the answer if
more never were worse. It can be, so capacities between the answer and the most that there is are tried, too; where one
of them does not keep the time, the search goes on above it. The answer is the smallest capacity tried from which on
all that were tried keep the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

_PROBES = 4
"""Into how many parts the capacities above the answer are cut, to try one more at each cut."""


def least(time_s: Callable[[int], float], at_most_s: float, capacities: range, tried: Iterable[int] = ()) -> int | None:
    """Return the smallest capacity found from which on all that were tried take at most `at_most_s`.

    Args:
        time_s: what a capacity takes; it is asked again for the same one.
        at_most_s: what is to be kept.
        capacities: those that there are, ascending.
        tried: capacities of these that are known already and count as tried.

    Returns:
        The capacity, or None if not even the most keeps it.
    """
    asked: dict[int, bool] = {}

    def keeps(capacity: int) -> bool:
        if capacity not in asked:
            asked[capacity] = time_s(capacity) <= at_most_s
        return asked[capacity]

    if not keeps(capacities[-1]):
        return None
    for capacity in tried:
        keeps(capacity)
    while True:
        short = max((capacity for capacity, kept in asked.items() if not kept), default=None)
        answer = _bisect(keeps, capacities, short)
        place = capacities.index(answer)
        for part in range(1, _PROBES):
            keeps(capacities[place + (len(capacities) - 1 - place) * part // _PROBES])
        if all(kept for capacity, kept in asked.items() if capacity >= answer):
            return answer


def _bisect(keeps: Callable[[int], bool], capacities: range, short: int | None) -> int:
    """Return a capacity that keeps it, and whose next smaller one does not, above one that is known not to."""
    low = -1 if short is None else capacities.index(short)
    high = len(capacities) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if keeps(capacities[middle]):
            high = middle
        else:
            low = middle
    return capacities[high]
