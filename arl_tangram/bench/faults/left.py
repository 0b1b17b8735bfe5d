"""Look at what there is of a trainer: processes, threads in bodies, tasks, descriptors, folders, cgroups."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from arl_tangram.managers import threads
from arl_tangram.managers.host.hierarchy import read_hierarchies
from arl_tangram.managers.host.owner import CGROUP_PREFIX
from arl_tangram.managers.local.keeper import descendants

BODY_THREAD = "arl_tangram body"

VARIABLE = "ARL_TANGRAM_FAULTS"
"""In the environment of a trainer and of everything that it starts: the mark by which strays are found."""


def marked(mark: str) -> list[int]:
    """Return the processes that carry a mark in their environment, but for the one that looks."""
    wanted, me = f"{VARIABLE}={mark}".encode(), os.getpid()
    return [pid for pid in _numbers() if pid != me and wanted in _read(pid, "environ").split(b"\0")]


def inside(root: Path, mark: str) -> Counter[str]:
    """Return, in words, what there is of this process now; on the thread of its event loop."""
    pids = {*descendants(os.getpid()), *marked(mark)}
    found = Counter(f"process {_label(pid)}" for pid in pids if _read(pid, "stat"))
    found.update(["a thread in a body"] * _threads_in_bodies())
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    found.update(f"task {task.get_name().rpartition(':')[2]}" for task in tasks)
    found.update(_descriptors())
    found.update(behind(root, os.getpid()))
    return found


def behind(root: Path, pid: int) -> list[str]:
    """Return the folders and cgroups of a trainer, and of the sandboxes that it had."""
    folders = [path for pattern in (f"*-{pid}-*", f"*-{pid}-*/*/") for path in root.glob(pattern)]
    parents = {folder for hierarchy in read_hierarchies().values() for folder in list(hierarchy.up())[:2]}
    groups = [path for parent in parents for path in parent.glob(f"{CGROUP_PREFIX}*-{pid}-*")]
    groups += [inner for group in groups for inner in group.glob("*/")]
    return ["folder"] * len(folders) + ["cgroup"] * len(groups)


def words(left: Counter[str]) -> tuple[str, ...]:
    """Return one line for each thing that is left, with its number if there are several."""
    return tuple(f"{count} × {what}" if count > 1 else what for what, count in sorted(left.items()))


def _threads_in_bodies() -> int:
    """Return how many threads of the library do something: the others stand in their own loop."""
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage] - there is no other way to look at a thread
    body_threads = [thread for thread in threading.enumerate() if thread.name == BODY_THREAD]
    standing = [frames[thread.ident] for thread in body_threads if thread.ident in frames]
    return sum(frame.f_code.co_filename != threads.__file__ for frame in standing)


def _descriptors() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that listed the folder
            # Sockets and pipes are told apart by number only; numbers are used anew.
            yield f"descriptor {os.readlink(f'/proc/self/fd/{name}').partition('[')[0]}"


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(pid: int, what: str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{what}").read_bytes()
    return b""


def _label(pid: int) -> str:
    """Return the program, and the script if it is Python."""
    argv = [os.fsdecode(word) for word in _read(pid, "cmdline").split(b"\0") if word]
    scripts = [os.path.basename(word) for word in argv[1:] if word.endswith(".py")]
    name = os.path.basename(argv[0]) if argv else "that nobody has waited for"
    return f"{name} {scripts[0]}" if name.startswith("python") and scripts else name
