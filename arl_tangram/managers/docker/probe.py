"""What is possible on one daemon's machine: which cores there are, and whether this process may write the limits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arl_tangram.managers.docker.allotment import IDLE_QUOTA_US, Allotment
from arl_tangram.managers.docker.answers import DaemonError, EngineInfo
from arl_tangram.managers.docker.api_limits import Updater
from arl_tangram.managers.docker.group import NEEDED, NoGroupError, check_writable, find_group
from arl_tangram.managers.host.cgroup import PERIOD_US, SandboxGroup, cpulist
from arl_tangram.managers.host.hierarchy import read_hierarchies
from arl_tangram.managers.host.machine import Machine

# What one change of a running container's cores takes: some writes, and the caches of other cores; or an update.
DIRECT_SWITCH_S = 0.0002
UPDATE_SWITCH_S = 0.02
PROBE_QUOTA_US = IDLE_QUOTA_US + 340  # a number that is there only if the daemon wrote it where we read


@dataclass(frozen=True, slots=True)
class Probe:
    """How the limits of a daemon's containers can be changed.

    Attributes:
        group: the cgroups of the container that was tried, if they can be written directly.
        reason: why they can or cannot, in words.
    """

    group: SandboxGroup | None
    reason: str

    @property
    def is_direct(self) -> bool:
        """Whether this process can write the limits itself."""
        return self.group is not None


async def probe_direct(
    engine: Updater, container_id: str, pid: int, *, is_socket: bool, core_ids: Sequence[int], root: Path = Path("/")
) -> Probe:
    """Try whether the limits of a container can be written directly; once per daemon, about 50 ms.

    One change goes through the daemon and must be seen in the files; then the container is idle again.

    Args:
        engine: the daemon.
        container_id: a running, idle container.
        pid: its first process, as the daemon tells it.
        is_socket: whether the daemon is reached through a socket of this machine.
        core_ids: cores of the pool.
        root: stands before all paths.

    Raises:
        DaemonError: the daemon cannot be reached.
    """
    if not is_socket:
        return Probe(None, "the daemon is not reached through a socket of this machine")
    try:
        group = find_group(container_id, pid, root)
        check_writable(group)
    except NoGroupError as error:
        return Probe(None, str(error))
    try:
        await _update(engine, container_id, PROBE_QUOTA_US, core_ids)
        seen = group.quota_us()
        await _update(engine, container_id, IDLE_QUOTA_US, core_ids)
    except DaemonError as error:
        if error.kind == "gone":
            raise
        return _probe_written(group, f"the daemon cannot change limits ({error})", core_ids)
    except OSError as error:
        return Probe(None, f"the container's cgroup cannot be read: {error}")
    if seen != PROBE_QUOTA_US:
        return Probe(None, f"{group.folders['cpu']} does not show what the daemon set")
    return _probe_written(group, f"cgroup version {group.version} files are written directly", core_ids)


def _probe_written(group: SandboxGroup, reason: str, core_ids: Sequence[int]) -> Probe:
    """Write once, as a grant would: permissions do not tell all."""
    try:
        group.set_cores(core_ids)
        group.set_quota_us(IDLE_QUOTA_US)
        found = Allotment(group.effective_cores(), group.quota_us())
    except OSError as error:
        return Probe(None, f"the container's cgroup cannot be written: {error}")
    if found.quota_us != IDLE_QUOTA_US or not set(found.core_ids) <= set(core_ids):
        return Probe(None, f"the container's cgroup does not keep what is written: {found} in effect")
    return Probe(group, reason)


async def _update(engine: Updater, container_id: str, quota_us: int, core_ids: Sequence[int]) -> None:
    await engine.update(container_id, quota_us=quota_us, period_us=PERIOD_US, cpus=cpulist(core_ids))


def may_write(root: Path = Path("/")) -> bool:
    """Return whether this process may write the cgroups of other processes of this machine, as it seems; blocks.

    That is what can be said before there is a container: its cgroups are somewhere below.
    """
    hierarchies = read_hierarchies(root)
    return all(name in hierarchies and os.access(hierarchies[name].mount, os.W_OK) for name in NEEDED)


def is_this_machine(url: str, info: EngineInfo) -> bool:
    """Return whether a daemon seems to be one of this machine: a socket can lead elsewhere, but not under our name."""
    return url.startswith("unix://") and info.name == os.uname().nodename


def host_cores(ncpu: int, machine: Machine | None) -> tuple[tuple[int, ...], ...]:
    """Return the cores that a pool may hand out, by NUMA node.

    Args:
        ncpu: how many the daemon counts.
        machine: of a daemon of this machine: what this process may use of it.
    """
    if machine is None:
        return (tuple(range(ncpu)),)
    left = min(ncpu, machine.usable_cores)
    nodes: list[tuple[int, ...]] = []
    for node in sorted(machine.nodes, key=len, reverse=True):
        nodes.append(node[:left])
        left -= len(nodes[-1])
    return tuple(sorted(node for node in nodes if node))
