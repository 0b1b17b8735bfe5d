"""Equal shares: who came first has cores, as many as the others. Nothing needs to be known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf

from arl_tangram.model.sharing import Sharer


@dataclass(frozen=True, slots=True)
class EqualShares:
    """In order of arrival, and as equal as their sizes allow; see `equal_shares`."""

    @property
    def name(self) -> str:
        """How reports call it."""
        return "equal shares"

    def rank(self, sharer: Sharer) -> float:
        """All are alike: who came first is first."""
        return 0.0

    def next_s(self, sharer: Sharer) -> float:
        """It never changes."""
        return inf

    def share(self, sharers: Sequence[Sharer], cores: int, present: int) -> list[int]:
        """Return equal shares."""
        return equally(sharers, cores)


def equally(sharers: Sequence[Sharer], cores: int) -> list[int]:
    """Return shares: first the least that each must keep, then in order the least size, then what is left, equally.

    Whoever has fewest gets more first, in order among these; one whose next size does not fit gets no more.
    """
    shares = [sharer.least for sharer in sharers]
    left = cores - sum(shares)
    for index, sharer in enumerate(sharers):
        if not shares[index] and sharer.sizes[0] <= left:
            shares[index] = sharer.sizes[0]
            left -= sharer.sizes[0]
    smallest = [(share, index, 0) for index, share in enumerate(shares) if share]
    heapify(smallest)
    while left and smallest:
        share, index, option = heappop(smallest)
        sizes = sharers[index].sizes
        if option + 1 < len(sizes) and sizes[option + 1] - share <= left:
            left -= sizes[option + 1] - share
            shares[index] = sizes[option + 1]
            heappush(smallest, (sizes[option + 1], index, option + 1))
    return shares


def equal_shares() -> EqualShares:
    """Return the policy that shares the cores equally, in order of arrival, and needs to know nothing."""
    return EqualShares()
