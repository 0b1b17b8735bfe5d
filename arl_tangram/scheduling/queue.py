"""Hold what waits, in lanes: one for each set of blocks that concern it, in order of priority, rank and arrival.

An action that does not fit blocks dimensions, not single actions, so a whole lane is passed over at
once, and a walk over the queue costs the number of lanes and of candidates, not of those who wait.

Actions inside of trajectories may share a lane with one that waits without blocking them (`blocking`). Such a lane is
split: from then on there is one for each demand, as whoever asks for the same waits for the same.

A lane is looked at again only if something changed for it: somebody joined it, or units of one of its dimensions
returned. Those that share a dimension with such a lane count as changed too, because whoever is before them in order
may block what they wait for.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, MutableSequence
from itertools import islice

from arl_tangram.model.lifecycle import PendingAction
from arl_tangram.scheduling.blocking import Masks

Place = tuple[int, float, int] | tuple[int, float, int, int]
"""What actions are ordered by: (priority, rank, id); of calls of a running action, where it stood, and the id."""
Head = tuple[Place, "Lane"]
"""The place of the first action of a lane, and the lane."""


class Lane:
    """Actions that the same blocks concern, in order; some have been removed since.

    Attributes:
        mask: the bits of the blocks that concern them; where each has several places, of which any will do, none but
            the bit of what is new.
        dimensions: the bits of the dimensions that each of them uses, or is tied by.
        actions: those that wait, and `dead` ones that do not any more.
        dead: how many.
        alike: whether all of them have the same demand.
        changed: whether somebody joined since the last decision.
    """

    __slots__ = ("actions", "alike", "changed", "dead", "dimensions", "mask")

    def __init__(self, mask: int, dimensions: int, alike: bool) -> None:
        self.mask = mask
        self.dimensions = dimensions
        self.actions: deque[PendingAction] = deque()
        self.dead = 0
        self.alike = alike
        self.changed = True


class WaitingQueue:
    """Pending actions, in order of priority, rank and arrival.

    Args:
        dimensions: how many there are in the topology.
        seats: the bit of the dimension by which the lanes of all are tied who need a seat in a pool of GPUs, as each of
            them may wait for what another one uses; 0 where there is none.
    """

    def __init__(self, dimensions: int, seats: int = 0) -> None:
        self._masks = Masks(dimensions)
        self._seats = seats
        self._lanes: dict[tuple[int, bool, int], Lane] = {}
        self._waiting: dict[int, PendingAction] = {}
        self._split: set[tuple[int, bool]] = set()
        self._reached = 0

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
        """Queue an action at its place."""
        lane = self._lane(action)
        lane.changed = True
        actions = lane.actions
        last = actions[-1] if actions else action
        alike = last.demand is action.demand and last.rank == action.rank and last.id <= action.id
        alike = alike and action.inherited is None  # the commonest
        if alike or place(last) < place(action):
            actions.append(action)
        else:
            _insert(actions, action)
        self._waiting[action.id] = action

    def remove(self, action_id: int) -> None:
        """Forget a waiting action; its place in the lane is cleared later."""
        lane = self._lane(self._waiting.pop(action_id))
        lane.changed = True  # whom it blocked may start now
        lane.dead += 1
        if lane.dead > 64 and 2 * lane.dead > len(lane.actions):
            lane.actions = deque(self._live(lane))
            lane.dead = 0

    def pull(self, action_id: int) -> PendingAction:
        """Take a waiting action out, which may be queued again: nothing of it stays behind."""
        action = self._waiting.pop(action_id)
        lane = self._lane(action)
        lane.changed = True
        del lane.actions[bisect_left(lane.actions, place(action), key=place)]
        return action

    def heads(self, changed: int) -> list[Head]:
        """Return a heap of the first of each lane for which something changed, directly or by a shared dimension.

        What that is counts until `settle`: a lane may become empty meanwhile, and with it what tied others together.

        Args:
            changed: bits of the dimensions of which units returned.
        """
        heads: list[Head] = []
        changed |= self._reached
        for key, lane in list(self._lanes.items()):
            if lane.changed:
                changed |= lane.dimensions
            first = self.first(lane)
            if first is None:
                del self._lanes[key]
                if self._split:
                    self._split &= {other[:2] for other in self._lanes}
            else:
                heads.append((place(first), lane))
        self._reached = changed
        if len(heads) > 1:
            self._reached = reached = _reached(changed, [lane for _, lane in heads])
            heads = [head for head in heads if head[1].changed or head[1].dimensions & reached]
            heapq.heapify(heads)
        elif heads and not (heads[0][1].changed or heads[0][1].dimensions & changed):
            heads.clear()
        return heads

    def split(self, lane: Lane) -> list[Head]:
        """Let each demand of a lane have a lane of its own, and return the heads of those that its first is not in."""
        if lane.alike:
            return []
        live = list(self._live(lane))
        key = next(key for key, other in self._lanes.items() if other is lane)
        del self._lanes[key]
        self._split.add(key[:2])
        for action in live:
            self._lane(action).actions.append(action)
        lanes = {id(action.demand): self._lane(action) for action in live[1:]}
        lanes.pop(id(live[0].demand), None)
        return [(place(lane.actions[0]), lane) for lane in lanes.values()]

    def settle(self) -> None:
        """Take note that a decision has looked at all that changed."""
        self._reached = 0
        for lane in self._lanes.values():
            lane.changed = False

    def look_at_all(self) -> None:
        """Count every lane as changed."""
        for lane in self._lanes.values():
            lane.changed = True

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
        if not actions or place(actions[0]) > place(action):
            actions.appendleft(action)
        else:
            _insert(actions, action)
        self._waiting[action.id] = action

    def behind(self, dimension: int, limit: int) -> list[PendingAction]:
        """Return the first `limit` waiting actions that use a dimension, in order."""
        lanes = [lane for lane in self._lanes.values() if lane.dimensions >> dimension & 1]
        if len(lanes) == 1:
            return list(islice(self._live(lanes[0]), limit))
        firsts = [islice(self._live(lane), limit) for lane in lanes]
        return list(islice(heapq.merge(*firsts, key=place), limit))

    def lanes_of(self, dimension: int) -> list[Iterator[PendingAction]]:
        """Return those who wait in each lane whose actions use a dimension, in order."""
        return [self._live(lane) for lane in self._lanes.values() if lane.dimensions >> dimension & 1]

    def count(self, dimension: int) -> int:
        """Return how many waiting actions use a dimension."""
        lanes = (lane for lane in self._lanes.values() if lane.dimensions >> dimension & 1)
        return sum(len(lane.actions) - lane.dead for lane in lanes)

    def __iter__(self) -> Iterator[PendingAction]:
        return iter(self._waiting.values())

    def _live(self, lane: Lane) -> Iterator[PendingAction]:
        return (action for action in lane.actions if action.id in self._waiting)

    def _lane(self, action: PendingAction) -> Lane:
        demand = action.demand
        mask = self._masks.of(action)
        # What running actions have called may wait for each other: one that lacks something only holds up its equals.
        key = (mask, not demand.places, 0 if action.inherited is None else id(demand))
        if self._split and key[:2] in self._split:
            key = (*key[:2], id(demand))
        lane = self._lanes.get(key)
        if lane is None:
            concerned = mask & self._masks.new if demand.places else mask
            tied = demand.dimensions if demand.seat is None else demand.dimensions | self._seats
            lane = self._lanes[key] = Lane(concerned, tied, key[2] != 0)
        return lane


def place(a: PendingAction) -> Place:
    """Return what actions are ordered by."""
    return (a.demand.priority, a.rank, a.id) if a.inherited is None else (*a.inherited, a.id)


def _insert(actions: MutableSequence[PendingAction], action: PendingAction) -> None:
    actions.insert(bisect_left(actions, place(action), key=place), action)


def _reached(changed: int, lanes: list[Lane]) -> int:
    """Return the bits of all dimensions that are tied to changed ones by lanes that use both."""
    reached, grown = changed, True
    while grown:
        grown = False
        for lane in lanes:
            dimensions = lane.dimensions
            if dimensions & reached and dimensions & ~reached:
                reached |= dimensions
                grown = True
    return reached
