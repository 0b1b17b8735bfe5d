"""A pool whose sandboxes take time, for tests in virtual time: commands that sleep, and that leave something behind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from arl_tangram.errors import SandboxLostError, UsageError
from arl_tangram.managers.manager import CpuLease, ExecUsage, ManagedSandbox, no_cores
from arl_tangram.managers.usage import UsageMeter
from arl_tangram.model.sandbox import ExecResult
from arl_tangram.testing import FakeLease, FakeManager, FakePool, FakeSandbox
from arl_tangram.uninterrupted import settled, unstoppable

CREATE_S = 1.0
KILL_S = 0.2


class SlowPool:
    """Commands are `sleep SECONDS`, and `leave`, after which something is alive; all else ends at once.

    Attributes:
        pool: what it counts like.
        made: the last manager.
    """

    def __init__(self, *, cores: int = 2, memory_gib: float = 1) -> None:
        self.pool = FakePool(cores=cores, memory_gib=memory_gib)
        self.made: SlowManager = SlowManager(self.pool)

    def manager(self) -> SlowManager:
        self.made = SlowManager(self.pool)
        return self.made


class SlowManager(FakeManager):
    """Attributes:
    running: commands that run now, on all sandboxes.
    creating: sandboxes that are being made.
    """

    def __init__(self, pool: FakePool) -> None:
        super().__init__(pool)
        self.running: list[tuple[str, ...]] = []
        self.creating = 0
        self.started: list[tuple[str, ...]] = []

    async def create_sandbox(self, *, image: str | None, memory_bytes: int, node: int = 0) -> FakeSandbox:
        self.creating += 1
        try:
            await asyncio.sleep(CREATE_S)
        finally:
            self.creating -= 1
        sandbox = SlowSandbox(f"slow-{next(self._ids)}", self, node=node)
        self.sandboxes.add(sandbox)
        return sandbox

    def lease(
        self, milli_cores: int, sandbox: ManagedSandbox | None, *, again: bool = False, most: int = 0
    ) -> CpuLease:
        super().lease(milli_cores, None, again=again).release()  # counted, and checked
        if isinstance(sandbox, SlowSandbox):
            if sandbox.closed:
                raise SandboxLostError(f"sandbox {sandbox.id} is closed")
            assert sandbox.lease is None, "two leases in one sandbox"
        self._milli_used[0] += milli_cores
        return SlowLease(self, milli_cores, sandbox if isinstance(sandbox, SlowSandbox) else None)


class SlowLease(FakeLease):
    core_ids = (0,)

    def __init__(self, manager: SlowManager, milli_cores: int, sandbox: SlowSandbox | None) -> None:
        super().__init__(manager, milli_cores)
        self._slow = sandbox
        self._meter = UsageMeter()
        if sandbox is not None:
            sandbox.lease = self

    @property
    def usage(self) -> ExecUsage:  # type: ignore[override]
        return self._meter.usage

    @property
    def meter(self) -> UsageMeter:
        return self._meter

    def needs_cleanup(self) -> bool:
        return self._slow is not None and (self._slow.left or bool(self._slow.tasks))

    async def clean(self) -> None:
        assert self._slow is not None
        await self._slow.kill()

    def release(self) -> None:
        super().release()
        if self._slow is not None and self._slow.lease is self:
            assert not self.needs_cleanup() or self._slow.closed, "cores are given back under a command"
            self._slow.lease = None


class SlowSandbox(FakeSandbox):
    def __init__(self, name: str, manager: SlowManager, *, node: int) -> None:
        super().__init__(name, manager, node=node)
        self.slow = manager
        self.lease: SlowLease | None = None
        self.left = False
        self._closing: asyncio.Task[None] | None = None
        self.tasks: set[asyncio.Task[ExecResult]] = set()

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
        if self.closed:
            raise SandboxLostError(f"the sandbox {self.id} is closed")
        if self.lease is None:
            raise UsageError(no_cores(self.id))
        loop = asyncio.get_running_loop()
        entered_s, meter = loop.time(), self.lease.meter
        task = loop.create_task(self._run(tuple(argv), self.lease))
        self.tasks.add(task)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        finally:
            self.tasks.discard(task)
            meter.add_call(entered_s, loop.time())
        if task.cancelled():
            raise SandboxLostError(f"the sandbox {self.id} is closed" if self.closed else "it was killed")
        return task.result()

    async def kill(self) -> None:
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.sleep(KILL_S)
        self.left = False

    async def aclose(self) -> None:
        if self._closing is None:
            self.closed = True
            self._closing = unstoppable(self._close())
        await settled(self._closing)

    async def _close(self) -> None:
        await self.kill()
        self.slow.sandboxes.discard(self)

    async def _run(self, argv: tuple[str, ...], lease: SlowLease) -> ExecResult:
        started_s = asyncio.get_running_loop().time()
        self.slow.running.append(argv)
        self.slow.started.append(argv)
        try:
            if argv[0] == "sleep":
                await asyncio.sleep(float(argv[1]))
            self.left = self.left or argv[0] == "leave"
        finally:
            self.slow.running.remove(argv)
            ended_s = asyncio.get_running_loop().time()
            lease.meter.add_command(started_s, ended_s, 0.0)
        return ExecResult(0, " ".join(argv).encode(), b"", False, False, ended_s - started_s, 0.0)
