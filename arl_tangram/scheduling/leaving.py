"""Let those leave who have not started and never will: they are not wanted any more, or can never run."""

from __future__ import annotations

from arl_tangram.errors import TangramError
from arl_tangram.model.lifecycle import PendingAction
from arl_tangram.scheduling.blocking import Blocking
from arl_tangram.scheduling.decisions import Round
from arl_tangram.scheduling.lending import Lending
from arl_tangram.scheduling.nesting import Nesting
from arl_tangram.scheduling.queue import WaitingQueue
from arl_tangram.scheduling.rounds import Rounds
from arl_tangram.scheduling.seating import Seating
from arl_tangram.scheduling.starting import Starting
from arl_tangram.scheduling.turns import Trajectories


class Leaving:
    """The way out of one core, for those that do not start.

    Args:
        queue: who waits.
        trajectories: those that are open, or wait to be, and who waits for a turn in them.
        rounds: is told that somebody has left.
        blocking: is told of whom waits no more.
        starting: knows who was deferred.
        nesting: is told of calls that leave.
        lending: passes the turn on of those that leave.

    Attributes:
        seating: is told of those that wanted a seat, if there are any.
    """

    def __init__(  # noqa: PLR0917 - the parts of one core
        self,
        queue: WaitingQueue,
        trajectories: Trajectories,
        rounds: Rounds,
        blocking: Blocking,
        starting: Starting,
        nesting: Nesting,
        lending: Lending,
    ) -> None:
        self._queue = queue
        self._trajectories = trajectories
        self._rounds = rounds
        self._blocking = blocking
        self._starting = starting
        self._nesting = nesting
        self._lending = lending
        self.seating: Seating | None = None

    def withdraw(self, action_id: int) -> None:
        """A waiting call or trajectory is not wanted any more; it held nothing."""
        if (action := self._trajectories.stop_waiting(action_id)) is not None:
            self._starting.deferred.discard(action_id)
            self._nesting.end(action)
            self._wait_no_more(action)
            return
        self._trajectories.forget(action_id)
        action = self._queue.get(action_id)
        self._queue.remove(action_id)
        self._let_go(action, action.submitted_at_s)

    def refuse(self, action: PendingAction, error: TangramError, this: Round) -> None:
        """Let go of one that was taken out of the queue and can never start."""
        this.decisions.impossible.append((action.id, error))
        self._let_go(action, this.now_s)

    def _let_go(self, action: PendingAction, now_s: float) -> None:
        """Forget an action that has left the queue and does not start."""
        self._rounds.join()
        if action.demand.seat is not None and self.seating is not None:
            self.seating.forget(action.id)
        self._blocking.forget(action.id)
        self._starting.deferred.discard(action.id)
        if action.parent is not None:
            self._nesting.end(action)
        self._wait_no_more(action)
        self._lending.pass_turn(action, now_s)

    def _wait_no_more(self, action: PendingAction) -> None:
        if action.trajectory is not None and (state := self._trajectories.get(action.trajectory)) is not None:
            self._trajectories.end_waiting(action.id, state)
