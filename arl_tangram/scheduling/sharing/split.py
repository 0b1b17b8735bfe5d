"""Split cores so that what is done per second is worth most: greedily, one step of one sharer after the other.

Each sharer goes up the concave hull of its rates, so that its next step is never better than its last one, and the
best step of all is taken that fits. For steps of one size that is the optimum (B. Fox, Operations Research 1966); else
it is nearly so. What its first size does for each core counts the same for all, whatever that size is: one that cannot
run on less than four cores is not put behind all that can.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from math import inf, log
from typing import NamedTuple

from arl_tangram.model.sharing import Sharer

_CURVES = 4096


class Curve(NamedTuple):
    """How a sharer gains.

    Attributes:
        sizes: the cores at the corners of the hull, ascending.
        gains: what each of them gains per core over the one before, falling; relative to what the first size does.
        exponent: of the power law through the first and the last size, from 0 to 1; 0 if there is one size.
    """

    sizes: tuple[int, ...]
    gains: tuple[float, ...]
    exponent: float


def split(sharers: Sequence[Sharer], cores: int, worths: Sequence[float]) -> list[int]:
    """Return shares: first the least that each must have, then whatever is worth most.

    Args:
        sharers: in the order that decides where worths are equal.
        cores: that there are.
        worths: what the work of each is worth; above 0.
    """
    shares = [sharer.least for sharer in sharers]
    left = cores - sum(shares)
    steps: list[tuple[float, int, int]] = []
    curves: list[Curve] = []
    for index, sharer in enumerate(sharers):
        curve = curve_of(sharer.sizes, sharer.rates, sharer.least > 0)
        curves.append(curve)
        if curve.sizes:
            steps.append((-worths[index] * curve.gains[0], index, 0))
    heapify(steps)
    while left and steps:
        _, index, step = steps[0]
        sizes, gains, _ = curves[index]
        more = sizes[step] - shares[index]
        if more > left:
            heappop(steps)
            continue
        shares[index] = sizes[step]
        left -= more
        step += 1
        if step < len(sizes):
            heapreplace(steps, (-worths[index] * gains[step], index, step))
        else:
            heappop(steps)
    if left:
        _use(sharers, shares, left)
    return shares


def _use(sharers: Sequence[Sharer], shares: list[int], left: int) -> None:
    """Give what is left to the first who are faster with it, sizes inside of the hull included."""
    for index, sharer in enumerate(sharers):
        share = shares[index]
        rate = sharer.rates[sharer.sizes.index(share)] if share else 0.0
        for size, faster in zip(sharer.sizes, sharer.rates, strict=True):
            if share < size <= share + left and faster > rate:
                shares[index], rate = size, faster
        left -= shares[index] - share
        if not left:
            return


@lru_cache(maxsize=_CURVES)
def curve_of(sizes: tuple[int, ...], rates: tuple[float, ...], begun: bool = False) -> Curve:
    """Return how a sharer gains, from its first size on if it has `begun`, else from none.

    Rates that are not above 0, not finite, or fall, count as the one before them.
    """
    rates = _cleaned(rates)
    corners: list[int] = []
    gains: list[float] = []
    first = rates[0] / sizes[0]
    option, size, rate = (0, sizes[0], rates[0]) if begun else (-1, 0, 0.0)
    while option + 1 < len(sizes):
        gain, option = max([((rates[at] - rate) / (sizes[at] - size), at) for at in range(option + 1, len(sizes))])
        if gain <= 0:
            break
        size, rate = sizes[option], rates[option]
        corners.append(size)
        gains.append(gain / first)
    exponent = log(rates[-1] / rates[0]) / log(sizes[-1] / sizes[0]) if len(sizes) > 1 else 0.0
    return Curve(tuple(corners), tuple(gains), min(1.0, exponent))


def _cleaned(rates: tuple[float, ...]) -> tuple[float, ...]:
    """Return rates that are finite, above 0, and do not fall."""
    cleaned: list[float] = []
    for rate in rates:
        before = cleaned[-1] if cleaned else 0.0
        cleaned.append(rate if before <= rate < inf and rate > 0 else before or 1.0)
    return tuple(cleaned)
