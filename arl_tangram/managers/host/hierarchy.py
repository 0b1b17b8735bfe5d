"""Where the cgroup controllers are mounted, for both versions of cgroups, and what their files are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "freezer")
USAGE = "cpuacct"  # of version 1 only; version 2 counts in every cgroup


@dataclass(frozen=True, slots=True)
class Files:
    """Names of the files that differ between the versions, what lifts a quota, and weights."""

    effective_cpus: str
    quota: str
    no_quota: str
    weight: str
    usual_weight: str
    least_weight: str
    memory_limit: str
    swap_limit: str
    freeze: str


FILES: Mapping[int, Files] = {
    1: Files(
        effective_cpus="cpuset.effective_cpus",
        quota="cpu.cfs_quota_us",
        no_quota="-1",
        weight="cpu.shares",
        usual_weight="1024",
        least_weight="2",
        memory_limit="memory.limit_in_bytes",
        swap_limit="memory.memsw.limit_in_bytes",
        freeze="freezer.state",
    ),
    2: Files(
        effective_cpus="cpuset.cpus.effective",
        quota="cpu.max",
        no_quota="max",
        weight="cpu.weight",
        usual_weight="100",
        least_weight="1",
        memory_limit="memory.max",
        swap_limit="memory.swap.max",
        freeze="cgroup.freeze",
    ),
}


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One controller: its version, where it is mounted, and the cgroup that this process is in.

    Attributes:
        version: 1 or 2.
        mount: the root of the hierarchy, as far as this process sees it.
        own: the folder of this process's cgroup.
    """

    version: Literal[1, 2]
    mount: Path
    own: Path

    @property
    def files(self) -> Files:
        """The names of its files."""
        return FILES[self.version]

    def up(self) -> Iterator[Path]:
        """Yield the own cgroup and those above it, up to the mount."""
        folder = self.own
        while True:
            yield folder
            if folder in (self.mount, folder.parent):
                return
            folder = folder.parent


def read_hierarchies(root: Path = Path("/"), pid: int | None = None) -> dict[str, Hierarchy]:
    """Find the controllers that this process has, or the one with a `pid`; `root` stands before all paths.

    A controller counts as version 2 only if the mount of cgroup2, or a cgroup on the way to ours, lists it: in a
    hybrid set-up there is such a mount although version 1 has the controllers.
    """
    try:
        own = _own_cgroups((root / f"proc/{'self' if pid is None else pid}/cgroup").read_text())
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return {}
    found: dict[str, Hierarchy] = {}
    for line in mounts:
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        mounted, point = before.split()[3:5]
        mount = root / _unescape(point).lstrip("/")
        if kind == "cgroup":
            for name in set(options.split(",")) & {*CONTROLLERS, *([USAGE] if pid is not None else [])} & set(own):
                found[name] = Hierarchy(1, mount, _inside(mount, mounted, own[name]))
        elif "" in own:
            hierarchy = Hierarchy(2, mount, _inside(mount, mounted, own[""]))
            # Ours may have none passed on yet: whether we may change that is found out by trying.
            listed = {name for folder in hierarchy.up() for name in _words(folder / "cgroup.controllers")}
            if "cpu" in listed or "cpuset" in listed:
                # freezing is no controller of version 2: every cgroup can do it
                found.update({name: hierarchy for name in CONTROLLERS if name in listed or name == "freezer"})
    return found


def _own_cgroups(text: str) -> dict[str, str]:
    """Return the path by controller; version 2 has the empty name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        found.update(dict.fromkeys(names.split(","), path))
    return found


def _inside(mount: Path, mounted: str, path: str) -> Path:
    """Return the folder of a cgroup under a mount that shows the hierarchy from `mounted` on."""
    if mounted != "/" and (path == mounted or path.startswith(mounted + "/")):
        path = path[len(mounted) :]
    parts = [part for part in path.split("/") if part]
    if ".." in parts:  # above our cgroup namespace: its root is all that we see
        return mount
    folder = mount.joinpath(*parts)
    return folder if folder.is_dir() else mount


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _unescape(text: str) -> str:
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
