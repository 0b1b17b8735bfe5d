"""The policies that `bench evict` compares, and how much of the queue each of them sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arl_tangram.bench.evict.clairvoyant import Clairvoyant
from arl_tangram.scheduling.gpu.eviction import WINDOW, Eviction, Gdsf, Loss, Lru, Resident

LRU, LRU_SUM, GDSF, LOSS, CLAIRVOYANT = "lru", "lru, summed", "gdsf", "loss", "clairvoyant"
FEW = 8


@dataclass(frozen=True, slots=True)
class Contender:
    """One policy.

    Attributes:
        name: in the tables.
        queue: how many requests wait behind the one that is served.
        make: returns the policy at its beginning; it is given all requests, at which only the clairvoyant one looks.
    """

    name: str
    queue: int
    make: Callable[[Sequence[str]], Eviction]


class SummedLru(Lru):
    """A variant of LRU to compare with: the set whose ranks by age have the least sum.

    The rule proper rather evicts five old residents than one that is a little younger; this one does not, and knows as
    little of costs.
    """

    def values(self, residents: Sequence[Resident], upcoming: Sequence[str]) -> list[float]:
        """Return ranks by age, from 1 for the oldest."""
        powers = super().values(residents, upcoming)
        ranks = {power: rank for rank, power in enumerate(sorted(powers), start=1)}
        return [float(ranks[power]) for power in powers]


CONTENDERS: tuple[Contender, ...] = (
    Contender(LRU, 0, lambda _: Lru()),
    Contender(LRU_SUM, 0, lambda _: SummedLru()),
    Contender(GDSF, 0, lambda _: Gdsf()),
    Contender(f"{LOSS}, 0 wait", 0, lambda _: Loss()),
    Contender(f"{LOSS}, {FEW} wait", FEW, lambda _: Loss()),
    Contender(LOSS, WINDOW, lambda _: Loss()),
    Contender(CLAIRVOYANT, 0, Clairvoyant),
)
