"""The cores of this machine: creates sandboxes, applies grants, and cleans up."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import anyio

from arl_tangram.errors import ConfigurationError, SandboxLostError, SandboxStartError, UsageError
from arl_tangram.managers.channel import Channel
from arl_tangram.managers.cores import Cores
from arl_tangram.managers.environment import SANDBOX_VARIABLE, inherited
from arl_tangram.managers.host.cgroup import SandboxGroup
from arl_tangram.managers.host.lifter import QuotaLifter
from arl_tangram.managers.host.machine import Machine
from arl_tangram.managers.leasing import Leasing
from arl_tangram.managers.local.commands import Commands
from arl_tangram.managers.local.destroy import destroy, force
from arl_tangram.managers.local.isolation import ATTEMPTS, may_pass
from arl_tangram.managers.local.limits import Limits
from arl_tangram.managers.local.sandbox import LocalSandbox
from arl_tangram.managers.local.site import IsolationChoice, Site, open_site
from arl_tangram.managers.manager import CpuLease, ManagedSandbox, check_least, check_whole, counted, in_words
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.statistics import LatencyStatistics
from arl_tangram.model.topology import CPU, MEMORY, Dimension
from arl_tangram.uninterrupted import finish_anyway, in_thread

START_LIMIT_S = 30.0
FILE_THREADS = 8
LEAST_MEMORY_BYTES = 32 << 20  # its keeper alone needs about a third of that
KILL_THREADS = 8
SWITCH_S = 0.0002  # two writes, and the caches of other cores

T = TypeVar("T")

_FAILED = "a sandbox did not start: "


class LocalManager:
    """Owns cores and memory of this machine and the sandboxes on them; made by `LocalPool.manager`."""

    def __init__(
        self,
        machine: Machine,
        *,
        cores: int,
        memory_bytes: int,
        ignore_image: bool,
        isolation: IsolationChoice,
        root: str,
        cgroups: bool = True,
        resizes: bool = False,
    ) -> None:
        self._machine = machine
        self._memory_bytes = memory_bytes
        self._ignore_image = ignore_image
        self._isolation: IsolationChoice = isolation
        self._root = root
        self._use_cgroups = cgroups
        self._resizes = resizes
        self._cores = Cores(machine.nodes, cores)
        self._starts = 2 * cores
        self._starting = asyncio.Semaphore(self._starts)
        self._site: Site | None = None
        self._lifter: QuotaLifter | None = None
        self._sandboxes: dict[str, LocalSandbox] = {}
        self._leasing = Leasing(self._cores)
        self._sandbox_numbers = itertools.count(1)

    async def prepare(self) -> None:
        """All is known already."""

    def host_node(self) -> int:
        """Return the number of this machine: it is the only node."""
        return 0

    def dimensions(self) -> tuple[Dimension, ...]:
        """What it offers: `cpu` in milli-cores, `memory` in bytes."""
        return (Dimension(CPU, self._cores.capacity * MILLI, MILLI), Dimension(MEMORY, self._memory_bytes, GIB))

    def check_image(self, image: str | None) -> None:
        """Raise `ConfigurationError` unless there is no image or images are ignored."""
        if image is not None and not self._ignore_image:
            raise ConfigurationError(
                f"a LocalPool has no images, and image={image!r} was asked; "
                "LocalPool(ignore_image=True) runs such trajectories on the files of this machine"
            )

    def check_memory(self, memory_bytes: int) -> None:
        """Raise `ConfigurationError` if that is too little for a sandbox."""
        check_least("LocalPool", memory_bytes, LEAST_MEMORY_BYTES)

    def check_capacity(self, name: str, capacity: int) -> None:
        """Raise `ConfigurationError` unless `resize` can do this: no more than this process may use."""
        check_whole("LocalPool", name, capacity)
        usable = self._machine.usable_cores * MILLI if name == CPU else self._machine.memory_bytes
        if capacity > usable:
            raise ConfigurationError(
                f"a LocalPool with {in_words(name, capacity)}: {in_words(name, usable)} can be used here"
            )

    def resize(self, name: str, capacity: int) -> None:
        """Change what there is of a dimension; what is in use beyond that is retired when it comes back."""
        if name == MEMORY:
            self._memory_bytes = capacity
            return
        self._cores.resize(capacity // MILLI)
        for _ in range(2 * self._cores.capacity - self._starts):
            self._starting.release()
        self._starts = max(self._starts, 2 * self._cores.capacity)

    @property
    def site(self) -> Site:
        """What was found and claimed on this machine.

        Raises:
            UsageError: it is not started.
        """
        if self._site is None:
            raise UsageError("the manager of a LocalPool is used before start() or after aclose()")
        return self._site

    def on_capacity(self, tell: Callable[[str, int], None]) -> None:
        """Nothing becomes more or less by itself."""

    def describe(self) -> str:
        """Say in one line what enforces the grants here."""
        limits = self._site.describe() if self._site is not None else "not started, so what enforces grants is unknown"
        return f"{counted(self._cores.capacity, 'core')}, {self._memory_bytes / GIB:.1f} GiB: {limits}"

    def latency(self) -> Mapping[str, Mapping[str, LatencyStatistics]]:
        """There is no daemon."""
        return {}

    def notes(self) -> tuple[str, ...]:
        """Nothing to add to the report."""
        return ()

    async def start(self) -> None:
        """Probe what is permitted here and sweep what killed runs left behind.

        Raises:
            ConfigurationError: bwrap was asked for and does not work, or the root is somebody else's.
        """
        self._files = anyio.CapacityLimiter(FILE_THREADS)
        # Of their own: killing, creating and removing never stand behind a large copy.
        self._kills = anyio.CapacityLimiter(KILL_THREADS)
        self._upkeep = anyio.CapacityLimiter(FILE_THREADS)
        await finish_anyway(self._open())

    async def aclose(self) -> None:
        """Close all sandboxes and remove everything that was created; bounded."""
        await finish_anyway(self._close())

    async def create_sandbox(self, *, image: str | None, memory_bytes: int, node: int = 0) -> ManagedSandbox:
        """Create a sandbox; nothing is left behind if that fails or is cancelled.

        Raises:
            SandboxStartError: it could not be created.
        """
        self.check_image(image)
        self.check_memory(memory_bytes)
        attempts = ATTEMPTS
        while True:
            attempts -= 1
            try:
                return await self._create(memory_bytes)
            except SandboxStartError as error:
                if not attempts or not may_pass(str(error).removeprefix(_FAILED)):
                    raise

    async def _create(self, memory_bytes: int) -> LocalSandbox:
        site = self.site
        number = next(self._sandbox_numbers)
        sandbox: LocalSandbox | None = None
        async with self._starting:
            try:
                group = await self._in_thread(partial(site.prepare, number, memory_bytes, self._cores.core_ids))
                sandbox = self._begin(site, number, group)
                async with asyncio.timeout(START_LIMIT_S):
                    await sandbox.wait_ready()
            except BaseException as error:
                reason = (sandbox.complaint() if sandbox is not None else "") or str(error) or type(error).__name__
                discard = sandbox.aclose() if sandbox is not None else self._in_thread(partial(site.discard, number))
                await finish_anyway(discard)
                if isinstance(error, (OSError, TimeoutError)):
                    raise SandboxStartError(f"{_FAILED}{reason}") from error
                raise
        return sandbox

    def lease(
        self, milli_cores: int, sandbox: ManagedSandbox | None, *, again: bool = False, most: int = 0
    ) -> CpuLease:
        """Apply a grant: pin the sandbox (or, for a host body, just pick) cores; synchronous.

        Raises:
            SandboxLostError: the sandbox is closed, or its cgroup is gone.
        """
        if sandbox is not None and self._sandboxes.get(sandbox.id) is not sandbox:
            raise SandboxLostError(f"sandbox {sandbox.id} is closed")
        own = self._sandboxes[sandbox.id] if sandbox is not None else None
        return self._leasing.lease(milli_cores, own, again=again, most=most)

    def cannot_resize(self) -> str | None:
        """Say why the cores of running actions cannot be changed here: not without cgroups; None if they can."""
        tree = self.site.tree
        if tree.pins and tree.limits_time:
            return None
        return "there is no cgroup of its own with the controllers cpu and cpuset here"

    @property
    def switch_s(self) -> float:
        """Seconds that one change of the cores of a running action takes here, about."""
        return SWITCH_S

    def _begin(self, site: Site, number: int, group: SandboxGroup | None) -> LocalSandbox:
        """Start the keeper, on the thread of the loop: bwrap dies with the thread that started it."""
        sandbox_id = site.sandbox_id(number)
        folders = site.folders(number)
        env = {**inherited(os.environ), "HOME": folders.home, "TMPDIR": folders.tmp, SANDBOX_VARIABLE: sandbox_id}
        entrances = group.entrances if group is not None else ()
        channel = Channel(site.isolation.argv(folders), env=env, entrances=entrances)
        commands = Commands(
            channel,
            sandbox_id=sandbox_id,
            force=partial(force, group, channel.pid),
            destroy=partial(destroy, group, sandbox_id, channel.pid, lambda: not channel.exited.done()),
            rush=lambda: limits.rush(),  # noqa: PLW0108 - they come later
            limiter=self._kills,
        )
        limits = Limits(group, pin=commands.pin)
        sandbox = LocalSandbox(
            sandbox_id,
            folders=folders,
            group=group,
            limits=limits,
            commands=commands,
            env=env,
            limiter=self._files,
            upkeep=self._upkeep,
            on_close=self._forget,
        )
        self._sandboxes[sandbox_id] = sandbox
        return sandbox

    def _forget(self, sandbox: LocalSandbox) -> None:
        self._sandboxes.pop(sandbox.id, None)

    async def _open(self) -> None:
        # All that the pool could grow to.
        opening = partial(
            open_site, self._root, self._machine.cores, isolation=self._isolation, cgroups=self._use_cgroups
        )
        self._site = await self._in_thread(opening)
        if self._resizes and self.cannot_resize() is None:
            tree = self._site.tree
            self._lifter = QuotaLifter(tree.version, self._site.owner.name)
            self._lifter.watch("sandboxes", tree.folders["cpu"] / "*")

    async def _close(self) -> None:
        await asyncio.gather(*(sandbox.aclose() for sandbox in list(self._sandboxes.values())), return_exceptions=True)
        if self._lifter is not None:
            await self._lifter.aclose()
            self._lifter = None
        if self._site is not None:
            await self._in_thread(self._site.remove)
            self._site = None

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await in_thread(work, self._upkeep)
