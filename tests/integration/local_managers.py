"""Local managers for tests, started and closed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from arl_tangram.managers.local.machine import read_machine
from arl_tangram.managers.local.manager import LocalManager
from arl_tangram.managers.local.site import IsolationChoice


@asynccontextmanager
async def local_manager(
    root: Path, *, cores: int = 2, isolation: IsolationChoice = "none", cgroups: bool = True
) -> AsyncIterator[LocalManager]:
    """Start a manager whose sandboxes are below `root`."""
    manager = LocalManager(
        read_machine(),
        cores=cores,
        memory_bytes=1 << 30,
        ignore_image=False,
        isolation=isolation,
        root=str(root),
        cgroups=cgroups,
    )
    try:
        await manager.start()
        yield manager
    finally:
        await manager.aclose()
