"""`GpuPool`: the declaration of devices and of the services that share them, checked when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.discovery.machine_devices import AUTO, MachineDevices, check_names
from arl_tangram.managers.gpu.instances.backend import DeclaredService
from arl_tangram.managers.gpu.manager import EvictionPolicy, GpuManager
from arl_tangram.model.quantities import bytes_of_gib

POLICIES = ("loss", "lru", "gdsf")
MOST_RESERVE = 0.9


@dataclass(frozen=True, slots=True, init=False)
class GpuPool:
    """GPUs, or parts of this machine's memory in their place, and the services that are restored to them by turns.

    The weights of a service are in host memory; each instance is restored when an action needs it, kept while it is
    wanted, and evicted when another needs its room.

    Attributes:
        services: `TorchService`, `VllmService` and so on, each with a name of its own; none for a pool that is for
            `gpu=` bodies alone.
        devices: `"auto"` for all GPUs that this process may use (`CUDA_VISIBLE_DEVICES` is obeyed), or their names: a
            UUID, which may be cut short, or `"cuda:0"`; `"cpu:0:4GiB"` for a part of this machine's memory, with the
            same code and no GPU.
        policy: who is evicted: `"loss"`, whose eviction costs fewest seconds of restoring, by what waits and how often
            it was used; `"lru"`, who was used longest ago; `"gdsf"`, Greedy-Dual with sizes and frequencies.
        host_gib: the most host memory for weights; by default most of what is available when the runtime is opened.
        reserve: the share of each GPU's memory that is left for what is computed, and for what others use.

    Raises:
        ConfigurationError: a value that is not possible, or two services of one name.
    """

    services: tuple[DeclaredService, ...]
    devices: Literal["auto"] | tuple[str, ...]
    policy: EvictionPolicy
    host_gib: float | None
    reserve: float
    _host_bytes: int | None = field(repr=False, compare=False)

    def __init__(
        self,
        *services: DeclaredService,
        devices: Literal["auto"] | Sequence[str] = "auto",
        policy: EvictionPolicy = "loss",
        host_gib: float | None = None,
        reserve: float = 0.15,
    ) -> None:
        for name, value in (
            ("services", check_services(services, "GpuPool")),
            ("devices", devices if devices == AUTO else check_names(devices, "GpuPool(devices=)")),
            ("policy", check_policy(policy)),
            ("host_gib", host_gib),
            ("reserve", _reserve(reserve)),
            ("_host_bytes", _host_bytes(host_gib)),
        ):
            object.__setattr__(self, name, value)

    def manager(self) -> GpuManager:
        """Return a new manager of this pool; it does nothing before its `start`."""
        names = None if isinstance(self.devices, str) else self.devices
        source = MachineDevices(names, reserve=self.reserve, host_bytes=self._host_bytes)
        return GpuManager(self.services, source, policy=self.policy)


def check_services(services: tuple[object, ...], where: str) -> tuple[DeclaredService, ...]:
    """Check that these are services with names of their own; `where` begins messages."""
    names: list[str] = []
    for service in services:
        if isinstance(service, type) or not callable(getattr(service, "backend", None)):
            raise ConfigurationError(f"{where}() takes services, such as TorchService(...), not {service!r}")
        names.append(cast(DeclaredService, service).name)
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise ConfigurationError(f"{where}(): two services have the name {twice[0]!r}")
    return cast("tuple[DeclaredService, ...]", services)


def check_policy(policy: EvictionPolicy, where: str = "GpuPool") -> EvictionPolicy:
    """Check that there is such a policy; `where` begins the message."""
    if policy not in POLICIES:
        raise ConfigurationError(f"{where}(policy={policy!r}): there are 'loss', 'lru' and 'gdsf'")
    return policy


def _host_bytes(host_gib: object) -> int | None:
    if host_gib is None:
        return None
    size = bytes_of_gib(host_gib, "GpuPool(host_gib=)", ConfigurationError)
    if not size:
        raise ConfigurationError("GpuPool(host_gib=) must be above 0")
    return size


def _reserve(reserve: object) -> float:
    if isinstance(reserve, bool) or not isinstance(reserve, (int, float)) or not 0 <= reserve <= MOST_RESERVE:
        raise ConfigurationError(f"GpuPool(reserve=) takes a share from 0 to {MOST_RESERVE}, not {reserve!r}")
    return float(reserve)
