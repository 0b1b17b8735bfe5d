"""The cgroups of one container: where they are, proved by its id, and a group of its own for each of its sessions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from arl_tangram.managers.host.cgroup import SandboxGroup, kill_group, make_folder, processes, remove_group, write_file
from arl_tangram.managers.host.hierarchy import CONTROLLERS, USAGE, Hierarchy, read_hierarchies

NEEDED = ("cpu", "cpuset", "freezer")
ENTER_ROUNDS = 20


class NoGroupError(LookupError):
    """A container's cgroups cannot be used by this process; the message says why."""


def find_group(container_id: str, pid: int, root: Path = Path("/")) -> SandboxGroup:
    """Find the cgroups of a container by its first process, and prove that they are its own; reads a few files.

    Args:
        container_id: the full id, which must be in the name of a folder on the way.
        pid: number of the process, as the daemon tells it.
        root: stands before all paths.

    Raises:
        NoGroupError: that process is not visible here, or is another one, or a controller is missing.
    """
    if not (root / f"proc/{pid}/cgroup").exists():
        raise NoGroupError(f"process {pid} of the container is not visible here")
    hierarchies = read_hierarchies(root, pid)
    missing = [name for name in NEEDED if name not in hierarchies]
    if missing:
        raise NoGroupError(f"no cgroup controller {' and '.join(missing)} is mounted here")
    version = hierarchies["cpu"].version
    folders = {
        name: _own_folder(hierarchy, container_id)
        for name, hierarchy in hierarchies.items()
        if name in (*CONTROLLERS, USAGE) and hierarchy.version == version
    }
    group = SandboxGroup(version, folders)
    for name, file in _needed_files(group).items():
        if not file.exists():
            raise NoGroupError(f"the container's cgroup has no {name}: {file} is missing")
    return group


def check_writable(group: SandboxGroup) -> None:
    """Check that this process may change the limits and make sub-groups.

    Raises:
        NoGroupError: it may not, and which file or folder.
    """
    for path in (*_needed_files(group).values(), group.folders["freezer"]):
        if not os.access(path, os.W_OK):
            raise NoGroupError(f"no permission to write {path}")


def _needed_files(group: SandboxGroup) -> dict[str, Path]:
    quota = "cpu.max" if group.version == 2 else "cpu.cfs_quota_us"
    return {"cpuset": group.folders["cpuset"] / "cpuset.cpus", "CPU quota": group.folders["cpu"] / quota}


def _own_folder(hierarchy: Hierarchy, container_id: str) -> Path:
    """Return the outermost folder with the container's id: podman, and an init inside, put their processes below it."""
    own = [folder for folder in hierarchy.up() if container_id in folder.name]
    if not own:
        raise NoGroupError(f"{hierarchy.own} is not the cgroup of container {container_id[:12]}")
    return own[-1]


@dataclass(frozen=True, slots=True)
class SessionGroup:
    """A cgroup inside a container's, for the processes of one session; of version 1 in the freezer only.

    Attributes:
        version: 1 or 2.
        folder: where it is.
        rush: while it is entered, the container has CPU time without limit on its cores; safe on any thread.
    """

    version: int
    folder: Path
    rush: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext

    def enter(self, pid: int) -> None:
        """Create it, and put a process into it with all that it has forked meanwhile.

        Blocks: the first move after a pause waits for all cores in the kernel, about 12 ms; others take 0.02 ms.

        Raises:
            OSError: the container is gone.
            ValueError: that is no process; the kernel would take 0 for the one that writes it, this one.
        """
        if pid < 1:
            raise ValueError(f"{pid} is no process of a container")
        make_folder(self.folder)
        with contextlib.suppress(ProcessLookupError):  # it ended: there is nothing to put in
            write_file(self.folder / "cgroup.procs", str(pid))
        for _ in range(ENTER_ROUNDS):
            left = self._forked(pid)
            if not left:
                return
            for child in left:
                with contextlib.suppress(ProcessLookupError):
                    write_file(self.folder / "cgroup.procs", str(child))

    def processes(self) -> list[int]:
        """Return the numbers of the processes in it, as this machine counts them."""
        return processes(self.folder)

    def kill(self, spared: Collection[int] = ()) -> bool:
        """Kill everything in it but the spared processes; blocks, for up to 2 s. Return whether it is done.

        What is killed needs CPU time to end, so the limit is lifted meanwhile. A container of version 1 that is
        suspended goes on: nothing dies in it before.
        """
        with self.rush():
            if self.version == 1:
                with contextlib.suppress(OSError):
                    write_file(self.folder.parent / "freezer.state", "THAWED")
            elif not spared:
                with contextlib.suppress(OSError):  # of kernels before 5.14, there is no such file
                    write_file(self.folder / "cgroup.kill", "1")
            return kill_group(self.version, [self.folder], spared)

    def remove(self) -> bool:
        """Remove it when it is empty, waiting up to a second for the last of its processes; blocks."""
        return remove_group(self.folder)

    def _forked(self, pid: int) -> list[int]:
        """Return the descendants of a process that are still in the container's group."""
        outside = set(processes(self.folder.parent))
        parents = _parents(outside)
        return [child for child in outside if child != pid and _descends(child, pid, parents, self.folder)]


def _parents(pids: Collection[int]) -> Mapping[int, int]:
    return {pid: parent for pid in pids if (parent := parent_of(pid)) is not None}


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat.rpartition(b")")[2].split()[1])


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped by a signal."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] == b"T"


def _descends(child: int, ancestor: int, parents: Mapping[int, int], folder: Path) -> bool:
    inside = {ancestor, *processes(folder)}
    while (parent := parents.get(child)) is not None:
        if parent in inside:
            return True
        child = parent
    return False
