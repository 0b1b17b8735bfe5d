"""Those that share the cores of one node, in order: who runs, who has none, and who has been here too long."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from arl_tangram.scheduling.sharing.asking import Asking
from arl_tangram.scheduling.sharing.sharer import CoreSharer, Place

_NEARLY = 1 - 1e-9


class Room:
    """The sharers of one node.

    Args:
        cpu: the dimension of its cores.
        asking: the policy.

    Attributes:
        sharers: all of them by id, but for those that have lent their cores.
        running: those of them that have cores, by id.
        cores: how many they have.
        overdue: those that have been here too long, by id.
        changed: whether something happened since their cores were shared out.
        look_again_s: when that is to be done though nothing happens; None for never.
        made_for: others that wait, and for whom there was made room last, by id.
        barred: whether no others are to start, so that one that is overdue finds its cores.
        passed_over: those for whom there was, and who did not take it, by id; nothing has changed since.
    """

    def __init__(self, cpu: int, asking: Asking) -> None:
        self.cpu = cpu
        self._asking = asking
        self.sharers: dict[int, CoreSharer] = {}
        self.running: dict[int, CoreSharer] = {}
        self.cores = 0
        self.overdue: dict[int, CoreSharer] = {}
        self.changed = False
        self.look_again_s: float | None = None
        self.made_for: tuple[int, ...] = ()
        self.barred = False
        self.passed_over: dict[int, None] = {}
        self._idle: list[Place] = []
        self._present: Counter[int] = Counter()
        self._sizes: Counter[int] = Counter()
        self._becoming_overdue: list[tuple[float, int]] = []

    def add(self, sharer: CoreSharer) -> None:
        """One joins, or comes back."""
        self._asking.rank(sharer)
        self.sharers[sharer.id] = sharer
        self._present[sharer.priority] += 1
        self._settle(sharer)
        heappush(self._becoming_overdue, (sharer.overdue_at_s, sharer.id))
        self.changed = True

    def remove(self, sharer: CoreSharer) -> None:
        """One leaves, with what it has."""
        self._unsettle(sharer)
        del self.sharers[sharer.id]
        self._present[sharer.priority] -= 1
        if not self._present[sharer.priority]:
            del self._present[sharer.priority]
        self.overdue.pop(sharer.id, None)
        self.changed = True
        if len(self._becoming_overdue) > 64 + 2 * len(self.sharers):
            self._becoming_overdue = [(at_s, id_) for at_s, id_ in self._becoming_overdue if id_ in self.sharers]
            heapify(self._becoming_overdue)

    def begin_change(self, sharer: CoreSharer) -> None:
        """The cores or the rank of one are about to change: it has no place until `end_change`."""
        self._unsettle(sharer)

    def end_change(self, sharer: CoreSharer) -> None:
        """It has the place that it deserves now."""
        self._settle(sharer)

    @property
    def priorities(self) -> list[int]:
        """Those of all sharers, the most urgent first."""
        return sorted(self._present)

    def present(self, priority: int) -> int:
        """Return how many sharers of a priority there are."""
        return self._present[priority]

    @property
    def idle(self) -> int:
        """How many sharers have no cores."""
        return len(self._idle)

    def idle_of(self, priority: int) -> Iterator[CoreSharer]:
        """Yield those of one priority that have no cores, in the order of their ranks."""
        idle = self._idle
        for at in range(bisect_left(idle, (priority,)), len(idle)):
            if idle[at][0] != priority:
                return
            yield self.sharers[idle[at][3]]

    def may_want(self, cores: int) -> bool:
        """Whether one that has none could go on with so many."""
        return any(size <= cores for size in self._sizes)

    def refresh(self, now_s: float) -> None:
        """Count the work of all up to now, rank those anew that have done enough, and find who is overdue."""
        for sharer in self.running.values():
            sharer.count(now_s)
            if sharer.attained_s >= sharer.ask_at_s * _NEARLY:
                self._asking.rank(sharer)
        heap = self._becoming_overdue
        while heap and heap[0][0] <= now_s:
            late = self.sharers.get(heappop(heap)[1])
            if late is not None and late.overdue_at_s <= now_s:
                self.overdue[late.id] = late

    def rank_all(self) -> None:
        """Rank all anew: there is another policy."""
        for sharer in self.sharers.values():
            self._asking.rank(sharer)
        self._idle = sorted(sharer.place for sharer in self.sharers.values() if not sharer.cores)

    def next_overdue_s(self) -> float | None:
        """When the next one is overdue."""
        heap = self._becoming_overdue
        while heap and heap[0][1] not in self.sharers:
            heappop(heap)
        return heap[0][0] if heap else None

    def _settle(self, sharer: CoreSharer) -> None:
        if sharer.cores:
            self.running[sharer.id] = sharer
            self.cores += sharer.cores
        else:
            insort(self._idle, sharer.place)
            self._sizes[sharer.admitted[0]] += 1

    def _unsettle(self, sharer: CoreSharer) -> None:
        if sharer.cores:
            del self.running[sharer.id]
            self.cores -= sharer.cores
        else:
            del self._idle[bisect_left(self._idle, sharer.place)]
            size = sharer.admitted[0]
            self._sizes[size] -= 1
            if not self._sizes[size]:
                del self._sizes[size]
