"""What tests of code that uses the library need: a pool without real cores, and a check that nothing is left."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike

from arl_tangram.errors import ConfigurationError, SandboxLostError, UsageError
from arl_tangram.managers.manager import CpuLease, ExecUsage, ManagedSandbox, check_whole, no_cores
from arl_tangram.model.quantities import GIB, MILLI, bytes_of_gib, whole
from arl_tangram.model.sandbox import ExecResult
from arl_tangram.model.topology import CPU, MEMORY, Dimension
from arl_tangram.runtime import Tangram

_NOTHING = ExecResult(exit_code=0, stdout=b"", stderr=b"", truncated=False, timed_out=False, duration_s=0.0, cpu_s=0.0)


@dataclass(frozen=True, slots=True)
class FakePool:
    """A pool that counts cores and memory, and whose sandboxes run nothing.

    It touches no machine, so it works in virtual time and can have any size.

    Attributes:
        cores: whole cores, from 1.
        memory_gib: GiB of memory.
        on_exec: what a command does, from its argv; by default it succeeds and prints nothing.
    """

    cores: int = 8
    memory_gib: float = 64
    on_exec: Callable[[Sequence[str]], ExecResult] = lambda _argv: _NOTHING

    def __post_init__(self) -> None:
        whole(self.cores, "FakePool(cores=)", ConfigurationError, least=1)
        bytes_of_gib(self.memory_gib, "FakePool(memory_gib=)", ConfigurationError)

    def manager(self) -> FakeManager:
        """Return a new manager for one runtime."""
        return FakeManager(self)


class FakeManager:
    """The manager of a `FakePool`; keeps the promises of `CpuManager` and checks those made to it."""

    def __init__(self, pool: FakePool) -> None:
        self._pool = pool
        self._ids = itertools.count(1)
        memory = bytes_of_gib(pool.memory_gib, "memory_gib", ConfigurationError)
        self._capacity = {CPU: pool.cores * MILLI, MEMORY: memory}
        self._milli_used = 0
        self.sandboxes: set[FakeSandbox] = set()

    @property
    def milli_free(self) -> int:
        """Milli-cores that can be granted now."""
        return max(0, self._capacity[CPU] - self._milli_used)

    def dimensions(self) -> tuple[Dimension, ...]:
        """What it offers."""
        return Dimension(CPU, self._capacity[CPU], MILLI), Dimension(MEMORY, self._capacity[MEMORY], GIB)

    def check_capacity(self, name: str, capacity: int) -> None:
        """Any whole number of cores or bytes will do."""
        check_whole("FakePool", name, capacity)

    def resize(self, name: str, capacity: int) -> None:
        """Change what there is of a dimension; what was not checked is a defect of the runtime."""
        try:
            self.check_capacity(name, capacity)
        except ConfigurationError as error:
            raise AssertionError(f"resized without a check: {error}") from error
        self._capacity[name] = capacity

    def check_image(self, image: str | None) -> None:
        """Any image is fine."""

    async def start(self) -> None:
        """Nothing to start."""

    async def aclose(self) -> None:
        """Close the sandboxes."""
        for sandbox in list(self.sandboxes):
            await sandbox.aclose()

    async def create_sandbox(self, *, image: str | None, memory_bytes: int) -> FakeSandbox:
        """Create a sandbox at once."""
        sandbox = FakeSandbox(f"fake-{next(self._ids)}", self)
        self.sandboxes.add(sandbox)
        return sandbox

    def lease(self, milli_cores: int, sandbox: ManagedSandbox | None, *, again: bool = False) -> CpuLease:
        """Count a grant; more than is free is a defect of the scheduler, unless it was lent before."""
        if milli_cores > self.milli_free and not again:
            raise AssertionError(f"{milli_cores} milli-cores were granted and {self.milli_free} are free")
        self._milli_used += milli_cores
        return FakeLease(self, milli_cores, sandbox if isinstance(sandbox, FakeSandbox) else None)

    def give_back(self, milli_cores: int) -> None:
        """Count the end of a grant."""
        self._milli_used -= milli_cores

    def describe(self) -> str:
        """Say what it is."""
        return f"fake pool of {self._capacity[CPU] // MILLI} cores"

    def run(self, argv: Sequence[str]) -> ExecResult:
        """Do what a command does."""
        return self._pool.on_exec(argv)


class FakeLease:
    """Counted cores."""

    core_ids: tuple[int, ...] = ()
    usage = ExecUsage(0.0, 0.0)

    def __init__(self, manager: FakeManager, milli_cores: int, sandbox: FakeSandbox | None = None) -> None:
        self._manager = manager
        self._milli_cores = milli_cores
        self._sandbox = sandbox
        if sandbox is not None:
            sandbox.leases += 1

    def needs_cleanup(self) -> bool:
        """Nothing runs."""
        return False

    async def clean(self) -> None:
        """Nothing to kill."""

    def release(self) -> None:
        """Give the cores back, once."""
        self._manager.give_back(self._milli_cores)
        self._milli_cores = 0
        if self._sandbox is not None:
            self._sandbox.leases -= 1
            self._sandbox = None


@dataclass(eq=False, slots=True)
class FakeSandbox:
    """Files in memory, and commands that `on_exec` answers.

    Attributes:
        id: unique in its manager.
        files: content by path.
        commands: every argv so far.
        leases: how many actions have cores in it now.
    """

    id: str
    _manager: FakeManager
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    commands: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    closed: bool = False
    leases: int = 0

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
        if self.closed:
            raise SandboxLostError(f"the sandbox {self.id} is closed")
        if not self.leases:
            raise UsageError(no_cores(self.id))
        self.commands.append(tuple(argv))
        return self._manager.run(argv)

    async def write_file(self, path: str, data: bytes) -> None:
        """Keep a file."""
        self.files[path] = data

    async def read_file(self, path: str, *, max_bytes: int = 1 << 28) -> bytes:
        """Return a file that was written."""
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
