"""Who waits until a service can be restored, since when, and whom that bars from being placed and from what is claimed.

Of those whom no running action has called, all are barred who stand behind the first one that waits. A call stands far
before those who came when its caller did (`nesting`), so that its place does not say who came first: it is barred if it
was submitted after the one that has waited longest of those who wait now, and for a part of the time (`gpu.bars`).

Who is barred keeps off what was claimed by those who stand before it. A call that is barred also keeps off what was
claimed by those who were submitted before it, but for calls that are barred, too: what they claim is of no use yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from arl_tangram.model.lifecycle import PendingAction
from arl_tangram.scheduling.decisions import Round
from arl_tangram.scheduling.gpu.bars import bars_calls
from arl_tangram.scheduling.queue import place


class _Waiter:
    """One that waits for a restore.

    Attributes:
        action: the action.
        since_s: when it was passed over first.
        paused: whether there is nothing that it could wait for at the moment.
    """

    __slots__ = ("action", "paused", "since_s")

    def __init__(self, action: PendingAction, since_s: float) -> None:
        self.action = action
        self.since_s = since_s
        self.paused = False


class Barring:
    """Those of one core who wait for a restore, and whom they bar."""

    def __init__(self) -> None:
        self._waiters: dict[int, _Waiter] = {}  # who has waited longest comes first
        self._this = Round(0.0, 0)
        self._asking: Collection[int] = ()
        self._more = False
        self._has_barred = False  # one of the calls that ask now
        self._has_freed = False  # perhaps such a one: somebody has stopped waiting since

    def begin(self, members: Iterable[PendingAction], this: Round, *, more: bool) -> None:
        """These ask for seats now.

        Args:
            members: who lacks nothing but a seat.
            this: the round.
            more: whether there may be others like them.
        """
        self._this, self._asking, self._more = this, {action.id for action in members}, more
        self._has_barred = self._has_freed = False

    def waits(self, action: PendingAction) -> None:
        """An action that nobody bars waits for a restore."""
        waiter = self._waiters.setdefault(action.id, _Waiter(action, self._this.now_s))
        waiter.action, waiter.paused = action, False
        if self._this.unseated is None or place(action) < self._this.unseated:
            self._this.unseated = place(action)

    def pause(self, action_id: int) -> None:
        """There is nothing that an action could wait for at the moment; if it waits again, it has waited all along."""
        waiter = self._waiters.get(action_id)
        if waiter is not None and not waiter.paused:
            waiter.paused = True
            self._has_freed |= self._has_barred

    def end(self, action: PendingAction) -> None:
        """An action that asked waits no more."""
        if self._waiters.pop(action.id, None) is not None:
            self._has_freed |= self._has_barred
        if place(action) == self._this.unseated:
            self._this.unseated = None

    def forget(self, action_id: int) -> None:
        """An action waits no more."""
        self._waiters.pop(action_id, None)

    def bars(self, action: PendingAction) -> bool:
        """Whether somebody keeps an action that asks from being placed."""
        if action.inherited is not None:
            barred = self._bars_call(action)
            self._has_barred |= barred
            return barred
        return self._this.unseated is not None and place(action) > self._this.unseated

    def heeds(self, asker: PendingAction) -> Callable[[int], bool]:
        """Return whether one that is barred keeps off what an action, of which the id is given, has claimed."""

        def heeds(claimer_id: int) -> bool:
            waiter = self._waiters.get(claimer_id)
            if waiter is None or place(waiter.action) < place(asker):
                return True
            if asker.inherited is None or claimer_id > asker.id:
                return False
            return waiter.action.inherited is None or not self._bars_call(waiter.action)

        return heeds

    def changes_at_s(self) -> float | None:
        """Return when other calls are barred though nothing has changed; None if never.

        That is now if one that was asked for was barred by somebody who came behind it, and has a seat now.
        """
        if self._has_freed:
            return self._this.now_s
        longest = self._longest()
        return None if longest is None else longest.since_s + bars_calls(self._this.now_s - longest.since_s)[1]

    def _bars_call(self, call: PendingAction) -> bool:
        longest = self._longest()
        if longest is None or call.id <= longest.action.id:
            return False
        return bars_calls(self._this.now_s - longest.since_s)[0]

    def _longest(self) -> _Waiter | None:
        """Return who has waited longest of those who lack nothing but a seat."""
        for action_id, waiter in self._waiters.items():
            if not waiter.paused and self._lacks_a_seat(action_id, waiter.action):
                return waiter
        return None

    def _lacks_a_seat(self, action_id: int, action: PendingAction) -> bool:
        """Whether an action lacks nothing but a seat, as far as it is looked at in this call of the round."""
        this = self._this
        if self._more or action_id in self._asking or action_id in this.deferred:
            return True
        return action.demand.dimensions & this.skip > 0
