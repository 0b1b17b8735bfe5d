"""The stronger means: killing a sandbox from outside when its keeper cannot. Everything here blocks, bounded."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from arl_tangram.managers.host.cgroup import SandboxGroup
from arl_tangram.managers.host.owner import kill_marked
from arl_tangram.managers.local.keeper import children, descendants, kill_tree

TREE_LIMIT_S = 1.0


def force(group: SandboxGroup | None, keeper: int) -> bool:
    """Kill all but the keeper (and the bwrap around it) through the cgroup; return whether that worked."""
    if group is None:
        return False
    inside = [child for child in children(keeper) if _is_init(child)]
    return group.kill({keeper, *inside})


def destroy(group: SandboxGroup | None, sandbox_id: str, keeper: int, is_keeper: Callable[[], bool]) -> None:
    """Kill everything of a sandbox, the keeper included.

    Args:
        group: its cgroups, if it has some.
        sandbox_id: what its processes carry in their environment.
        keeper: the process that was started.
        is_keeper: whether that number is still the keeper's: once reaped, it can be a stranger's.
    """
    if group is not None and group.kill():
        return
    deadline = time.monotonic() + TREE_LIMIT_S
    while is_keeper() and descendants(keeper) and time.monotonic() < deadline:
        kill_tree(keeper)
        time.sleep(0.002)
    if is_keeper():
        with suppress(ProcessLookupError):
            os.kill(keeper, signal.SIGKILL)
    kill_marked(lambda marked: marked == sandbox_id)


def _is_init(pid: int) -> bool:
    """Whether a process is the first of a PID namespace of its own."""
    try:
        with open(f"/proc/{pid}/status") as status:
            numbers = next(line for line in status if line.startswith("NSpid:")).split()[1:]
    except OSError:
        return False
    return len(numbers) > 1 and numbers[-1] == "1"
