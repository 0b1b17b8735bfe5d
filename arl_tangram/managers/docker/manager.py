"""The manager of a `DockerPool`: its nodes as one pool of cores."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio.to_thread

from arl_tangram.errors import ConfigurationError, SandboxLostError, UsageError
from arl_tangram.managers.docker import options
from arl_tangram.managers.docker.declared import HostSettings, SandboxSettings
from arl_tangram.managers.docker.neighbours import machine_of
from arl_tangram.managers.host.owner import new_name
from arl_tangram.managers.manager import CpuLease, ManagedSandbox, check_least, check_whole
from arl_tangram.model.statistics import LatencyStatistics
from arl_tangram.model.topology import Dimension, node_of, resource_of
from arl_tangram.uninterrupted import finish_anyway

if TYPE_CHECKING:
    from arl_tangram.managers.docker.labels import Mark
    from arl_tangram.managers.docker.node import DockerNode


class DockerManager:
    """Owns cores and memory of Docker daemons and the sandboxes there; made by `DockerPool.manager`."""

    def __init__(self, hosts: tuple[HostSettings, ...], settings: SandboxSettings) -> None:
        self._settings = settings
        self._hosts = hosts
        self._nodes: tuple[DockerNode, ...] = ()
        self._settled = False
        self._closed = False

    async def prepare(self) -> None:
        """Ask the daemons what there is.

        Raises:
            ConfigurationError: a daemon cannot be used, or has less than was asked of it.
        """
        node_class, mark = await anyio.to_thread.run_sync(_load)
        owner, numbers = new_name(), itertools.count(1)
        self._nodes = tuple(
            node_class(number, host, self._settings, owner=owner, mark=mark, numbers=numbers)
            for number, host in enumerate(self._hosts)
        )
        for node in self._nodes:
            with _named(node):
                await node.open()
        machines: dict[str, list[DockerNode]] = {}
        for node in self._nodes:
            machines.setdefault(machine_of(node.host.url, is_here=node.is_here), []).append(node)
        for together in machines.values():
            _settle(together)
        self._settled = True

    def dimensions(self) -> tuple[Dimension, ...]:
        """What it offers: cores, memory and sandboxes of each node.

        Raises:
            UsageError: it is not prepared.
        """
        return tuple(dimension for node in self._prepared() for dimension in node.dimensions())

    def host_node(self) -> int | None:
        """Return the number of the node whose containers are processes of this machine, if there is one."""
        return next((node.number for node in self._prepared() if node.is_here), None)

    def check_image(self, image: str | None) -> None:
        """Raise `ConfigurationError` unless trajectories without or with this image can be."""
        if image is not None:
            options.image(image, "a trajectory with image=(")
        elif self._settings.image is None:
            raise ConfigurationError(
                "a trajectory in a DockerPool needs an image: trajectory(image=…), or DockerPool(image=…) for all"
            )

    def check_memory(self, memory_bytes: int) -> None:
        """Raise `ConfigurationError` if that is too little for a sandbox."""
        check_least("DockerPool", memory_bytes, options.LEAST_MEMORY_BYTES)

    def check_capacity(self, name: str, capacity: int) -> None:
        """Raise `ConfigurationError` unless `resize` can do this: no more than its host has."""
        names = [dimension.name for dimension in self.dimensions()]
        check_whole("DockerPool", name, capacity, names)
        self._node(name).check_capacity(resource_of(name) or "", name, capacity)

    def resize(self, name: str, capacity: int) -> None:
        """Change what there is of a dimension; what is in use beyond that is retired when it comes back."""
        self._node(name).resize(resource_of(name) or "", capacity)

    def on_capacity(self, tell: Callable[[str, int], None]) -> None:
        """Take what is told when cores of a host go offline or come back, and how many milli-cores there are then."""
        for node in self._prepared():
            node.on_capacity(tell)

    async def start(self) -> None:
        """Remove what dead owners left, find out how grants can be applied, and get the pool's image.

        Raises:
            ConfigurationError: `grants="direct"` was asked for and does not work, or the network is not known.
            SandboxStartError: there is no such image, or no container of it can be started.
        """
        starting = [asyncio.create_task(node.start()) for node in self._prepared()]
        try:
            await asyncio.gather(*starting)
        finally:
            for task in starting:
                task.cancel()
            await asyncio.wait(starting)

    async def aclose(self) -> None:
        """Close all sandboxes, remove all that was created, and let go of the daemons; bounded."""
        if not self._closed:
            self._closed = True
            await finish_anyway(self._close())

    async def create_sandbox(self, *, image: str | None, memory_bytes: int, node: int = 0) -> ManagedSandbox:
        """Create a sandbox, or take one that is ready; nothing is left behind if that fails or is cancelled.

        Raises:
            SandboxStartError: it could not be created.
        """
        self.check_image(image)
        self.check_memory(memory_bytes)
        return await self._prepared()[node].create(image or self._settings.image or "", memory_bytes)

    def lease(
        self, milli_cores: int, sandbox: ManagedSandbox | None, *, again: bool = False, most: int = 0
    ) -> CpuLease:
        """Apply a grant: let the container have cores or, for a host body, just pick some; synchronous.

        Raises:
            SandboxLostError: the sandbox is closed, or its container is gone.
            UsageError: a host body, and no node is this machine.
        """
        if sandbox is not None:
            for node in self._prepared():
                if node.has(sandbox):
                    return node.lease(milli_cores, sandbox, again=again, most=most)
            raise SandboxLostError(f"sandbox {sandbox.id} is closed")
        number = self.host_node()
        if number is None:
            raise UsageError("no daemon of this DockerPool runs on this machine, so it has no cores for a host body")
        return self._nodes[number].lease(milli_cores, None, again=again, most=most)

    def cannot_resize(self) -> str | None:
        """Say why the cores of running actions cannot be changed on one of the hosts; None if they can on all."""
        return next((why for node in self._prepared() if (why := node.cannot_resize()) is not None), None)

    @property
    def switch_s(self) -> float:
        """Seconds that one change of the cores of a running action takes, about: on the slowest of the hosts."""
        return max(node.switch_s for node in self._prepared())

    def describe(self) -> str:
        """Say in one line what the pool has, what enforces the grants, and how commands are run."""
        if not self._settled:
            return "a DockerPool that is not prepared, so what it has is unknown"
        return "; ".join(node.describe() for node in self._nodes)

    def notes(self) -> tuple[str, ...]:
        """Return how fast the daemons have answered, and what could not be removed."""
        return tuple(line for node in self._prepared() for line in node.notes())

    def latency(self) -> Mapping[str, Mapping[str, LatencyStatistics]]:
        """Return how long the daemons took: by name of the node, and operation."""
        return {node.name or "docker": node.meter.read() for node in self._nodes}

    def _prepared(self) -> tuple[DockerNode, ...]:
        if not self._settled:
            raise UsageError("the manager of a DockerPool is used before prepare()")
        return self._nodes

    def _node(self, name: str) -> DockerNode:
        wanted = node_of(name)
        return next(node for node in self._prepared() if node.name == wanted)

    async def _close(self) -> None:
        closed = await asyncio.gather(*(node.aclose() for node in self._nodes), return_exceptions=True)
        for error in closed:
            if error is not None:
                raise error


def _load() -> tuple[type[DockerNode], Mark]:
    """Import what talks to daemons, and read the mark of this machine; blocks.

    Not before it is needed, and not on the event loop: aiohttp takes as long to import as all the rest.
    """
    from arl_tangram.managers.docker.labels import this_mark  # noqa: PLC0415
    from arl_tangram.managers.docker.node import DockerNode  # noqa: PLC0415

    return DockerNode, this_mark()


@contextmanager
def _named(node: DockerNode) -> Generator[None]:
    """Say which of several hosts an error is about."""
    try:
        yield
    except ConfigurationError as error:
        if not node.name:
            raise
        raise type(error)(f"host {node.name!r}: {error}") from error


def _settle(together: Sequence[DockerNode]) -> None:
    """Share out a machine among the hosts that are on it.

    Whoever names cores goes first, who takes what is left last. Memory that nobody has named is divided evenly.
    """
    for node in together:
        node.host = replace(node.host, beside=tuple(other.host.memory_bytes for other in together if other is not node))
    taken: set[int] = set()
    for node in sorted(together, key=lambda node: _leeway(node.host)):
        node.settle(taken, shares=len(together) > 1)


def _leeway(host: HostSettings) -> int:
    return 0 if host.core_ids is not None else 1 if host.cores is not None else 2
