"""Carry out how the cores of a node were divided: what is free and what is used are right after each step."""

from __future__ import annotations

from collections.abc import Callable

from arl_tangram.model.events import ActionResized, Event
from arl_tangram.model.lifecycle import RunningAction
from arl_tangram.scheduling.decisions import Round
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.nesting import Nesting
from arl_tangram.scheduling.sharing.aside import QueueAside
from arl_tangram.scheduling.sharing.room import Room
from arl_tangram.scheduling.sharing.sharer import CoreSharer
from arl_tangram.scheduling.starting import Starting


class CarryingOut:
    """Changes what the sharers of one core object have.

    Args:
        ledger: what there is.
        queue: who waits aside.
        running: what runs, by id; what has other cores is replaced.
        nesting: who has called whom.
        starting: starts those whose units are taken.
        scale: integer units in a core.
        switch_s: seconds that a change takes.
        note: is told what happens.
    """

    def __init__(  # noqa: PLR0917 - the parts of one core
        self,
        ledger: Ledger,
        queue: QueueAside,
        running: dict[int, RunningAction],
        nesting: Nesting,
        starting: Starting,
        scale: int,
        switch_s: float,
        note: Callable[[Event], object],
    ) -> None:
        self._ledger = ledger
        self._queue = queue
        self._running = running
        self._nesting = nesting
        self._starting = starting
        self._scale = scale
        self._switch_s = switch_s
        self._note = note

    def carry_out(self, room: Room, changes: list[tuple[CoreSharer, int]], this: Round) -> None:
        """Let sharers have other cores: first those that have less, then those that have more, then those that start.

        Args:
            room: theirs.
            changes: pairs of a sharer and its cores from now on.
            this: the round.
        """
        less = [(sharer, cores) for sharer, cores in changes if cores < sharer.cores]
        for sharer, cores in less:
            self._ledger.lend(room.cpu, (sharer.cores - cores) * self._scale)
            self._change(room, sharer, cores, this)
        for sharer, cores in changes:
            if sharer.running is not None and cores > sharer.cores:
                self._ledger.regain(room.cpu, (cores - sharer.cores) * self._scale)
                self._change(room, sharer, cores, this)
        for sharer, cores in changes:
            if sharer.running is None and cores:
                action = self._queue.take_aside(sharer.id)
                self._ledger.take(action.demand, cores * self._scale, this.now_s)
                self._starting.start(action, cores * self._scale, this)

    def _change(self, room: Room, sharer: CoreSharer, cores: int, this: Round) -> None:
        assert sharer.running is not None
        running = sharer.running._replace(units=cores * self._scale)
        room.begin_change(sharer)
        sharer.count(this.now_s)
        sharer.change(running, cores, this.now_s, self._switch_s)
        room.end_change(sharer)
        self._running[sharer.id] = running
        if (caller := self._nesting.callers.get(sharer.id)) is not None:
            caller.running = running
        this.decisions.resized.append(running)
        self._note(ActionResized(this.now_s, sharer.id, running.units))
