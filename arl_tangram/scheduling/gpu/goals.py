"""Where an action could sit once others have risen: what it claims, and whether there is any for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from arl_tangram.model.gpu import Chunk, Instance
from arl_tangram.scheduling.gpu.claims import Claim
from arl_tangram.scheduling.gpu.eviction import Eviction
from arl_tangram.scheduling.gpu.places import Places
from arl_tangram.scheduling.gpu.request import SeatRequest
from arl_tangram.scheduling.gpu.residency import Residency, bits_of
from arl_tangram.scheduling.gpu.restore_times import RestoreTimes
from arl_tangram.scheduling.gpu.room import Waiting, room_to_be
from arl_tangram.scheduling.gpu.victims import PlaceSearch, Wish


class Goal(NamedTuple):
    """A place that an action could have if nobody new sat down there.

    Attributes:
        claim: where.
        cost_s: expected seconds of the action there, of waiting for it, of the restore, and lost by what goes.
        restores_s: the restores that it costs: its own, and those of what goes.
    """

    claim: Claim
    cost_s: float
    restores_s: float


class Goals:
    """The places that there are to come in one pool.

    Args:
        places: those that there are now.
        residency: what is where.
        restores: what restores take.
        eviction: the policy.
    """

    def __init__(self, places: Places, residency: Residency, restores: RestoreTimes, eviction: Eviction) -> None:
        self._places = places
        self._residency = residency
        self._restores = restores
        self._eviction = eviction

    def best(self, request: SeatRequest, now_s: float, upcoming: Sequence[str]) -> Goal | None:
        """Return the chunk for which it costs an action least to wait until it is not used; None if there is none.

        Only what its callers keep, what goes away, and where restores have just failed is no goal.
        """
        best: Goal | None = None
        sizes = self._residency.target
        for copy, expected_s in self._places.copies(request):
            others = self._residency.disturbed(copy.instance, copy.chunk)
            if not others or self._is_away(copy.chunk, sizes):
                continue
            if any(other.is_used_by(request.callers) for other in others):
                continue
            cost_s = expected_s + max([other.left_s(now_s) for other in others])
            if best is None or cost_s < best.cost_s:
                left_s = self._places.left_of_restore_s(copy, now_s)
                best = Goal(Claim(copy.chunk, self._leaving(request, copy.chunk)), cost_s, left_s)
        busy_s = self._busy_s(request, now_s)
        wishes = [
            Wish(wish.instance, (chunk,), wish.more_bytes, wish.cost_s + max([busy_s[d] for d in chunk.devices]))
            for wish in self._wishes_to_come(request, request.callers, sizes)
            for chunk in wish.chunks
            if wish.instance is None or not self._places.is_bad(wish.instance, chunk, now_s)
        ]
        search = self._search_to_come(request.callers, now_s, upcoming, sizes)
        placing = search.best(wishes) if wishes else None
        if placing is not None and (best is None or placing.cost_s < best.cost_s):
            restored = placing.victims if placing.instance is None else (placing.instance, *placing.victims)
            restores_s = sum([self._restores.expected_s(instance) for instance in restored])
            claim = Claim(placing.chunk, self._leaving(request, placing.chunk, placing.victims))
            best = Goal(claim, placing.cost_s, restores_s)
        return best

    def _leaving(
        self, request: SeatRequest, chunk: Chunk, victims: Collection[Instance] = ()
    ) -> frozenset[Instance] | None:
        """Return what has to go, or not to be used, before an action can sit there; None for all that is there."""
        if request.service is None or self._residency.services[request.service].exclusive:
            return None
        alone = [copy.instance for copy in self._residency.on(chunk.devices) if copy.exclusive]
        return frozenset((*victims, *alone))

    def is_possible(self, request: SeatRequest, kept: Collection[int]) -> bool:
        """Whether an action could ever sit while these actions keep their seats, and all others rise."""
        sizes = self._residency.declared
        for copy, _ in self._places.copies(request):
            staying = sum([1 for action_id in copy.sitting if action_id in kept])
            if not staying:
                continue  # it can be anywhere
            others = self._residency.disturbed(copy.instance, copy.chunk)
            stays = copy.is_used_by(request.callers) or not self._is_away(copy.chunk, sizes)
            if stays and staying < copy.places and not any(other.is_used_by(kept) for other in others):
                return True
        wishes = self._wishes_to_come(request, kept, sizes, moved=True)
        return bool(wishes) and self._search_to_come(kept, 0.0, (), sizes).best(wishes) is not None

    def _is_away(self, chunk: Chunk, sizes: Sequence[int]) -> bool:
        return any(self._residency.left(device, sizes) is None for device in chunk.devices)

    def _wishes_to_come(
        self, request: SeatRequest, kept: Collection[int], sizes: Sequence[int], *, moved: bool = False
    ) -> list[Wish]:
        wishes: list[Wish] = []
        barred = self._barred_to_come(request, kept, sizes)
        for instance, chunks, cost_s in self._places.placeable(request, kept if moved else None):
            needs = None if instance is None else self._residency.needs(instance)
            wishes.append(Wish(instance, [chunk for chunk in chunks if not barred & bits_of(chunk)], needs, cost_s))
        return wishes

    def _barred_to_come(self, request: SeatRequest, kept: Collection[int], sizes: Sequence[int]) -> int:
        """Return the bits of the devices that it cannot have: away, not to be emptied, or kept by these actions."""
        residency, is_body = self._residency, request.service is None
        barred = 0
        for device in range(len(sizes)):
            if residency.left(device, sizes) is None or (is_body and residency.is_lowered(device, sizes)):
                barred |= 1 << device
        if kept:
            barred |= sum([1 << device for device, (holder, _) in residency.holders.items() if holder in kept])
            exclusive = request.service is not None and residency.services[request.service].exclusive
            for copy in residency.copies.values():
                if (exclusive or copy.exclusive) and copy.is_used_by(kept):
                    barred |= bits_of(copy.chunk)
        return barred

    def _busy_s(self, request: SeatRequest, now_s: float) -> list[float]:
        """Return for each device how long somebody is expected to compute there who bars an action.

        Those who have to rise so that what they sit on can go are not counted: that is in the value of it.
        """
        residency = self._residency
        busy_s = [0.0] * len(residency.target)
        for device, (_, until_s) in residency.holders.items():
            busy_s[device] = max(0.0, until_s - now_s)
        if request.service is not None:
            exclusive = residency.services[request.service].exclusive
            for copy in residency.copies.values():
                if copy.sitting and (exclusive or copy.exclusive):
                    left_s = copy.left_s(now_s)
                    for device in copy.chunk.devices:
                        busy_s[device] = max(busy_s[device], left_s)
        return busy_s

    def _search_to_come(
        self, kept: Collection[int], now_s: float, upcoming: Sequence[str], sizes: Sequence[int]
    ) -> PlaceSearch:
        room = room_to_be(self._residency, self._restores, kept, sizes)
        left_s = {
            copy.instance: copy.left_s(now_s) + self._places.left_of_restore_s(copy, now_s)
            for copy in self._residency.copies.values()
        }
        return PlaceSearch(room, Waiting(self._eviction, left_s), upcoming)
