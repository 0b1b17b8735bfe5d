"""Those that share the cores of one node, in order: who runs, who has none, and who has been here too long."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace, merge
from math import inf

from arl_tangram.scheduling.sharing.asking import Asking
from arl_tangram.scheduling.sharing.sharer import GOING_ON, STAYING, CoreSharer, Place

_NEARLY = 1 - 1e-9
_MOST_OVERDUE = 256


class Room:
    """The sharers of one node.

    The policy is asked only while all of them have their places, so that nothing is lost if it is interrupted.

    Args:
        cpu: the dimension of its cores.
        asking: the policy.

    Attributes:
        sharers: all of them by id, but for those that have lent their cores.
        running: those of them that have cores, by id.
        cores: how many they have.
        idle: how many have none.
        changed: whether something happened since their cores were shared out.
        look_again_s: when that is to be done though nothing happens; None for never.
        rank_again_s: when ranks are to be asked for anew; None for never.
        made: others that wait, and the units that they are to find, by id.
        passed_over: those of them that did not take them, as long as nothing has changed for them: the bits of the
            dimensions that each of them uses, by id.
        seen: what was so when they did not.
        try_again_s: when they are to find room again in any case.
    """

    def __init__(self, cpu: int, asking: Asking) -> None:
        self.cpu = cpu
        self._asking = asking
        self.sharers: dict[int, CoreSharer] = {}
        self.running: dict[int, CoreSharer] = {}
        self.cores = 0
        self.idle = 0
        self.changed = False
        self.look_again_s: float | None = None
        self.rank_again_s: float | None = None
        self.made: dict[int, int] = {}
        self.passed_over: dict[int, int] = {}
        self.seen: tuple[int, list[int]] = (0, [])
        self.try_again_s = 0.0
        self._idle: dict[tuple[int, int], list[Place]] = {}
        self._present: Counter[int] = Counter()
        self._overdue: dict[int, list[tuple[int, int]]] = {}
        self._becoming_overdue: list[tuple[float, int]] = []

    def add(self, sharer: CoreSharer) -> None:
        """One joins, or comes back."""
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
        if sharer.is_overdue:
            self._calm(sharer)
        self.changed = True
        if len(self._becoming_overdue) > 64 + 2 * len(self.sharers):
            self._becoming_overdue = [(s.overdue_at_s, s.id) for s in self.sharers.values() if not s.is_overdue]
            heapify(self._becoming_overdue)

    def begin_change(self, sharer: CoreSharer) -> None:
        """The cores or the rank of one are about to change: it has no place until `end_change`."""
        self._unsettle(sharer)

    def end_change(self, sharer: CoreSharer) -> None:
        """It has the place that it deserves now."""
        self._settle(sharer)

    @property
    def priorities(self) -> list[int]:
        """Those of all sharers, in no order."""
        return list(self._present)

    def present(self, priority: int) -> int:
        """Return how many sharers of a priority there are."""
        return self._present[priority]

    def idle_of(
        self, priority: int, *, kind: int = STAYING, left: int | None = None, capacity: int = 0
    ) -> Iterator[CoreSharer]:
        """Yield those of one priority that have no cores, in the order of their ranks.

        Args:
            priority: theirs.
            kind: the last of the kinds that are wanted.
            left: cores; only those that could go on with so many. None for all.
            capacity: cores that there can be: one that is suspended goes on with so many if it needs more.
        """
        places = [
            _those_of(idle, priority)
            for (of_kind, size), idle in self._idle.items()
            if of_kind <= kind and (left is None or size <= left or (of_kind == GOING_ON and capacity <= left))
        ]
        for place in places[0] if len(places) == 1 else merge(*places):
            yield self.sharers[place[3]]

    def overdue_of(self, priority: int) -> Iterator[CoreSharer]:
        """Yield those of one priority that have been here too long, in the order in which they came."""
        for _, sharer_id in self._overdue.get(priority, ()):
            yield self.sharers[sharer_id]

    def refresh(self, now_s: float) -> bool:
        """Count the work of all up to now, rank those anew that have done enough, and find who is overdue.

        Returns:
            Whether any of them has lost its place to another one.
        """
        due: list[CoreSharer] = []
        has_choice = False
        for sharer in self.running.values():
            sharer.count(now_s)
            has_choice |= len(sharer.admitted) > 1
            if sharer.attained_s >= sharer.ask_at_s * _NEARLY:
                due.append(sharer)
            if sharer.is_overdue and sharer.attained_s >= sharer.hurries_to_s * _NEARLY:
                self._calm(sharer)
                heappush(self._becoming_overdue, (sharer.overdue_at_s, sharer.id))
        self._find_overdue(now_s)
        if not due:
            return False
        before = sorted(self.running.values(), key=_held_place) if has_choice else []
        changed, self.changed = self.changed, True  # what follows may be interrupted
        for sharer in due:
            self._asking.rank(sharer)
        self.changed = changed
        places = [_held_place(sharer) for sharer in before]
        return places != sorted(places) or any(self._is_behind_an_idle_one(sharer) for sharer in due)

    def rank_all(self) -> None:
        """Rank all anew: there is another policy."""
        for sharer in self.sharers.values():
            self.rank_anew(sharer)

    def rank_anew(self, sharer: CoreSharer) -> None:
        """Rank one anew."""
        rank, ask_at_s = self._asking.asked(sharer)
        if rank != sharer.rank:
            self.begin_change(sharer)
            sharer.rank = rank
            self.end_change(sharer)
            self.changed = True
        sharer.ask_at_s = ask_at_s

    def next_overdue_s(self) -> float | None:
        """When the next one is overdue, or before that."""
        heap = self._becoming_overdue
        while heap and heap[0][1] not in self.sharers:
            heappop(heap)
        return heap[0][0] if heap else None

    def next_rank_s(self, now_s: float) -> float | None:
        """When one that runs is to be ranked anew, or is no longer overdue, if that could change anything."""
        if not self.idle and not any(len(sharer.admitted) > 1 for sharer in self.running.values()):
            return None
        works_s = ((s, min(s.ask_at_s, s.hurries_to_s)) for s in self.running.values())
        return min([s.reaches_s(work_s, now_s) for s, work_s in works_s if work_s < inf], default=None)

    def _find_overdue(self, now_s: float) -> None:
        """Find who is overdue by now, of many at a time some; `next_overdue_s` is past then."""
        heap = self._becoming_overdue
        for _ in range(_MOST_OVERDUE):
            if not heap or heap[0][0] > now_s:
                return
            late = self.sharers.get(heap[0][1])
            if late is not None and late.overdue_at_s > now_s:
                heapreplace(heap, (late.overdue_at_s, late.id))
                continue
            heappop(heap)
            if late is not None and not late.is_overdue:
                late.hurry()
                insort(self._overdue.setdefault(late.priority, []), (late.order, late.id))

    def _calm(self, sharer: CoreSharer) -> None:
        """One is not overdue any more."""
        overdue = self._overdue[sharer.priority]
        del overdue[bisect_left(overdue, (sharer.order, sharer.id))]
        if not overdue:
            del self._overdue[sharer.priority]
        sharer.is_overdue = False
        sharer.hurries_to_s = inf

    def _is_behind_an_idle_one(self, sharer: CoreSharer) -> bool:
        first = next(self.idle_of(sharer.priority), None)
        return first is not None and first.rank < sharer.held_rank

    def _settle(self, sharer: CoreSharer) -> None:
        if sharer.cores:
            self.running[sharer.id] = sharer
            self.cores += sharer.cores
        else:
            insort(self._idle.setdefault((sharer.kind, sharer.admitted[0]), []), sharer.place)
            self.idle += 1

    def _unsettle(self, sharer: CoreSharer) -> None:
        if sharer.cores:
            del self.running[sharer.id]
            self.cores -= sharer.cores
        else:
            alike = sharer.kind, sharer.admitted[0]
            idle = self._idle[alike]
            del idle[bisect_left(idle, sharer.place)]
            self.idle -= 1
            if not idle:
                del self._idle[alike]


def _those_of(idle: list[Place], priority: int) -> Iterator[Place]:
    for at in range(bisect_left(idle, (priority,)), len(idle)):
        if idle[at][0] != priority:
            return
        yield idle[at]


def _held_place(sharer: CoreSharer) -> Place:
    return sharer.priority, sharer.held_rank, sharer.order, sharer.id
