"""Own cgroups, of either version: a tree per owner, a group per sandbox, and what is written into them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from arl_tangram.managers.host.hierarchy import FILES, USAGE, Hierarchy
from arl_tangram.managers.host.machine import parse_cpulist

PERIOD_US = 100_000
MIN_QUOTA_US = 1_000  # the kernel refuses less
SUSPENDED_QUOTA_US = MIN_QUOTA_US  # not frozen: all in it can be killed, and what is forgotten does not stand for ever
MAX_PIDS = 4096
KILL_LIMIT_S = 2.0
REMOVE_LIMIT_S = 1.0


@dataclass(frozen=True, slots=True)
class CgroupTree:
    """What is permitted here: the folder of this owner, for each controller that could be had.

    Attributes:
        version: 1 or 2; 0 if nothing is permitted.
        folders: our folder in the hierarchy of each controller.
    """

    version: Literal[0, 1, 2]
    folders: Mapping[str, Path]

    @property
    def pins(self) -> bool:
        """Whether cores can be assigned."""
        return "cpuset" in self.folders

    @property
    def limits_time(self) -> bool:
        """Whether fractions of cores can be enforced."""
        return "cpu" in self.folders

    def group(self, name: str) -> SandboxGroup:
        """Return the group of a sandbox, which need not exist."""
        return SandboxGroup(self.version, {controller: folder / name for controller, folder in self.folders.items()})

    def remove(self) -> None:
        """Remove the tree; what is still in it stays."""
        for folder in _unique(self.folders.values()):
            remove_group(folder)


NOTHING = CgroupTree(0, {})


def plant(hierarchies: Mapping[str, Hierarchy], name: str, core_ids: Sequence[int]) -> CgroupTree:
    """Create the tree of an owner below (version 2: or beside) our own cgroup, as far as that is permitted."""
    if any(hierarchy.version == 2 for hierarchy in hierarchies.values()):
        return _plant_v2(hierarchies, name, core_ids)
    folders: dict[str, Path] = {}
    for controller, hierarchy in hierarchies.items():
        folder = hierarchy.own / name
        try:
            make_folder(folder)
            if controller == "cpuset":
                _init_cpuset(folder, core_ids)
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        folders[controller] = folder
    return CgroupTree(1, folders) if folders.keys() & {"cpu", "cpuset"} else _uproot(folders.values())


def _plant_v2(hierarchies: Mapping[str, Hierarchy], name: str, core_ids: Sequence[int]) -> CgroupTree:
    """Try our own cgroup, then its parent: a cgroup with processes can usually have no children with controllers."""
    hierarchy = next(iter(hierarchies.values()))
    candidates = list(hierarchy.up())[:2]
    trees: list[CgroupTree] = []
    for parent in candidates:
        tree = _plant_below(parent, name, [name_ for name_ in hierarchies if name_ != "freezer"])
        if tree.pins and tree.limits_time:
            trees.append(tree)
            break
        trees.append(tree)
    best = max(trees, key=lambda tree: len(tree.folders))
    for tree in trees:
        if tree is not best:
            tree.remove()
    if best.pins:
        write_file(best.folders["cpuset"] / "cpuset.cpus", cpulist(core_ids))
    return best


def _plant_below(parent: Path, name: str, controllers: Sequence[str]) -> CgroupTree:
    folder = parent / name
    _enable(parent, controllers)
    try:
        make_folder(folder)
        arrived = (folder / "cgroup.controllers").read_text().split()
        _enable(folder, [controller for controller in controllers if controller in arrived])
        passed_on = (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        passed_on = []
    if not {"cpu", "cpuset"} & set(passed_on):
        return _uproot([folder])
    return CgroupTree(
        2, {name_: folder for name_ in (*controllers, "freezer") if name_ in passed_on or name_ == "freezer"}
    )


def _enable(folder: Path, controllers: Iterable[str]) -> None:
    for controller in controllers:
        with contextlib.suppress(OSError):
            if controller not in (folder / "cgroup.subtree_control").read_text().split():
                write_file(folder / "cgroup.subtree_control", f"+{controller}")


def _uproot(folders: Iterable[Path]) -> CgroupTree:
    for folder in _unique(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()
    return NOTHING


@dataclass(frozen=True, slots=True)
class SandboxGroup:
    """The cgroups of one sandbox, one folder per hierarchy.

    Attributes:
        version: 1 or 2.
        folders: the folder of each controller.
    """

    version: Literal[0, 1, 2]
    folders: Mapping[str, Path]

    @property
    def entrances(self) -> tuple[str, ...]:
        """The files into which a process writes its number to enter."""
        return tuple(str(folder / "cgroup.procs") for folder in _unique(self.folders.values()))

    def create(self) -> None:
        """Create the folders."""
        for controller, folder in self.folders.items():
            make_folder(folder)
            if controller == "cpuset" and self.version == 1:
                _init_cpuset(folder, None)
            if controller == "pids":
                write_file(folder / "pids.max", str(MAX_PIDS))

    def limit_memory(self, size: int) -> None:
        """Limit memory, swap included, to `size` bytes."""
        if folder := self.folders.get("memory"):
            files = FILES[self.version]
            write_file(folder / files.memory_limit, str(size))
            with contextlib.suppress(OSError):  # without swap accounting there is no such file
                write_file(folder / files.swap_limit, str(size) if self.version == 1 else "0")

    def set_cores(self, core_ids: Sequence[int]) -> None:
        """Pin to these cores, at once, what runs already included."""
        if folder := self.folders.get("cpuset"):
            write_file(folder / "cpuset.cpus", cpulist(core_ids))

    def set_quota_us(self, quota_us: int | None) -> None:
        """Limit CPU time to this in each `PERIOD_US`, at once; None lifts the limit."""
        if folder := self.folders.get("cpu"):
            if self.version == 1:
                write_file(folder / "cpu.cfs_quota_us", str(-1 if quota_us is None else quota_us))
            else:
                write_file(folder / "cpu.max", f"{'max' if quota_us is None else quota_us} {PERIOD_US}")

    def set_weight(self, *, least: bool) -> None:
        """Let it have next to no time, at once, on cores that others want as well, or (not `least`) as much as they."""
        if folder := self.folders.get("cpu"):
            files = FILES[self.version]
            write_file(folder / files.weight, files.least_weight if least else files.usual_weight)

    def effective_cores(self) -> tuple[int, ...]:
        """Return the cores that what is in it can run on now, those that are offline not included.

        Raises:
            OSError: it is gone, or has no such controller.
        """
        return parse_cpulist(_read(self.folders["cpuset"] / FILES[self.version].effective_cpus))

    def quota_us(self) -> int | None:
        """Return the CPU time that it may use in each `PERIOD_US`; None without a limit.

        Raises:
            OSError: it is gone, or has no such controller.
        """
        return parse_quota(_read(self.folders["cpu"] / FILES[self.version].quota))

    def cpu_s(self) -> float:
        """Return the CPU time that was spent in it, its children included.

        Raises:
            OSError: it is gone.
        """
        if self.version == 1:
            return int(_read(self.folders[USAGE] / "cpuacct.usage")) / 1e9
        for line in _read(self.folders["freezer"] / "cpu.stat").splitlines():
            name, _, value = line.partition(" ")
            if name == "usage_usec":
                return int(value) / 1e6
        raise OSError(f"{self.folders['freezer']}/cpu.stat does not tell the usage")

    def kill(self, spared: Collection[int] = ()) -> bool:
        """Kill everything in it but the spared processes; blocks, for up to 2 s. Return whether it is done."""
        return kill_group(self.version, list(_unique(self.folders.values())), spared)

    def remove(self) -> bool:
        """Remove the folders, waiting up to a second until what was killed is gone; blocks."""
        removed = [remove_group(folder) for folder in _unique(self.folders.values())]
        return all(removed)


def kill_group(version: int, folders: Sequence[Path], spared: Collection[int] = ()) -> bool:
    """Freeze, kill and thaw until nothing but the spared processes is in these folders; blocks, for up to 2 s."""
    deadline = time.monotonic() + KILL_LIMIT_S
    while True:
        _freeze(version, folders, True)
        try:
            victims = {pid for folder in folders for pid in processes(folder)} - set(spared)
            for pid in victims:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        finally:
            _freeze(version, folders, False)
        if not victims:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)


def lift_limits(version: int, folder: Path) -> None:
    """Let what is in a cgroup have as much time as others, without a quota, as far as it has such limits."""
    files = FILES[version]
    for name, text in ((files.quota, files.no_quota), (files.weight, files.usual_weight)):
        if (file := folder / name).exists():
            with contextlib.suppress(OSError):
                write_file(file, text)


def processes(folder: Path) -> list[int]:
    """Return the processes in a cgroup, those of its children not included.

    Those that are not visible here are listed as 0, which would be our own group when it is killed.
    """
    try:
        return [pid for line in _read(folder / "cgroup.procs").split() if (pid := int(line))]
    except OSError:
        return []


def remove_group(folder: Path) -> bool:
    """Remove an empty cgroup, waiting up to a second for the last of its processes; blocks."""
    deadline = time.monotonic() + REMOVE_LIMIT_S
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        else:
            return True


def _freeze(version: int, folders: Sequence[Path], frozen: bool) -> None:
    words = ("FROZEN", "THAWED") if version == 1 else ("1", "0")
    for folder in folders:
        file = folder / FILES[version].freeze
        if file.exists():
            with contextlib.suppress(OSError):
                write_file(file, words[0] if frozen else words[1])


def make_folder(folder: Path) -> None:
    """Create a cgroup; one that there is already is as good."""
    folder.mkdir(exist_ok=True)


def _init_cpuset(folder: Path, core_ids: Sequence[int] | None) -> None:
    """Fill a new cpuset of version 1, which nothing can enter while its memory nodes or cores are empty."""
    for file in ("cpuset.mems", "cpuset.cpus"):
        write_file(folder / file, (folder.parent / file).read_text().strip())
    if core_ids is not None:
        write_file(folder / "cpuset.cpus", cpulist(core_ids))


def quota_us_of(milli_cores: int) -> int:
    """Return the CPU time in each `PERIOD_US` of so many cores, as far as the kernel takes it."""
    return max(MIN_QUOTA_US, milli_cores * PERIOD_US // 1000)


def parse_quota(text: str) -> int | None:
    """Return the CPU time in each `PERIOD_US` that a file of a cgroup tells; None without a limit."""
    quota, _, period = text.strip().partition(" ")
    if quota == "max" or int(quota) <= 0:
        return None
    return int(quota) * PERIOD_US // int(period or PERIOD_US)


def cpulist(core_ids: Iterable[int]) -> str:
    """Return these numbers as the kernel reads them."""
    return ",".join(map(str, core_ids))


def _unique(folders: Iterable[Path]) -> list[Path]:
    return list(dict.fromkeys(folders))


def write_file(file: Path, text: str) -> None:
    """Write to a file of a cgroup, in one call, which the kernel takes or refuses as a whole."""
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _read(file: Path) -> str:
    """Read a file of a cgroup; those that list processes come in pieces."""
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(fd, 1 << 16), b"")).decode()
    finally:
        os.close(fd)
