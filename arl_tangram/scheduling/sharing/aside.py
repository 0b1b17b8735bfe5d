"""Let those that begin by sharing wait aside: in the queue, but in no lane of it, so that no walk looks at them."""

from __future__ import annotations

from collections import deque

from arl_tangram.model.lifecycle import PendingAction
from arl_tangram.scheduling.queue import WaitingQueue
from arl_tangram.scheduling.sharing.kinds import begins_by_sharing


class QueueAside(WaitingQueue):
    """The queue of a core object whose running actions share their cores; arguments as those of a `WaitingQueue`.

    Attributes:
        log: of those that wait aside, who has joined (True) and who has left, in order, until that is taken note of.
        touched: bits of the dimensions of the others that have joined or left, until that is taken note of.
    """

    def __init__(self, dimensions: int, seats: int = 0) -> None:
        super().__init__(dimensions, seats)
        self.log: deque[tuple[PendingAction, bool]] = deque()
        self.touched = 0

    def add(self, action: PendingAction) -> None:
        """Queue an action at its place, or aside."""
        if begins_by_sharing(action.demand):
            self._waiting[action.id] = action
            self.log.append((action, True))
            return
        self.touched |= action.demand.dimensions
        super().add(action)

    def remove(self, action_id: int) -> None:
        """Forget a waiting action."""
        if not self._leaves_from_aside(action_id):
            super().remove(action_id)

    def pull(self, action_id: int) -> PendingAction:
        """Take a waiting action out, which may be queued again."""
        action = self._waiting[action_id]
        return action if self._leaves_from_aside(action_id) else super().pull(action_id)

    def take_aside(self, action_id: int) -> PendingAction:
        """Take one that waits aside out of the queue, which starts."""
        return self._waiting.pop(action_id)

    def _leaves_from_aside(self, action_id: int) -> bool:
        action = self._waiting[action_id]
        if not begins_by_sharing(action.demand):
            self.touched |= action.demand.dimensions
            return False
        del self._waiting[action_id]
        self.log.append((action, False))
        return True
