"""One daemon at work: its cores and its sandboxes, and what becomes of them when something happens to it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeGuard

import anyio.to_thread

from arl_tangram.errors import (
    AllocationError,
    ConfigurationError,
    InfrastructureError,
    SandboxLostError,
    SandboxStartError,
)
from arl_tangram.managers.cores import Cores, Placement
from arl_tangram.managers.docker.allotment import IDLE_QUOTA_US
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.available import CoreWatch
from arl_tangram.managers.docker.building import Builder
from arl_tangram.managers.docker.containers import Containers
from arl_tangram.managers.docker.declared import HostSettings, SandboxSettings
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.image import Images
from arl_tangram.managers.docker.labels import OWNER, Mark, sweep
from arl_tangram.managers.docker.lanes import Urgency
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.managers.docker.offer import offer
from arl_tangram.managers.docker.probe import is_this_machine
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.managers.docker.warm import WarmPool
from arl_tangram.managers.docker.watch import Death, Watch
from arl_tangram.managers.docker.wording import (
    channel_in_words,
    daemon_in_words,
    latency_in_words,
    probe_in_words,
    titled,
)
from arl_tangram.managers.host.cgroup import PERIOD_US, cpulist
from arl_tangram.managers.host.machine import read_machine
from arl_tangram.managers.lease import SandboxLease
from arl_tangram.managers.manager import CpuLease, ManagedSandbox, in_words
from arl_tangram.managers.usage import UsageMeter
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import CPU, MEMORY, SANDBOXES, Dimension, on_node

LEAST_MEMORY_BYTES = 16 << 20  # its shells and their guard need about half of that; Docker takes no less than 6 MB
READY_LIMIT_S = 30.0
AWAY_LIMIT_S = 30.0  # how long an action waits for a daemon that is being restarted
OOM_S = 3.0  # between an end for lack of memory and its news

# Daemons and owners of this process that have closed and left containers there: the process lives, they do not.
_abandoned: set[tuple[str, str]] = set()

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
        self._sandboxes: dict[str, DockerSandbox] = {}  # by container
        self._being_built = 0  # which count twice for a moment, once they run
        self._out_of_memory_s: dict[str, float] = {}  # by container: when the kernel killed something in it
        self._leased: dict[int, DockerSandbox] = {}
        self._lease_numbers = itertools.count(1)
        self._watching: asyncio.Task[None] | None = None
        self._tell_capacity: Callable[[str, int], None] | None = None
        self._back = asyncio.Event()
        self._back.set()
        self._clock = asyncio.get_running_loop().time

    # what there is

    async def open(self) -> None:
        """Ask the daemon what it has.

        Raises:
            ConfigurationError: it cannot be used.
        """
        self._info = await self._engine.open()
        is_here = is_this_machine(self._engine.url, self._info)
        self._machine = await anyio.to_thread.run_sync(read_machine) if is_here else None

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
        self._core_watch = CoreWatch(self._cores, on_moved=self._place, on_capacity=self._tell_cores)
        self._memory_bytes = self._offer.memory_bytes
        self._containers = Containers(
            self._engine, self._settings, node=self._said, width=2 * self._info.ncpu, idle=self._idle_config
        )
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
            until_back=self._wait_until_back,
        )
        self._warm = WarmPool(self._settings.warm, create=self._build_ahead, has_room=self._has_room)

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
        if self._cores.is_short:
            self._core_watch.tell()

    def describe(self) -> str:
        """Say in one line what it has, how grants are applied and why, and how commands are run."""
        has = f"{self._cores.capacity} cores, {self._memory_bytes / GIB:.1f} GiB, up to {self._max_sandboxes} sandboxes"
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
        name = f" {self.name!r}" if self.name else ""
        return f"the Docker host{name} at {self._engine.url}"

    # beginning and end

    async def start(self) -> None:
        """Remove what dead owners left, find out how grants are applied, and get the pool's image.

        Raises:
            ConfigurationError: grants cannot be applied, or not as was asked.
            SandboxStartError: there is no such image, or no container of it can be started.
        """
        await self._sweep()
        watch = Watch(
            self._engine,
            {OWNER: self._owner},
            running=self._sandboxes.keys,
            on_death=self._on_death,
            on_oom=self._on_oom,
            on_gone=self._on_gone,
            on_back=self._on_back,
        )
        self._watching = asyncio.get_running_loop().create_task(watch.run(), name=f"watch of {self._engine.url}")
        try:
            await asyncio.wait_for(watch.wait_ready(), READY_LIMIT_S)
        except TimeoutError as error:
            raise SandboxStartError(f"{self._said} has told no events for {READY_LIMIT_S:g} s") from error
        if self._settings.image is not None:
            await self._builder.choose(self._settings.image)
            self._warm.refill()

    async def aclose(self) -> None:
        """Close all sandboxes, remove all containers, and let go of the daemon; bounded, and never raises."""
        if self._watching is not None:
            self._core_watch.close()
            await self._warm.aclose()
            await self._images.aclose()
            await asyncio.gather(*(sandbox.aclose() for sandbox in list(self._sandboxes.values())))
            await self._containers.aclose()
            await self._remove_all()
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self._engine.aclose()

    async def _sweep(self) -> None:
        try:
            removed = await sweep(self._engine)
            for url, owner in sorted(_abandoned):
                if url == self._engine.url and not await self._containers.remove_all({OWNER: owner}):
                    _abandoned.discard((url, owner))
        except DaemonError as error:
            _logger.warning("what dead owners may have left on %s cannot be removed: %s", self._said, error)
        else:
            if removed:
                _logger.info("%d containers of dead owners were removed from %s", removed, self._said)

    async def _remove_all(self) -> None:
        try:
            left = await self._containers.remove_all({OWNER: self._owner})
        except DaemonError as error:
            left = list(self._containers.left)
            _abandoned.add((self._engine.url, self._owner))
            _logger.warning("%s does not say which containers are left: %s", self._said, error)
        if left:
            _abandoned.add((self._engine.url, self._owner))
        for container_id in left:
            _logger.warning(
                "container %s of %s is left behind; the next start of a DockerPool there removes it, and so does "
                "`python -m arl_tangram doctor`",
                container_id,
                self._said,
            )

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
        self._sandboxes[sandbox.container.id] = sandbox

    def _forget(self, sandbox: DockerSandbox) -> None:
        self._sandboxes.pop(sandbox.container.id, None)
        self._out_of_memory_s.pop(sandbox.container.id, None)
        self._warm.refill()

    def _has_room(self) -> bool:
        return len(self._sandboxes) + self._being_built < self._max_sandboxes

    def _idle_config(self) -> Mapping[str, object]:
        return {"CpuPeriod": PERIOD_US, "CpuQuota": IDLE_QUOTA_US, "CpusetCpus": cpulist(self._cores.core_ids)}

    # leases

    def has(self, sandbox: ManagedSandbox) -> TypeGuard[DockerSandbox]:
        """Whether a sandbox is one of its own, and not closed."""
        return isinstance(sandbox, DockerSandbox) and self._sandboxes.get(sandbox.container.id) is sandbox

    def lease(self, milli_cores: int, sandbox: DockerSandbox | None, *, again: bool) -> CpuLease:
        """Apply a grant; see `DockerManager.lease`."""
        if not self._core_watch.is_following and self._builder.available is not None:
            self._core_watch.follow(self._builder.available)
        self._core_watch.look()  # no core is given away that is offline now
        key = next(self._lease_numbers)
        try:
            moved = self._cores.take(key, milli_cores, beyond=again)
        except ValueError as error:
            if not self._cores.offline:
                raise  # a defect of whoever asks
            raise AllocationError(f"cores of {self._said} went offline before they could be given: {error}") from error
        meter = UsageMeter()
        lease = SandboxLease(
            sandbox, meter, lambda: self._cores.placement(key).core_ids, partial(self._give_back, key, meter)
        )
        if sandbox is not None:
            self._leased[key] = sandbox
            try:
                sandbox.place(moved.pop(key))
            except OSError as error:
                lease.release()
                if isinstance(error, InfrastructureError):
                    raise
                sandbox.check()
                raise SandboxLostError(f"sandbox {sandbox.id} does not take its cores: {error}") from error
            sandbox.begin(milli_cores, meter)
        self._place(moved)
        return lease

    def _give_back(self, key: int, meter: UsageMeter) -> None:
        sandbox = self._leased.pop(key, None)
        if sandbox is not None:
            sandbox.end(meter)
        self._place(self._cores.give_back(key))

    def _tell_cores(self, count: int) -> None:
        if self._tell_capacity is not None:
            self._tell_capacity(on_node(CPU, self.name), count * MILLI)

    def _place(self, moved: Mapping[int, Placement]) -> None:
        """Move fractions whose shared cores have changed."""
        for key, placement in moved.items():
            if key in self._leased:
                with contextlib.suppress(OSError):  # that sandbox is dying, which its own action hears
                    self._leased[key].place(placement)

    # what happens

    def _on_oom(self, container_id: str) -> None:
        """Remember it: what the kernel killed is most often the command, which ends with 137, as it should."""
        self._out_of_memory_s[container_id] = self._clock()

    def _on_death(self, container_id: str, death: Death) -> None:
        sandbox = self._sandboxes.get(container_id)
        if sandbox is None:
            return
        # The daemon says for ever that something was killed for lack of memory: it must have been just now.
        last_s = self._out_of_memory_s.get(container_id)
        out_of_memory = death.oom_killed and (last_s is None or self._clock() - last_s < OOM_S)
        sandbox.lose(f"its container {death.reason}", out_of_memory=out_of_memory)

    def _on_gone(self, reason: str) -> None:
        self._back.clear()
        for sandbox in self._sandboxes.values():
            sandbox.interrupt(f"its daemon is gone: {reason}")

    def _on_back(self) -> None:
        self._back.set()
        for sandbox in self._sandboxes.values():
            sandbox.resume()
        self._containers.daemon_is_back()

    async def _wait_until_back(self) -> None:
        """Wait while the daemon is away, for a while.

        Raises:
            SandboxLostError: that was too long.
        """
        if not self._back.is_set():
            try:
                await asyncio.wait_for(self._back.wait(), AWAY_LIMIT_S)
            except TimeoutError as error:
                raise SandboxLostError(f"{self._said} has not answered for {AWAY_LIMIT_S:g} s") from error
