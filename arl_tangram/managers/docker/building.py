"""Builds sandboxes on one daemon: image, container, limits, first session; all of it or nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import anyio

from arl_tangram.errors import ConfigurationError, SandboxLostError, SandboxStartError
from arl_tangram.managers.cores import Cores, Placement
from arl_tangram.managers.docker.absence import Absence
from arl_tangram.managers.docker.allotment import IDLE_QUOTA_US
from arl_tangram.managers.docker.answers import DaemonError, EngineInfo, ImageConfig
from arl_tangram.managers.docker.api_limits import ApiLimits
from arl_tangram.managers.docker.available import AvailableCores
from arl_tangram.managers.docker.commands import Commands
from arl_tangram.managers.docker.containers import Container, Containers
from arl_tangram.managers.docker.declared import SandboxSettings
from arl_tangram.managers.docker.direct_limits import DirectLimits
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.files import Files
from arl_tangram.managers.docker.group import NoGroupError, find_group
from arl_tangram.managers.docker.image import Images
from arl_tangram.managers.docker.labels import Mark
from arl_tangram.managers.docker.lanes import Lane, Urgency
from arl_tangram.managers.docker.limits import Limits
from arl_tangram.managers.docker.probe import Probe, probe_direct
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.managers.docker.script import LEASE_S
from arl_tangram.managers.docker.workdir import own_workdir
from arl_tangram.managers.host.cgroup import PERIOD_US, cpulist
from arl_tangram.model.quantities import MILLI

FILE_THREADS = 8


class Builder:
    """Makes sandboxes.

    Args:
        engine: the daemon, open.
        info: what it tells of itself.
        settings: of all sandboxes.
        node: the number of the node.
        said: what the daemon is called in messages.
        owner: of the containers.
        mark: of this machine.
        numbers: of the sandboxes.
        cores: of the pool on this daemon.
        is_here: whether its containers are processes of this machine.
        containers: creates and removes them.
        images: of the daemon.
        absence: of the daemon.
    """

    def __init__(
        self,
        engine: Engine,
        info: EngineInfo,
        settings: SandboxSettings,
        *,
        node: int,
        said: str,
        owner: str,
        mark: Mark,
        numbers: Iterator[int],
        cores: Cores,
        is_here: bool,
        containers: Containers,
        images: Images,
        absence: Absence,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._node = node
        self._said = said
        self._owner = owner
        self._mark = mark
        self._numbers = numbers
        self._cores = cores
        self._daemon_folder = info.root_dir if is_here else None
        self._containers = containers
        self._images = images
        self._absence = absence
        self._line = Lane(2 * max(1, info.ncpu))
        self._file_threads = anyio.CapacityLimiter(FILE_THREADS)
        self._probing = asyncio.Lock()
        self.probe: Probe | None = None
        self.available: AvailableCores | None = None

    async def build(
        self,
        image: str,
        memory_bytes: int,
        *,
        urgency: Urgency,
        admit: Callable[[DockerSandbox], None],
        on_close: Callable[[DockerSandbox], None],
    ) -> DockerSandbox:
        """Build a sandbox, when it is its turn; nothing is left behind if that fails or is cancelled.

        Args:
            image: what it is made from.
            memory_bytes: its limit; 0 for none.
            urgency: who goes first.
            admit: told of it as soon as its container runs, before it is ready.
            on_close: told when it is closed.

        Raises:
            SandboxStartError: it could not be built in time, or at all.
        """
        config = await self._images.ensure(image)
        async with self._line.turn(urgency):
            try:
                async with asyncio.timeout(self._settings.start_timeout_s):
                    return await self._build(image, config, memory_bytes, admit, on_close)
            except TimeoutError as error:
                limit = f"within {self._settings.start_timeout_s:g} s"
                raise SandboxStartError(f"a sandbox of {image} on {self._said} did not start {limit}") from error
            except (DaemonError, SandboxStartError, SandboxLostError) as error:
                if isinstance(error, DaemonError) and "No such image" in error.message:
                    self._images.forget(image)
                raise SandboxStartError(f"a sandbox of {image} on {self._said} did not start: {error}") from error

    async def choose(self, image: str) -> Probe:
        """Find out how grants are applied, with a container that is made for that, unless it is known.

        Raises:
            ConfigurationError: they cannot be applied, or not as was asked.
            SandboxStartError: no container of this image can be started.
        """
        config = await self._images.ensure(image)
        async with self._line.turn(Urgency.START):
            try:
                container = await self._start(image, config, self._next_id(), 0)
                try:
                    return await self._choose(container)
                finally:
                    await self._containers.remove(container.id)
            except DaemonError as error:
                if error.kind == "refused" and "network" in error.message:
                    raise ConfigurationError(
                        f"DockerPool(network={self._settings.network!r}): {self._said} says: {error}"
                    ) from error
                raise SandboxStartError(f"no container of {image} can be started on {self._said}: {error}") from error

    async def limit_memory(self, sandbox: DockerSandbox, memory_bytes: int) -> None:
        """Give a sandbox that has no limit, and in which nothing runs, its memory."""
        await self._engine.update(
            sandbox.container.id, quota_us=IDLE_QUOTA_US, period_us=PERIOD_US, memory_bytes=memory_bytes
        )

    async def _build(
        self,
        image: str,
        config: ImageConfig,
        memory_bytes: int,
        admit: Callable[[DockerSandbox], None],
        on_close: Callable[[DockerSandbox], None],
    ) -> DockerSandbox:
        sandbox_id = self._next_id()
        container = await self._start_patiently(image, config, sandbox_id, memory_bytes)
        try:
            limits = await self._limits(container)
            sandbox = self._assemble(sandbox_id, container, limits, on_close)
        except BaseException:
            await self._containers.remove(container.id)
            raise
        admit(sandbox)
        try:
            if limits.is_direct:  # its first shell would take long on an idle container's time
                limits.want(Placement(self._cores.core_ids, len(self._cores.core_ids) * MILLI))
            await sandbox.open()
            limits.want(None)
        except BaseException as error:
            await sandbox.aclose()
            if isinstance(error, OSError) and not isinstance(error, SandboxLostError):
                raise SandboxStartError(str(error)) from error
            raise
        return sandbox

    async def _start_patiently(self, image: str, config: ImageConfig, sandbox_id: str, memory_bytes: int) -> Container:
        """Start a container; begin again if its daemon goes away meanwhile, which leaves nothing of it."""
        unheard = False
        while True:
            await self._absence.outlast(unheard=unheard)
            try:
                return await self._start(image, config, sandbox_id, memory_bytes)
            except DaemonError as error:
                if error.kind != "gone":
                    raise
            unheard = True
            sandbox_id = self._next_id()

    async def _start(self, image: str, config: ImageConfig, sandbox_id: str, memory_bytes: int) -> Container:
        labels = self._mark.labels(self._owner, sandbox_id, LEASE_S)
        name = f"arl_tangram-{sandbox_id}"
        return await self._containers.start(image, config, name=name, labels=labels, memory_bytes=memory_bytes)

    async def _limits(self, container: Container) -> Limits:
        async with self._probing:  # the first one finds out for all
            probe = self.probe or await self._choose(container)
        if not probe.is_direct:
            return ApiLimits(self._engine, container.id, idle_cores=lambda: self._cores.core_ids)
        try:
            group = find_group(container.id, container.pid)
        except NoGroupError as error:
            raise SandboxStartError(str(error)) from error
        return DirectLimits(group, idle_cores=lambda: self._cores.core_ids)

    async def _choose(self, container: Container) -> Probe:
        asked = self._settings.grants
        if asked == "api":
            probe = Probe(None, "grants='api' asks for that")
        else:
            probe = await probe_direct(
                self._engine,
                container.id,
                container.pid,
                is_socket=self._engine.socket is not None,
                core_ids=self._cores.core_ids,
            )
        if not probe.is_direct:
            if asked == "direct":
                raise ConfigurationError(f"DockerPool(grants='direct') is not possible on {self._said}: {probe.reason}")
            await self._check_update(container, probe)
        self.probe = probe
        with contextlib.suppress(NoGroupError):  # on this machine, who may not write it can read it
            self.available = AvailableCores.above(find_group(container.id, container.pid))
        return probe

    async def _check_update(self, container: Container, probe: Probe) -> None:
        """Check that the daemon can do what cannot be done directly."""
        try:
            await self._engine.update(
                container.id, quota_us=IDLE_QUOTA_US, period_us=PERIOD_US, cpus=cpulist(self._cores.core_ids)
            )
        except DaemonError as error:
            if error.kind in ("gone", "late"):
                raise
            raise ConfigurationError(
                f"{self._said} cannot change the CPU limits of containers: {error}; "
                f"and this process cannot, either: {probe.reason}"
            ) from error

    def _assemble(
        self, sandbox_id: str, container: Container, limits: Limits, on_close: Callable[[DockerSandbox], None]
    ) -> DockerSandbox:
        commands = Commands(
            self._engine,
            container.id,
            pid=container.pid,
            sandbox_id=sandbox_id,
            remove=partial(self._containers.remove, container.id),
            limits=limits,
            env=container.env,
            workdir=container.workdir,
            absence=self._absence,
            channel=self._settings.channel,
        )

        def files(check: Callable[[], None]) -> Files:
            return Files(
                container.id,
                shell=commands.shell,
                archives=self._engine,
                workdir=container.workdir,
                daemon_folder=self._daemon_folder,
                limiter=self._file_threads,
                check=check,
            )

        async def prepare() -> None:
            await own_workdir(self._engine, container.id, container.workdir, commands.shell)

        return DockerSandbox(
            sandbox_id,
            node=self._node,
            container=container,
            commands=commands,
            limits=limits,
            files=files,
            prepare=prepare,
            absence=self._absence,
            remove=partial(self._containers.remove, container.id),
            on_close=on_close,
        )

    def _next_id(self) -> str:
        return f"{self._owner}.{next(self._numbers)}"
