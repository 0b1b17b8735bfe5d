"""What applies an allocation to the world: the protocols of managers, leases and sandboxes in their hands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from arl_tangram.errors import BackendDownError, ConfigurationError
from arl_tangram.model.gpu import HostedService, Seat
from arl_tangram.model.lifecycle import RunningAction
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.sandbox import Sandbox
from arl_tangram.model.service import Service
from arl_tangram.model.statistics import LatencyStatistics
from arl_tangram.model.topology import CPU, MEMORY, Dimension, resource_of

if TYPE_CHECKING:
    from arl_tangram.managers.gpu.manager import GpuManager


@dataclass(frozen=True, slots=True)
class ExecUsage:
    """What the commands of one action took.

    Attributes:
        overhead_s: seconds around the commands: time inside `exec` less the commands' own time.
        cpu_s: CPU seconds of the commands.
    """

    overhead_s: float
    cpu_s: float


class ManagedSandbox(Sandbox, Protocol):
    """A sandbox as its manager and the execution see it."""

    async def aclose(self) -> None:
        """Kill everything in it and remove it; bounded, idempotent, never raises for a sandbox that is lost."""
        ...


class CpuLease(Protocol):
    """Cores in use by one running action, applied when created."""

    @property
    def core_ids(self) -> tuple[int, ...]:
        """The host's numbers of the cores."""
        ...

    async def applied(self) -> None:
        """Wait until `core_ids` are known, for bodies that are pinned to them; at once for cores of this machine.

        Cancelling only ends the wait.

        Raises:
            InfrastructureError: they are lost.
        """
        ...

    def resize(self, milli_cores: int) -> None:
        """Let the sandbox have other cores from now on, whole ones; with 0 it is suspended: next to nothing runs in it.

        Synchronous: by direct writes they are in effect, through a daemon that is begun. Commands that run keep
        running, and their deadlines stand still while it is suspended. Only for a sandbox, where the manager
        `can_resize`; the caller never asks for more than is free. Should some of them have gone offline, it gets those
        that there are.

        Raises:
            AllocationError: the sandbox does not have the cores, or there are none.
            SandboxLostError: the sandbox is gone.
        """
        ...

    def wake(self) -> None:
        """Let what an interrupted body cleans up go on at once, and be suspended no more; cannot fail.

        Without cores of its own, it goes on on those that it had, though they are others' as well until its end.
        """
        ...

    @property
    def usage(self) -> ExecUsage:
        """What the commands took so far."""
        ...

    def needs_cleanup(self) -> bool:
        """Whether something that the action started may still run, so that `clean` must be awaited."""
        ...

    async def clean(self) -> None:
        """Kill everything that the action started in its sandbox; bounded. Nothing else may run meanwhile.

        Raises:
            SandboxLostError: something survived, and the sandbox was destroyed.
        """
        ...

    def release(self) -> None:
        """Give the cores back; idempotent, synchronous, cannot fail."""
        ...


class CpuManager(Protocol):
    """Owns the cores (and the memory) of a pool, and its sandboxes.

    A pool has one node or several, numbered from 0 in the order of their dimensions. The calls come in this order:
    `prepare`, `dimensions`, `start`, all others, `aclose`; and `aclose` also if `prepare` or `start` has failed.
    """

    async def prepare(self) -> None:
        """Find out what there is to offer; whatever `dimensions` needs to know.

        Raises:
            ConfigurationError: nothing can be offered here.
        """
        ...

    def dimensions(self) -> tuple[Dimension, ...]:
        """What it offers: `cpu` in milli-cores, `memory` in bytes, `sandboxes` if their number is limited.

        With several nodes, each has its own: `cpu@NAME` and so on. Known from `prepare` on, before `start`.
        """
        ...

    def host_node(self) -> int | None:
        """Return the number of the node that is this machine, so that bodies without a sandbox take its cores.

        None if there is none. Known from `prepare` on.
        """
        ...

    def check_image(self, image: str | None) -> None:
        """Raise `ConfigurationError` if trajectories cannot have this image."""
        ...

    def check_memory(self, memory_bytes: int) -> None:
        """Raise `ConfigurationError` if that is too little for a sandbox; 0 is no limit, and enough."""
        ...

    def check_capacity(self, name: str, capacity: int) -> None:
        """Raise `ConfigurationError` unless `resize` can do this; changes nothing.

        Args:
            name: a dimension that it offers.
            capacity: milli-cores, bytes or sandboxes.
        """
        ...

    def resize(self, name: str, capacity: int) -> None:
        """Change what there is of a dimension, after `check_capacity`; synchronous, cannot fail.

        Nothing is taken from what is in use. What is in use beyond the new capacity is retired when it comes back,
        and until then the caller asks for no more, but for cores that were lent before (`lease(again=True)`).
        """
        ...

    async def start(self) -> None:
        """Probe what is permitted here and sweep what killed runs left behind."""
        ...

    async def aclose(self) -> None:
        """Close all sandboxes and remove everything that was created; bounded."""
        ...

    async def create_sandbox(self, *, image: str | None, memory_bytes: int, node: int = 0) -> ManagedSandbox:
        """Create a sandbox; nothing is left behind if that fails or is cancelled.

        Args:
            image: what it is made from; None for the pool's own.
            memory_bytes: what its trajectory holds; 0 for no limit of its own.
            node: the number of the node to create it on.

        Raises:
            SandboxStartError: it could not be created.
        """
        ...

    def lease(
        self, milli_cores: int, sandbox: ManagedSandbox | None, *, again: bool = False, most: int = 0
    ) -> CpuLease:
        """Apply a grant: pin the sandbox (or, for a host body, just pick) cores; synchronous.

        The caller never asks for more than is free: the scheduler has counted it already.

        Args:
            milli_cores: how much.
            sandbox: where it is for, on whose node the cores are; None for a host body, on the `host_node`.
            again: whether the action has had as much and has lent it, or its trajectory holds it; the pool may have
                become smaller since, and cores that are beyond it then are retired when they come back.
            most: milli-cores that `resize` may ever give it: what programs are told of, as the number of threads to
                start; 0 for `milli_cores`.
        """
        ...

    def cannot_resize(self) -> str | None:
        """Say why the cores of running actions cannot be changed here; None if they can. Known from `start` on."""
        ...

    @property
    def switch_s(self) -> float:
        """Seconds that one change of the cores of a running action takes here, about. Known from `start` on."""
        ...

    def on_capacity(self, tell: Callable[[str, int], None]) -> None:
        """Take what is told when there is more or less of a dimension by itself, as when cores go offline.

        Args:
            tell: takes the name of a dimension and its capacity, between the turns of the scheduler.
        """
        ...

    def describe(self) -> str:
        """Say in one line what enforces the grants here."""
        ...

    def latency(self) -> Mapping[str, Mapping[str, LatencyStatistics]]:
        """Return how long its daemons took, by the name of the node and the operation; none if it has no daemons."""
        ...

    def notes(self) -> tuple[str, ...]:
        """Return lines for the report of the runtime, such as how fast a daemon has answered; none if all is said."""
        ...


def check_whole(pool: str, name: str, capacity: object, offered: Iterable[str] = (CPU, MEMORY)) -> None:
    """Raise `ConfigurationError` unless a capacity is whole cores, bytes or sandboxes, and at least one.

    Args:
        pool: what the user calls the pool.
        name: of a dimension.
        capacity: what it shall have.
        offered: the names of the dimensions that the pool has.
    """
    if name not in (names := tuple(offered)):
        raise ConfigurationError(f"a {pool} has {', '.join(names[:-1])} and {names[-1]}, no {name!r}")
    resource = resource_of(name)
    least = MILLI if resource == CPU else 1
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < least or capacity % least:
        asked = f"{capacity / MILLI:g}" if resource == CPU and type(capacity) is int else repr(capacity)
        counted = {CPU: "cores", MEMORY: "bytes"}.get(resource or "", "sandboxes")
        raise ConfigurationError(f"{name}: a {pool} has whole {counted} from 1, not {asked}")


def in_words(name: str, capacity: int) -> str:
    """Say a capacity as people do.

    Args:
        name: of a dimension of a node.
        capacity: milli-cores, bytes or sandboxes.
    """
    resource = resource_of(name)
    if resource == CPU:
        return counted(capacity // MILLI, "core")
    return f"{capacity / GIB:.1f} GiB" if resource == MEMORY else counted(capacity, "sandbox", "sandboxes")


def counted(number: int, one: str, many: str | None = None) -> str:
    """Say how many of something there are; `many` is `one` with an `s` unless given."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def check_least(pool: str, memory_bytes: int, least_bytes: int) -> None:
    """Raise `ConfigurationError` if a sandbox would have less memory than the least that it needs; 0 is no limit."""
    if 0 < memory_bytes < least_bytes:
        raise ConfigurationError(
            f"trajectory(memory_gib={memory_bytes / GIB:.4g}): a sandbox of a {pool} needs {least_bytes / GIB:.6g} GiB "
            f"({least_bytes >> 20} MiB) at least"
        )


def no_cores(sandbox_id: str) -> str:
    """Say why a command does not run: the text of the `UsageError`."""
    return (
        f"no action has cores in sandbox {sandbox_id} now, which commands need: none is running in it, "
        "or the running one has lent its cores while it waits for actions that it called"
    )


class GpuHold(Protocol):
    """What one action has of a pool of GPUs: a service that is resident, or devices to itself."""

    @property
    def seat(self) -> Seat:
        """What was decided."""
        ...

    @property
    def devices(self) -> tuple[str, ...]:
        """By which its devices are known outside: UUIDs of GPUs, or `cpu:0`."""
        ...

    @property
    def service(self) -> Service:
        """What the action uses, from `ready` to `release`.

        Raises:
            NoServiceError: it has devices, and no service.
            UsageError: it is not ready, or released.
        """
        ...

    async def ready(self) -> None:
        """Wait until its service is resident, or nothing else is on its devices; cancelling only ends the wait.

        Raises:
            RestoreError: it failed.
            ServiceLostError: the service has died since the decision.
            ShutdownError: the pool was closed meanwhile.
        """
        ...

    def release(self) -> None:
        """Give it back; idempotent, synchronous, cannot fail. Before the scheduler is told that the seat is free."""
        ...


class GpuSeats(Protocol):
    """A pool of GPUs, as those see it who use what was decided."""

    @property
    def services(self) -> Sequence[HostedService]:
        """What it hosts, as the scheduler counts it."""
        ...

    def take(self, seat: Seat) -> GpuHold:
        """Begin to make a seat real; synchronous, in the turn of the decision.

        Raises:
            UsageError: the pool is closed.
        """
        ...


class BreakerCalls(Protocol):
    """The breakers of a runtime, as its calls see them."""

    def refusal(self, quotas: Iterable[tuple[str, int]], now_s: float) -> BackendDownError | None:
        """Return why a call cannot even wait: a quota that it takes, of these, is down with all its keys."""
        ...

    def called(
        self, caller: RunningAction, holds: Iterable[tuple[str, int]], takes: Iterable[tuple[str, int]], now_s: float
    ) -> None:
        """A running call waits for another one: where both take the same quota, it must not be in its way."""
        ...

    def say(self, running: RunningAction, name: str, now_s: float, *, failed: bool | None) -> None:
        """A body says how a call went, or (None) that its end will say nothing about that; it counts at once."""
        ...

    def answered(
        self, running: RunningAction, quotas: Iterable[tuple[str, int]], error: BaseException | None, now_s: float
    ) -> None:
        """A call's caller has its answer, and its body has not ended."""
        ...

    def ended(
        self, running: RunningAction, quotas: Iterable[tuple[str, int]], error: BaseException | None, now_s: float
    ) -> None:
        """A call has given its units back."""
        ...


class GpuPool(Protocol):
    """A declared pool of GPUs with the services on them, such as `GpuPool(...)`: what a user hands to the runtime."""

    @property
    def services(self) -> Sequence[object]:
        """What was declared; a pool of cores has none."""
        ...

    def manager(self) -> GpuManager:
        """Return a new manager for one runtime."""
        ...


class CpuPool(Protocol):
    """A declared pool of cores, such as `LocalPool(...)`: what a user hands to the runtime."""

    def manager(self) -> CpuManager:
        """Return a new manager for one runtime."""
        ...
