"""Walk the queue once: gather the candidates, ask the policy, and start, defer or refuse them."""

from __future__ import annotations

from collections.abc import Callable

from arl_tangram.errors import TangramError
from arl_tangram.model.events import ActionDeferred, Event, PolicyRefused
from arl_tangram.model.lifecycle import PendingAction
from arl_tangram.scheduling.blocking import Blocking
from arl_tangram.scheduling.candidates import Candidates, Gathered
from arl_tangram.scheduling.decisions import Round
from arl_tangram.scheduling.feasibility import no_budget
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.planning import Planning
from arl_tangram.scheduling.queue import WaitingQueue, place
from arl_tangram.scheduling.rounds import Rounds
from arl_tangram.scheduling.seating import Seating
from arl_tangram.scheduling.starting import Starting


class Walk:
    """Walks over the queue of one core.

    Args:
        ledger: what there is.
        queue: who waits.
        blocking: what those who wait block.
        candidates: takes them out of the queue.
        planning: asks the policy.
        rounds: what has changed.
        starting: starts those whose units are taken.
        seating: gives seats in a pool of GPUs, if there is one.
        refuse: lets go of an action that was taken out of the queue, with the error.
        note: is told what happens.
    """

    def __init__(  # noqa: PLR0917 - the parts of one core
        self,
        ledger: Ledger,
        queue: WaitingQueue,
        blocking: Blocking,
        candidates: Candidates,
        planning: Planning,
        rounds: Rounds,
        starting: Starting,
        seating: Seating | None,
        refuse: Callable[[PendingAction, TangramError, Round], None],
        note: Callable[[Event], object],
    ) -> None:
        self._ledger = ledger
        self._queue = queue
        self._blocking = blocking
        self._candidates = candidates
        self._planning = planning
        self._rounds = rounds
        self._starting = starting
        self._seating = seating
        self._refuse = refuse
        self._note = note

    def walk(self, this: Round) -> bool:
        """Start what can start and was not deferred in this call; return whether to walk again.

        Once more after a start, if there are several lanes: what starts can make one waiter lack what another
        one behind it was blocked for, and nothing else would wake the core for that one.
        """
        plans: dict[int, list[int]] = {}
        again = False
        gathered = self._candidates.gather(this, self._rounds.changed)
        if gathered.exhausted:
            again = True
            for action, budget in gathered.exhausted:
                spent = self._planning.topology.dimensions[budget]
                self._refuse(action, no_budget(action.demand, spent, self._ledger.free[budget]), this)
        try:
            this.decisions.more = gathered.left_some
            for dimension, members in gathered.groups.items():
                plans[dimension] = self._planned(dimension, members, this)
                if not plans[dimension] and (behind := _users_behind(members[0], dimension, gathered)):
                    self._candidates.put_back(behind, this)
                    gathered.fixed = [action for action in gathered.fixed if action not in behind]
                    gathered.seated = [action for action in gathered.seated if action not in behind]
                    plans[dimension] = self._planned(dimension, members, this)
                    again = True
        except BaseException:
            self._candidates.put_back(gathered.all(), this)
            raise
        for action in gathered.fixed:
            self._starting.start(action, 0, this)
        for dimension, members in gathered.groups.items():
            again |= self._arrange(dimension, members, plans[dimension], this)
        if gathered.seated and self._seating is not None:
            seated = self._seating.seat(gathered.seated, this, more=gathered.left_seated)
            again |= seated < len(gathered.seated)
            # Were nobody seated, the next call would gather the same ones; here they are deferred, and others come.
            this.decisions.more |= gathered.left_seated and seated > 0
        if self._blocking.widened:
            self._blocking.widened = False
            self._rounds.look_at_all()
            this.skip, again = 0, True
        if gathered.fixed or gathered.seated or any(plans.values()):
            return not this.decisions.more and (again or self._queue.lanes > 1)
        return again

    def _arrange(self, dimension: int, members: list[PendingAction], plan: list[int], this: Round) -> bool:
        """Start the candidates of a group as the policy says; return whether anybody is left over.

        Who is left over is deferred, unless somebody was started and it still fits: then it is planned anew.
        """
        self._rounds.look_again_s.pop(dimension, None)
        late = members[len(plan) :]
        if late:
            self._candidates.put_back(late, this)
        for action, units in zip(members, plan, strict=False):
            self._ledger.free[dimension] -= units - action.demand.options[0]
            self._starting.start(action, units, this)
        if late and plan and late[0].demand.options[0] <= self._ledger.free[dimension]:
            this.full |= 1 << dimension  # if this call ends before that, the next one of the round goes on with it
        elif late:
            this.full &= ~(1 << dimension)
            self._defer(late, dimension, this)
        return bool(late)

    def _defer(self, late: list[PendingAction], dimension: int, this: Round) -> None:
        for action in late:
            this.deferred[action.id] = this.deferred.get(action.id, 0) | 1 << dimension
            if action.id not in self._starting.deferred:
                self._starting.deferred.add(action.id)
                self._note(ActionDeferred(this.now_s, action.id))
        at_s = self._planning.completions[dimension].next_s(this.now_s)
        if at_s is not None:
            self._rounds.look_again_s[dimension] = at_s

    def _planned(self, dimension: int, members: list[PendingAction], this: Round) -> list[int]:
        for action in members:
            if len(action.demand.options) > 1:
                break
        else:  # nobody has a choice
            return [action.demand.options[0] for action in members]
        free = self._ledger.free[dimension] + sum([action.demand.options[0] for action in members])
        refused = self._planning.refused
        units = self._planning.plan(dimension, members, free, this.now_s)
        if refused is None and self._planning.refused is not None:
            this.decisions.refused = self._planning.refused
            self._note(PolicyRefused(this.now_s, self._planning.policy.name, self._planning.refused))
        return units


def _users_behind(first: PendingAction, dimension: int, gathered: Gathered) -> list[PendingAction]:
    actions = (*gathered.fixed, *gathered.seated)
    return [a for a in actions if a.demand.dimensions >> dimension & 1 and place(a) > place(first)]
