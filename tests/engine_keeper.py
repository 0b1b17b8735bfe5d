"""End the private Docker Engines of test runs, whatever became of the run, and remove what they left.

`python engine_keeper.py FOLDER PID` waits until process PID is gone or this program's stdin is closed, and then
removes the engine of that folder. It runs in a session of its own, so that an interrupt or a kill of the tests does not
reach it. Only the standard library is used: it is run by file name, with no package around it.

All that an engine owns carries the path of its folder: its daemon, containerd and the shims in their command lines, its
mounts below it. Its containers are in a cgroup with the name of the folder.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PREFIX = "arl-tangram-docker-"
DAEMON_GRACE_S = 15.0  # dockerd tells its containers to end, and containerd after them
CGROUPS = Path("/sys/fs/cgroup")


def new_name(number: int) -> str:
    """Return a folder name that tells whose engine it is."""
    pid = os.getpid()
    return f"{PREFIX}{pid}-{_started(pid)}-{number}"


def sweep(base: Path) -> list[str]:
    """Remove the engines that dead test runs left below a folder; return their names."""
    dead = [folder for folder in base.glob(f"{PREFIX}*") if _is_dead(folder.name)]
    for folder in dead:
        remove_engine(folder)
    return [folder.name for folder in dead]


def remove_engine(folder: Path) -> None:
    """End an engine, every container of it and every process, and remove its files. It need not be running."""
    if (pid := daemon_of(folder)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        _wait(lambda: _started(pid) == 0, DAEMON_GRACE_S)
    kill_all(folder)
    for mount in sorted(_mounts(folder), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False, stderr=subprocess.DEVNULL)
    for group in cgroups(folder):
        _remove_group(group)
    shutil.rmtree(folder, ignore_errors=True)


def wait_for_end(pid_file: Path, *, timeout_s: float) -> None:
    """Wait until the process that a file names is gone, or a zombie."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        _wait(lambda: _started(pid) == 0, timeout_s)


def kill_all(folder: Path, *, containers: bool = True) -> None:
    """Kill the processes of an engine, and those of its containers, until there are none."""

    def none_left() -> bool:
        pids = [pid for pid in _pids() if _is_of(pid, folder)]
        if containers:
            pids += [pid for group in cgroups(folder) for pid in _processes(group)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    _wait(none_left, 10.0)


def daemon_of(folder: Path) -> int | None:
    """Return the process of this engine's dockerd, if it is alive."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / "dockerd.pid").read_text())
        if _is_of(pid, folder):
            return pid
    return None


def cgroups(folder: Path) -> list[Path]:
    """Return the folders of the cgroup that holds the containers of an engine, one for each hierarchy."""
    found = {path.resolve() for path in (CGROUPS / folder.name, *CGROUPS.glob(f"*/{folder.name}")) if path.is_dir()}
    return sorted(found)


def leftovers(folder: Path) -> list[str]:
    """Return, in words, what there is of an engine."""
    found = [f"process {pid}" for pid in _pids() if _is_of(pid, folder)]
    found += [f"cgroup {group}" for group in cgroups(folder)]
    found += [f"mount {mount}" for mount in _mounts(folder)]
    return found + ([f"folder {folder}"] if folder.exists() else [])


def _is_dead(name: str) -> bool:
    with contextlib.suppress(ValueError):
        pid, started, _ = map(int, name.removeprefix(PREFIX).split("-"))
        return _started(pid) != started
    return False


def _pids() -> Iterator[int]:
    yield from (int(name) for name in os.listdir("/proc") if name.isdigit())


def _is_of(pid: int, folder: Path) -> bool:
    if pid == os.getpid():
        return False
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        program = os.path.basename(words[0]).decode(errors="replace")
        mine = os.fsencode(folder) + b"/"
        return program.startswith(("dockerd", "containerd", "runc", "docker-")) and any(mine in word for word in words)
    return False


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _started(pid: int) -> int:
    """Return the start time of a process in ticks (field 22 of proc(5)), 0 if there is none."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] != "Z" else 0


def _mounts(folder: Path) -> list[str]:
    places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [place for place in places if place.startswith(f"{folder}/")]


def _processes(group: Path) -> Iterator[int]:
    for file in group.rglob("cgroup.procs"):
        with contextlib.suppress(OSError):
            yield from (int(line) for line in file.read_text().split())


def _remove_group(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _wait(done: Callable[[], bool], timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not done() and time.monotonic() < deadline_s:
        time.sleep(0.02)


def main(folder: Path, owner: int) -> None:
    """Wait for the end of the owner, then remove its engine."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(owner)
        print("ready", flush=True)
        select.select([descriptor, sys.stdin.fileno()], [], [])
    remove_engine(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
