"""How much memory this process can still take: of its machine, and of its cgroups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from arl_tangram.managers.host.hierarchy import Hierarchy, read_hierarchies

_USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}
_INACTIVE = {1: "total_inactive_file", 2: "inactive_file"}


def available_bytes(root: Path = Path("/")) -> int:
    """Return how many bytes can be taken without pushing others out; it reads files. `root` stands before all paths."""
    free = [_machine(root)]
    if hierarchy := read_hierarchies(root).get("memory"):
        free += _cgroups(hierarchy)
    return max(0, min(free))


def _machine(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise OSError("/proc/meminfo does not tell what is available")


def _cgroups(hierarchy: Hierarchy) -> Iterator[int]:
    """Yield what is left in each cgroup with a limit; what it caches of files can be pushed out."""
    for folder in hierarchy.up():
        limit = _text(folder / hierarchy.files.memory_limit)
        used = _text(folder / _USAGE[hierarchy.version])
        if limit.isdecimal() and used.isdecimal():
            stat = dict(line.split(maxsplit=1) for line in _text(folder / "memory.stat").splitlines())
            yield int(limit) - int(used) + int(stat.get(_INACTIVE[hierarchy.version], 0))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # the root of version 2 has no such files
        return ""
