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


class Lane:
    """Actions of one priority that the same blocks concern, in order of arrival; some have been removed since.

    Attributes:
        priority: lower first.
        mask: the bits of the blocks that concern them.
        actions: those that wait, and `dead` ones that do not any more.
        dead: how many.
    """

    __slots__ = ("actions", "dead", "mask", "priority")

    def __init__(self, priority: int, mask: int) -> None:
        self.priority = priority
        self.mask = mask
        self.actions: deque[PendingAction] = deque()
        self.dead = 0


class WaitingQueue:
    """Pending actions, in order of priority and arrival.

    Args:
        dimensions: how many there are in the topology.
    """

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._lanes: dict[tuple[int, int], Lane] = {}
        self._waiting: dict[int, PendingAction] = {}

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
        actions = self._lane(action).actions
        if actions and actions[-1].id > action.id:
            actions.insert(bisect_left(actions, action.id, key=_id), action)
        else:
            actions.append(action)
        self._waiting[action.id] = action

    def remove(self, action_id: int) -> None:
        """Forget a waiting action; its place in the lane is cleared later."""
        lane = self._lane(self._waiting.pop(action_id))
        lane.dead += 1
        if lane.dead > 64 and 2 * lane.dead > len(lane.actions):
            lane.actions = deque(self._live(lane))
            lane.dead = 0

    def heads(self) -> list[tuple[int, int, Lane]]:
        """Return a heap of (priority, id of the first, lane) over the lanes."""
        heads: list[tuple[int, int, Lane]] = []
        for lane in list(self._lanes.values()):
            first = self.first(lane)
            if first is None:
                del self._lanes[lane.priority, lane.mask]
            else:
                heads.append((lane.priority, first.id, lane))
        heapq.heapify(heads)
        return heads

    def first(self, lane: Lane) -> PendingAction | None:
        """Return the first action of a lane without taking it."""
        actions = lane.actions
        while actions:
            if actions[0].id in self._waiting:
                return actions[0]
            actions.popleft()
            lane.dead -= 1
        return None

    def take(self, lane: Lane) -> PendingAction:
        """Take the first action of a lane out of the queue."""
        action = lane.actions.popleft()
        del self._waiting[action.id]
        return action

    def put_back(self, action: PendingAction) -> None:
        """Return an action that was taken in this decision to its place."""
        actions = self._lane(action).actions
        if not actions or actions[0].id > action.id:
            actions.appendleft(action)
        else:
            actions.insert(bisect_left(actions, action.id, key=_id), action)
        self._waiting[action.id] = action

    def behind(self, dimension: int, limit: int) -> list[PendingAction]:
        """Return the first `limit` waiting actions that use a dimension, in order."""
        lanes = [self._live(lane) for lane in self._lanes.values() if lane.mask >> dimension & 1]
        return list(islice(heapq.merge(*lanes, key=lambda a: (a.demand.priority, a.id)), limit))

    def __iter__(self) -> Iterator[PendingAction]:
        return iter(self._waiting.values())

    def _live(self, lane: Lane) -> Iterator[PendingAction]:
        return (action for action in lane.actions if action.id in self._waiting)

    def _lane(self, action: PendingAction) -> Lane:
        key = (action.demand.priority, lane_mask(action, self._dimensions))
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(*key)
        return lane


def _id(action: PendingAction) -> int:
    return action.id
