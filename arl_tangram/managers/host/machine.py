"""What this process may use of its machine: cores, memory and the NUMA nodes, read from /proc and /sys."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import inf
from pathlib import Path

from arl_tangram.managers.host.hierarchy import Hierarchy, read_hierarchies


@dataclass(frozen=True, slots=True)
class Machine:
    """Limits of this process, those of its own cgroup and of the ones above it included.

    Attributes:
        cores: numbers of the cores that it may run on.
        quota_cores: cores' worth of time that its cgroup may use; infinite without a quota.
        memory_bytes: bytes that it may use.
        nodes: the usable cores of each NUMA node.
    """

    cores: tuple[int, ...]
    quota_cores: float
    memory_bytes: int
    nodes: tuple[tuple[int, ...], ...]

    @property
    def usable_cores(self) -> int:
        """Whole cores that a pool can have: at least one."""
        return max(1, int(min(len(self.cores), self.quota_cores)))


def read_machine(root: str | os.PathLike[str] = "/") -> Machine:
    """Read the limits; `root` stands before all paths."""
    base = Path(root)
    hierarchies = read_hierarchies(base)
    cores = os.sched_getaffinity(0)
    if cpuset := hierarchies.get("cpuset"):
        told = [_first_line(folder / cpuset.files.effective_cpus) for folder in cpuset.up()]
        nearest = next(filter(None, told), "")  # of version 2, a cgroup without the controller has no such file
        cores = (cores & set(parse_cpulist(nearest))) or cores
    memory = _total_memory(base)
    if hierarchy := hierarchies.get("memory"):
        memory = min([memory, *(_memory_limit(folder, hierarchy) for folder in hierarchy.up())])
    quota = inf
    if hierarchy := hierarchies.get("cpu"):
        quota = min([quota, *(_quota(folder, hierarchy) for folder in hierarchy.up())])
    return Machine(tuple(sorted(cores)), quota, memory, _nodes(base, cores))


def parse_cpulist(text: str) -> tuple[int, ...]:
    """Return the numbers in a list like `0-3,8`."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def _quota(folder: Path, hierarchy: Hierarchy) -> float:
    if hierarchy.version == 2:
        quota, _, period = (_first_line(folder / "cpu.max") or "max").partition(" ")
    else:
        quota, period = _first_line(folder / "cpu.cfs_quota_us"), _first_line(folder / "cpu.cfs_period_us")
    if not quota or quota == "max" or int(quota) <= 0:
        return inf
    return int(quota) / int(period or 100_000)


def _memory_limit(folder: Path, hierarchy: Hierarchy) -> int:
    text = _first_line(folder / hierarchy.files.memory_limit)
    return int(text) if text.isdigit() and int(text) > 0 else 1 << 63


def _total_memory(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo does not tell the memory of this machine")


def _nodes(root: Path, cores: set[int]) -> tuple[tuple[int, ...], ...]:
    lists = [_first_line(path / "cpulist") for path in (root / "sys/devices/system/node").glob("node[0-9]*")]
    nodes = [tuple(core for core in parse_cpulist(text) if core in cores) for text in lists]
    known = {core for node in nodes for core in node}
    rest = tuple(sorted(cores - known))
    return tuple(sorted(node for node in (*nodes, rest) if node))


def _first_line(path: Path) -> str:
    try:
        return path.read_text().partition("\n")[0].strip()
    except OSError:
        return ""
