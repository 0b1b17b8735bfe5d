"""One sandbox of a pool, without a runtime around it: for what measures the pool itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from arl_tangram.managers.manager import CpuManager, CpuPool, ManagedSandbox


@asynccontextmanager
async def one_sandbox(pool: CpuPool) -> AsyncGenerator[tuple[CpuManager, ManagedSandbox]]:
    """Have a new manager of a pool, and a sandbox of it; at the end, all that was created is removed.

    Raises:
        ConfigurationError: the pool has nothing to offer here.
        SandboxStartError: there is no sandbox to be had.
    """
    manager = pool.manager()
    await manager.prepare()
    try:
        await manager.start()
        yield manager, await manager.create_sandbox(image=None, memory_bytes=0)
    finally:
        await manager.aclose()
