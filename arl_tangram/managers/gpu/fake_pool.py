"""A pool of GPUs without GPUs, and services without models, for tests in virtual time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from arl_tangram.errors import ConfigurationError, ServiceLostError, UsageError
from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.devices.fake_device import FakeDevice
from arl_tangram.managers.gpu.host.host_memory import HostMemory
from arl_tangram.managers.gpu.instances.backend import Place
from arl_tangram.managers.gpu.manager import EvictionPolicy, GpuManager
from arl_tangram.managers.gpu.pool import check_policy, check_services
from arl_tangram.model.gpu import Footprint, HostedService, checked_dops
from arl_tangram.model.quantities import bytes_of_gib, is_name, seconds, service_name, whole
from arl_tangram.model.service import Service

_HOST_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class FakeService:
    """A service that answers what `on_call` does; it takes no memory.

    Attributes:
        name: by which actions ask for it.
        gib: GiB that it takes of each of its GPUs.
        restore_s: seconds that a restore takes.
        dops: on how many GPUs it can be.
        max_concurrency: how many actions may use an instance at once.
        exclusive: whether nothing else computes on its GPUs while an action uses it.
        peak_gib: GiB that it takes while it is restored; None for as much as later.
        on_call: what `current_service().call(...)` returns, from its arguments; an awaitable is awaited.
        on_restore: called with the dop in the middle of each restore; what it raises fails it.

    Raises:
        ConfigurationError: a value that is not possible.
    """

    name: str
    gib: float = 1
    restore_s: float = 1
    dops: Sequence[int] = (1,)
    max_concurrency: int = 1
    exclusive: bool = False
    peak_gib: float | None = None
    on_call: Callable[..., Any] = lambda *_args, **_kwargs: None
    on_restore: Callable[[int], None] = lambda _dop: None

    def __post_init__(self) -> None:
        what = f"FakeService({self.name!r})"
        service_name(self.name, what, ConfigurationError)
        resident = bytes_of_gib(self.gib, f"{what}: gib", ConfigurationError)
        if (
            self.peak_gib is not None
            and bytes_of_gib(self.peak_gib, f"{what}: peak_gib", ConfigurationError) < resident
        ):
            raise ConfigurationError(f"{what}: peak_gib={self.peak_gib!r} is less than gib={self.gib!r}")
        if self.restore_s != 0:
            seconds(self.restore_s, f"{what}: restore_s", ConfigurationError)
        object.__setattr__(self, "dops", checked_dops(self.dops, what))
        whole(self.max_concurrency, f"{what}: max_concurrency", ConfigurationError, least=1)
        if cast(object, self.exclusive) not in (True, False):
            raise ConfigurationError(f"{what}: exclusive= takes True or False, not {self.exclusive!r}")
        for name in ("on_call", "on_restore"):
            if not callable(getattr(self, name)):
                raise ConfigurationError(f"{what}: {name}= takes a function, not {getattr(self, name)!r}")

    def hosted(self) -> HostedService:
        """Return what the scheduler is to know."""
        resident = bytes_of_gib(self.gib, "gib", ConfigurationError)
        peak = resident if self.peak_gib is None else bytes_of_gib(self.peak_gib, "peak_gib", ConfigurationError)
        return HostedService(
            self.name,
            tuple((dop, Footprint(resident, peak)) for dop in self.dops),
            tuple((dop, self.restore_s) for dop in self.dops),
            self.max_concurrency,
            self.exclusive,
        )

    def backend(self) -> FakeBackend:
        """Return what stands for it in one runtime."""
        return FakeBackend(self)


class FakeBackend:
    """A service at work."""

    keeps_memory = False

    def __init__(self, declared: FakeService) -> None:
        self._declared = declared
        self._places: dict[int, Sequence[Place]] = {}
        self._calls: set[FakeUse] = set()
        self._tell: Callable[[int, Exception], None] = lambda _dop, _error: None

    @property
    def name(self) -> str:
        """As declared."""
        return self._declared.name

    def on_lost(self, tell: Callable[[int, Exception], None]) -> None:
        """Keep it for `die`."""
        self._tell = tell

    @property
    def resident(self) -> tuple[int, ...]:
        """The dops of the instances that can be used."""
        return tuple(self._places)

    def die(self, dop: int, error: Exception) -> None:
        """End a resident instance, as a server does that crashes: calls of actions that have it fail from now on."""
        del self._places[dop]
        for use in [use for use in self._calls if use.dop == dop]:
            use.is_lost = True
            self._calls.discard(use)
        self._tell(dop, error)

    async def open(self, host: HostMemory, devices: Sequence[Device]) -> HostedService:
        """Load nothing."""
        return self._declared.hosted()

    async def restore(self, dop: int, places: Sequence[Place]) -> None:
        """Take as long as declared."""
        assert dop not in self._places, f"{self.name}/{dop} is restored twice"
        await asyncio.sleep(self._declared.restore_s / 2)
        self._declared.on_restore(dop)
        await asyncio.sleep(self._declared.restore_s / 2)
        self._places[dop] = places

    async def evict(self, dop: int) -> None:
        """Be gone at once; that somebody still uses it is a defect of the scheduler."""
        assert not any(use.dop == dop for use in self._calls), f"{self.name}/{dop} is evicted under an action"
        self._places.pop(dop, None)

    async def move(self, dop: int, places: Sequence[Place]) -> None:
        """Be elsewhere, once the devices have carried it there."""
        for before, after in zip(self._places[dop], places, strict=True):
            if before.region is not None and after.region is not None and before.region != after.region:
                await after.device.move(before.region, after.region)
        self._places[dop] = places

    def service(self, dop: int) -> FakeUse:
        """Return what one action uses.

        Raises:
            ServiceLostError: the instance has died.
        """
        if dop not in self._places:
            raise ServiceLostError(f"{self.name}/{dop} has died")
        use = FakeUse(self, dop, tuple(place.device.name for place in self._places[dop]))
        self._calls.add(use)
        return use

    def end(self, service: Service) -> None:
        """That action has ended."""
        if isinstance(service, FakeUse):
            self._calls.discard(service)

    async def call(self, use: FakeUse, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call.

        Raises:
            ServiceLostError: the instance has died while the action had it.
            UsageError: the action has ended.
        """
        if use.is_lost:
            raise ServiceLostError(f"{self.name}/{use.dop} has died")
        if use not in self._calls:
            raise UsageError(f"{self.name} is called by an action that has ended")
        answer = self._declared.on_call(*args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer

    async def aclose(self) -> None:
        """Forget all."""
        self._places.clear()
        self._calls.clear()


class FakeUse:
    """What `current_service()` returns in one action.

    Attributes:
        dop: on how many GPUs it is.
        devices: their names.
        is_lost: whether the instance has died.
    """

    def __init__(self, backend: FakeBackend, dop: int, devices: tuple[str, ...]) -> None:
        self._backend = backend
        self.dop = dop
        self.devices = devices
        self.is_lost = False

    @property
    def name(self) -> str:
        """Of the service."""
        return self._backend.name

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the service's `on_call` does."""
        return await self._backend.call(self, args, kwargs)


@dataclass(frozen=True, slots=True, init=False)
class FakeGpuPool:
    """A pool of GPUs that are only counted; the scheduler and the manager are the real ones.

    Attributes:
        services: a `FakeService` each.
        gpus: how many there are.
        gib: GiB of each.
        policy: as in `GpuPool`.

    Raises:
        ConfigurationError: a value that is not possible, or two services of one name.
    """

    services: tuple[FakeService, ...]
    gpus: int
    gib: float
    policy: EvictionPolicy

    def __init__(self, *services: FakeService, gpus: int = 1, gib: float = 80, policy: EvictionPolicy = "loss") -> None:
        for name, value in (
            ("services", check_services(services, "FakeGpuPool")),
            ("gpus", whole(gpus, "FakeGpuPool(gpus=)", ConfigurationError, least=1)),
            ("gib", _above_zero(gib)),
            ("policy", check_policy(policy, "FakeGpuPool")),
        ):
            object.__setattr__(self, name, value)

    def manager(self) -> GpuManager:
        """Return a new manager for one runtime."""
        size = bytes_of_gib(self.gib, "FakeGpuPool(gib=)", ConfigurationError)
        return GpuManager(self.services, _FakeSource(self.gpus, size), policy=self.policy)


class _FakeSource:
    """Devices that are only counted: `fake:0`, `fake:1` and so on; those that are lent may have any name."""

    def __init__(self, gpus: int, size: int) -> None:
        self._gpus = gpus
        self._size = size

    async def open(self, *, shared: bool, arenas: bool = True) -> Sequence[Device]:
        return [FakeDevice(f"fake:{number}", self._size) for number in range(self._gpus)]

    async def lend(self, names: Sequence[str]) -> Sequence[Device]:
        if isinstance(names, str) or not all(map(is_name, names)) or not 0 < len(set(names)) == len(names):
            raise ConfigurationError(f"lend() takes different names of devices, not {names!r}")
        return [FakeDevice(name, self._size) for name in names]

    async def host_memory(self) -> HostMemory:
        return HostMemory(_HOST_BYTES)

    def notes(self) -> tuple[str, ...]:
        return ()


def _above_zero(gib: float) -> float:
    if not bytes_of_gib(gib, "FakeGpuPool(gib=)", ConfigurationError):
        raise ConfigurationError("FakeGpuPool(gib=) must be above 0")
    return gib
