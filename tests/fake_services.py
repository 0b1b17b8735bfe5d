"""Services without models, for tests of what hosts them: they check that they are treated as the protocol says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from arl_tangram.errors import EvictedServiceError, RestoreError, ServiceLostError, UsageError
from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.devices.fake_device import FakeDevice
from arl_tangram.managers.gpu.host.host_memory import HostMemory
from arl_tangram.managers.gpu.instances.backend import Place
from arl_tangram.managers.gpu.manager import GpuManager
from arl_tangram.model.gpu import Chunk, Footprint, HostedService, Instance

MIB = 1 << 20


class Weights:
    """Bytes that are not there; which ones a region holds is known by identity."""

    def __init__(self, size: int) -> None:
        self.size = size

    def numel(self) -> int:
        return self.size


@dataclass
class FakeService:
    """Declares a service, and is its backend; `log` has what was asked of it, with the time."""

    name: str
    mib: int = 10
    dops: Sequence[int] = (1,)
    max_concurrency: int = 1
    keeps_memory: bool = False
    wake_s: float = 1.0
    peak_mib: int = 0
    asleep_mib: int = 0
    chunks: tuple[tuple[int, Chunk], ...] = ()
    load_s: float = 0.0
    load_error: BaseException | None = None
    errors: list[Exception] = field(default_factory=list)  # of the next restores
    evict_errors: list[Exception] = field(default_factory=list)
    move_errors: list[Exception] = field(default_factory=list)
    evict_s: float = 0.0
    log: list[tuple[str, int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.resident: dict[int, list[Place]] = {}
        self.computing: dict[int, int] = {}
        self.open_handles: set[FakeHandle] = set()
        self.gates = {dop: _open() for dop in self.dops}
        self.idle = {dop: _open() for dop in self.dops}
        self.weights = Weights(self.mib * MIB)
        self.is_closed = False
        self._busy: set[int] = set()

    def backend(self) -> FakeService:
        return self

    def on_lost(self, tell: Callable[[int, Exception], None]) -> None:
        self.tell = tell

    async def open(self, host: HostMemory, devices: Sequence[Device]) -> HostedService:
        await asyncio.sleep(self.load_s)
        if self.load_error is not None:
            raise self.load_error
        self.note("open", 0)
        size = self.mib * MIB
        needs = Footprint(size, max(size, self.peak_mib * MIB), self.asleep_mib * MIB)
        return HostedService(
            self.name,
            footprints=tuple((dop, needs) for dop in self.dops),
            restore_s=tuple((dop, 1.0) for dop in self.dops),
            max_concurrency=self.max_concurrency,
            chunks=self.chunks,
        )

    async def restore(self, dop: int, places: Sequence[Place]) -> None:
        assert dop not in self.resident, f"{self.name}/{dop} is restored while it is there"
        with self.transition("restore", dop):
            try:
                await self._restore(dop, places)
            finally:
                self.gates[dop].set()

    async def _restore(self, dop: int, places: Sequence[Place]) -> None:
        assert len(places) == dop
        assert all((place.region is None) is self.keeps_memory for place in places)
        if self.keeps_memory:
            await asyncio.sleep(self.wake_s)
        else:
            copies = (place.device.copy_in(_region(place), self.weights) for place in places)  # type: ignore[arg-type]
            failed = [e for e in await asyncio.gather(*copies, return_exceptions=True) if e is not None]
            if failed:
                raise RestoreError(str(failed[0])) from failed[0]
        if self.errors:
            raise self.errors.pop(0)
        self.resident[dop] = list(places)

    async def evict(self, dop: int) -> None:
        with self.transition("evict", dop):
            assert not [h for h in self.open_handles if h.dop == dop], f"{self.name}/{dop} is evicted in use"
            await self.idle[dop].wait()
            await asyncio.sleep(self.evict_s)
            if self.evict_errors:
                raise self.evict_errors.pop(0)
            self.resident.pop(dop, None)
            self.gates[dop].set()

    async def move(self, dop: int, places: Sequence[Place]) -> None:
        with self.transition("move", dop):
            self.gates[dop].clear()
            await self.idle[dop].wait()
            self.check(dop)
            here = self.resident.pop(dop)  # calls wait, until it is there again
            if self.move_errors:
                raise self.move_errors.pop(0)
            for old, new in zip(here, places, strict=True):
                if old != new:
                    await old.device.move(_region(old), _region(new))
            self.resident[dop] = list(places)
            self.check(dop)
            self.gates[dop].set()

    def service(self, dop: int) -> FakeHandle:
        handle = FakeHandle(self, dop)
        self.open_handles.add(handle)
        return handle

    def end(self, service: Any) -> None:
        self.open_handles.remove(service)

    async def aclose(self) -> None:
        self.is_closed = True

    # For tests.

    def die(self, dop: int, error: Exception | None = None) -> None:
        """Let an instance die by itself."""
        self.resident.pop(dop, None)
        self.note("dies", dop)
        self.tell(dop, error or ServiceLostError(f"{self.name}/{dop} has died"))

    def check(self, dop: int) -> None:
        """Fail unless the instance has its own bytes where it is."""
        if dop not in self.resident:
            raise ServiceLostError(f"{self.name}/{dop} is not there")
        for place in self.resident[dop]:
            if place.region is not None and isinstance(place.device, FakeDevice):
                assert place.device.content(place.region) is self.weights, f"{self.name}/{dop} has others' bytes"

    def note(self, what: str, dop: int) -> None:
        self.log.append((what, dop, asyncio.get_running_loop().time()))

    def did(self) -> list[str]:
        """Return what was asked of it, in order."""
        return [f"{what}/{dop}" for what, dop, _ in self.log if what != "open"]

    def at(self, what: str) -> float:
        """Return when something has last begun."""
        return [at_s for name, _, at_s in self.log if name == what][-1]

    def transition(self, what: str, dop: int) -> _Transition:
        return _Transition(self, what, dop, self._busy)


class _Transition:
    def __init__(self, service: FakeService, what: str, dop: int, busy: set[int]) -> None:
        self._service, self._what, self._dop, self._busy = service, what, dop, busy

    def __enter__(self) -> None:
        assert self._dop not in self._busy, f"{self._what} of {self._service.name}/{self._dop} beside another"
        self._busy.add(self._dop)
        self._service.note(self._what, self._dop)

    def __exit__(self, *_: object) -> None:
        self._busy.remove(self._dop)


class FakeHandle:
    """What an action gets."""

    def __init__(self, service: FakeService, dop: int) -> None:
        self._service = service
        self.name = service.name
        self.dop = dop
        self.devices = ("meta",) * dop

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute for `kwargs["s"]` seconds, and return where the instance is."""
        service = self._service
        if self not in service.open_handles:
            raise UsageError("the action has ended")
        await service.gates[self.dop].wait()
        if self.dop not in service.resident:
            raise ServiceLostError(f"{self.name}/{self.dop} is not there")
        service.computing[self.dop] = service.computing.get(self.dop, 0) + 1
        service.idle[self.dop].clear()
        try:
            service.check(self.dop)
            before = list(service.resident[self.dop])
            await asyncio.sleep(kwargs.get("s", 0.0))
            if service.resident.get(self.dop) != before:
                raise EvictedServiceError(f"{self.name}/{self.dop} went away under a call")
            service.check(self.dop)
            return before
        finally:
            service.computing[self.dop] -= 1
            if not service.computing[self.dop]:
                service.idle[self.dop].set()


def _open() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _region(place: Place) -> Any:
    return place.region


class FakeSource:
    """Opens fake devices of so many MiB; `lendable` has those that can be lent."""

    def __init__(
        self,
        *mib: int,
        bytes_per_s: float = 10 * MIB,
        move_bytes_per_s: float = 1e12,
        lendable: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.devices = [
            FakeDevice(f"fake:{n}", size * MIB, bytes_per_s=bytes_per_s, move_bytes_per_s=move_bytes_per_s)
            for n, size in enumerate(mib)
        ]
        self.lendable = dict(lendable)
        self.lent: list[FakeDevice] = []
        self.budget = 1 << 40

    async def open(self, *, shared: bool, arenas: bool = True) -> Sequence[Device]:
        self.opened_with = (shared, arenas)
        return self.devices

    async def lend(self, names: Sequence[str]) -> Sequence[Device]:
        self.lent = [FakeDevice(name, self.lendable[name] * MIB, bytes_per_s=10 * MIB) for name in names]
        return self.lent

    async def host_memory(self) -> HostMemory:
        return HostMemory(self.budget)

    def notes(self) -> tuple[str, ...]:
        return ()


class Told:
    """Listens, and keeps what it is told."""

    def __init__(self) -> None:
        self.what: list[str] = []
        self.took_s: list[float] = []
        self.capacities: dict[int, int] = {}

    def restored(self, instance: Instance, took_s: float) -> None:
        self.what.append(f"restored {instance}")
        self.took_s.append(took_s)

    def failed(self, instance: Instance, error: Exception) -> None:
        self.what.append(f"failed {instance}")

    def lost(self, instance: Instance, error: Exception) -> None:
        self.what.append(f"lost {instance}")

    def capacity(self, device: int, capacity_bytes: int) -> None:
        self.what.append(f"capacity {device} {capacity_bytes // MIB}")
        self.capacities[device] = capacity_bytes


async def started(source: FakeSource, *services: FakeService) -> tuple[GpuManager, Told]:
    """Return a manager that is started, and who listens to it."""
    manager, told = GpuManager(services, source), Told()
    await manager.start()
    manager.listen(told)
    return manager, told
