"""The order of devices in which neighbours are near each other, so that aligned chunks are made of near ones. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import TypeVar

T = TypeVar("T")


def nearest_first(devices: Sequence[T], distance: Callable[[T, T], float]) -> list[T]:
    """Return them so that pairs are near, then pairs of pairs, and so on; where all are equally near, as they came.

    Greedy: of all groups of one size, the two nearest become one of the next size. What is left over of a size comes
    after the larger groups, so that these stay aligned.

    Args:
        devices: at most a few dozen.
        distance: between two, the same in both directions; only compared and added.
    """
    groups = [[device] for device in devices]
    done: list[list[T]] = []
    while len(groups) > 1:
        groups, alone = _paired(groups, distance)
        done = [*alone, *done]
    return [device for group in (*groups, *done) for device in group]


def _paired(groups: Sequence[list[T]], distance: Callable[[T, T], float]) -> tuple[list[list[T]], list[list[T]]]:
    """Return the pairs, in the order of their first members, and what is left over."""
    near = sorted(
        combinations(range(len(groups)), 2),
        key=lambda pair: sum(distance(a, b) for a, b in product(groups[pair[0]], groups[pair[1]])),
    )
    free = set(range(len(groups)))
    pairs: list[tuple[int, int]] = []
    for pair in near:
        if free.issuperset(pair):
            free -= set(pair)
            pairs.append(pair)
    return [groups[one] + groups[other] for one, other in sorted(pairs)], [groups[each] for each in sorted(free)]
