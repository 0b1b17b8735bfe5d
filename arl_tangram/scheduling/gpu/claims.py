"""Bound how long joins can pass one that waits to be placed: it claims what has to go, and nobody new sits down there.

While the first in line for placing waits, others go on joining what is resident, which costs no restore. It even spares
what is idle and wanted by those behind it, so that an instance serves all who wait for it before it goes: where every
change costs a restore, that is how the least work is left undone. But were they to join for ever, nothing would become
idle for it. So it rents and then buys: joins pass it until

- it has waited three times as long as the restores take that placing it will cost, its own, and those of what goes;
- or 64 have passed it.

Then it claims the chunk that it costs least to wait for, and what has to go there: that drains, and it is placed. What
can stay beside it is joined as before. It is the rule of the ski rental problem: the time for which it was passed and
the restores together are at most four times what they would be at best. One that waits for a seat on what is full does
so until its claim is due at most. Calls of running actions pass for longer: they are bound for a part of the time
(`bars`).

A claim binds those who stand behind the one that made it. Who comes before, by priority, say, sits where it likes, so
that two claims cannot wait for each other. Calls that are barred at a time are bound by other claims, too, for as long
as that lasts (`scheduling.barring`).

Sources: Liu, Nain and Towsley, On optimal polling policies (Queueing Systems 11, 1992), for serving all who wait first;
Karlin, Manasse, Rudolph and Sleator, Competitive snoopy caching (Algorithmica 3, 1988), for renting and buying.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from math import inf
from typing import NamedTuple

from arl_tangram.model.gpu import Chunk, Instance
from arl_tangram.scheduling.gpu.request import SeatRequest
from arl_tangram.scheduling.gpu.residency import Copy

_MOST_JOINS = 64
_PATIENCE = 3.0
"""For how many times the restores it lets others pass."""


class Claim(NamedTuple):
    """Where nobody new sits down.

    Attributes:
        chunk: the devices.
        leaving: what has to go there; None for all that is there.
    """

    chunk: Chunk
    leaving: Collection[Instance] | None

    def closes(self, copy: Copy) -> bool:
        """Whether nobody new sits on an instance."""
        if self.leaving is not None:
            return copy.instance in self.leaving
        return not set(self.chunk.devices).isdisjoint(copy.chunk.devices)


class _Waiter:
    """One that waits to be placed.

    Attributes:
        request: what it asks for.
        at_s: when it claims something.
        claim: what it has claimed.
        cost_s: what the best place cost that it could have had once others had risen, when it began to wait.
        has_goal: whether there is anything that it could claim.
        passed: how many have passed it.
        spared: what it has spared, with the count of its uses then, and the time.
    """

    __slots__ = ("at_s", "claim", "cost_s", "has_goal", "passed", "request", "spared")

    def __init__(self, request: SeatRequest, at_s: float) -> None:
        self.request = request
        self.at_s = at_s
        self.claim: Claim | None = None
        self.cost_s = inf
        self.has_goal = True
        self.passed = 0
        self.spared: dict[Instance, tuple[int, float]] = {}


class Claims:
    """Who waits to be placed, what they spare, and what they have claimed."""

    __slots__ = ("_due_s", "_waiters")

    def __init__(self) -> None:
        self._waiters: dict[int, _Waiter] = {}
        self._due_s = inf

    def __contains__(self, action_id: int) -> bool:
        """Whether an action waits for something that it can claim in time."""
        waiter = self._waiters.get(action_id)
        return waiter is not None and waiter.has_goal

    def wait(self, request: SeatRequest, cost_s: float, restores_s: float, now_s: float) -> None:
        """An action begins to wait, or goes on: then as one that has waited since it began.

        Args:
            request: what it asks for.
            cost_s: what the best place costs that it could have once others have risen.
            restores_s: the restores that it costs to place it: its own, and those of what goes.
            now_s: the time.
        """
        waiter = self._waiters.get(request.action_id)
        if waiter is None:
            waiter = self._waiters[request.action_id] = _Waiter(request, now_s + _PATIENCE * restores_s)
        waiter.has_goal = True
        waiter.cost_s = cost_s
        self._due_s = min(self._due_s, waiter.at_s)

    def pause(self, action_id: int) -> bool:
        """There is nothing that an action could claim until it is said to `wait`; return whether it had claimed any."""
        waiter = self._waiters.get(action_id)
        if waiter is None:
            return False
        had, waiter.claim, waiter.has_goal = waiter.claim is not None, None, False
        return had

    def forget(self, action_id: int) -> bool:
        """An action waits no more; return whether it had claimed anything."""
        waiter = self._waiters.pop(action_id, None)
        return waiter is not None and waiter.claim is not None

    def is_due(self, action_id: int, now_s: float) -> bool:
        """Whether an action has waited long enough to claim something."""
        waiter = self._waiters.get(action_id)
        return waiter is not None and now_s >= waiter.at_s

    def claim_at_s(self, action_id: int) -> float | None:
        """When an action will claim a chunk; None if it has."""
        waiter = self._waiters[action_id]
        return waiter.at_s if waiter.claim is None else None

    def cost_s(self, action_id: int) -> float:
        """What the best place cost that an action could have had once others had risen, when it began to wait."""
        return self._waiters[action_id].cost_s

    def passed(self, joined: SeatRequest, now_s: float) -> None:
        """An action has joined what is there."""
        for action_id, waiter in self._waiters.items():
            if action_id < joined.action_id and waiter.request.service != joined.service and waiter.claim is None:
                waiter.passed += 1
                if waiter.passed >= _MOST_JOINS:
                    waiter.at_s = min(waiter.at_s, now_s)
                    self._due_s = min(self._due_s, waiter.at_s)

    def due(self, now_s: float) -> list[SeatRequest]:
        """Return those who are to claim something now, in order of their waiting."""
        if now_s < self._due_s:
            return []
        waiting = [waiter for waiter in self._waiters.values() if waiter.claim is None and waiter.has_goal]
        self._due_s = min([waiter.at_s for waiter in waiting if waiter.at_s > now_s], default=inf)
        return [waiter.request for waiter in waiting if waiter.at_s <= now_s]

    def claim(self, action_id: int, claim: Claim) -> None:
        """An action claims something."""
        self._waiters[action_id].claim = claim

    def renew(self, taken: Chunk | None = None) -> None:
        """What can be had has changed: those who have claimed something do so anew.

        Args:
            taken: it has changed only in that somebody else has got these devices.
        """
        for waiter in self._waiters.values():
            if waiter.claim is None:
                continue
            if taken is not None and set(taken.devices).isdisjoint(waiter.claim.chunk.devices):
                continue
            waiter.claim = None
            self._due_s = min(self._due_s, waiter.at_s)

    def heeded(self, action_id: int, heeds: Callable[[int], bool]) -> dict[int, Claim]:
        """Return what others than this action have claimed, by their ids, as far as it heeds them."""
        claimed = [(other, waiter.claim) for other, waiter in self._waiters.items() if other != action_id]
        return {other: claim for other, claim in claimed if claim is not None and heeds(other)}

    # Sparing.

    def spares(self, action_id: int, copy: Copy, now_s: float) -> bool:
        """Whether an action leaves what is idle to those behind it: not if they have just had their chance."""
        waiter = self._waiters.get(action_id)
        if waiter is None:
            return True
        if now_s >= waiter.at_s:
            return False
        uses, since_s = waiter.spared.get(copy.instance, (-1, now_s))
        return uses != copy.uses or now_s <= since_s

    def spare(self, action_id: int, copies: Iterable[Copy], now_s: float) -> None:
        """An action that waits spares these."""
        spared = self._waiters[action_id].spared
        for copy in copies:
            if spared.get(copy.instance, (-1, now_s))[0] != copy.uses:
                spared[copy.instance] = copy.uses, now_s
