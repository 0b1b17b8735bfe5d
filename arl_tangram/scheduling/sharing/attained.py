"""Least attained service: who has had least comes first. The more was done for an action, the more is left of it.

Nothing needs to be known of how much work there is. (Foreground-background: L. Kleinrock, Queueing Systems II, 1976.)
What was done counts by levels that grow geometrically, so that an action changes its place rarely, and those of one
level end one after the other instead of all at last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log

from arl_tangram.model.sharing import Sharer
from arl_tangram.scheduling.sharing.split import split

_FIRST_S = 0.1
_GROWTH = 1.5
_MOST_LEVELS = 64


@dataclass(frozen=True, slots=True)
class LeastAttained:
    """By levels of the work done, each on as many cores as it makes good use of; see `least_attained`."""

    @property
    def name(self) -> str:
        """How reports call it."""
        return "least attained"

    def rank(self, sharer: Sharer) -> float:
        """Return the level."""
        return float(_level(sharer.attained_s))

    def next_s(self, sharer: Sharer) -> float:
        """Return where the next level begins."""
        level = _level(sharer.attained_s)
        return _FIRST_S * _GROWTH**level if level < _MOST_LEVELS else inf

    def share(self, sharers: Sequence[Sharer], cores: int, present: int) -> list[int]:
        """Return shares that do most in all."""
        return split(sharers, cores, present, [1.0] * len(sharers))


def _level(attained_s: float) -> int:
    if not attained_s >= _FIRST_S:
        return 0
    return int(min(_MOST_LEVELS, 1 + (log(attained_s) - log(_FIRST_S)) / log(_GROWTH) + 1e-9))


def least_attained() -> LeastAttained:
    """Return the policy that runs those first for which least was done, and needs to know nothing of their work."""
    return LeastAttained()
