"""`Seats` beside an independent account of what is where: every step through a `SeatWorld` is checked.

The account knows nothing of policies, claims or searches. It remembers what was placed and evicted, who sits where, and
adds up. The walk over those who wait is the one that `Seats` asks for: in order, where one that could not be placed
bars placing for everybody behind it, and its own service.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

import pytest

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.gpu import Chunk, Footprint, GpuNode, HostedService, Instance, Seat
from arl_tangram.scheduling.gpu.chunks import Chunks
from arl_tangram.scheduling.gpu.eviction import WINDOW, Eviction, Loss
from arl_tangram.scheduling.gpu.request import SeatRequest, Wait
from arl_tangram.scheduling.gpu.seats import Seats


def service_of(
    name: str,
    resident: int = 30,
    peak: int | None = None,
    *,
    dops: Sequence[int] = (1,),
    restore_s: float = 1.0,
    places: int = 1,
    exclusive: bool = False,
    evicted: int = 0,
    chunks: Sequence[tuple[int, Chunk]] = (),
) -> HostedService:
    """Return a service that takes as much on each device at each dop."""
    footprint = Footprint(resident, resident if peak is None else peak, evicted)
    return HostedService(
        name,
        tuple((dop, footprint) for dop in dops),
        tuple((dop, restore_s) for dop in dops),
        places,
        exclusive,
        tuple(chunks),
    )


@dataclass
class There:
    """An instance that is somewhere, by the account."""

    chunk: Chunk
    since_s: float
    restoring: bool = True
    seated: set[int] = field(default_factory=set)


class SeatWorld:
    """Drives `Seats` in virtual time and checks each answer.

    Args:
        nodes: the devices.
        services: what can be used.
        eviction: the policy; `Loss` if none is given.
        check_every: of so many steps one is checked.
    """

    def __init__(
        self,
        nodes: Sequence[GpuNode],
        services: Sequence[HostedService],
        eviction: Eviction | None = None,
        check_every: int = 1,
    ) -> None:
        self._check_every = check_every
        self._steps = 0
        self.nodes = list(nodes)
        self.services = {service.name: service for service in services}
        self.seats = Seats(nodes, services, eviction or Loss())
        self.now = 0.0
        self.capacity = [device.capacity_bytes for node in nodes for device in node.devices]
        self.declared = list(self.capacity)
        self.there: dict[Instance, There] = {}
        self.holding: dict[int, Chunk] = {}
        self.seated: dict[int, SeatRequest] = {}
        self.waiting: list[SeatRequest] = []
        self.priorities: dict[int, int] = {}
        self.restores: list[Instance] = []
        self.seats_served = 0
        self.gave_up: list[int] = []
        self.spares = eviction is None or eviction.in_seconds
        self.claiming: set[int] = set()
        self.failed_some = False
        self.until_s: dict[int, float] = {}
        self.passed_over: set[int] = set()
        self.next_look_s: float | None = None
        self._next_id = 0

    # Commands.

    def ask(
        self,
        service: str | None,
        dops: Sequence[int] | None = None,
        expected_s: Sequence[float] | None = None,
        *,
        priority: int = 0,
        callers: tuple[int, ...] = (),
    ) -> int:
        """An action wants to sit; it waits until `decide`, or (if it can never sit) is refused at once: 0."""
        if dops is None:
            dops = (1,) if service is None else self.services[service].dops
        if expected_s is None:
            expected_s = [10.0 / dop for dop in dops]
        self._next_id += 1
        request = SeatRequest(self._next_id, service, tuple(dops), tuple(expected_s), callers)
        if not self.is_feasible(request):
            with pytest.raises(InfeasibleError):
                self.seats.check(request)
            return 0
        self.seats.check(request)
        self.priorities[request.action_id] = priority
        self.waiting.append(request)
        self.waiting.sort(key=lambda r: (self.priorities[r.action_id], r.action_id))
        return request.action_id

    def decide(self, *, together: bool = False) -> list[int]:
        """Let those sit who can, in order; return who does.

        Args:
            together: whether those whom nobody bars are arranged together, as far as possible.
        """
        sat: list[int] = []
        self.next_look_s = None
        if together:
            sat += self._arrange()
        placing_barred, barred = False, set[str]()
        for request in list(self.waiting):
            service = request.service
            if request.action_id in self.seated or service in barred:
                continue
            if service is not None and self.seats_taken(service) >= self.seats.capacity_of(service):
                barred.add(service)
                continue
            upcoming = self.upcoming(self.waiting.index(request), 1)
            heeds = partial(self._stands_before, request.action_id) if placing_barred else None
            seat = self.seats.find(request, self.now, upcoming=upcoming, heeds=heeds)
            self.evict_for_nobody()
            if seat is not None:
                assert not (placing_barred and (seat.restores or seat.instance is None)), "placed though that is barred"
                if seat.instance is not None and seat.restores and request.action_id not in self.passed_over:
                    least_s = self.expected_s(request, seat)
                    assert least_s < self.seat_to_come_s(request, upcoming), f"{request} could wait for what is full"
                self.sit(request, seat)
                sat.append(request.action_id)
                continue
            if not placing_barred:
                spares = self.spares and request.action_id not in self.claiming
                self.must_wait(request, upcoming, upcoming if spares else ())
                if self.seats.hopeless(request, self.now):
                    self.gave_up.append(request.action_id)
                    self.forget(request.action_id)
                    continue
                wait = self.seats.pass_over(request, self.now, upcoming=upcoming)
                self.passed_over.add(request.action_id)
                placing_barred = wait.placing
                self._note(wait)
                if not wait.placing:  # there is nothing for it now, nor anything to be claimed
                    self.claiming.discard(request.action_id)
                elif wait.until_s is None:
                    self.claiming.add(request.action_id)
            if service is not None:
                barred.add(service)
        return sat

    def sit(self, request: SeatRequest, seat: Seat) -> None:
        """An action sits, and what the seat says happens."""
        self.until_s[request.action_id] = self.now + self.expected_s(request, seat)
        self.passed_over.discard(request.action_id)
        self.seats.sit(request, seat, self.now)
        assert seat.chunk.size in request.dops
        for instance in seat.evicts:
            self._evict(instance)
        if seat.instance is None:
            assert request.service is None
            assert not seat.restores
            self.holding[request.action_id] = seat.chunk
        else:
            assert seat.instance == Instance(request.service or "", seat.chunk.size)
            if seat.restores:
                assert seat.instance not in self.there, "restored though it is there"
                self.there[seat.instance] = There(seat.chunk, self.now)
                self.restores.append(seat.instance)
            assert self.there[seat.instance].chunk == seat.chunk
            self.there[seat.instance].seated.add(request.action_id)
        self.waiting = [r for r in self.waiting if r.action_id != request.action_id]
        self.seated[request.action_id] = request
        self.seats_served += 1
        self.check()

    def rise(self, action_id: int) -> None:
        request = self.seated.pop(action_id)
        self.seats.rise(action_id, self.now)
        self.holding.pop(action_id, None)
        for there in self.there.values():
            there.seated.discard(action_id)
        assert request.action_id == action_id
        self.evict_for_nobody()
        self.check()

    def forget(self, action_id: int) -> None:
        self.seats.forget(action_id)
        self.waiting = [r for r in self.waiting if r.action_id != action_id]
        self.check()

    def restored(self, instance: Instance, took_s: float = 1.0) -> None:
        self.there[instance].restoring = False
        self.seats.restored(instance, took_s, self.now)
        self.evict_for_nobody()
        self.check()

    def failed(self, instance: Instance) -> list[int]:
        """A restore fails, and who sat there waits again."""
        seated = self.seats.failed(instance, self.now)
        self.failed_some = True
        again = [self.seated[action_id] for action_id in seated]
        self._gone(instance, seated)
        self.waiting = sorted([*self.waiting, *again], key=lambda r: (self.priorities[r.action_id], r.action_id))
        self.check()
        return list(seated)

    def lost(self, instance: Instance) -> list[int]:
        """An instance dies, and with it the seats there."""
        seated = self.seats.lost(instance, self.now)
        self._gone(instance, seated)
        for action_id in seated:
            self.seats.rise(action_id, self.now)  # as its body ends
        self.check()
        return list(seated)

    def set_capacity(self, device: int, capacity: int) -> None:
        if self.declared[device]:  # else it was reclaimed, and has nothing before it is lent again
            self.capacity[device] = capacity
            self.declared[device] = max(self.declared[device], capacity)
        self.seats.set_capacity(device, capacity, self.now)
        self.evict_for_nobody()
        self.refuse()
        self.check()

    def lend(self, first: int, node: GpuNode) -> None:
        known = first < len(self.capacity)
        self.seats.lend(first, node, self.now)
        capacities = [device.capacity_bytes for device in node.devices]
        self.capacity[first : first + len(capacities)] = capacities
        self.declared[first : first + len(capacities)] = capacities
        if not known:
            self.nodes.append(node)
        self.check()

    def reclaim(self, first: int, size: int) -> None:
        self.seats.reclaim(first, self.now)
        self.capacity[first : first + size] = [0] * size
        self.declared[first : first + size] = [0] * size
        self.evict_for_nobody()
        self.refuse()
        self.check()

    def refuse(self) -> None:
        """Who can never sit any more waits no more."""
        for request in list(self.waiting):
            if not self.is_feasible(request):
                with pytest.raises(InfeasibleError):
                    self.seats.check(request)
                self.forget(request.action_id)

    def settle(self) -> None:
        """Let all that is on its way arrive, and all who sit rise, until nobody waits; bounded."""
        for device, capacity in enumerate(self.declared):
            self.set_capacity(device, capacity)
        for _ in range(20 + 4 * len(self.waiting)):
            if not self.waiting and not self.seated and not any(there.restoring for there in self.there.values()):
                break
            self.now += 100.0
            self.decide()
            for instance in [i for i, there in self.there.items() if there.restoring]:
                self.restored(instance)
            for action_id in list(self.seated):
                self.rise(action_id)
        assert not self.waiting, f"still waiting: {self.waiting}"

    # The account.

    def on(self, device: int) -> list[tuple[Instance, There]]:
        return [(instance, there) for instance, there in self.there.items() if device in there.chunk.devices]

    def bytes_of(self, instance: Instance) -> int:
        """What an instance takes of each of its devices."""
        footprint = dict(self.services[instance.service].footprints)[instance.dop]
        return footprint.peak_bytes if self.there[instance].restoring else footprint.resident_bytes

    def kept_on(self, device: int) -> dict[Instance, int]:
        """What instances that have their own place keep of a device while they are evicted."""
        return {
            Instance(service.name, dop): dict(service.footprints)[dop].evicted_bytes
            for service in self.services.values()
            for dop, chunk in service.chunks
            if device in chunk.devices
        }

    def promised(self, device: int) -> int:
        kept = sum(size for instance, size in self.kept_on(device).items() if instance not in self.there)
        return kept + sum(self.bytes_of(instance) for instance, _ in self.on(device))

    def seats_taken(self, service: str) -> int:
        return sum(len(there.seated) for instance, there in self.there.items() if instance.service == service)

    def chunks_of(self, request: SeatRequest, dop: int) -> Sequence[Chunk]:
        chunks = Chunks(self.nodes)
        if request.service is None:
            return chunks.of_size(dop)
        return chunks.of(self.services[request.service], dop)

    def is_feasible(self, request: SeatRequest) -> bool:
        """Whether a request could sit if nobody else was there."""
        return any(self.fits(request, dop) for dop in request.dops)

    def fits(self, request: SeatRequest, dop: int) -> bool:
        """Whether a request could sit at this dop if nobody else was there."""
        for chunk in self.chunks_of(request, dop):
            if any(self.declared[d] < max(1, sum(self.kept_on(d).values())) for d in chunk.devices):
                continue
            if request.service is None:
                return True
            footprint = dict(self.services[request.service].footprints)[dop]
            instance = Instance(request.service, dop)
            if all(
                sum(size for i, size in self.kept_on(d).items() if i != instance) + footprint.peak_bytes
                <= self.declared[d]
                for d in chunk.devices
            ):
                return True
        return False

    def upcoming(self, position: int, together: int) -> list[str]:
        """The services of those who come behind some who ask together, and before the first of another priority."""
        asking = self.waiting[position : position + together]
        names: list[str] = []
        for request in self.waiting[position + together :]:
            if self.priorities[request.action_id] != self.priorities[asking[-1].action_id]:
                break
            if request.service is not None:
                names.append(request.service)
        return names

    def can_sit(self, request: SeatRequest, spared: Collection[str] = ()) -> bool:
        """Whether there is a seat, if restores never fail, and what is idle of some services stays; by trying all."""
        return self.least_s(request, spared) < inf

    def least_s(self, request: SeatRequest, spared: Collection[str] = ()) -> float:
        """Return the least that a seat can be expected to cost, at most; infinite if there is none, by trying all.

        What goes for it is worth a restore at most. Of what others lose by the room that it takes no more is known than
        that it is nothing at the least dop, and a restore of each of them at most.
        """
        held = [device for chunk in self.holding.values() for device in chunk.devices]
        if request.service is None:  # something is there that does not go
            held += [d for d, declared in enumerate(self.declared) if self.capacity[d] < declared]
        least_s = inf
        for dop, expected_s in zip(request.dops, request.expected_s, strict=True):
            instance = Instance(request.service or "", dop)
            if instance in self.there:
                there = self.there[instance]
                if self._is_open(instance) and len(there.seated) < self.services[instance.service].max_concurrency:
                    least_s = min(least_s, expected_s)
                if there.seated or there.restoring or not self._busy(instance, there.chunk):
                    continue  # else it can move
            for chunk in self.chunks_of(request, dop):
                if any(d in held or self._is_short(d) for d in chunk.devices):
                    continue
                if self._could_be(request, instance, chunk, spared):
                    least_s = min(least_s, expected_s + self._most_lost_s(request, instance, chunk))
        return least_s

    def seat_to_come_s(self, request: SeatRequest, upcoming: Sequence[str]) -> float:
        """Return what it is expected to cost to wait for a seat of an instance that is full; infinite if none is."""
        least_s = inf
        for dop, expected_s in zip(request.dops, request.expected_s, strict=True):
            there = self.there.get(Instance(request.service or "", dop))
            if there is None or not self._is_open(Instance(request.service or "", dop)):
                continue
            places = self.services[request.service or ""].max_concurrency
            left_s = [abs(self.until_s[i] - self.now) for i in there.seated if i not in request.callers]
            if left_s and len(there.seated) == places:
                behind = list(upcoming)[:WINDOW].count(request.service or "")
                least_s = min(least_s, min(left_s) + expected_s + expected_s * behind / places)
        return least_s

    def must_wait(self, request: SeatRequest, upcoming: Sequence[str], spared: Collection[str]) -> None:
        """Nothing was found: no seat is there, or one to come on what is full costs no more than any."""
        least_s = self.least_s(request, spared)
        content = self.seat_to_come_s(request, upcoming) <= least_s + 1e-6
        assert self.failed_some or least_s == inf or content, f"{request} finds nothing, though there is a seat"

    def expected_s(self, request: SeatRequest, seat: Seat) -> float:
        """Return for how long an action is expected to have a seat, what is left of a restore included."""
        expected_s = request.expected_s[request.dops.index(seat.chunk.size)]
        if seat.instance is None:
            return expected_s
        restore_s = self.seats.restore_s(seat.instance)
        if seat.restores:
            return expected_s + restore_s
        there = self.there[seat.instance]
        return expected_s + (max(0.0, there.since_s + restore_s - self.now) if there.restoring else 0.0)

    def check(self) -> None:
        """Hold what `Seats` says against the account, and the account against what must never be."""
        self._steps += 1
        if self._steps % self._check_every:
            return
        seats = self.seats
        assert dict(seats.resident()) == {instance: there.chunk for instance, there in self.there.items()}
        held = {device: action_id for action_id, chunk in self.holding.items() for device in chunk.devices}
        assert len(held) == sum(chunk.size for chunk in self.holding.values()), "held twice"
        for device, capacity in enumerate(self.capacity):
            used, free = seats.used_bytes(device), seats.free_bytes(device)
            assert min(used, free) >= 0
            assert used + free == seats.capacity_bytes(device) >= capacity
            if device in held:
                assert not self.on(device), "a body has a device for itself"
                assert used >= self.promised(device)
            else:
                assert used == self.promised(device)
            users = [(i, there) for i, there in self.on(device) if there.seated]
            if any(self.services[i.service].exclusive for i, _ in users):
                assert len(users) == 1, f"computes beside an exclusive one: {users}"
        for instance, there in self.there.items():
            assert len(there.seated) <= self.services[instance.service].max_concurrency
            assert seats.is_restoring(instance) == there.restoring
            for action_id in there.seated:
                seat = seats.seat_of(action_id)
                assert seat is not None
                assert (seat.instance, seat.chunk) == (instance, there.chunk)
        for request in self.waiting:
            assert seats.seat_of(request.action_id) is None

    def evict_for_nobody(self) -> None:
        for instance in self.seats.take_evicted():
            self._evict(instance)

    # Steps.

    def _stands_before(self, action_id: int, other: int) -> bool:
        return (self.priorities[other], other) < (self.priorities[action_id], action_id)

    def _arrange(self) -> list[int]:
        requests = self.waiting[:8]
        upcoming = self.upcoming(0, 8)
        before = self.seats.resident()
        found = self.seats.arrange(requests, self.now, upcoming)
        self.evict_for_nobody()
        assert set(self.seats.resident()) == set(before)
        self.check()
        for request, seat in zip(requests, found, strict=False):
            self.sit(request, seat)
        if len(found) < len(requests):
            behind = [r.service for r in requests[len(found) + 1 :] if r.service is not None] + upcoming
            self.must_wait(requests[len(found)], behind, behind if self.spares else ())
        return [request.action_id for request in requests[: len(found)]]

    def _note(self, wait: Wait) -> None:
        if wait.until_s is not None:
            self.next_look_s = wait.until_s if self.next_look_s is None else min(self.next_look_s, wait.until_s)

    def _evict(self, instance: Instance) -> None:
        there = self.there.pop(instance)
        assert not there.seated, f"{instance} is evicted while it is in use"
        assert not there.restoring, f"{instance} is evicted while it is being restored"

    def _gone(self, instance: Instance, seated: Collection[int]) -> None:
        assert set(seated) == self.there.pop(instance).seated
        for action_id in seated:
            del self.seated[action_id]

    def _is_short(self, device: int) -> bool:
        return self.promised(device) > self.capacity[device] or not self.capacity[device]

    def _is_open(self, instance: Instance) -> bool:
        """Whether somebody could sit on an instance that is there, if it has a place."""
        chunk = self.there[instance].chunk
        return not self._busy(instance, chunk) and not any(self._is_short(device) for device in chunk.devices)

    def _most_lost_s(self, request: SeatRequest, instance: Instance, chunk: Chunk) -> float:
        """Return the most that it can cost to place an instance, or a body, besides the time that an action takes."""
        going = {i for d in chunk.devices for i, there in self.on(d) if not there.seated and i != instance}
        lost_s = sum(self.seats.restore_s(other) for other in going)
        if request.service is None:
            return lost_s
        least = next(dop for dop in self.services[request.service].dops if self.fits(request, dop))
        if instance.dop > least:
            others = [Instance(name, dop) for name, service in self.services.items() for dop in service.dops]
            lost_s += sum(self.seats.restore_s(other) for other in others)
        return lost_s + self.seats.restore_s(instance)

    def _busy(self, instance: Instance, chunk: Chunk) -> bool:
        """Whether others compute there who cannot beside it, or it beside them."""
        users = {i for d in chunk.devices for i, there in self.on(d) if there.seated and i != instance}
        exclusive = bool(instance.service) and self.services[instance.service].exclusive
        return bool(users) and (exclusive or any(self.services[i.service].exclusive for i in users))

    def _could_be(self, request: SeatRequest, instance: Instance, chunk: Chunk, spared: Collection[str]) -> bool:
        """Whether there is room for an instance, or for a body, if all goes that is idle."""
        there_are = [pair for d in chunk.devices for pair in self.on(d)]
        staying = {i for i, there in there_are if there.seated or there.restoring or i.service in spared}
        if request.service is None:
            return not staying
        if self._busy(instance, chunk):
            return False
        peak = dict(self.services[request.service].footprints)[instance.dop].peak_bytes
        for device in chunk.devices:
            kept = sum(size for i, size in self.kept_on(device).items() if i not in staying and i != instance)
            used = sum(self.bytes_of(i) for i, _ in self.on(device) if i in staying)
            if kept + used + peak > self.capacity[device]:
                return False
        return True
