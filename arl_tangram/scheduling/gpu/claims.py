"""Bound how long joins can pass one that waits to be placed: it claims a chunk, and nobody new sits down there.

While the first in line for placing waits, others go on joining what is resident, which costs no restore. It even spares
what is idle and wanted by those behind it, so that an instance serves those who wait for it before it goes (`patience`
says how long that is worth it). But were they to join for ever, nothing would become idle for it. So it rents and then
buys: joins pass it until

- it has waited for as long as the restores take that placing it will cost: its own, and those of what goes for it; and,
  if others wait for what is to go, as many of them have passed it as waited when it was first passed over;
- or it has waited as long as its patience lasts;
- or 64 have passed it.

Then it claims the chunk that it costs least to wait for. What is used there drains, and it is placed. It is the rule
of the ski rental problem: where nobody else waits, the time for which it was passed and the restores together are at
most twice what they would be at best.

Claims bind only those who come behind somebody that waits to be placed. Who comes before all of them, by priority, say,
sits where it likes, so that two claims cannot wait for each other.

Source: Karlin, Manasse, Rudolph and Sleator, Competitive snoopy caching (Algorithmica 3, 1988).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf

from arl_tangram.model.gpu import Chunk, Instance
from arl_tangram.scheduling.gpu.patience import Patience
from arl_tangram.scheduling.gpu.request import SeatRequest
from arl_tangram.scheduling.gpu.residency import Copy

_MOST_JOINS = 64


class _Waiter:
    """One that waits to be placed.

    Attributes:
        request: what it asks for.
        bought_s: when it has waited for as long as the restores take.
        patience: how long it lets others pass.
        kept_from: how many have passed it to what is to go for it.
        at_s: when it claims a chunk.
        chunk: what it has claimed.
        passed: how many have passed it.
        spared: what it has spared, with the count of its uses then, and the time.
    """

    __slots__ = ("at_s", "bought_s", "chunk", "kept_from", "passed", "patience", "request", "spared")

    def __init__(self, request: SeatRequest, patience: Patience, now_s: float) -> None:
        self.request = request
        self.bought_s = now_s + patience.restores_s
        self.patience = patience
        self.kept_from = 0
        self.at_s = now_s + max(patience.restores_s, patience.most_s)
        self.chunk: Chunk | None = None
        self.passed = 0
        self.spared: dict[Instance, tuple[int, float]] = {}


class Claims:
    """Who waits to be placed, what they spare, and what they have claimed."""

    __slots__ = ("_due_s", "_waiters")

    def __init__(self) -> None:
        self._waiters: dict[int, _Waiter] = {}
        self._due_s = inf

    def __contains__(self, action_id: int) -> bool:
        return action_id in self._waiters

    def wait(self, request: SeatRequest, patience: Patience, now_s: float) -> None:
        """An action begins to wait."""
        waiter = self._waiters[request.action_id] = _Waiter(request, patience, now_s)
        self._due_s = min(self._due_s, waiter.at_s)

    def forget(self, action_id: int) -> bool:
        """An action waits no more; return whether it had claimed anything."""
        waiter = self._waiters.pop(action_id, None)
        return waiter is not None and waiter.chunk is not None

    def claim_at_s(self, action_id: int) -> float | None:
        """When an action will claim a chunk; None if it has."""
        waiter = self._waiters[action_id]
        return waiter.at_s if waiter.chunk is None else None

    def passed(self, joined: SeatRequest, now_s: float) -> None:
        """An action has joined what is there."""
        for action_id, waiter in self._waiters.items():
            if action_id < joined.action_id and waiter.request.service != joined.service and waiter.chunk is None:
                waiter.passed += 1
                waiter.kept_from += joined.service in waiter.patience.gone
                if waiter.passed >= _MOST_JOINS:
                    waiter.at_s = min(waiter.at_s, now_s)
                elif waiter.kept_from >= waiter.patience.others:
                    waiter.at_s = min(waiter.at_s, max(now_s, waiter.bought_s))
                self._due_s = min(self._due_s, waiter.at_s)

    def due(self, now_s: float) -> list[SeatRequest]:
        """Return those who are to claim something now, in order of their waiting."""
        if now_s < self._due_s:
            return []
        waiting = [waiter for waiter in self._waiters.values() if waiter.chunk is None]
        self._due_s = min([waiter.at_s for waiter in waiting if waiter.at_s > now_s], default=inf)
        return [waiter.request for waiter in waiting if waiter.at_s <= now_s]

    def claim(self, action_id: int, chunk: Chunk) -> None:
        """An action claims a chunk."""
        self._waiters[action_id].chunk = chunk

    def renew(self, taken: Chunk | None = None) -> None:
        """What can be had has changed: those who have claimed something do so anew.

        Args:
            taken: it has changed only in that somebody else has got these devices.
        """
        for waiter in self._waiters.values():
            if waiter.chunk is None or (taken is not None and not set(taken.devices) & set(waiter.chunk.devices)):
                continue
            waiter.chunk = None
            self._due_s = min(self._due_s, waiter.at_s)

    def closed(self, action_id: int) -> Collection[int]:
        """Return the devices that others than this action have claimed."""
        if not self._waiters:
            return ()
        claimed = [w.chunk for waiting, w in self._waiters.items() if waiting != action_id and w.chunk is not None]
        return frozenset(device for chunk in claimed for device in chunk.devices)

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
