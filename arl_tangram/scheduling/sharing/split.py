"""Split cores so that what is done per second is worth most: greedily, one step of one sharer after the other.

Each sharer goes up the concave hull of its rates, so that its next step is never better than its last one, and the
best step of all is taken that fits. For steps of one size that is the optimum (B. Fox, Operations Research 1966); else
it is nearly so. What its first size does for each core counts the same for all, whatever that size is: one that cannot
run on less than four cores is not put behind all that can.

What cannot be resized chooses at its start, for good: the size at which its own time and that of its cores, at a price
that rises with how many share them, are least in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from math import log
from typing import NamedTuple

from arl_tangram.model.sharing import Sharer
from arl_tangram.scheduling.relative import LONGEST_S

_CURVES = 4096
_PRICE = 2.0
"""Of a core, for what keeps its size for good, in the time of so many of those that share each core; found by trial."""
_ON_HULL = 1 - 1e-6
"""What is this near to the hull is a corner of it, so that steps stay small where a speed-up is linear."""


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


def split(sharers: Sequence[Sharer], cores: int, present: int, worths: Sequence[float]) -> list[int]:
    """Return shares: first the least that each must have, then whatever is worth most.

    Args:
        sharers: in the order that decides where worths are equal.
        cores: that there are.
        present: how many share them, the sharers included.
        worths: what the work of each is worth; above 0.
    """
    price = _PRICE * present / max(1, cores)
    shares = [sharer.least for sharer in sharers]
    left = cores - sum(shares)
    if all([len(sharer.sizes) == 1 for sharer in sharers]):  # noqa: C419 - the commonest
        for index in sorted(range(len(sharers)), key=lambda index: -worths[index]):
            size = sharers[index].sizes[0]
            if not shares[index] and size <= left:
                shares[index] = size
                left -= size
        return shares
    steps: list[tuple[float, int, int]] = []
    curves: list[Curve] = []
    for index, sharer in enumerate(sharers):
        sizes, rates = sharer.sizes, sharer.rates
        if len(sizes) > 1 and not sharer.resizable:
            sizes, rates = _for_good(sizes, rates, price, sharer.least)
        curve = curve_of(sizes, rates, sharer.least > 0)
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

    Rates that are absurd, no numbers, or fall, count as the one before them, and the first one as 1.
    """
    rates = _cleaned(rates)
    corners: list[int] = []
    gains: list[float] = []
    first = rates[0] / sizes[0]
    option, size, rate = (0, sizes[0], rates[0]) if begun else (-1, 0, 0.0)
    while option + 1 < len(sizes):
        ahead = [(rates[at] - rate) / (sizes[at] - size) for at in range(option + 1, len(sizes))]
        gain = max(ahead)
        if gain <= 0:
            break
        option += 1 + next(at for at, other in enumerate(ahead) if other >= gain * _ON_HULL)
        size, rate = sizes[option], rates[option]
        corners.append(size)
        gains.append(gain / first)
    exponent = log(rates[-1] / rates[0]) / log(sizes[-1] / sizes[0]) if len(sizes) > 1 else 0.0
    return Curve(tuple(corners), tuple(gains), min(1.0, exponent))


def _for_good(
    sizes: tuple[int, ...], rates: tuple[float, ...], price: float, least: int
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the one size that takes least, for itself and in cores at their price, of what keeps its size."""
    if least:
        return sizes[:1], rates[:1]
    costs = [(1 + price * size) / rate for size, rate in zip(sizes, _cleaned(rates), strict=True)]
    best = costs.index(min(costs))
    return sizes[best : best + 1], rates[best : best + 1]


def _cleaned(rates: tuple[float, ...]) -> tuple[float, ...]:
    """Return rates that are neither absurd nor fall."""
    cleaned: list[float] = []
    for rate in rates:
        before = cleaned[-1] if cleaned else 1 / LONGEST_S
        cleaned.append(rate if before <= rate <= LONGEST_S else cleaned[-1] if cleaned else 1.0)
    return tuple(cleaned)
