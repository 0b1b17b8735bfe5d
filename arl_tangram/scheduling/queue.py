"""Hold what waits, in lanes: one for each priority and each set of blocks that concern it, in order of arrival.

An action that does not fit blocks dimensions, not single actions, so a whole lane is passed over at
once, and a walk over the queue costs the number of lanes and of candidates, not of those who wait.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import islice

from arl_tangram.model.lifecycle import PendingAction
from arl_tangram.scheduling.blocking import lane_mask

_Lane = deque[PendingAction]


class WaitingQueue:
    """Pending actions, in order of priority and arrival.

    Args:
        dimensions: how many there are in the topology.
    """

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._lanes: dict[tuple[int, int], _Lane] = {}
        self._waiting: dict[int, PendingAction] = {}
        self._dead: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def lanes(self) -> int:
        """How many lanes there are, those that have just become empty included."""
        return len(self._lanes)

    def get(self, action_id: int) -> PendingAction:
        """Return a waiting action."""
        return self._waiting[action_id]

    def __contains__(self, action_id: int) -> bool:
        return action_id in self._waiting

    def add(self, action: PendingAction) -> None:
        """Queue an action at the place that its arrival gives it."""
        lane = self._lanes.setdefault(self._lane_key(action), deque())
        if lane and lane[-1].id > action.id:
            lane.insert(bisect_left(lane, action.id, key=_id), action)
        else:
            lane.append(action)
        self._waiting[action.id] = action

    def remove(self, action_id: int) -> None:
        """Forget a waiting action; its place in the lane is cleared later."""
        action = self._waiting.pop(action_id)
        lane_key = self._lane_key(action)
        dead = self._dead.get(lane_key, 0) + 1
        lane = self._lanes[lane_key]
        if dead > 64 and 2 * dead > len(lane):
            self._lanes[lane_key] = deque(a for a in lane if a.id in self._waiting)
            dead = 0
        self._dead[lane_key] = dead

    def heads(self) -> list[tuple[int, int, int]]:
        """Return a heap of (priority, id, mask) of the first of each lane."""
        heads: list[tuple[int, int, int]] = []
        empty: list[tuple[int, int]] = []
        for key, lane in self._lanes.items():
            first = self._first(lane, key)
            if first is None:
                empty.append(key)
            else:
                heads.append((key[0], first.id, key[1]))
        for key in empty:
            del self._lanes[key]
            self._dead.pop(key, None)
        heapq.heapify(heads)
        return heads

    def first(self, priority: int, mask: int) -> PendingAction | None:
        """Return the first action of a lane without taking it."""
        lane = self._lanes.get((priority, mask))
        return None if lane is None else self._first(lane, (priority, mask))

    def take(self, action: PendingAction) -> None:
        """Take the first action of its lane out of the queue."""
        taken = self._lanes[self._lane_key(action)].popleft()
        if taken is not action:
            raise AssertionError(f"{action.id} is not the first of its lane, {taken.id} is")
        del self._waiting[action.id]

    def put_back(self, action: PendingAction) -> None:
        """Return an action that was taken in this decision to its place."""
        lane = self._lanes[self._lane_key(action)]
        if not lane or lane[0].id > action.id:
            lane.appendleft(action)
        else:
            lane.insert(bisect_left(lane, action.id, key=_id), action)
        self._waiting[action.id] = action

    def behind(self, dimension: int, limit: int) -> list[PendingAction]:
        """Return the first `limit` waiting actions that use a dimension, in order."""
        lanes = [self._live(lane) for (_, mask), lane in self._lanes.items() if mask >> dimension & 1]
        return list(islice(heapq.merge(*lanes, key=lambda a: (a.demand.priority, a.id)), limit))

    def __iter__(self) -> Iterator[PendingAction]:
        return iter(self._waiting.values())

    def _live(self, lane: _Lane) -> Iterator[PendingAction]:
        return (action for action in lane if action.id in self._waiting)

    def _first(self, lane: _Lane, key: tuple[int, int]) -> PendingAction | None:
        while lane and lane[0].id not in self._waiting:
            lane.popleft()
            self._dead[key] -= 1
        return lane[0] if lane else None

    def _lane_key(self, action: PendingAction) -> tuple[int, int]:
        return action.demand.priority, lane_mask(action, self._dimensions)


def _id(action: PendingAction) -> int:
    return action.id
