"""Let actions and trajectories join the queue, each at its place: by order, and for a call, where its callers stood."""

from __future__ import annotations

from arl_tangram.model.lifecycle import PendingAction
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.nesting import Nesting
from arl_tangram.scheduling.order import Order, shortest_rank, trajectory_rank
from arl_tangram.scheduling.planning import Planning
from arl_tangram.scheduling.queue import WaitingQueue
from arl_tangram.scheduling.rounds import Rounds
from arl_tangram.scheduling.turns import Trajectories


class Joining:
    """The way into the queue of one core.

    Args:
        order: who comes first among those of one priority.
        queue: who waits.
        rounds: is told that somebody has joined.
        planning: is told of whom a policy hands out units to.
        durations: what is expected of actions.
        nesting: who has called whom.
        trajectories: those of the actions.
    """

    def __init__(  # noqa: PLR0917 - the parts of one core
        self,
        order: Order,
        queue: WaitingQueue,
        rounds: Rounds,
        planning: Planning,
        durations: Durations,
        nesting: Nesting,
        trajectories: Trajectories,
    ) -> None:
        self._order = order
        self._queue = queue
        self._rounds = rounds
        self._planning = planning
        self._durations = durations
        self._nesting = nesting
        self._trajectories = trajectories

    def join(self, action: PendingAction, at_s: float) -> None:
        """Let an action compete from now on."""
        self._rounds.join()
        if self._order != "fcfs":
            action = action._replace(rank=self._rank(action, at_s))
        if action.parent is not None:
            action = self._nesting.placed(action, by_time=self._order != "fcfs")
        if action.demand.elastic is not None:
            self._planning.arrive(action, at_s)
        self._queue.add(action)

    def _rank(self, action: PendingAction, at_s: float) -> float:
        if action.since_s is not None:
            at_s = action.since_s
        if self._order == "shortest" and self._trajectories.get(action.id) is None:
            return shortest_rank(at_s, self._durations.expected_s(action.demand, action.key))
        if self._order == "trajectory" and action.trajectory is not None:
            state = self._trajectories[action.trajectory]
            return trajectory_rank(at_s, state.admitted_at_s, state.attained_s)
        return at_s
