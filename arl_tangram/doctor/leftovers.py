"""Find and remove what dead owners have left on this machine outside of Docker. Blocks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from arl_tangram.doctor.findings import Leftover
from arl_tangram.managers.host.hierarchy import read_hierarchies
from arl_tangram.managers.host.owner import LeftBehind, default_root, left_behind, sweep


def find() -> list[Leftover]:
    """Return what there is, in the folder for sandboxes that pools use by default; change nothing."""
    return listed(left_behind(default_root(), read_hierarchies()))


def listed(left: LeftBehind) -> list[Leftover]:
    """Return the same as single things."""
    groups = [Leftover("cgroup", str(path), f"of version {version}") for path, version in left.groups.items()]
    processes = [
        Leftover("process", str(pid), f"of sandbox {sandbox}: {_command(pid)}")
        for pid, sandbox in left.processes.items()
    ]
    return [*groups, *processes, *(Leftover("folder", str(path), "of local sandboxes") for path in left.folders)]


def remove(found: Sequence[Leftover]) -> list[Leftover]:
    """Remove what dead owners have left; return what was found, with what became of it."""
    if not found:
        return []
    sweep(default_root(), read_hierarchies())
    still = {(leftover.kind, leftover.name) for leftover in find()}
    return [
        replace(leftover, error=_why(leftover))
        if (leftover.kind, leftover.name) in still
        else replace(leftover, removed=True)
        for leftover in found
    ]


def _why(leftover: Leftover) -> str:
    if leftover.kind == "process":
        return "it could not be killed"
    owner = _owner(Path(leftover.name))
    return f"it is of user {owner}; run this as that user or as root" if owner != os.geteuid() else "it is still in use"


def _owner(path: Path) -> int:
    try:
        return path.stat().st_uid
    except OSError:
        return os.geteuid()


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "gone"
    return " ".join(os.fsdecode(word) for word in words if word)[:80]
