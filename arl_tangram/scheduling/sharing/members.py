"""Who shares the cores of the nodes of one core object: who joins, who leaves, and whose rank is to be found anew."""

from __future__ import annotations

from collections import OrderedDict

from arl_tangram.model.lifecycle import PendingAction
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.sharing.aside import QueueAside
from arl_tangram.scheduling.sharing.asking import Asking
from arl_tangram.scheduling.sharing.room import Room
from arl_tangram.scheduling.sharing.sharer import CoreSharer, rates_of
from arl_tangram.scheduling.sharing.works import Works

_MOST_JOINING = 256
_MOST_RANKED = 8


class Members:
    """The sharers of one core object, by id.

    Args:
        rooms: those of its nodes, by dimension.
        scale: integer units in a core.
        queue: who waits aside.
        durations: what is expected of actions.
        works: what is expected of their work.
        asking: the policy.
    """

    def __init__(  # noqa: PLR0917 - the parts of one core
        self,
        rooms: dict[int, Room],
        scale: int,
        queue: QueueAside,
        durations: Durations,
        works: Works,
        asking: Asking,
    ) -> None:
        self._rooms = rooms
        self._scale = scale
        self._queue = queue
        self._durations = durations
        self._works = works
        self._asking = asking
        self._sharers: dict[int, CoreSharer] = {}
        self._named: dict[str, dict[int, CoreSharer]] = {}
        self._stale: OrderedDict[int, CoreSharer] = OrderedDict()

    def get(self, action_id: int) -> CoreSharer | None:
        """Return a sharer, if there is one of that id."""
        return self._sharers.get(action_id)

    def room_of(self, sharer: CoreSharer) -> Room:
        """Return its room."""
        return self._rooms[sharer.action.demand.elastic or 0]

    def take_in(self, now_s: float) -> None:
        """Take note of some who have joined or left the queue, in order; the rest is for the next call."""
        log = self._queue.log
        for _ in range(min(len(log), _MOST_JOINING)):
            action, joined = log[0]
            if joined:
                sharer = self._new(action, now_s)
                self._asking.rank(sharer)
                self._add(sharer)
            elif (left := self._sharers.get(action.id)) is not None:
                self.remove(left)
            log.popleft()

    def join(self, action: PendingAction, now_s: float) -> CoreSharer:
        """Let one join that has started without; it is to be ranked."""
        sharer = self._new(action, now_s)
        self._add(sharer)
        return sharer

    def remove(self, sharer: CoreSharer) -> None:
        """One leaves, with what it has."""
        del self._sharers[sharer.id]
        alike = self._named[sharer.action.demand.name]
        del alike[sharer.id]
        if not alike:
            del self._named[sharer.action.demand.name]
        self._stale.pop(sharer.id, None)
        if not sharer.away:
            self.room_of(sharer).remove(sharer)

    def learn(self, action: PendingAction, work_s: float) -> None:
        """Learn how much work an action was that has ended."""
        if self._works.observe(action.demand, action.key, work_s):
            self._stale.update(self._named.get(action.demand.name, {}))

    def rank_stale(self) -> None:
        """Rank some of those anew that have no cores, and of which another work is expected by now.

        Few at a time: whoever is ranked anew may take the place of one whose rank was found before.
        """
        for _ in range(min(len(self._stale), _MOST_RANKED)):
            sharer = next(iter(self._stale.values()))
            if not sharer.cores and not sharer.away:
                self.room_of(sharer).rank_anew(sharer)
            del self._stale[sharer.id]

    def _new(self, action: PendingAction, now_s: float) -> CoreSharer:
        rates = rates_of(self._durations, action)
        remaining = self._works.of(action.demand, action.key)
        return CoreSharer(action, self._scale, rates, remaining, min(action.submitted_at_s, now_s))

    def _add(self, sharer: CoreSharer) -> None:
        self.room_of(sharer).add(sharer)
        self._sharers[sharer.id] = sharer
        self._named.setdefault(sharer.action.demand.name, {})[sharer.id] = sharer
