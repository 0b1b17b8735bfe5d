"""Local managers for tests, started and closed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from arl_tangram.managers.host.machine import read_machine
from arl_tangram.managers.local.manager import LocalManager
from arl_tangram.managers.local.site import IsolationChoice


def keepers(owner: str) -> list[int]:
    """Return the live keepers of an owner, those inside of bwrap."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            command = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            environment = Path(f"/proc/{name}/environ").read_bytes()
            if f"ARL_TANGRAM_SANDBOX={owner}.".encode() in environment and command[1:3] == [b"-I", b"-S"]:
                found.append(int(name))
    return found


def new_manager(
    root: Path, *, cores: int = 2, isolation: IsolationChoice = "none", cgroups: bool = True, resizes: bool = False
) -> LocalManager:
    """Return a manager whose sandboxes are below `root`, not yet started."""
    return LocalManager(
        read_machine(),
        cores=cores,
        memory_bytes=1 << 30,
        ignore_image=False,
        isolation=isolation,
        root=str(root),
        cgroups=cgroups,
        resizes=resizes,
    )


@asynccontextmanager
async def local_manager(
    root: Path, *, cores: int = 2, isolation: IsolationChoice = "none", cgroups: bool = True, resizes: bool = False
) -> AsyncIterator[LocalManager]:
    """Start a manager whose sandboxes are below `root`, and close it."""
    manager = new_manager(root, cores=cores, isolation=isolation, cgroups=cgroups, resizes=resizes)
    try:
        await manager.start()
        yield manager
    finally:
        await manager.aclose()
