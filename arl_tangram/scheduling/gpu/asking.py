"""Find the seats that are there: for one who asks, or for several together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf

from arl_tangram.model.gpu import Chunk, Seat
from arl_tangram.scheduling.gpu.claims import Claim, Claims
from arl_tangram.scheduling.gpu.places import Places
from arl_tangram.scheduling.gpu.request import SeatRequest
from arl_tangram.scheduling.gpu.residency import Copy, Residency
from arl_tangram.scheduling.gpu.sharing import shared_out
from arl_tangram.scheduling.gpu.troubles import Troubles


class Asking:
    """Those who ask in one pool.

    Who has found nothing finds nothing again, without a search, until something has changed; but for one that spares
    something, or could wait for a seat on what is full, which depends on time.

    Args:
        places: where seats could be.
        residency: what is where.
        claims: where not everybody may sit.
        troubles: where restores have failed.
    """

    def __init__(self, places: Places, residency: Residency, claims: Claims, troubles: Troubles) -> None:
        self._places = places
        self._residency = residency
        self._claims = claims
        self._troubles = troubles
        self._nothing: set[tuple[int, bool, tuple[int, ...]]] = set()
        self._nothing_since = -1

    def find(
        self, request: SeatRequest, now_s: float, upcoming: Sequence[str], heeds: Callable[[int], bool] | None
    ) -> Seat | None:
        """Return the best seat for one; see `Seats.find`."""
        may_place = heeds is None
        claims = {} if heeds is None else self._claims.heeded(request.action_id, heeds)
        asked = request.action_id, may_place, tuple(claims)
        lasts = not self._troubles.any(now_s)  # soon after failures, time changes it, too
        if self._nothing_since != self._residency.version or not lasts:
            self._nothing.clear()
            self._nothing_since = self._residency.version
        elif asked in self._nothing:
            return None
        seat = self._best(request, now_s, upcoming, may_place=may_place, closed=tuple(claims.values()))
        if may_place and seat is None:
            lasts &= self.seat_to_come_s(request, now_s, upcoming) == inf
            lasts = lasts and not self.spared(request, now_s, upcoming)
        if seat is None and lasts:
            self._nothing.add(asked)
        return seat

    def seat_to_come_s(self, request: SeatRequest, now_s: float, upcoming: Sequence[str]) -> float:
        """Return what it costs to wait for a seat on what is full; infinite for who has waited long enough."""
        if self._claims.is_due(request.action_id, now_s):
            return inf
        return self._places.seat_to_come_s(request, now_s, upcoming)

    def spared(self, request: SeatRequest, now_s: float, upcoming: Sequence[str]) -> list[Copy]:
        """Return what an action leaves to those behind it."""
        wanted = self._places.wanted(request, upcoming)
        return [copy for copy in wanted if self._claims.spares(request.action_id, copy, now_s)]

    def arrange(self, requests: Sequence[SeatRequest], now_s: float, upcoming: Sequence[str]) -> list[Seat]:
        """Return seats for the first of several; see `Seats.arrange`."""
        shares = shared_out(requests, self._places, self._residency, now_s, upcoming)
        version = self._residency.version
        behind = [request.service for request in requests if request.service is not None]
        seats: list[Seat] = []
        try:
            for position, request in enumerate(requests):
                if request.service is not None:
                    behind.pop(0)
                seat = self._shared(position, request, shares, now_s, (*behind, *upcoming))
                if seat is None:
                    break
                shares.pop(position, None)
                until_s = now_s + self._places.expected_s(request, seat, now_s)
                self._residency.sit(request.action_id, seat, now_s, until_s)
                seats.append(seat)
        finally:
            for request in reversed(requests[: len(seats)]):
                self._residency.unsit(request.action_id)
            self._residency.version = version
        return seats

    def _shared(
        self, position: int, request: SeatRequest, shares: Mapping[int, Chunk], now_s: float, upcoming: Sequence[str]
    ) -> Seat | None:
        """Return a seat where an action has its share, if it has one; else outside of others' shares; else anywhere."""
        others = frozenset(d for other, chunk in shares.items() if other != position for d in chunk.devices)
        rules: list[Callable[[Chunk], bool] | None] = [_outside(others), None] if others else [None]
        if position in shares:
            rules.insert(0, shares[position].__eq__)
        for allowed in rules:
            seat = self._best(request, now_s, upcoming, allowed=allowed)
            if seat is not None:
                return seat
        return None

    def _best(
        self,
        request: SeatRequest,
        now_s: float,
        upcoming: Sequence[str],
        *,
        may_place: bool = True,
        closed: Sequence[Claim] = (),
        allowed: Callable[[Chunk], bool] | None = None,
    ) -> Seat | None:
        joining = self._places.join(request, now_s, closed)
        if may_place:
            most_s = self.seat_to_come_s(request, now_s, upcoming) if joining is None else joining.cost_s
            wishes = self._places.wishes(request, now_s, allowed=allowed, below_s=most_s)
            spared = [copy.instance for copy in self.spared(request, now_s, upcoming)] if wishes else []
            placing = self._places.place(wishes, upcoming, spared)
            if placing is not None and placing.cost_s < most_s:
                return placing.seat
        return None if joining is None else joining.seat


def _outside(devices: Collection[int]) -> Callable[[Chunk], bool]:
    return lambda chunk: not any(device in devices for device in chunk.devices)
