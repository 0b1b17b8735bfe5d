"""Keep the books of rounds: what has changed since the last one, what this one has dealt with, and when to look again.

Calls of `decide` that follow on one that said `more` are a round; together they look at everything that has changed.
"""

from __future__ import annotations

from arl_tangram.scheduling.decisions import Decisions, Round
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.queue import Place, WaitingQueue


class Rounds:
    """The rounds of a core.

    Args:
        ledger: what there is.
        queue: who waits.
        seats: the bit of the dimension that stands for the seats of a pool of GPUs; 0 if there is none.

    Attributes:
        changed: bits of the dimensions for which something changed that has not been looked at.
        look_again_s: by dimension, when the policy is asked again though nothing has changed.
        due: bits of the dimensions for which that is so in this call.
    """

    def __init__(self, ledger: Ledger, queue: WaitingQueue, seats: int = 0) -> None:
        self._ledger = ledger
        self._queue = queue
        self._seats = seats
        self._skip = 0
        self._joined = 0
        self._joined_before = 0
        self._undelivered: Decisions | None = None
        self.changed = 0
        self.look_again_s: dict[int, float] = {}
        self.due = 0
        self._unseated: Place | None = None

    def join(self) -> None:
        """Take note that somebody has joined or left the queue."""
        self._joined += 1

    def look_at_all(self) -> None:
        """Look at everybody who waits."""
        self.changed = -1
        self._skip = 0
        self._joined += 1
        self._queue.look_at_all()

    def begin(self, now_s: float) -> Round:
        """Begin a call: take over what has changed, and what is due."""
        self.due = 0
        if self.look_again_s:
            for dimension, at_s in list(self.look_again_s.items()):
                if at_s <= now_s:
                    del self.look_again_s[dimension]
                    self.due |= 1 << dimension
            self._ledger.changed |= self.due
        self._take_over()
        this = Round(now_s, self._skip)
        this.unseated = self._unseated
        if self._undelivered is not None:
            this.decisions, self._undelivered = self._undelivered, None
        return this

    def begin_anew(self, this: Round) -> None:
        """Take over what has changed since the call began."""
        self._take_over()
        this.skip = self._skip
        this.unseated = self._unseated

    def end(self, this: Round) -> None:
        """End a call."""
        if this.decisions.more:
            for dimension in this.planned:
                self._skip |= 1 << dimension & ~this.full
            self._unseated = this.unseated  # those that follow may not look at that one
            return
        self._unseated = None
        if self._skip and self._joined != self._joined_before:
            this.decisions.more = True  # who joined behind what was passed over is looked at in a round of its own
        else:
            self.changed = 0
            self._queue.settle()
        self._skip = 0
        self._joined_before = self._joined

    def _take_over(self) -> None:
        changed = self._ledger.changed
        self._ledger.changed = 0
        self.changed |= changed
        self._skip &= ~changed
        if changed & self._seats:  # whoever waits for a seat is looked at, in order
            self._skip, self._unseated = 0, None

    def interrupt(self, this: Round) -> None:
        """Let the next call return what this one has decided."""
        self._undelivered = this.decisions
