"""Where an action can sit now: on an instance that is there, or on one that is placed for it.

What a seat costs is the expected duration at its dop, what is left of the restore or the whole of it, and the seconds
that are expected to be lost by what goes for it, or by others for the room that it takes (`crowding`). The least is
taken, and of equal ones a join. Where all seats of a service are taken, to wait for one may cost less than to place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from math import inf
from typing import NamedTuple

from arl_tangram.model.gpu import Chunk, GpuNode, Instance, Seat
from arl_tangram.scheduling.gpu.chunks import Chunks
from arl_tangram.scheduling.gpu.claims import Claim
from arl_tangram.scheduling.gpu.crowding import Crowding
from arl_tangram.scheduling.gpu.eviction import WINDOW, Eviction
from arl_tangram.scheduling.gpu.request import SeatRequest
from arl_tangram.scheduling.gpu.residency import Copy, Residency, bits_of
from arl_tangram.scheduling.gpu.restore_times import RestoreTimes
from arl_tangram.scheduling.gpu.room import room_now
from arl_tangram.scheduling.gpu.troubles import Troubles
from arl_tangram.scheduling.gpu.victims import PlaceSearch, Wish


class Offer(NamedTuple):
    """A seat that is there, and what it costs in seconds."""

    cost_s: float
    seat: Seat


class Places:
    """The places of one pool.

    Args:
        nodes: the devices.
        residency: what is where.
        restores: what restores take.
        eviction: the policy.
        troubles: where restores have failed.

    Attributes:
        chunks: those of the nodes.
        crowding: what it costs others to take more devices.
    """

    def __init__(
        self,
        nodes: Sequence[GpuNode],
        residency: Residency,
        restores: RestoreTimes,
        eviction: Eviction,
        troubles: Troubles,
    ) -> None:
        self.chunks = Chunks(nodes)
        self._residency = residency
        self._restores = restores
        self._eviction = eviction
        self._troubles = troubles
        self.crowding = Crowding(residency, restores)

    def search(self, upcoming: Sequence[str], spared: Collection[Instance] = ()) -> PlaceSearch:
        """Return what looks for room in what there is now."""
        return PlaceSearch(room_now(self._residency, self._restores, spared), self._eviction, upcoming)

    def wanted(self, request: SeatRequest, upcoming: Sequence[str]) -> list[Copy]:
        """Return what is idle and wanted by those behind an action, if that is to be spared.

        A policy that does not count seconds knows nothing of them, and those who wait for an action that was called
        keep what others may be waiting for.
        """
        if request.callers or not self._eviction.in_seconds:
            return []
        names = frozenset(upcoming[:WINDOW])
        return [copy for copy in self._residency.copies.values() if copy.idle and copy.instance.service in names]

    def join(self, request: SeatRequest, now_s: float, closed: Sequence[Claim]) -> Offer | None:
        """Return the best seat on what is there already.

        Args:
            request: who asks.
            now_s: the time.
            closed: where nobody new may sit.
        """
        best: Offer | None = None
        for copy, expected_s in self.copies(request):
            if len(copy.sitting) >= copy.places:
                continue
            is_leaving = any(claim.closes(copy) for claim in closed)
            is_leaving |= self._is_short(copy.chunk)
            if is_leaving and not copy.is_used_by(request.callers):  # it cannot go before they have risen
                continue
            if self._residency.disturbed(copy.instance, copy.chunk):
                continue
            cost_s = expected_s + self.left_of_restore_s(copy, now_s)
            if best is None or cost_s < best.cost_s:
                best = Offer(cost_s, Seat(copy.chunk, copy.instance))
        return best

    def seat_to_come_s(self, request: SeatRequest, now_s: float, upcoming: Sequence[str]) -> float:
        """Return what it is expected to cost to wait for a seat on an instance that is full; infinite if none is.

        What lasts longer than was expected is expected to last as long again. Of those who wait behind it for the same
        service, the wait of the last counts: where many do, another instance is worth more.

        Args:
            request: who asks.
            now_s: the time.
            upcoming: the services of those who wait behind it, in order.
        """
        least_s = inf
        for copy, expected_s in self.copies(request):
            left_s = [abs(until_s - now_s) for who, until_s in copy.sitting.items() if who not in request.callers]
            if len(copy.sitting) < copy.places or not left_s:
                continue
            if self._residency.disturbed(copy.instance, copy.chunk) or self._is_short(copy.chunk):
                continue
            behind = sum([1 for service in upcoming[:WINDOW] if service == request.service])
            least_s = min(least_s, min(left_s) + expected_s * behind / copy.places + expected_s)
        return least_s

    def place(self, wishes: Sequence[Wish], upcoming: Sequence[str], spared: Collection[Instance]) -> Offer | None:
        """Return the best seat on what could be placed now, while these stay."""
        placing = self.search(upcoming, spared).best(wishes) if wishes else None
        if placing is None:
            return None
        evicts, instance = placing.victims, placing.instance
        if instance is not None and instance in self._residency.copies:
            evicts = (instance, *evicts)
        return Offer(placing.cost_s, Seat(placing.chunk, instance, instance is not None, evicts))

    def wishes(
        self,
        request: SeatRequest,
        now_s: float,
        *,
        allowed: Callable[[Chunk], bool] | None = None,
        below_s: float = inf,
    ) -> list[Wish]:
        """Return what could be placed for an action, as far as it needs nothing but bytes.

        Args:
            request: who asks.
            now_s: the time.
            allowed: whether it may have a chunk.
            below_s: what costs as much or more is of no use.
        """
        wishes: list[Wish] = []
        barred = self._barred(request)
        for instance, chunks, cost_s in self.placeable(request, below_s=below_s):
            free = [c for c in chunks if not barred & bits_of(c) and (allowed is None or allowed(c))]
            if instance is not None and self._troubles.any(now_s):
                free = [c for c in free if not self.is_bad(instance, c, now_s)]
            if free:
                needs = None if instance is None else self._residency.needs(instance)
                wishes.append(Wish(instance, free, needs, cost_s))
        return wishes

    def are_all_bad(self, request: SeatRequest, now_s: float) -> bool:
        """Whether nothing is there that an action could wait for, and no chunk where a restore has not just failed."""
        if next(self.copies(request), None) is not None:
            return False
        return not any(
            instance is None
            or (
                self._residency.fits(instance, chunk, self._residency.target)
                and not self.is_bad(instance, chunk, now_s)
            )
            for instance, chunks, _ in self.placeable(request)
            for chunk in chunks
        )

    def bad_until_s(self, request: SeatRequest, now_s: float) -> float | None:
        """When an action can be placed again where a restore has just failed; None if it has nowhere."""
        until_s = [
            self._troubles.bad_until_s(instance, chunk, now_s)
            for instance, chunks, _ in self.placeable(request)
            for chunk in chunks
            if instance is not None
        ]
        return min([at_s for at_s in until_s if at_s], default=None)

    def is_bad(self, instance: Instance, chunk: Chunk, now_s: float) -> bool:
        """Whether a restore of an instance has just failed there."""
        return self._troubles.bad_until_s(instance, chunk, now_s) is not None

    def free_devices(self) -> list[int]:
        """The devices on which nobody sits."""
        room = room_now(self._residency, self._restores)
        return [device for device, held in enumerate(room.held) if not held and not self._residency.short(device)]

    def left_of_restore_s(self, copy: Copy, now_s: float) -> float:
        """How long it is expected to be until an instance is usable."""
        if not copy.restoring:
            return 0.0
        return max(0.0, copy.since_s + self._restores.expected_s(copy.instance) - now_s)

    def expected_s(self, request: SeatRequest, seat: Seat, now_s: float) -> float:
        """Return how long an action will have a seat, what is left of a restore included."""
        expected_s = request.expected_s[request.dops.index(seat.chunk.size)]
        if seat.instance is None:
            return expected_s
        if seat.restores:
            return expected_s + self._restores.expected_s(seat.instance)
        copy = self._residency.copies.get(seat.instance)
        return expected_s if copy is None else expected_s + self.left_of_restore_s(copy, now_s)

    def copies(self, request: SeatRequest) -> Iterator[tuple[Copy, float]]:
        """Yield the instances that are there, with what the action is expected to take on each."""
        if request.service is not None:
            for dop, expected_s in zip(request.dops, request.expected_s, strict=True):
                copy = self._residency.copies.get(Instance(request.service, dop))
                if copy is not None:
                    yield copy, expected_s

    def placeable(
        self, request: SeatRequest, kept: Collection[int] | None = None, *, below_s: float = inf
    ) -> Iterator[tuple[Instance | None, Sequence[Chunk], float]]:
        """Yield what could be placed: the instance, where, and what that costs but for what goes.

        It is what the action is expected to take, the restore, and what others lose by the room that it takes.

        What is there is placed once more, elsewhere, if it is idle and others keep it from computing where it is.

        Args:
            request: who asks.
            kept: if given, only these count as using anything, and what they do not use can be placed once more.
            below_s: a service that costs as much or more is left out.
        """
        for dop, expected_s in zip(request.dops, request.expected_s, strict=True):
            if request.service is None:
                yield None, self.chunks.of_size(dop), expected_s
                continue
            instance = Instance(request.service, dop)
            copy = self._residency.copies.get(instance)
            chunks: Sequence[Chunk] = self.chunks.of(self._residency.services[request.service], dop)
            if copy is not None and kept is None:
                chunks = [chunk for chunk in chunks if chunk != copy.chunk] if self._is_stuck(copy) else []
            elif copy is not None and copy.is_used_by(kept or ()):
                chunks = []
            cost_s = expected_s + self._restores.expected_s(instance)
            if chunks and cost_s < below_s:
                cost_s += self.crowding.price_s(instance, self.chunks)
                if cost_s < below_s:
                    yield instance, chunks, cost_s

    def _is_short(self, chunk: Chunk) -> bool:
        return any(self._residency.short(device) for device in chunk.devices)

    def _is_stuck(self, copy: Copy) -> bool:
        """Whether an instance is idle and cannot be used where it is."""
        return copy.idle and bool(self._residency.disturbed(copy.instance, copy.chunk))

    def _barred(self, request: SeatRequest) -> int:
        """Return the bits of the devices where nothing can be placed for an action now, whatever goes."""
        residency = self._residency
        closed = [d for d in range(len(residency.target)) if d in residency.holders or residency.short(d)]
        if request.service is None:  # what has to be empty cannot be where something is that does not go
            closed += [d for d in range(len(residency.target)) if residency.is_lowered(d, residency.target)]
        barred = 0
        for device in closed:
            barred |= 1 << device
        if request.service is not None:
            exclusive = residency.services[request.service].exclusive
            for copy in residency.copies.values():
                if copy.sitting and (exclusive or copy.exclusive):
                    barred |= bits_of(copy.chunk)
        return barred
