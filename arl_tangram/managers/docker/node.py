"""One daemon at work: what it offers, and the sandboxes that are made there or kept ready."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TypeGuard

import anyio.to_thread

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.cores import Cores
from arl_tangram.managers.docker.allotment import IDLE_QUOTA_US
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.building import Builder
from arl_tangram.managers.docker.containers import Containers
from arl_tangram.managers.docker.declared import HostSettings, SandboxSettings
from arl_tangram.managers.docker.direct_limits import DirectLimits
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.image import Images
from arl_tangram.managers.docker.labels import Mark
from arl_tangram.managers.docker.lanes import Urgency
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.managers.docker.leases import Leases
from arl_tangram.managers.docker.leftovers import remove_leftovers, remove_own
from arl_tangram.managers.docker.offer import offer
from arl_tangram.managers.docker.probe import DIRECT_SWITCH_S, UPDATE_SWITCH_S, is_this_machine, may_write
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.managers.docker.tenants import Tenants
from arl_tangram.managers.docker.warm import WarmPool
from arl_tangram.managers.docker.wording import (
    channel_in_words,
    daemon_in_words,
    host_in_words,
    latency_in_words,
    probe_in_words,
    titled,
)
from arl_tangram.managers.host.cgroup import PERIOD_US, cpulist
from arl_tangram.managers.host.lifter import QuotaLifter
from arl_tangram.managers.host.machine import read_machine
from arl_tangram.managers.manager import CpuLease, ManagedSandbox, counted, in_words
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import CPU, MEMORY, SANDBOXES, Dimension, on_node

LEAST_MEMORY_BYTES = 16 << 20  # its shells and their guard need about half of that; Docker takes no less than 6 MB

_logger = logging.getLogger(__name__)


class DockerNode:
    """One daemon, and what a pool has there.

    Args:
        number: of the node, from 0.
        host: what was declared of it.
        settings: of all sandboxes.
        owner: the name under which containers are created.
        mark: of this machine.
        numbers: of the sandboxes, for all nodes.
    """

    def __init__(
        self,
        number: int,
        host: HostSettings,
        settings: SandboxSettings,
        *,
        owner: str,
        mark: Mark,
        numbers: Iterator[int],
    ) -> None:
        self.number = number
        self.name = host.name
        self.meter = LatencyMeter()
        self.host = host
        self._settings = settings
        self._owner = owner
        self._mark = mark
        self._numbers = numbers
        self._engine = Engine(host.url, self.meter)
        self._max_sandboxes = settings.max_sandboxes
        self._being_built = 0  # which count twice for a moment, once they run
        self._has_begun = False
        self._tell_capacity: Callable[[str, int], None] | None = None
        self._lifter: QuotaLifter | None = None

    # what there is

    async def open(self) -> None:
        """Ask the daemon what it has.

        Raises:
            ConfigurationError: it cannot be used.
        """
        self._info = await self._engine.open()
        is_here = is_this_machine(self._engine.url, self._info)
        self._machine = await anyio.to_thread.run_sync(read_machine) if is_here else None
        self._may_write = is_here and await anyio.to_thread.run_sync(may_write)

    @property
    def is_here(self) -> bool:
        """Whether its containers are processes of this machine."""
        return self._machine is not None

    def settle(self, taken: set[int], *, shares: bool) -> None:
        """Decide what it has, and prepare to work; see `offer`. Its cores are added to those that are taken.

        Raises:
            ConfigurationError: there is less than was asked.
        """
        self._offer = offer(self.host, self._info, self._machine, said=self._said, taken=taken, shares=shares)
        if shares:
            taken.update(core for node in self._offer.nodes for core in node)
        self._cores = Cores(self._offer.nodes, self._offer.cores)
        self._memory_bytes = self._offer.memory_bytes
        self._containers = Containers(
            self._engine, self._settings, node=self._said, width=2 * self._info.ncpu, idle=self._idle_config
        )
        self._warm = WarmPool(self._settings.warm, create=self._build_ahead, has_room=self._has_room)
        self._tenants = Tenants(said=self._said, on_lost=self._warm.on_lost, on_back=self._containers.daemon_is_back)
        self._images = Images(self._engine, pull=self._settings.pull, pull_timeout_s=self._settings.pull_timeout_s)
        self._builder = Builder(
            self._engine,
            self._info,
            self._settings,
            node=self.number,
            said=self._said,
            owner=self._owner,
            mark=self._mark,
            numbers=self._numbers,
            cores=self._cores,
            is_here=self.is_here,
            containers=self._containers,
            images=self._images,
            absence=self._tenants.absence,
        )
        self._leases = Leases(
            self._cores,
            said=self._said,
            available=lambda: self._builder.available,
            on_capacity=self._tell_cores,
        )

    def dimensions(self) -> tuple[Dimension, ...]:
        """What it offers."""
        return (
            Dimension(on_node(CPU, self.name), self._cores.capacity * MILLI, MILLI),
            Dimension(on_node(MEMORY, self.name), self._memory_bytes, GIB),
            Dimension(on_node(SANDBOXES, self.name), self._max_sandboxes),
        )

    def check_capacity(self, resource: str, name: str, capacity: int) -> None:
        """Raise `ConfigurationError` if there is not as much of a resource, whose dimension has this name."""
        most = {CPU: self._offer.most_cores * MILLI, MEMORY: self._offer.most_memory_bytes}.get(resource, capacity)
        if capacity > most:
            raise ConfigurationError(
                f"a DockerPool with {name} of {in_words(name, capacity)}: {self._said} can give {in_words(name, most)}"
            )

    def resize(self, resource: str, capacity: int) -> None:
        """Change what there is of a resource."""
        if resource == CPU:
            self._cores.resize(capacity // MILLI)
        elif resource == MEMORY:
            self._memory_bytes = capacity
        else:
            self._max_sandboxes = capacity
            self._warm.refill()

    def on_capacity(self, tell: Callable[[str, int], None]) -> None:
        """Take what is told when cores go offline or come back; see `DockerManager.on_capacity`."""
        self._tell_capacity = tell
        self._leases.tell_if_short()

    def describe(self) -> str:
        """Say in one line what it has, how grants are applied and why, and how commands are run."""
        cores, memory = counted(self._cores.capacity, "core"), f"{self._memory_bytes / GIB:.1f} GiB"
        has = f"{cores}, {memory}, up to {counted(self._max_sandboxes, 'sandbox', 'sandboxes')}"
        daemon = f"{self._engine.url} ({daemon_in_words(self._info)})"
        how = probe_in_words(self._builder.probe)
        return f"{titled(self.name)}{has} in containers of {daemon}; {how}; {channel_in_words(self._settings.channel)}"

    def notes(self) -> tuple[str, ...]:
        """Return how fast the daemon has answered, and what could not be removed."""
        told = [latency_in_words(self.meter.read())]
        if left := self._containers.left:
            ids = ", ".join(container_id[:12] for container_id in left)
            told.append(f"{len(left)} containers could not be removed yet: {ids}")
        return tuple(f"{titled(f'daemon {self.name}'.strip())}{line}" for line in told if line)

    @property
    def _said(self) -> str:
        """What it is called in messages."""
        return host_in_words(self.name, self._engine.url)

    # beginning and end

    async def start(self) -> None:
        """Remove what dead owners left, find out how grants are applied, and get the pool's image.

        Raises:
            ConfigurationError: grants cannot be applied, or not as was asked.
            SandboxStartError: there is no such image, or no container of it can be started.
        """
        await remove_leftovers(self._engine, self._containers, said=self._said)
        self._has_begun = True
        await self._tenants.watch(self._engine, self._owner)
        if self._settings.resizes and self._is_direct:
            self._lifter = QuotaLifter(self._info.cgroup_version, self._owner)
        if self._settings.image is not None:
            await self._builder.choose(self._settings.image)
            self._warm.refill()

    async def aclose(self) -> None:
        """Close all sandboxes, remove all containers, and let go of the daemon; bounded, and never raises."""
        if self._has_begun:
            self._leases.close()
            await self._close("the sandboxes made ahead", self._warm.aclose)
            await self._close("the images", self._images.aclose)
            await self._close("the sandboxes", self._tenants.aclose)
            await self._close("the containers", self._containers.aclose)
            await self._close(
                "what is left",
                partial(remove_own, self._engine, self._containers, owner=self._owner, said=self._said),
            )
            await self._close("the watch", self._tenants.unwatch)
        if self._lifter is not None:
            await self._close("what lifts quotas", self._lifter.aclose)
        await self._close("the connection", self._engine.aclose)

    async def _close(self, what: str, close: Callable[[], Awaitable[None]]) -> None:
        """Close one thing; if that fails, it must not keep the rest from being closed."""
        try:
            await close()
        except Exception:
            _logger.exception("closing %s: %s could not be closed", self._said, what)

    # sandboxes

    async def create(self, image: str, memory_bytes: int) -> DockerSandbox:
        """Create a sandbox, or take one that is ready; see `DockerManager.create_sandbox`."""
        if 0 < memory_bytes < LEAST_MEMORY_BYTES:
            raise ConfigurationError(
                f"a sandbox with {memory_bytes:,} bytes of memory was asked; {LEAST_MEMORY_BYTES:,} are the least"
            )
        ready = self._warm.take() if image == self._settings.image else None
        if ready is not None and await self._adopt(ready, memory_bytes):
            return ready
        if not self._has_room() and (spare := self._warm.give_up()) is not None:
            await spare.aclose()
        return await self._build(image, memory_bytes, Urgency.START)

    async def _adopt(self, sandbox: DockerSandbox, memory_bytes: int) -> bool:
        """Give a sandbox that is ready its memory; if that fails, it goes."""
        if not memory_bytes:
            return True
        try:
            await self._builder.limit_memory(sandbox, memory_bytes)
        except BaseException as error:
            await sandbox.aclose()
            if isinstance(error, DaemonError):
                return False
            raise
        return True

    async def _build_ahead(self) -> DockerSandbox:
        return await self._build(self._settings.image or "", 0, Urgency.NORMAL)

    async def _build(self, image: str, memory_bytes: int, urgency: Urgency) -> DockerSandbox:
        self._being_built += 1
        try:
            return await self._builder.build(
                image, memory_bytes, urgency=urgency, admit=self._admit, on_close=self._forget
            )
        finally:
            self._being_built -= 1

    def _admit(self, sandbox: DockerSandbox) -> None:
        self._tenants.admit(sandbox)
        if self._lifter is not None and isinstance(sandbox.limits, DirectLimits):
            self._lifter.watch(sandbox.container.id, sandbox.limits.time_folder)

    def _forget(self, sandbox: DockerSandbox) -> None:
        self._tenants.forget(sandbox)
        if self._lifter is not None:
            self._lifter.forget(sandbox.container.id)
        self._warm.refill()

    def _has_room(self) -> bool:
        return len(self._tenants) + self._being_built < self._max_sandboxes

    def _idle_config(self) -> Mapping[str, object]:
        self._leases.look()  # no container is created for cores that are offline
        return {"CpuPeriod": PERIOD_US, "CpuQuota": IDLE_QUOTA_US, "CpusetCpus": cpulist(self._cores.core_ids)}

    # leases

    def has(self, sandbox: ManagedSandbox) -> TypeGuard[DockerSandbox]:
        """Whether a sandbox is one of its own, and not closed."""
        return isinstance(sandbox, DockerSandbox) and sandbox in self._tenants

    def lease(self, milli_cores: int, sandbox: DockerSandbox | None, *, again: bool, most: int) -> CpuLease:
        """Apply a grant; see `DockerManager.lease`."""
        return self._leases.lease(milli_cores, sandbox, again=again, most=most)

    @property
    def switch_s(self) -> float:
        """Seconds that one change of the cores of a running action takes, about."""
        return DIRECT_SWITCH_S if self._is_direct else UPDATE_SWITCH_S

    @property
    def _is_direct(self) -> bool:
        """Whether grants are written by this process, as far as that is known."""
        if (probe := self._builder.probe) is not None:
            return probe.is_direct
        return self._settings.grants == "direct" or (self._settings.grants == "auto" and self._may_write)

    def cannot_resize(self) -> str | None:
        """Say why the cores of running actions cannot be changed: not without CPU quotas; None if they can."""
        if self._info.limits_time:
            return None
        return f"{self._said} cannot limit the CPU time of containers, so nothing can be suspended"

    def _tell_cores(self, count: int) -> None:
        if self._tell_capacity is not None:
            self._tell_capacity(on_node(CPU, self.name), count * MILLI)
