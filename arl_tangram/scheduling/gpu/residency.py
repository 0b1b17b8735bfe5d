"""Which instances are on which devices, who uses them, and what is left: bytes and compute, exact after every step.

An instance is nowhere (what it keeps of its chunk then counts all the same), *restoring* (its peak counts), or
*resident*. It moves at the decision: what is evicted counts as gone, and what is placed as there, from the promise on.
Whoever carries it out sees to the order.

An instance is *idle* if nobody has a seat on it and it is not being restored. Only idle ones are evicted. Whoever has
it restored has a seat on it from the start, so that it cannot be evicted before that one has risen.

Bytes are for co-residents. Compute is apart from them: while an action sits on an exclusive instance, nobody sits on
another one of the same devices. A `gpu=` body *holds* its devices: all their bytes, all their compute.

A device that is to have less than is used on it is *short*: nobody new sits there until enough is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from arl_tangram.model.gpu import Chunk, Footprint, HostedService, Instance, Seat


def bits_of(chunk: Chunk) -> int:
    """Return a bit for each device of a chunk."""
    return ((1 << chunk.size) - 1) << chunk.first


class Copy:
    """An instance that is on devices.

    Attributes:
        instance: which.
        chunk: where.
        footprint: what it takes there.
        exclusive: whether nothing else computes there while it is used.
        places: how many may sit on it.
        restoring: whether it is not usable yet.
        since_s: when it was placed.
        sitting: who sits on it, with the time when each is expected to rise.
        uses: how often a seat on it was taken.
    """

    __slots__ = (
        "chunk",
        "exclusive",
        "footprint",
        "instance",
        "places",
        "restoring",
        "since_s",
        "sitting",
        "uses",
    )

    def __init__(self, instance: Instance, chunk: Chunk, footprint: Footprint, service: HostedService) -> None:
        self.instance = instance
        self.chunk = chunk
        self.footprint = footprint
        self.exclusive = service.exclusive
        self.places = service.max_concurrency
        self.restoring = True
        self.since_s = 0.0
        self.sitting: dict[int, float] = {}
        self.uses = 0

    @property
    def idle(self) -> bool:
        """Whether it could be evicted."""
        return not self.sitting and not self.restoring

    def left_s(self, now_s: float) -> float:
        """How long those who sit on it are expected to use it."""
        return max([0.0, *[until_s - now_s for until_s in self.sitting.values()]])

    def is_used_by(self, actions: Collection[int]) -> bool:
        """Whether one of these sits on it."""
        return any(action_id in actions for action_id in self.sitting)

    @property
    def used_bytes(self) -> int:
        """What it takes of each of its devices now."""
        return self.footprint.peak_bytes if self.restoring else self.footprint.resident_bytes


class Sitting:
    """An action that has a seat.

    Attributes:
        seat: which.
        copy: the instance that it sits on; None if it holds its devices, or what it sat on is lost.
        held: the bytes that it holds of each of its devices, if it holds them.
        evicted: what went for it, with what was used there, to take it back.
    """

    __slots__ = ("copy", "evicted", "held", "seat")

    def __init__(self, seat: Seat, copy: Copy | None, held: tuple[int, ...], evicted: tuple[Copy, ...]) -> None:
        self.seat = seat
        self.copy = copy
        self.held = held
        self.evicted = evicted


class Residency:
    """The devices of a pool and what is on them.

    Args:
        services: what can be placed.

    Attributes:
        target: the bytes that services are to have of each device now.
        declared: those that they are to have in the long run; none of one that is away.
        used: the bytes of each device that are promised.
        copies: what is restoring or resident, in order of its placing.
        sittings: who sits, by action.
        holders: for each device that is held, by whom and until when that one is expected to have it.
        version: grows with every change.
        layout: grows with every change of what is where, and of the bytes that there are.
    """

    def __init__(self, services: Sequence[HostedService]) -> None:
        self.services = {service.name: service for service in services}
        self.footprints = {
            Instance(service.name, dop): footprint for service in services for dop, footprint in service.footprints
        }
        self.fixed = {Instance(service.name, dop): chunk for service in services for dop, chunk in service.chunks}
        self.target: list[int] = []
        self.declared: list[int] = []
        self.used: list[int] = []
        self._left_behind: list[int] = []
        self._on: list[dict[Instance, Copy]] = []
        self.copies: dict[Instance, Copy] = {}
        self.sittings: dict[int, Sitting] = {}
        self.holders: dict[int, tuple[int, float]] = {}
        self.version = 0
        self.layout = 0

    # Devices.

    def add(self, capacities: Iterable[int]) -> None:
        """There are more devices, numbered on from the last."""
        for capacity in capacities:
            self.target.append(capacity)
            self.declared.append(capacity)
            device = len(self.used)
            left = [self.footprints[i].evicted_bytes for i, chunk in self.fixed.items() if device in chunk.devices]
            self._left_behind.append(sum(left))
            self.used.append(sum(left))
            self._on.append({})
        self.version += 1
        self.layout += 1

    def declare(self, device: int, capacity: int) -> None:
        """A device is to have so many bytes for services from now on; none: it goes away."""
        self.declared[device] = self.target[device] = capacity
        self.version += 1
        self.layout += 1

    def resize(self, device: int, capacity: int) -> None:
        """A device is to have so many bytes for services for the moment; more than were declared are here to stay.

        One that goes away, or is away, stays at none until `declare` says otherwise.
        """
        if not self.declared[device]:
            return
        self.target[device] = capacity
        self.declared[device] = max(capacity, self.declared[device])
        self.version += 1
        self.layout += 1

    def room(self, device: int) -> int:
        """Bytes of a device that can be promised; below 0 if it is to have less than is used."""
        return self.target[device] - self.used[device]

    def capacity(self, device: int) -> int:
        """Bytes of a device, free or used; not less than are used."""
        return max(self.target[device], self.used[device])

    def left(self, device: int, sizes: Sequence[int]) -> int | None:
        """Return what one instance could take of a device of this size; None if that is away, or too small.

        Args:
            device: which.
            sizes: of all devices: `target`, or `declared`.
        """
        size = sizes[device]
        return None if size < max(1, self._left_behind[device]) else size - self._left_behind[device]

    def fits(self, instance: Instance, chunk: Chunk, sizes: Sequence[int]) -> bool:
        """Whether an instance could be restored on a chunk of devices of these sizes if nothing else was there."""
        needed = self.needs(instance)
        left = [self.left(device, sizes) for device in chunk.devices]
        return all(size is not None and needed <= size for size in left)

    def short(self, device: int) -> bool:
        """Whether a device has to lose something before anybody new may sit there."""
        return self.room(device) < 0 or not self.target[device]

    def is_lowered(self, device: int, sizes: Sequence[int]) -> bool:
        """Whether a device of this size has less than it is to have: something on it is not known here."""
        return sizes[device] < self.declared[device]

    def on(self, devices: Iterable[int]) -> list[Copy]:
        """What is on any of these devices, each once, in order of device and placing."""
        found: dict[Instance, Copy] = {}
        for device in devices:
            found.update(self._on[device])
        return list(found.values())

    def is_clear(self, devices: Iterable[int]) -> bool:
        """Whether nothing is on these devices and nobody holds them."""
        return not any(self._on[device] or device in self.holders for device in devices)

    def holding(self) -> list[int]:
        """The actions that hold devices, each once, in order."""
        return list(dict.fromkeys([action_id for action_id, _ in self.holders.values()]))

    # Seats.

    def needs(self, instance: Instance) -> int:
        """Bytes of each device of its chunk that the instance takes on to be restored there."""
        return self.footprints[instance].peak_bytes - self._kept(instance)

    def gives(self, copy: Copy) -> int:
        """Bytes of each of its devices that become free if it is evicted."""
        return copy.used_bytes - self._kept(copy.instance)

    def sit(self, action_id: int, seat: Seat, now_s: float, until_s: float) -> tuple[Copy, ...]:
        """An action takes a seat; return what is evicted for it.

        Args:
            action_id: it has no seat yet.
            seat: one that is there now.
            now_s: the time.
            until_s: when it is expected to rise.

        Raises:
            ValueError: that seat is not there.
        """
        self._check(action_id, seat)
        gone = tuple([self._remove(self.copies[instance]) for instance in seat.evicts])
        copy: Copy | None = None
        held: tuple[int, ...] = ()
        if seat.instance is None:
            held = tuple([self._hold(device, action_id, until_s) for device in seat.chunk.devices])
        else:
            if seat.restores:
                self._place(seat.instance, seat.chunk, now_s)
            copy = self.copies[seat.instance]
            copy.sitting[action_id] = until_s
        self.sittings[action_id] = Sitting(seat, copy, held, gone)
        self.version += 1
        return gone

    def rise(self, action_id: int) -> None:
        """An action gives its seat back."""
        sitting = self.sittings.pop(action_id)
        for device, held in zip(sitting.seat.chunk.devices, sitting.held, strict=False):
            self.used[device] -= held
            del self.holders[device]
        if sitting.copy is not None:
            del sitting.copy.sitting[action_id]
        self.version += 1

    def unsit(self, action_id: int) -> None:
        """Take back the last seat that was taken: all is as it was, but for `version` and the order of `copies`."""
        sitting = self.sittings[action_id]
        self.rise(action_id)
        if sitting.seat.restores and sitting.copy is not None:
            self._remove(sitting.copy)
        for copy in reversed(sitting.evicted):
            self._put(copy)

    def restored(self, copy: Copy) -> None:
        """An instance is usable now, and takes no more than it rests at."""
        self._take(copy.chunk, copy.footprint.resident_bytes - copy.footprint.peak_bytes)
        copy.restoring = False
        self.version += 1
        self.layout += 1

    def evict(self, copy: Copy) -> None:
        """An idle instance goes for nobody in particular."""
        if not copy.idle:
            raise ValueError(f"{copy.instance} is in use")
        self._remove(copy)
        self.version += 1

    def void(self, copy: Copy) -> tuple[int, ...]:
        """An instance is not there any more, whoever sits on it; return who does, in order. They have to rise."""
        seated = tuple(copy.sitting)
        for action_id in seated:
            self.sittings[action_id].copy = None
        copy.sitting.clear()
        self._remove(copy)
        self.version += 1
        return seated

    # Compute.

    def disturbed(self, instance: Instance, chunk: Chunk) -> list[Copy]:
        """What is used on these devices, and cannot be while an action sits on this instance there."""
        exclusive = self.services[instance.service].exclusive
        others = [copy for copy in self.on(chunk.devices) if copy.sitting and copy.instance != instance]
        return [copy for copy in others if exclusive or copy.exclusive]

    # Steps.

    def _check(self, action_id: int, seat: Seat) -> None:
        copy = None if seat.instance is None else self.copies.get(seat.instance)
        wrong = action_id in self.sittings or any(device in self.holders for device in seat.chunk.devices)
        wrong |= any(i not in self.copies or not self.copies[i].idle for i in seat.evicts)
        if not wrong and seat.instance is None:
            wrong = any(copy.instance not in seat.evicts for copy in self.on(seat.chunk.devices))
        elif not wrong and seat.instance is not None:
            going = [self.copies[i] for i in seat.evicts]
            wrong = bool(self.disturbed(seat.instance, seat.chunk))
            if seat.restores:
                needed = self.needs(seat.instance)
                wrong |= (copy is not None and copy not in going) or any(
                    needed > self.room(d) + sum([self.gives(other) for other in going if d in other.chunk.devices])
                    for d in seat.chunk.devices
                )
            else:
                wrong |= copy is None or copy.chunk != seat.chunk or len(copy.sitting) >= copy.places
        if wrong:
            raise ValueError(f"{seat} is not there for action {action_id}")

    def _place(self, instance: Instance, chunk: Chunk, now_s: float) -> None:
        copy = Copy(instance, chunk, self.footprints[instance], self.services[instance.service])
        copy.since_s = now_s
        self._put(copy)

    def _put(self, copy: Copy) -> None:
        self.layout += 1
        self._take(copy.chunk, self.gives(copy))
        self.copies[copy.instance] = copy
        for device in copy.chunk.devices:
            self._on[device][copy.instance] = copy

    def _remove(self, copy: Copy) -> Copy:
        self.layout += 1
        self._take(copy.chunk, -self.gives(copy))
        del self.copies[copy.instance]
        for device in copy.chunk.devices:
            del self._on[device][copy.instance]
        return copy

    def _kept(self, instance: Instance) -> int:
        return self.footprints[instance].evicted_bytes if instance in self.fixed else 0

    def _take(self, chunk: Chunk, size: int) -> None:
        for device in chunk.devices:
            self.used[device] += size

    def _hold(self, device: int, action_id: int, until_s: float) -> int:
        held = max(0, self.room(device))
        self.used[device] += held
        self.holders[device] = action_id, until_s
        return held
