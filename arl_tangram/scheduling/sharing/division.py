"""What there is to divide of the cores of a node, and who is to have what."""

from __future__ import annotations

from typing import NamedTuple

from arl_tangram.scheduling.sharing.others import Bar
from arl_tangram.scheduling.sharing.sharer import CoreSharer


class Cores(NamedTuple):
    """What there is to divide.

    Attributes:
        scale: integer units in a core.
        capacity: units in all.
        held: those that others have.
        spare: those that sharers have, and those that are free, but for what callers are to find.
        now_s: the time.
        halted: whether nothing new is to start, but calls.
        started: those that have just started and keep what they have started with, by id.
        growing: whether nobody is to have less than it has.
        lacks: whether a caller waits for sharers that must keep their cores.
        blocked: the mask of what callers block for others.
    """

    scale: int
    capacity: int
    held: int
    spare: int
    now_s: float
    halted: bool
    started: frozenset[int] = frozenset()
    growing: bool = False
    lacks: bool = False
    blocked: int = 0


class Division:
    """Who is to have other cores than it has.

    Attributes:
        changes: pairs of a sharer and the cores that it is to have.
        made: others that are to find what they need, and the units, by id.
        bars: what sharers that wait for others block for those that came after them.
        lacks: the priority and the order of the first that waits for sharers that must keep their cores, so that there
            must not be more of these; None if nobody does.
        found: units of all of `made`.
        look_again_s: moments at which to divide anew though nothing happens.
    """

    __slots__ = ("bars", "changes", "found", "lacks", "look_again_s", "made")

    def __init__(self) -> None:
        self.changes: list[tuple[CoreSharer, int]] = []
        self.made: dict[int, int] = {}
        self.bars: list[Bar] = []
        self.lacks: tuple[float, int] | None = None
        self.found = 0
        self.look_again_s: list[float] = []

    def lack(self, priority: float, order: int) -> None:
        """One waits for sharers that must keep their cores."""
        self.lacks = (priority, order) if self.lacks is None else min(self.lacks, (priority, order))
