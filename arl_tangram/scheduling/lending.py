"""Let actions that wait for their calls lend their cores and their turn, and give both back at the head of the queue.

An action that keeps its cores, because something that it has started is alive on them, keeps its turn, too: whoever had
it meanwhile would work beside what is alive there, and would end it.

An action that wants back what it lent gets its turn first, and then its cores, exactly as many as it had. Both come
before everything else. While it lacks cores it blocks them for everybody behind it, as `blocking` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from arl_tangram.model.events import ActionLent, ActionResumed, Event
from arl_tangram.model.lifecycle import PendingAction, RunningAction
from arl_tangram.scheduling.blocking import Blocking
from arl_tangram.scheduling.decisions import Round
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.nesting import Caller, Nesting
from arl_tangram.scheduling.planning import Planning
from arl_tangram.scheduling.queue import WaitingQueue
from arl_tangram.scheduling.turns import Line, Trajectories, TrajectoryState


class Sharers(Protocol):
    """Those that share their cores while they run."""

    def lend(self, running: RunningAction, now_s: float, *, cores: bool) -> None:
        """One has lent its cores if `cores`, or waits for others and keeps them."""
        ...

    def resume(self, running: RunningAction, now_s: float) -> None:
        """One has all that it had lent again."""
        ...


class Lending:
    """What callers lend and get back, and whose turn it is.

    Args:
        nesting: who has called whom.
        ledger: what there is.
        queue: who waits.
        blocking: what those who wait block.
        planning: what is expected to end.
        trajectories: the turns.
        join: lets an action that has its turn compete for units, from a time on.
        note: is told what happens.

    Attributes:
        sharing: those that share their cores, if any do.
    """

    def __init__(  # noqa: PLR0917 - the parts of one core
        self,
        nesting: Nesting,
        ledger: Ledger,
        queue: WaitingQueue,
        blocking: Blocking,
        planning: Planning,
        trajectories: Trajectories,
        join: Callable[[PendingAction, float], None],
        note: Callable[[Event], object],
    ) -> None:
        self._nesting = nesting
        self._ledger = ledger
        self._queue = queue
        self._blocking = blocking
        self._planning = planning
        self._trajectories = trajectories
        self._join = join
        self._note = note
        self._resuming: dict[int, Caller] = {}
        self.sharing: Sharers | None = None

    def needs(self, caller: Caller) -> int:
        """Return the cores that must be free for one that resumes.

        Where there are fewer by now than it had, that is all that those leave who wait for it.
        """
        if not caller.cores:
            return 0
        left = self._ledger.target[caller.cpu] - self._nesting.cores_kept_by_callers_of(caller)
        return max(0, min(caller.cores, left))

    def wanted_back(self, cpu: int) -> list[int]:
        """Return what each of those needs that wait for the cores of a node which they have lent, in order."""
        return [self.needs(caller) for caller in self._resuming.values() if caller.cpu == cpu]

    # Callers.

    def lend(self, running: RunningAction, now_s: float, *, cores: bool) -> None:
        """Lend the turn and the cores of an action if `cores`, else nothing; one that has lent them lends them on."""
        caller = self._nesting.lent.get(running.pending.id)
        if caller is not None:
            if caller.wanted:
                self._want_no_more(caller, now_s)
            return
        before = self._nesting.callers.get(running.pending.id)
        self._planning.expect_no_more(running, 0.0 if before is None else before.away_s)
        caller = self._nesting.lend(running, now_s, cores=cores)
        if caller.cores:
            self._ledger.lend(caller.cpu, caller.cores)
            self._blocking.lend(caller.cpu, caller.cores)
        self._blocking.keep(caller.kept)
        for dimension, _ in caller.kept:
            self._ledger.changed |= 1 << dimension  # who waits for it blocks others less now
        self._note(ActionLent(now_s, running.pending.id, caller.cores))
        if self.sharing is not None:
            self.sharing.lend(running, now_s, cores=cores)
        if cores and running.pending.turn and running.pending.trajectory is not None:
            caller.lacks_turn = True
            self.pass_turn(running.pending, now_s)

    def reclaim(self, action_id: int, now_s: float) -> bool:
        """Let an action have all back that it has lent; return whether it has it at once."""
        caller = self._nesting.lent.get(action_id)
        if caller is None:
            return True
        if caller.wanted:
            return False
        caller.wanted = True
        self._nesting.unchecked = True
        if caller.lacks_turn and not self._take_turn_back(caller, now_s):
            return False
        caller.lacks_turn = False
        is_first = all(other.cpu != caller.cpu for other in self._resuming.values())
        if caller.cores == 0 or (is_first and self._fits(caller)):
            self._resume(caller, now_s)
            return True
        self._resuming[action_id] = caller
        return False

    def resume_all(self, this: Round) -> None:
        """Give back what can be given back, in the order in which it was wanted; bar what the others wait for."""
        for action_id, caller in list(self._resuming.items()):
            if caller.cores and this.barred >> caller.cpu & 1:
                continue
            if self._fits(caller):
                del self._resuming[action_id]
                self._resume(caller, this.now_s)
                this.decisions.resumed.append(caller.running)
            else:
                this.barred |= self._blocking.blocks_units(caller.cpu, self.needs(caller))

    def end(self, running: RunningAction, now_s: float) -> tuple[float, bool]:
        """Settle what an action has lent, which ends now, so that it holds all and gives all of it back.

        Returns:
            For how many seconds it waited for its calls, and whether it has its turn.
        """
        if running.pending.demand.dimensions & self._ledger.budgets:
            self._nesting.unchecked = True  # what it counted for is spent for good
        caller = self._nesting.callers.pop(running.pending.id, None)
        if caller is None:
            self._planning.expect_no_more(running)
            return 0.0, True
        lacked_turn = caller.lacks_turn
        if caller.lent:
            if caller.wanted:
                self._forget(caller)
            self._take_again(caller, now_s)
        else:
            self._planning.expect_no_more(running, caller.away_s)
        for call in caller.calls.values():
            if call.id in self._nesting.waiting:
                self._let_go(call, now_s)
        return caller.away_s, not lacked_turn

    def _resume(self, caller: Caller, now_s: float) -> None:
        self._take_again(caller, now_s)
        self._planning.expect(caller.running, caller.away_s)
        self._note(ActionResumed(now_s, caller.running.pending.id, caller.cores))
        if self.sharing is not None:
            self.sharing.resume(caller.running, now_s)

    def _take_again(self, caller: Caller, now_s: float) -> None:
        self._blocking.stop_keeping(caller.kept)
        if caller.cores:
            self._ledger.regain(caller.cpu, caller.cores)
            self._blocking.lend(caller.cpu, -caller.cores)
            if self._blocking.held_back:
                self._blocking.held_back = False
                self._ledger.changed |= 1 << caller.cpu  # a trajectory may be admitted now
        self._nesting.regain(caller, now_s)

    def _want_no_more(self, caller: Caller, now_s: float) -> None:
        caller.wanted = False
        self._nesting.unchecked = True
        self._forget(caller)
        action = caller.running.pending
        if action.turn and action.trajectory is not None and not caller.lacks_turn:
            caller.lacks_turn = True
            self.pass_turn(action, now_s)

    def _forget(self, caller: Caller) -> None:
        """A caller does not wait for what it has lent."""
        if caller.lacks_turn:
            self._trajectories.stop_returning(caller.running.pending)
        if self._resuming.pop(caller.running.pending.id, None) is not None and caller.cores:
            self._ledger.changed |= 1 << caller.cpu  # whom it blocked may start now

    def _fits(self, caller: Caller) -> bool:
        return caller.cores == 0 or self.needs(caller) <= self._ledger.free[caller.cpu]

    # Turns.

    def take_turn(self, action: PendingAction, state: TrajectoryState) -> bool:
        """Give an action that was submitted the turn in its sandbox, or let it wait; return whether it is to join."""
        called = action.id in self._nesting.waiting
        if self._trajectories.take_turn(action, state, Line.CALLED if called else Line.LAST):
            return True
        holder = state.turn
        if called and holder is not None and holder in self._queue and holder not in self._nesting.waiting:
            self.yield_turn(holder, action, action.submitted_at_s)
        return False

    def pass_turn(self, action: PendingAction, now_s: float) -> None:
        """An action needs its turn no longer: let the next one have it."""
        if (following := self._trajectories.pass_turn(action)) is not None:
            self._has_turn(following, now_s)

    def yield_turn(self, holder: int, to: PendingAction, now_s: float) -> None:
        """Give a turn to one that waits for it, from one that has it and cannot go on yet."""
        caller = self._nesting.lent.get(holder)
        if caller is not None:
            self._resuming.pop(holder, None)
            caller.lacks_turn = True
            self._trajectories.yield_turn(caller.running.pending, Line.RETURNING, to)
        else:
            action = self._queue.pull(holder)
            self._blocking.forget(holder)
            if action.demand.seat is not None and self._nesting.seating is not None:
                self._nesting.seating.forget(holder)
            self._ledger.changed |= action.demand.dimensions  # whom it blocked may start now
            called = holder in self._nesting.waiting
            self._trajectories.yield_turn(action, Line.CALLED if called else Line.LAST, to)
        self._has_turn(to, now_s)

    def _has_turn(self, action: PendingAction, now_s: float) -> None:
        caller = self._nesting.lent.get(action.id)
        if caller is not None:
            caller.lacks_turn = False
            self._resuming[action.id] = caller
            self._nesting.unchecked = True
            return
        if action.id in self._nesting.waiting:
            self._nesting.unchecked = True
        self._join(action, max(now_s, action.submitted_at_s))

    def _take_turn_back(self, caller: Caller, now_s: float) -> bool:
        """Give a caller its turn again, if whoever has it has not started."""
        action = caller.running.pending
        assert action.trajectory is not None
        state = self._trajectories[action.trajectory]
        if self._trajectories.take_turn(action, state, Line.RETURNING):
            return True
        holder = state.turn
        if holder is not None and holder in self._queue:
            self.yield_turn(holder, action, now_s)
        return False

    def _let_go(self, call: PendingAction, now_s: float) -> None:
        """Let a call whose caller has ended wait as any other action does."""
        self._nesting.start(call.id)
        self._blocking.forget(call.id)
        if self._trajectories.move_last(call.id) is not None:
            return
        action = self._queue.pull(call.id)
        self._join(action, max(now_s, action.submitted_at_s))
        if action.turn and action.trajectory is not None:
            state = self._trajectories[action.trajectory]
            if state.urgent:
                self.yield_turn(call.id, state.urgent[0][2], now_s)
