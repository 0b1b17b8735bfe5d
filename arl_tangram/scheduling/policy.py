"""What a policy sees and returns: candidates that compete for one dimension in, units for a prefix of them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Candidate:
    """An action that could start now.

    Attributes:
        units: whole units that it may get, ascending.
        durations_s: its expected seconds at each; finite and above 0, not necessarily falling.
    """

    units: tuple[int, ...]
    durations_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """The candidates for one dimension, and what the estimate of the future needs.

    Attributes:
        now_s: the time.
        free: whole units to hand out; all candidates fit at their least units together.
        candidates: in order of priority and arrival, at least one.
        waiting: who comes next for this dimension, in order; a bounded number.
        running: (expected end, whole units) of what runs, ascending; a bounded number.
    """

    now_s: float
    free: int
    candidates: tuple[Candidate, ...]
    waiting: tuple[Candidate, ...]
    running: tuple[tuple[float, int], ...]


class Policy(Protocol):
    """Decides how many of the candidates start, and with how many units each.

    A policy is a pure function of what it is given.
    """

    @property
    def name(self) -> str:
        """How reports and traces call it."""
        ...

    @property
    def reserved_cores(self) -> int:
        """Whole cores that each trajectory holds from its first to its last turn; 0 for none."""
        ...

    def plan(self, group: Group) -> Sequence[int]:
        """Return the units for the first j candidates; the others are deferred.

        Each number is one of the candidate's `units`; their sum is at most `group.free`.
        """
        ...
