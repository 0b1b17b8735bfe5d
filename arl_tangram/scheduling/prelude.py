"""Do what comes before a walk over the queue: let go of who cannot start, give back what was lent, bar what is new."""

from __future__ import annotations

from collections.abc import Callable

from arl_tangram.scheduling.blocking import Masks
from arl_tangram.scheduling.deadlines import Deadlines
from arl_tangram.scheduling.deadlock import Deadlocks
from arl_tangram.scheduling.decisions import Round
from arl_tangram.scheduling.lending import Lending
from arl_tangram.scheduling.resizing import Resizing
from arl_tangram.scheduling.rounds import Rounds


class Prelude:
    """The first steps of each decision of one core.

    Args:
        dimensions: how many there are.
        deadlines: who gives up.
        resizing: who asks for more than there is by now.
        deadlocks: who waits for ever.
        lending: who wants back what it has lent.
        rounds: what has changed.
        withdraw: lets go of one that waits, by its id.

    Attributes:
        halted: whether nothing new is to start.
    """

    def __init__(  # noqa: PLR0917 - the parts of one core
        self,
        dimensions: int,
        deadlines: Deadlines,
        resizing: Resizing,
        deadlocks: Deadlocks,
        lending: Lending,
        rounds: Rounds,
        withdraw: Callable[[int], None],
    ) -> None:
        self.halted = False
        self._new = Masks(dimensions).new
        self._deadlines = deadlines
        self._resizing = resizing
        self._deadlocks = deadlocks
        self._lending = lending
        self._rounds = rounds
        self._withdraw = withdraw

    def expire(self, this: Round) -> None:
        """Let those give up whose deadline has come."""
        while (action_id := self._deadlines.pop_due(this.now_s)) is not None:
            self._withdraw(action_id)
            this.decisions.expired.append(action_id)

    def prepare(self, this: Round) -> None:
        """Refuse what can never start, give back what was lent, and bar what is new if nothing new is to start."""
        if self._resizing.less:
            for action, error in self._resizing.exceeding():
                self._withdraw(action.id)
                this.decisions.impossible.append((action.id, error))
        for call, refusal in self._deadlocks.refusals(this.now_s):
            self._withdraw(call.id)
            this.decisions.impossible.append((call.id, refusal))
        if self.halted:
            this.barred |= self._new
        self._lending.resume_all(this)
        self._rounds.begin_anew(this)
