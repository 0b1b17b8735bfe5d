"""What a policy sees and returns: candidates that compete for one dimension in, units for a prefix of them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Candidate:
    """An action that could start now, or that is expected to come.

    Attributes:
        units: whole units that it may get, ascending.
        durations_s: its expected seconds at each; finite and above 0, not necessarily falling.
    """

    units: tuple[int, ...]
    durations_s: tuple[float, ...]


class Group(Protocol):
    """The candidates for one dimension, and what the estimate of the future needs.

    What is not looked at costs nothing: the core works each attribute out when it is read.
    """

    @property
    def now_s(self) -> float:
        """The time."""
        ...

    @property
    def free(self) -> int:
        """Whole units to hand out; all candidates fit at their least units together."""
        ...

    @property
    def capacity(self) -> int:
        """Whole units of the dimension, free or not."""
        ...

    @property
    def candidates(self) -> Sequence[Candidate]:
        """In order, at least one, at most 64."""
        ...

    @property
    def waiting(self) -> Sequence[Candidate]:
        """Who comes next for this dimension, in order: the first 64."""
        ...

    @property
    def backlog(self) -> int:
        """How many wait for this dimension behind the candidates, those in `waiting` included."""
        ...

    @property
    def running(self) -> Sequence[tuple[float, int]]:
        """(expected end, whole units) of what runs, ascending: the first 1,024."""
        ...

    @property
    def arrivals(self) -> Sequence[tuple[float, Candidate]]:
        """(time, action) of the last 128 that were submitted for this dimension, oldest first, started or not."""
        ...

    @property
    def arrived(self) -> int:
        """How many have been submitted for this dimension so far."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A `Group` of plain values, to try a policy with; the attributes are those of `Group`."""

    now_s: float
    free: int
    candidates: Sequence[Candidate]
    waiting: Sequence[Candidate] = ()
    running: Sequence[tuple[float, int]] = ()
    capacity: int = 0
    backlog: int = 0
    arrivals: Sequence[tuple[float, Candidate]] = ()
    arrived: int = 0


Plan = Callable[[Group], Sequence[int]]
"""Returns the units for the first j candidates; the others are deferred.

Each number is one of the candidate's `units`; their sum is at most `group.free`.
"""


class Policy(Protocol):
    """Decides how many of the candidates start, and with how many units each."""

    @property
    def name(self) -> str:
        """How reports and traces call it."""
        ...

    @property
    def reserved_cores(self) -> int:
        """Whole cores that each trajectory holds from its first to its last turn; 0 for none."""
        ...

    def planner(self) -> Plan:
        """Return what plans one dimension.

        It is asked in the order of events and may remember what it was shown; the same questions in the same order must
        get the same answers.
        """
        ...
