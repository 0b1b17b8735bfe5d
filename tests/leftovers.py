"""Find what a test left behind: tasks, threads, child processes, file descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Self

# How long what is already on its way out (a joined-soon thread, a killed child) may take.
GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class Child:
    """A child process; the start time tells it from a later one with the same number."""

    pid: int
    started_ticks: int
    state: str
    command: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Child) and (self.pid, self.started_ticks) == (other.pid, other.started_ticks)

    def __hash__(self) -> int:
        return hash((self.pid, self.started_ticks))

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command!r}, {'never waited for' if self.state == 'Z' else 'running'})"

    @classmethod
    def read(cls, pid: int) -> Self | None:
        """Return the child with this number, or None if it is gone or somebody else's."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError):
            return None
        name, _, fields = stat.partition("(")[2].rpartition(")")
        state, parent, *rest = fields.split()
        # Fields are numbered from 1 in proc(5): state is 3, starttime is 22.
        return cls(pid, int(rest[17]), state, command or name) if int(parent) == os.getpid() else None


def children() -> set[Child]:
    """Return the child processes of this process, zombies and adopted ones included."""
    pids: list[int] = []
    tasks = Path("/proc/self/task")
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():  # a kernel built without CONFIG_PROC_CHILDREN
        pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    for task in tasks.iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended while we looked
            pids += [int(pid) for pid in (task / "children").read_text().split()]
    return {child for pid in pids if (child := Child.read(pid))}


def descriptors() -> Counter[str]:
    """Return what the open file descriptors of this process point to."""
    targets: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that listed the folder
            # Sockets and pipes are told apart by number only; numbers are used anew.
            targets[os.readlink(f"/proc/self/fd/{name}").partition("[")[0]] += 1
    return targets


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there was before a test."""

    threads: frozenset[threading.Thread]
    children: frozenset[Child]
    descriptors: Counter[str] | None

    @classmethod
    def take(cls, *, with_descriptors: bool) -> Self:
        """Look at this process now."""
        if with_descriptors:
            gc.collect()  # what earlier tests dropped in cycles is theirs
        opened = descriptors() if with_descriptors else None
        return cls(frozenset(threading.enumerate()), frozenset(children()), opened)

    def leftovers(self) -> list[str]:
        """Return, in words, what is there now and was not there then. Leftover children are killed."""
        deadline_s = time.monotonic() + GRACE_S
        found = [f"thread {thread.name!r}" for thread in self._threads(deadline_s)]
        found += [str(child) for child in self._children(deadline_s)]
        if self.descriptors is not None:
            gc.collect()
            found += [f"{n} open {target}" for target, n in sorted((descriptors() - self.descriptors).items())]
        return found

    def _threads(self, deadline_s: float) -> list[threading.Thread]:
        extra = [thread for thread in threading.enumerate() if thread not in self.threads]
        for thread in extra:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return [thread for thread in extra if thread.is_alive()]

    def _children(self, deadline_s: float) -> set[Child]:
        for child in children() - self.children:
            _wait_for_end(child, deadline_s)
        extra = children() - self.children
        for child in extra:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
        return extra


def _wait_for_end(child: Child, deadline_s: float) -> None:
    try:
        descriptor = os.pidfd_open(child.pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000)
    finally:
        os.close(descriptor)


async def pending_tasks() -> list[str]:
    """Return, in words, the tasks of this loop that are still there after what was ready has run; cancel them."""
    for _ in range(10):  # a task that was cancelled needs a few turns of the loop to end; anything else does not
        await asyncio.sleep(0)
    pending = asyncio.all_tasks() - {asyncio.current_task()}
    found = [f"task {task.get_name()!r} ({_place(task)})" for task in pending]
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return sorted(found)


def _place(task: asyncio.Task[object]) -> str:
    coroutine = task.get_coro()
    return getattr(coroutine, "__qualname__", repr(coroutine))
