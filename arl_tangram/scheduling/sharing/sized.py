"""The default of shared cores: who has least left comes first, and has more cores the more others it holds up.

Alone with others of its kind, an action is worth so much as there are actions with more left than it, to the power of
the exponent of their speed-up: that empties a pool with the least mean completion time. (B. Berg, R. Vesilo and
M. Harchol-Balter, "heSRPT: Parallel scheduling to minimize mean slowdown", Performance Evaluation 2020.) Where new ones
arrive as fast as others end, everybody holds up as many, and is worth the same. Nobody knows which it will be; the mean
of both ranks is near the best of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arl_tangram.model.sharing import Sharer
from arl_tangram.scheduling.sharing.split import curve_of, split


@dataclass(frozen=True, slots=True)
class SizeAware:
    """By what is left; see `size_aware`."""

    @property
    def name(self) -> str:
        """How reports call it."""
        return "size-aware"

    def rank(self, sharer: Sharer) -> float:
        """Return what is left."""
        return sharer.remaining_s

    def next_s(self, sharer: Sharer) -> float:
        """Return when that is another."""
        return sharer.next_s

    def share(self, sharers: Sequence[Sharer], cores: int, present: int) -> list[int]:
        """Return shares by the place of each."""
        exponents = [curve_of(s.sizes, s.rates).exponent for s in sharers if len(s.sizes) > 1]
        exponent = sum(exponents) / len(exponents) if exponents else 0.0
        present = max(present, len(sharers))
        return split(sharers, cores, present, [(present - place / 2) ** exponent for place in range(len(sharers))])


def size_aware() -> SizeAware:
    """Return the policy that runs those first of which least is left, as far as that is known or was learned."""
    return SizeAware()
