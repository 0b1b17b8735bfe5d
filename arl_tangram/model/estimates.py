"""What a report tells of what was learned about the durations of actions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SpeedupSource(StrEnum):
    """Where the speed-up comes from that the scheduler reckons with."""

    NONE = "none"
    """The action has no choice of units."""
    DECLARED = "declared"
    ASSUMED = "assumed"
    LEARNED = "learned"


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is expected of an action and key.

    Attributes:
        name: the action's name.
        key: what its `key=` made of the arguments, or an empty string.
        runs: how many runs were learned from.
        duration_s: expected seconds at one unit.
        source: where the speed-up comes from.
        exponent: of the power law that was assumed or learned; None if there is none.
        speedup_runs: how many runs, of all the action's keys, the exponent was learned from.
    """

    name: str
    key: str
    runs: int
    duration_s: float
    source: SpeedupSource = SpeedupSource.NONE
    exponent: float | None = None
    speedup_runs: int = 0


@dataclass(frozen=True, slots=True)
class Learned:
    """What was learned, those with the most runs first.

    Attributes:
        estimates: a bounded number of them.
        more: how many there are besides.
    """

    estimates: tuple[Estimate, ...] = ()
    more: int = 0
