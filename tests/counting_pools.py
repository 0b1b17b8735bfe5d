"""Pools that count, take virtual time where real ones take real time, and can fail on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from arl_tangram.errors import SandboxStartError
from arl_tangram.managers.manager import CpuLease, ManagedSandbox
from arl_tangram.model.sharing import Share
from arl_tangram.testing import FakeLease, FakeManager, FakeNode, FakePool, FakeSandbox


@dataclass(eq=False)
class CountingPool:
    """A fake pool whose manager the test can look into.

    Attributes:
        cores: whole cores.
        memory_gib: GiB of memory.
        create_s: seconds that a sandbox takes to be created.
        close_s: seconds that a sandbox takes to be removed.
        clean_s: seconds that cleaning up after an action takes; 0 if there is nothing to clean.
        clean_error: what cleaning up raises.
        broken: whether no sandbox can be created.
        sandboxes: how many there can be at once, or None.
        nodes: what stands for several machines, instead of cores, memory and sandboxes.
        host: the number of the node where bodies without a sandbox run, or None.
        share: how running actions share the cores, or None.
    """

    cores: int = 4
    memory_gib: float = 64
    create_s: float = 0.0
    close_s: float = 0.0
    clean_s: float = 0.0
    clean_error: Exception | None = None
    broken: bool = False
    sandboxes: int | None = None
    nodes: Sequence[FakeNode] = ()
    host: int | None = 0
    share: Share = None
    made: CountingManager = field(init=False, repr=False)

    def manager(self) -> CountingManager:
        self.made = CountingManager(self)
        return self.made

    @property
    def is_whole(self) -> bool:
        """Whether everything is back, and no two clean-ups of one lease overlapped."""
        made = self.made
        cores = sum(node.cores for node in self.nodes) or self.cores
        return made.milli_free == cores * 1000 and not (made.sandboxes or made.cleaning or made.overlapping)


class CountingManager(FakeManager):
    """The manager of a `CountingPool`."""

    def __init__(self, pool: CountingPool) -> None:
        super().__init__(
            FakePool(pool.cores, pool.memory_gib, sandboxes=pool.sandboxes, nodes=pool.nodes, host=pool.host)
        )
        self.pool = pool
        self.closed = False
        self.created = 0
        self.most_alive = 0
        self.cleaned = 0
        self.cleaning = 0
        self.overlapping = 0
        self.least_free = self.milli_free

    async def create_sandbox(self, *, image: str | None, memory_bytes: int, node: int = 0) -> FakeSandbox:
        assert not self.closed, "a sandbox is created after the manager was closed"
        self.created += 1
        if self.pool.create_s:
            await asyncio.sleep(self.pool.create_s)
        if self.pool.broken:
            raise SandboxStartError("no sandbox today")
        sandbox = SlowSandbox(f"slow-{self.created}", self, node=node)
        self.sandboxes.add(sandbox)
        self.most_alive = max(self.most_alive, len(self.sandboxes))
        return sandbox

    def lease(
        self, milli_cores: int, sandbox: ManagedSandbox | None, *, again: bool = False, most: int = 0
    ) -> CpuLease:
        super().lease(milli_cores, sandbox, again=again)
        self.least_free = min(self.least_free, self.milli_free)
        return CountingLease(self, milli_cores, sandbox)

    async def aclose(self) -> None:
        self.closed = True
        await super().aclose()


class CountingLease(FakeLease):
    """Counted cores, cleaned up in virtual time."""

    def __init__(self, manager: CountingManager, milli_cores: int, sandbox: ManagedSandbox | None) -> None:
        own = sandbox if isinstance(sandbox, FakeSandbox) else None
        super().__init__(manager, milli_cores, node=(manager.pool.host if own is None else own.node) or 0)
        self._sandbox = own  # which has counted it already
        self._manager: CountingManager = manager
        self._busy = False
        self._clean = manager.pool.clean_s == 0

    def needs_cleanup(self) -> bool:
        return super().needs_cleanup() or not self._clean

    async def clean(self) -> None:
        await super().clean()
        self._manager.overlapping += self._busy
        self._busy = True
        self._manager.cleaning += 1
        try:
            await asyncio.sleep(self._manager.pool.clean_s)
            self._manager.cleaned += 1
            if self._manager.pool.clean_error is not None:
                raise self._manager.pool.clean_error
            self._clean = True
        finally:
            self._busy = False
            self._manager.cleaning -= 1


class SlowSandbox(FakeSandbox):
    """A sandbox that takes time to be removed."""

    async def aclose(self) -> None:
        if self._manager.pool.close_s and not self.closed:
            self.closed = True
            await asyncio.sleep(self._manager.pool.close_s)
        await super().aclose()
