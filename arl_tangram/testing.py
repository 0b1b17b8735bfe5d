"""What tests of code that uses the library need: pools without real cores and GPUs, and a check that all is idle."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike

from arl_tangram.errors import ConfigurationError, SandboxLostError, UsageError
from arl_tangram.managers.gpu.fake_pool import FakeGpuPool, FakeService
from arl_tangram.managers.manager import CpuLease, ExecUsage, ManagedSandbox, check_whole, counted, no_cores
from arl_tangram.model.quantities import GIB, MILLI, bytes_of_gib, is_name, whole
from arl_tangram.model.sandbox import ExecResult
from arl_tangram.model.sharing import Share, check_share
from arl_tangram.model.statistics import LatencyStatistics
from arl_tangram.model.topology import CPU, MEMORY, SANDBOXES, Dimension, on_node
from arl_tangram.runtime import Tangram

__all__ = [
    "FakeGpuPool",
    "FakeLease",
    "FakeManager",
    "FakeNode",
    "FakePool",
    "FakeSandbox",
    "FakeService",
    "assert_idle",
]

_NOTHING = ExecResult(exit_code=0, stdout=b"", stderr=b"", truncated=False, timed_out=False, duration_s=0.0, cpu_s=0.0)


@dataclass(frozen=True, slots=True)
class FakeNode:
    """One of several nodes of a `FakePool`.

    Attributes:
        name: unique in its pool; its cores are `cpu@NAME` in the statistics.
        cores: whole cores, from 1.
        memory_gib: GiB of memory.
        sandboxes: how many sandboxes there can be at once, from 1; None for any number.
    """

    name: str
    cores: int = 8
    memory_gib: float = 64
    sandboxes: int | None = None

    def __post_init__(self) -> None:
        if not is_name(self.name) or "@" in self.name:
            raise ConfigurationError(f"FakeNode(name={self.name!r}): a name without @ is needed")
        _check_size("FakeNode", self.cores, self.memory_gib, self.sandboxes)


@dataclass(frozen=True, slots=True)
class FakePool:
    """A pool that counts cores and memory, and whose sandboxes run nothing.

    It touches no machine, so it works in virtual time and can have any size.

    Attributes:
        cores: whole cores, from 1.
        memory_gib: GiB of memory.
        on_exec: what a command does, from its argv; by default it succeeds and prints nothing.
        sandboxes: how many sandboxes there can be at once, from 1; None for any number.
        nodes: what stands for several machines, instead of `cores`, `memory_gib` and `sandboxes`.
        host: the number of the node where bodies without a sandbox run; None if that is none of them.
        share: whether running actions share the cores, and how; `FakeSandbox.sizes` says what they had.
    """

    cores: int = 8
    memory_gib: float = 64
    on_exec: Callable[[Sequence[str]], ExecResult] = lambda _argv: _NOTHING
    sandboxes: int | None = None
    nodes: Sequence[FakeNode] = ()
    host: int | None = 0
    share: Share = None

    def __post_init__(self) -> None:
        check_share(self.share, "FakePool")
        _check_size("FakePool", self.cores, self.memory_gib, self.sandboxes)
        names = [node.name for node in self.nodes]
        if len(set(names)) < len(names):
            raise ConfigurationError(f"FakePool(nodes=): two nodes have the same name: {', '.join(names)}")
        if self.host is not None and not 0 <= self.host < max(len(names), 1):
            raise ConfigurationError(
                f"FakePool(host={self.host!r}): the last node has the number {max(len(names), 1) - 1}"
            )

    def manager(self) -> FakeManager:
        """Return a new manager for one runtime."""
        return FakeManager(self)

    def dimensions(self) -> list[list[Dimension]]:
        """Return what each node offers."""
        if not self.nodes:
            return [_dimensions("", self.cores, self.memory_gib, self.sandboxes)]
        return [_dimensions(node.name, node.cores, node.memory_gib, node.sandboxes) for node in self.nodes]


def _check_size(of: str, cores: object, memory_gib: object, sandboxes: object) -> None:
    whole(cores, f"{of}(cores=)", ConfigurationError, least=1)
    bytes_of_gib(memory_gib, f"{of}(memory_gib=)", ConfigurationError)
    if sandboxes is not None:
        whole(sandboxes, f"{of}(sandboxes=)", ConfigurationError, least=1)


def _dimensions(node: str, cores: int, memory_gib: float, sandboxes: int | None) -> list[Dimension]:
    memory = bytes_of_gib(memory_gib, "memory_gib", ConfigurationError)
    offered = [
        Dimension(on_node(CPU, node), cores * MILLI, MILLI),
        Dimension(on_node(MEMORY, node), memory, GIB),
    ]
    return offered if sandboxes is None else [*offered, Dimension(on_node(SANDBOXES, node), sandboxes)]


class FakeManager:
    """The manager of a `FakePool`; keeps the promises of `CpuManager` and checks those made to it."""

    def __init__(self, pool: FakePool) -> None:
        self._pool = pool
        self._ids = itertools.count(1)
        nodes = pool.dimensions()
        self._cpu = [offered[0].name for offered in nodes]
        self._dimensions = {dimension.name: dimension for offered in nodes for dimension in offered}
        self._milli_used: Counter[int] = Counter()
        self.switch_s = 0.0
        self.sandboxes: set[FakeSandbox] = set()
        self.tell_capacity: Callable[[str, int], None]

    @property
    def milli_free(self) -> int:
        """Milli-cores that can be granted now, on all nodes."""
        return sum(map(self.milli_free_on, range(len(self._cpu))))

    def milli_free_on(self, node: int) -> int:
        """Return the milli-cores that can be granted now on one node."""
        return max(0, self._dimensions[self._cpu[node]].capacity - self._milli_used[node])

    async def prepare(self) -> None:
        """All is known already."""

    def host_node(self) -> int | None:
        """Return the number of the node where bodies without a sandbox run."""
        return self._pool.host

    def dimensions(self) -> tuple[Dimension, ...]:
        """What it offers."""
        return tuple(self._dimensions.values())

    def check_capacity(self, name: str, capacity: int) -> None:
        """Any whole number of cores, bytes or sandboxes will do."""
        check_whole("FakePool", name, capacity, self._dimensions)

    def resize(self, name: str, capacity: int) -> None:
        """Change what there is of a dimension; what was not checked is a defect of the runtime."""
        try:
            self.check_capacity(name, capacity)
        except ConfigurationError as error:
            raise AssertionError(f"resized without a check: {error}") from error
        self._dimensions[name] = replace(self._dimensions[name], capacity=capacity)

    def check_image(self, image: str | None) -> None:
        """Any image is fine."""

    def check_memory(self, memory_bytes: int) -> None:
        """Any memory is enough."""

    async def start(self) -> None:
        """Nothing to start."""

    async def aclose(self) -> None:
        """Close the sandboxes."""
        for sandbox in list(self.sandboxes):
            await sandbox.aclose()

    async def create_sandbox(self, *, image: str | None, memory_bytes: int, node: int = 0) -> FakeSandbox:
        """Create a sandbox at once."""
        sandbox = FakeSandbox(f"fake-{next(self._ids)}", self, node=node)
        self.sandboxes.add(sandbox)
        return sandbox

    def lease(
        self, milli_cores: int, sandbox: ManagedSandbox | None, *, again: bool = False, most: int = 0
    ) -> CpuLease:
        """Count a grant; more than is free is a defect of the scheduler, unless it was lent before."""
        own = sandbox if isinstance(sandbox, FakeSandbox) else None
        node = self._pool.host if own is None else own.node
        if node is None:
            raise AssertionError("cores were granted to a body without a sandbox, and no node is this machine")
        if not again:
            self._check_free(milli_cores, node)
        self._milli_used[node] += milli_cores
        return FakeLease(self, milli_cores, own, node)

    def cannot_resize(self) -> str | None:
        """They can."""
        return None

    def change(self, more: int, node: int) -> None:
        """Count more milli-cores of a grant, or (negative) fewer."""
        self._check_free(more, node)
        self._milli_used[node] += more

    def _check_free(self, milli_cores: int, node: int) -> None:
        if milli_cores > 0 and milli_cores > self.milli_free_on(node):
            raise AssertionError(f"{milli_cores} milli-cores were granted and {self.milli_free_on(node)} are free")

    def give_back(self, milli_cores: int, node: int = 0) -> None:
        """Count the end of a grant."""
        self._milli_used[node] -= milli_cores

    def on_capacity(self, tell: Callable[[str, int], None]) -> None:
        """Keep it; a test can call it as a manager does whose cores go offline."""
        self.tell_capacity = tell

    def describe(self) -> str:
        """Say what it is."""
        cores = sum(self._dimensions[name].capacity for name in self._cpu) // MILLI
        return f"fake pool of {counted(cores, 'core')}" + (f" on {len(self._cpu)} nodes" if self._pool.nodes else "")

    def latency(self) -> Mapping[str, Mapping[str, LatencyStatistics]]:
        """There is no daemon."""
        return {}

    def notes(self) -> tuple[str, ...]:
        """Nothing to add to the report."""
        return ()

    def run(self, argv: Sequence[str]) -> ExecResult:
        """Do what a command does."""
        return self._pool.on_exec(argv)


class FakeLease:
    """Counted cores."""

    core_ids: tuple[int, ...] = ()
    usage = ExecUsage(0.0, 0.0)

    def __init__(
        self, manager: FakeManager, milli_cores: int, sandbox: FakeSandbox | None = None, node: int = 0
    ) -> None:
        self._manager = manager
        self._node = node
        self._milli_cores = milli_cores
        self._sandbox = sandbox
        self._stays_awake = False
        if sandbox is not None:
            sandbox.leases += 1
            sandbox.has(milli_cores)

    async def applied(self) -> None:
        """Nothing to wait for."""

    def resize(self, milli_cores: int) -> None:
        """Count other cores; with none, commands that come wait until there are some again."""
        if self._sandbox is None or milli_cores % MILLI:
            raise AssertionError(f"{milli_cores} milli-cores are no whole cores of a sandbox that has some")
        more, self._milli_cores = milli_cores - self._milli_cores, milli_cores
        self._manager.change(more, self._node)
        self._sandbox.has(milli_cores)
        if self._stays_awake:
            self._sandbox.goes_on()
        if self._sandbox.closed:
            raise SandboxLostError(f"the sandbox {self._sandbox.id} is closed")

    def wake(self) -> None:
        """Let what waits go on, and nothing wait any more."""
        self._stays_awake = True
        if self._sandbox is not None:
            self._sandbox.goes_on()

    def needs_cleanup(self) -> bool:
        """Whether a command waits because the sandbox is suspended; nothing else takes any time."""
        return self._sandbox is not None and self._sandbox.is_busy

    async def clean(self) -> None:
        """Let nothing wait any more; commands that did never run."""
        if self._sandbox is not None:
            self._sandbox.kill()

    def release(self) -> None:
        """Give the cores back, once."""
        self._manager.give_back(self._milli_cores, self._node)
        self._milli_cores = 0
        if self._sandbox is not None:
            self._sandbox.leases -= 1
            self._sandbox.goes_on()
            self._sandbox = None


@dataclass(eq=False, slots=True)
class FakeSandbox:
    """Files in memory, and commands that `on_exec` answers.

    Attributes:
        id: unique in its manager.
        files: content by path.
        commands: every argv so far.
        leases: how many actions have cores in it now.
        node: the number of the node where it is.
        sizes: the cores that its actions had so far, in order; 0 where one was suspended.
    """

    id: str
    _manager: FakeManager
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    commands: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    closed: bool = False
    leases: int = 0
    node: int = 0
    sizes: list[float] = field(default_factory=list[float])
    _suspended: asyncio.Event | None = None
    _calls: int = 0
    _kills: int = 0

    @property
    def is_busy(self) -> bool:
        """Whether a command waits for it to go on."""
        return self._calls > 0

    @property
    def suspended(self) -> bool:
        """Whether the action that runs in it has no cores: commands and file operations that come wait."""
        return self._suspended is not None

    def has(self, milli_cores: int) -> None:
        """It has other cores, or none."""
        self.sizes.append(milli_cores / MILLI)
        if milli_cores:
            self.goes_on()
        elif self._suspended is None:
            self._suspended = asyncio.Event()

    def goes_on(self) -> None:
        """It is not suspended any more."""
        if self._suspended is not None:
            self._suspended.set()
            self._suspended = None

    def kill(self) -> None:
        """Let nothing wait any more; commands that did never run."""
        self._kills += 1
        self.goes_on()

    async def _until_running(self) -> None:
        while self._suspended is not None:
            await self._suspended.wait()

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        max_output_bytes: int = 1 << 20,
        spill: bool = False,
    ) -> ExecResult:
        """Record a command and return what `on_exec` says."""
        kills = self._kills
        self._calls += 1
        try:
            await self._until_running()
        finally:
            self._calls -= 1
        if self.closed:
            raise SandboxLostError(f"the sandbox {self.id} is closed")
        if not self.leases or kills != self._kills:
            raise UsageError(no_cores(self.id))
        self.commands.append(tuple(argv))
        return self._manager.run(argv)

    async def write_file(self, path: str, data: bytes) -> None:
        """Keep a file."""
        await self._until_running()
        self.files[path] = data

    async def read_file(self, path: str, *, max_bytes: int = 1 << 28) -> bytes:
        """Return a file that was written."""
        await self._until_running()
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    async def put_dir(self, source: str | PathLike[str], path: str) -> None:
        """A fake sandbox has no folders."""
        raise NotImplementedError("a fake sandbox copies no folders; use LocalPool in this test")

    async def get_dir(self, path: str, target: str | PathLike[str]) -> None:
        """A fake sandbox has no folders."""
        raise NotImplementedError("a fake sandbox copies no folders; use LocalPool in this test")

    async def aclose(self) -> None:
        """Forget it."""
        self.closed = True
        self.goes_on()
        self._manager.sandboxes.discard(self)


def assert_idle(tg: Tangram) -> None:
    """Fail unless nothing waits, runs, lingers or is used in an open runtime; rates and budgets may still be counting.

    Raises:
        AssertionError: something is in use; the message is the runtime's statistics.
    """
    state = tg.statistics()
    counting = {n for n in state.dimensions if n.startswith("quota:") and not n.endswith("/concurrency")}
    held = {n: d.used for n, d in state.dimensions.items() if d.used and n not in counting}
    if state.waiting or state.running or state.lingering or state.trajectories or held:
        raise AssertionError(f"not idle: {state}")
