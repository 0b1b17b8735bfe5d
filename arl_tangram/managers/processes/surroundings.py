"""What a worker sets for one call and takes back after it: cores, variables of the environment, memory."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager, suppress

from arl_tangram.managers.processes.call import Call


@contextmanager
def surroundings(call: Call, everywhere: Collection[int]) -> Generator[None]:
    """Be in the surroundings of a call.

    Args:
        call: what was granted.
        everywhere: the cores of this process while it is idle.
    """
    before = dict(os.environ)
    folder = "/"
    with suppress(FileNotFoundError):  # it was removed
        folder = os.getcwd()
    os.environ.update(call.environment)
    pinned = call.grant.allocation.core_ids
    if pinned:
        pin(pinned)
    limits = _limit_memory(call.grant.memory_bytes)
    try:
        yield
    finally:
        if limits is not None:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_DATA, limits)
        signal.setitimer(signal.ITIMER_REAL, 0)  # a grader's alarm is not for the next call
        pin(everywhere)  # whatever the body has made of it
        _restore_environment(before)
        with suppress(OSError):
            os.chdir(folder)


def pin(core_ids: Collection[int]) -> None:
    """Pin all threads of this process: a library's own, made in an earlier call, included."""
    threads = ["0"]
    with suppress(OSError):  # the body has left no descriptor free
        threads = os.listdir("/proc/self/task")
    for thread in threads:
        with suppress(OSError):  # it has just ended, or a core has gone offline
            os.sched_setaffinity(int(thread), core_ids)


def _limit_memory(more_bytes: int) -> tuple[int, int] | None:
    """Let this process, and each one that it starts, allocate so much on top of what it has; return the limits before.

    RLIMIT_DATA counts private memory that can be written. RLIMIT_AS also counts what is only reserved, of which
    numeric libraries and allocators take many times what they use.
    """
    if not more_bytes:
        return None
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    soft, hard = _data_bytes() + more_bytes, limits[1]
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    return limits


def _data_bytes() -> int:
    with open("/proc/self/status") as status:
        return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:")), 0)


def _restore_environment(before: Mapping[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
