"""`Seats`: who sits on which service, and what goes for whom; events in, seats out.

An action that uses a service takes a *seat* on an instance of it: it *joins* one that is there, or being restored, and
has a seat left; or an instance is *placed* for it, on a chunk from which idle instances are evicted as far as needed.
A `gpu=` body takes a chunk for itself. The rules:

1. Bytes and compute move at the decision: a promise counts as used (`residency`). The instance that is placed keeps a
   seat for the one who asked, so that it has served that one before it can be evicted.
2. Of all seats the one is taken where the action is expected to end first, with the seconds added that are expected to
   be lost by what goes for it (`places`, `victims`, `eviction`), and by others for the room that it takes (`crowding`).
   Several that have to be placed share out what nobody uses (`sharing`). Who finds all seats of a service taken waits
   for one, as long as that is expected to cost no more, and bars only its own service.
3. Whoever else can neither join nor be placed bars placing for everybody behind it, and its own service; which calls of
   running actions it bars, and when, is not said here. Others go on joining what is there, also what is idle and
   could go for it, until it has waited long enough for that and claims what has to go for it (`claims`).
4. Where a restore has failed is not tried again for a while, and an action gives up if nowhere is left (`troubles`).

A call that finds a seat changes nothing; `sit` does. After `rise`, `forget`, `restored`, `failed`, `lost`,
`set_capacity`, `lend` and `reclaim` those who wait should be looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from arl_tangram.model.gpu import Chunk, GpuNode, HostedService, Instance, Seat
from arl_tangram.scheduling.gpu.asking import Asking
from arl_tangram.scheduling.gpu.claims import Claims
from arl_tangram.scheduling.gpu.eviction import Eviction
from arl_tangram.scheduling.gpu.goals import Goals
from arl_tangram.scheduling.gpu.limits import check_seat, fitting_dops
from arl_tangram.scheduling.gpu.places import Places
from arl_tangram.scheduling.gpu.request import SeatRequest, Wait
from arl_tangram.scheduling.gpu.residency import Copy, Residency
from arl_tangram.scheduling.gpu.restore_times import RestoreTimes
from arl_tangram.scheduling.gpu.room import resident
from arl_tangram.scheduling.gpu.troubles import Troubles

_MOMENT_S = 0.001
"""After which one looks again that spares something, or is as well off waiting for a seat as without."""


class Seats:
    """The seats of one pool.

    Args:
        nodes: the devices; numbered over all nodes, in their order.
        services: what can be used; unique names.
        eviction: the policy.
    """

    def __init__(self, nodes: Sequence[GpuNode], services: Sequence[HostedService], eviction: Eviction) -> None:
        self._nodes = list(nodes)
        self._eviction = eviction
        self._restores = RestoreTimes(services)
        self._residency = Residency(services)
        for node in nodes:
            self._residency.add([device.capacity_bytes for device in node.devices])
        self._troubles = Troubles()
        self._claims = Claims()
        self._places = Places(nodes, self._residency, self._restores, eviction, self._troubles)
        self._goals = Goals(self._places, self._residency, self._restores, eviction)
        self._asking = Asking(self._places, self._residency, self._claims, self._troubles)
        self._shrinking = False
        self._evicted: list[Instance] = []

    # Asking.

    def check(self, request: SeatRequest, name: str = "the action") -> None:
        """Refuse what can never sit on the devices that there are now.

        Raises:
            InfeasibleError: with what is asked, and what there is.
        """
        check_seat(request, self._residency, self._places.chunks, name)

    def possible(self, request: SeatRequest, kept: Collection[int]) -> bool:
        """Whether an action could ever sit while these actions keep their seats, and all others rise."""
        return self._goals.is_possible(request, kept)

    def find(
        self,
        request: SeatRequest,
        now_s: float,
        *,
        upcoming: Sequence[str] = (),
        heeds: Callable[[int], bool] | None = None,
    ) -> Seat | None:
        """Return a seat that an action can take now; None if there is none.

        Args:
            request: who asks.
            now_s: the time.
            upcoming: the services of those who wait behind it, in order.
            heeds: None for one that nobody bars: it can be placed, and joins where it likes. For others, which can only
                join: whether one keeps off what an action, of which the id is given, has claimed.
        """
        self._claim_what_is_due(now_s, upcoming)
        return self._asking.find(request, now_s, upcoming, heeds)

    def arrange(self, requests: Sequence[SeatRequest], now_s: float, upcoming: Sequence[str] = ()) -> list[Seat]:
        """Return the seats of the first of several whom nobody bars; to be taken in this order.

        Args:
            requests: who asks, in order.
            now_s: the time.
            upcoming: the services of those who wait behind them, in order.
        """
        self._claim_what_is_due(now_s, upcoming)
        return self._asking.arrange(requests, now_s, upcoming)

    def pass_over(self, request: SeatRequest, now_s: float, *, upcoming: Sequence[str] = ()) -> Wait:
        """Say what an action blocks that has just found nothing, and whom nobody bars.

        If it blocks placing, it claims one in time.

        Args:
            request: who asks.
            now_s: the time.
            upcoming: the services of those who wait behind it, in order.
        """
        action_id = request.action_id
        if action_id not in self._claims or self._troubles.any(now_s):
            goal = self._goals.best(request, now_s, upcoming)
            if goal is None:
                if self._claims.pause(action_id):
                    self._residency.version += 1
                return Wait(False, self._places.bad_until_s(request, now_s))
            if action_id not in self._claims:
                self._claims.wait(request, goal.cost_s, goal.restores_s, now_s)
        self._claim_what_is_due(now_s, upcoming)
        if action_id not in self._claims:
            return Wait(True, self._places.bad_until_s(request, now_s))
        claim_at_s = self._claims.claim_at_s(action_id)
        content_s = self._claims.cost_s(action_id) - self._asking.seat_to_come_s(request, now_s, upcoming)
        if content_s >= 0 and claim_at_s is not None:
            return Wait(False, min(now_s + max(content_s, _MOMENT_S), claim_at_s))
        if spared := self._asking.spared(request, now_s, upcoming):
            self._claims.spare(action_id, spared, now_s)
            return Wait(True, now_s + _MOMENT_S)
        times = (claim_at_s, self._places.bad_until_s(request, now_s))
        return Wait(True, min([at_s for at_s in times if at_s is not None], default=None))

    def hopeless(self, request: SeatRequest, now_s: float) -> bool:
        """Whether an action that has found nothing is to give up: a restore for it has failed, and nowhere is left."""
        return self._troubles.has_tried(request.action_id) and self._places.are_all_bad(request, now_s)

    def forget(self, action_id: int) -> None:
        """An action waits no more."""
        self._troubles.forget(action_id)
        self._forget_claim(action_id)

    # Sitting.

    def sit(self, request: SeatRequest, seat: Seat, now_s: float) -> None:
        """An action takes a seat that was just found for it.

        Raises:
            ValueError: that seat is not there.
        """
        until_s = now_s + self._places.expected_s(request, seat, now_s)
        gone = self._residency.sit(request.action_id, seat, now_s, until_s)
        self._forget_claim(request.action_id)
        for victim in gone:
            self._eviction.evicted(victim.instance)
        if seat.restores or seat.instance is None:
            self._claims.renew(seat.chunk)
        if seat.instance is None:
            return
        self._places.crowding.asked(seat.instance.service)
        copy = self._residency.copies[seat.instance]
        copy.uses += 1
        self._eviction.used(resident(copy, self._residency, self._restores))
        if not seat.restores:
            self._claims.passed(request, now_s)

    def rise(self, action_id: int, now_s: float) -> None:
        """An action gives its seat back; nothing happens if it has none (any more)."""
        self._troubles.forget(action_id)
        if action_id not in self._residency.sittings:
            return
        copy = self._residency.sittings[action_id].copy
        self._residency.rise(action_id)
        if copy is not None:
            self._eviction.left(copy.instance)
        if self._shrinking:
            self._shrink()

    # What becomes of instances.

    def restored(self, instance: Instance, took_s: float, now_s: float) -> None:
        """An instance that was placed is usable; the restore took so long."""
        copy = self._residency.copies.get(instance)
        if copy is None or not copy.restoring:
            return
        self._restores.add(instance, took_s)
        self._troubles.succeeded(instance, copy.chunk)
        self._residency.restored(copy)
        if self._shrinking:
            self._shrink()

    def failed(self, instance: Instance, now_s: float) -> tuple[int, ...]:
        """A restore has failed: return the actions that sat there, in order, who have no seat any more."""
        copy = self._residency.copies.get(instance)
        if copy is None or not copy.restoring:
            return ()
        seated = self._end(copy)
        self._troubles.failed(instance, copy.chunk, seated, now_s)
        return seated

    def lost(self, instance: Instance, now_s: float) -> tuple[int, ...]:
        """An instance has died: return the actions that sat there, in order, who have no seat any more."""
        copy = self._residency.copies.get(instance)
        if copy is None:
            return ()
        seated = self._end(copy)
        for action_id in seated:
            self._troubles.forget(action_id)
        return seated

    def take_evicted(self) -> tuple[Instance, ...]:
        """Return what was evicted for nobody since the last call; it has to go before what has been placed since."""
        evicted, self._evicted = tuple(self._evicted), []
        return evicted

    # Devices.

    def set_capacity(self, device: int, capacity_bytes: int, now_s: float) -> None:
        """Let services have so many bytes of a device for the moment.

        What is idle goes as far as needed, and nobody new sits there until enough has gone. Whoever needs more waits
        until it is there again. A device that was reclaimed has none, whatever is said of it, until it is lent again.
        """
        self._residency.resize(device, capacity_bytes)
        self._shrink()
        self._claims.renew()

    def lend(self, first: int, node: GpuNode, now_s: float) -> None:
        """There is a node more, the devices of which have the numbers from `first`: new ones, or as they had before.

        Raises:
            ValueError: these numbers are others'.
        """
        index = self._index(first)
        if index is None:
            raise ValueError(f"device {first} is inside of a node")
        if index == len(self._nodes):
            self._nodes.append(node)
            self._residency.add([device.capacity_bytes for device in node.devices])
        else:
            if len(node.devices) != len(self._nodes[index].devices):
                raise ValueError(f"the node at device {first} has {len(self._nodes[index].devices)} devices")
            self._nodes[index] = node
            for device, declared in enumerate(node.devices, start=first):
                self._residency.declare(device, declared.capacity_bytes)
        self._places.chunks = type(self._places.chunks)(self._nodes)

    def reclaim(self, first: int, now_s: float) -> None:
        """A node goes away; `is_clear` says when nothing of it is used any more."""
        for device in self._devices(first):
            self._residency.declare(device, 0)
        self._shrink()
        self._claims.renew()

    def is_clear(self, first: int) -> bool:
        """Whether nothing is on the devices of a node."""
        return self._residency.is_clear(self._devices(first))

    # Reading.

    @property
    def devices(self) -> int:
        """How many devices there are, those that are away included."""
        return len(self._residency.target)

    def used_bytes(self, device: int) -> int:
        """Bytes of a device that are promised."""
        return self._residency.used[device]

    def free_bytes(self, device: int) -> int:
        """Bytes of a device that are not; with those that are, its capacity."""
        return max(0, self._residency.room(device))

    def capacity_bytes(self, device: int) -> int:
        """Bytes of a device; more than it was set to while too many are promised."""
        return self._residency.capacity(device)

    def resident(self) -> tuple[tuple[Instance, Chunk], ...]:
        """What is there or being restored, and where, in order of placing."""
        return tuple([(copy.instance, copy.chunk) for copy in self._residency.copies.values()])

    def is_restoring(self, instance: Instance) -> bool:
        """Whether an instance is placed and not usable yet."""
        copy = self._residency.copies.get(instance)
        return copy is not None and copy.restoring

    def seat_of(self, action_id: int) -> Seat | None:
        """Where an action sits; None if it does not."""
        sitting = self._residency.sittings.get(action_id)
        return None if sitting is None else sitting.seat

    def capacity_of(self, service: str) -> int:
        """How many can have a seat on a service at once, if all its instances are there that fit somewhere."""
        dops = sum([1 for _ in fitting_dops(service, self._residency, self._places.chunks)])
        return dops * self._residency.services[service].max_concurrency

    def restore_s(self, instance: Instance) -> float:
        """What a restore is expected to take."""
        return self._restores.expected_s(instance)

    # Steps.

    def _claim_what_is_due(self, now_s: float, upcoming: Sequence[str]) -> None:
        for request in self._claims.due(now_s):
            goal = self._goals.best(request, now_s, upcoming)
            if goal is None:
                self._claims.pause(request.action_id)
            else:
                self._claims.claim(request.action_id, goal.claim)

    def _forget_claim(self, action_id: int) -> None:
        if self._claims.forget(action_id):
            self._residency.version += 1

    def _end(self, copy: Copy) -> tuple[int, ...]:
        """An instance is gone, with all seats on it."""
        seated = self._residency.void(copy)
        for action_id in seated:
            self._residency.rise(action_id)
        self._eviction.evicted(copy.instance)
        if self._shrinking:
            self._shrink()
        return seated

    def _evict(self, copy: Copy) -> None:
        self._residency.evict(copy)
        self._eviction.evicted(copy.instance)
        self._evicted.append(copy.instance)

    def _shrink(self) -> None:
        """Evict what is idle on devices that have less than is used on them, the least valuable first."""
        residency = self._residency
        short = [device for device in range(self.devices) if residency.short(device)]
        for device in short:
            idle = [copy for copy in residency.on((device,)) if copy.idle]
            values = self._eviction.values([resident(c, residency, self._restores) for c in idle], ())
            for _, copy in sorted(zip(values, idle, strict=True), key=lambda pair: (pair[0], pair[1].instance)):
                if residency.short(device):
                    self._evict(copy)
        self._shrinking = any(residency.short(device) and not residency.is_clear((device,)) for device in short)

    def _index(self, first: int) -> int | None:
        """Return the index of the node that begins with a device; the number of nodes for one that is not there yet."""
        begin = 0
        for index, node in enumerate(self._nodes):
            if begin == first:
                return index
            begin += len(node.devices)
        return len(self._nodes) if begin == first else None

    def _devices(self, first: int) -> range:
        index = self._index(first)
        if index is None or index == len(self._nodes):
            raise ValueError(f"no node begins with device {first}")
        return range(first, first + len(self._nodes[index].devices))
