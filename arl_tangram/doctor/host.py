"""Look at this machine without Docker and GPUs: versions, cgroups, bubblewrap and Ray. Blocks."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

from arl_tangram.doctor import gpus, ray
from arl_tangram.doctor.findings import Finding
from arl_tangram.doctor.installed import version_of
from arl_tangram.managers.host.cgroup import CgroupTree, plant
from arl_tangram.managers.host.hierarchy import Hierarchy, read_hierarchies
from arl_tangram.managers.host.machine import read_machine
from arl_tangram.managers.host.owner import CGROUP_PREFIX, default_root, new_name
from arl_tangram.managers.local.isolation import find_isolation
from arl_tangram.model.quantities import GIB


def sandboxing() -> Iterator[Finding]:
    """Yield what a `LocalPool` needs."""
    yield python()
    yield cores()
    yield cgroups()
    yield bubblewrap()


def beside(root: Path = Path("/")) -> Iterator[Finding]:
    """Yield what else trainers use; `root` stands before the paths."""
    yield gpus.look(root)
    yield ray.look(root)


def python() -> Finding:
    """Tell the versions."""
    names = ("arl-tangram", "numpy", "aiodocker", "anyio")
    versions = [f"{name} {found}" for name in names if (found := version_of(name))]
    return Finding("python", "ok", ", ".join([f"{platform.python_version()} on {platform.machine()}", *versions]))


def cores() -> Finding:
    """Tell what a pool on this machine would have."""
    machine = read_machine()
    has = f"{_count(machine.usable_cores, 'core')} and {machine.memory_bytes / GIB:.1f} GiB can be used"
    if machine.usable_cores < len(machine.cores):
        has += f"; of {len(machine.cores)} cores, a quota of {machine.quota_cores:g} is in the way"
    return Finding("machine", "ok", f"{has}, on {_count(len(machine.nodes), 'NUMA node')}")


def cgroups() -> Finding:
    """Create a cgroup as a `LocalPool` would, and remove it."""
    hierarchies = read_hierarchies()
    if not hierarchies:
        return Finding(
            "cgroups",
            "limited",
            "no controller is mounted here: grants of a LocalPool are advisory, by CPU affinity",
            "mount cgroups, or use a DockerPool",
        )
    tree = plant(hierarchies, CGROUP_PREFIX + new_name(), read_machine().cores)
    tree.remove()
    return judge_cgroups(hierarchies["cpu" if "cpu" in hierarchies else next(iter(hierarchies))], tree)


def judge_cgroups(hierarchy: Hierarchy, tree: CgroupTree) -> Finding:
    """Say what a cgroup tree can do.

    Args:
        hierarchy: of a controller.
        tree: what could be created.
    """
    if tree.version == 0:
        advice = (
            "run as root, or in a cgroup that is delegated to you: systemd-run --user --scope -p Delegate=yes COMMAND"
            if hierarchy.version == 2
            else "run as root"
        )
        text = (
            f"version {hierarchy.version}, and no cgroup can be created below {hierarchy.own}: "
            "grants of a LocalPool are advisory, by CPU affinity"
        )
        return Finding("cgroups", "limited", text, advice)
    missing = [
        words
        for words, is_there in (
            ("cores are pinned by affinity", tree.pins),
            ("fractions are not enforced", tree.limits_time),
            ("memory is not limited", "memory" in tree.folders),
        )
        if not is_there
    ]
    if missing:
        advice = "let the controllers cpu, cpuset and memory be passed on to this cgroup"
        return Finding("cgroups", "limited", f"version {tree.version}, and {', '.join(missing)}", advice)
    return Finding("cgroups", "ok", f"version {tree.version}: cores, fractions and memory of a LocalPool are enforced")


def bubblewrap() -> Finding:
    """Run bubblewrap as a `LocalPool` would."""
    found = find_isolation(default_root())
    if found.bwrap:
        return Finding("bwrap", "ok", f"{found.bwrap[0]} works: files of the machine are read-only for local sandboxes")
    if "not installed" in found.reason:
        advice = "install the package bubblewrap"
        return Finding("bwrap", "absent", "not installed: local sandboxes share files and processes", advice)
    advice = "let this user create namespaces (in a container: its security options)"
    return Finding("bwrap", "wrong", f"{found.reason}: local sandboxes share files and processes", advice)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
