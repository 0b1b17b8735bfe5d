"""What an owner knows beside what is held, told to all sessions: one that is started again has it back from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextvars import Context

from arl_tangram.dispatch import Dispatcher
from arl_tangram.integrations.ray.charges import Charges
from arl_tangram.integrations.ray.owner.breaking import OwnerBreakers
from arl_tangram.integrations.ray.wire import Kept
from arl_tangram.model.lifecycle import RunningAction

EVERY_S = 1.0
"""How often it is told at most."""


class Memory:
    """Pauses, breakers that are not closed, and what clients that are gone took of rates and budgets.

    Attributes:
        kept: as it was told last; None if there was nothing to tell.

    Args:
        dispatcher: the scheduler.
        breakers: those of the quotas, if any has one.
        tell: tells all sessions.
    """

    def __init__(self, dispatcher: Dispatcher, breakers: OwnerBreakers | None, tell: Callable[[Kept], None]) -> None:
        self.kept: Kept | None = None
        self._dispatcher = dispatcher
        self._breakers = breakers
        self._tell = tell
        self._halted = False
        self._pauses: dict[int, float] = {}
        self._charges = Charges()
        self._tripped: tuple[tuple[str, float], ...] = ()
        self._version = 0
        self._told_s = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def halt(self, halted: bool) -> None:
        """Nothing new starts from now on, or does again."""
        self._dispatcher.halt(halted)
        self._halted = halted
        self._told()

    def pause(self, dimension: int, for_s: float) -> None:
        """Grant nothing of a dimension for some seconds."""
        self._dispatcher.pause(dimension, for_s)
        now_s = self._dispatcher.now_s()
        self._pauses = {index: until_s for index, until_s in self._pauses.items() if until_s > now_s}
        self._pauses[dimension] = max(now_s + for_s, self._pauses.get(dimension, now_s))
        self._changed()

    def charge(self, dimension: int, units: int, at_s: float) -> None:
        """A client that is gone had taken of a rate or a budget."""
        known = self._dispatcher.topology.dimensions[dimension]
        if known.window_s is not None:
            self._charges.add(dimension, known, units, at_s, self._dispatcher.now_s())
            self._changed()

    def look_at_breakers(self) -> None:
        """A breaker may have opened, or closed."""
        tripped = () if self._breakers is None else self._breakers.marks()
        if tripped != self._tripped:
            self._tripped = tripped
            self._changed()

    def recall(self, kept: Kept, running: Collection[RunningAction]) -> None:
        """Go on with what an earlier owner knew, when what is held is taken over, and nothing waits yet.

        Args:
            kept: what it has told last; its charges are counted already.
            running: what runs.
        """
        now_s = self._dispatcher.now_s()
        self._version = kept.version
        index = self._dispatcher.topology.index
        for name, left_s in kept.pauses:
            if name in index:
                self.pause(index[name], left_s)
        for dimension, units, age_s in kept.charges:
            self.charge(dimension, units, now_s - age_s)
        if self._breakers is not None:
            self._breakers.trip(kept.tripped, running)
            self.look_at_breakers()
        if kept.halted:
            self.halt(True)

    def outlive(self, version: int) -> None:
        """Somebody comes who remembers more than is known here, too late for that: let it count for nothing."""
        if version > self._version:
            self._version = version
            self._told()

    def present(self) -> Kept | None:
        """Return what was told last, as of now."""
        return None if self.kept is None else self.kept.aged(asyncio.get_running_loop().time() - self._told_s)

    def stop(self) -> None:
        """Tell nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _changed(self) -> None:
        """Tell it, but not all the time."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._told_s + EVERY_S, loop.time()), self._told, context=Context())

    def _told(self) -> None:
        self.stop()
        self._timer = None
        self._told_s = asyncio.get_running_loop().time()
        self._version += 1
        now_s, dimensions = self._dispatcher.now_s(), self._dispatcher.topology.dimensions
        self.kept = Kept(
            self._version,
            self._halted,
            tuple((dimensions[index].name, until_s - now_s) for index, until_s in self._pauses.items()),
            () if self._breakers is None else self._breakers.tripped(),
            tuple(self._charges.told(now_s)),
        )
        self._tell(self.kept)
