"""What `decide` returns, and what it keeps in mind while it decides.

Plain classes: they are made for every turn of the loop, and a dataclass takes three times as long to make its lists.
"""

from __future__ import annotations

from arl_tangram.errors import TangramError
from arl_tangram.model.gpu import Instance
from arl_tangram.model.lifecycle import PendingAction, RunningAction
from arl_tangram.scheduling.queue import Place


class Decisions:
    """What is to be carried out now.

    Attributes:
        started: actions whose units are promised.
        opened: ids of trajectories that were admitted.
        expired: ids of actions that waited longer than their `queue_timeout`.
        resumed: actions that had lent and have all that they had again.
        resized: running actions that have other cores from now on, those with fewer first; to be carried out before
            any of `resumed` and `started`. With no units, one is suspended.
        impossible: ids of actions and trajectories that can never start any more, each with the error that says why.
        evicted: services that have to go though nobody takes their place yet, before any of `started`; None if none.
        more: whether `decide` stopped at its bound and should be called again soon.
        refused: why the policy is not asked any more, in the call that found out.
        refused_share: the same of the policy by which running actions share cores.
    """

    __slots__ = (
        "evicted", "expired", "impossible", "more", "opened", "refused", "refused_share", "resized", "resumed",
        "started",
    )  # fmt: skip

    def __init__(self) -> None:
        self.started: list[RunningAction] = []
        self.opened: list[int] = []
        self.expired: list[int] = []
        self.resumed: list[RunningAction] = []
        self.resized: list[RunningAction] = []
        self.impossible: list[tuple[int, TangramError]] = []
        self.evicted: list[Instance] | None = None
        self.more = False
        self.refused: str | None = None
        self.refused_share: str | None = None

    @property
    def any(self) -> bool:
        """Whether there is anything to carry out."""
        changed = self.resized or self.resumed or self.evicted
        return bool(self.started or self.opened or self.expired or self.impossible or changed)


class Round:
    """One call of `decide`.

    Attributes:
        now_s: the time.
        skip: bits of dimensions that are not looked at: they were planned by earlier calls of the same round.
        barred: bits of blocks that hold from the start.
        decisions: its answer so far.
        deferred: who is deferred, with the dimension that each then blocks.
        original: for those that were placed, the actions as they waited.
        planned: dimensions whose candidates were planned.
        full: bits of those with more candidates than one plan takes.
        unseated: the place of the first for whom a service has to be restored, and cannot be yet; None if nobody waits
            for that.
    """

    __slots__ = ("barred", "decisions", "deferred", "full", "now_s", "original", "planned", "skip", "unseated")

    def __init__(self, now_s: float, skip: int) -> None:
        self.now_s = now_s
        self.skip = skip
        self.barred = 0
        self.decisions = Decisions()
        self.deferred: dict[int, int] = {}
        self.original: dict[int, PendingAction] = {}
        self.planned: set[int] = set()
        self.full = 0
        self.unseated: Place | None = None

    def lift(self, action_id: int) -> None:
        """Who was deferred at one place starts at another: those who were deferred with it may start there now."""
        bits = self.deferred.pop(action_id, 0)
        if bits:
            self.deferred = {other: kept for other, held in self.deferred.items() if (kept := held & ~bits)}
