"""What a manager found and claimed on this machine: its owner, its cgroups, and how sandboxes are isolated.

Everything here blocks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.host.cgroup import NOTHING, CgroupTree, SandboxGroup, plant
from arl_tangram.managers.host.hierarchy import read_hierarchies
from arl_tangram.managers.host.owner import CGROUP_PREFIX, Owner, claim, default_root, make_root, remove_cgroups, sweep
from arl_tangram.managers.host.trees import remove_tree
from arl_tangram.managers.local.files import Folders
from arl_tangram.managers.local.isolation import Isolation, find_isolation, without_bwrap

IsolationChoice = Literal["auto", "bwrap", "none"]


@dataclass(frozen=True, slots=True)
class Site:
    """A place for sandboxes, which are numbered.

    Attributes:
        owner: who we are.
        tree: the cgroups that we could have.
        isolation: how sandboxes are separated.
        made_root: whether the folder for sandboxes was created for us.
    """

    owner: Owner
    tree: CgroupTree
    isolation: Isolation
    made_root: bool

    def sandbox_id(self, number: int) -> str:
        """Return the name of a sandbox, unique on this machine."""
        return f"{self.owner.name}.{number}"

    def folders(self, number: int) -> Folders:
        """Return the folders of a sandbox, which need not exist."""
        return Folders(os.path.join(self.owner.folder, str(number)))

    def prepare(self, number: int, memory_bytes: int, core_ids: Sequence[int]) -> SandboxGroup | None:
        """Create the folders and the cgroups of a sandbox on these cores; None where no cgroups are permitted.

        Raises:
            OSError: they could not be created; `discard` removes those that were.
        """
        self.folders(number).create()
        if self.tree.version == 0:
            return None
        group = self.tree.group(str(number))
        group.create()
        group.set_cores(core_ids)
        if memory_bytes > 0:
            group.limit_memory(memory_bytes)
        return group

    def discard(self, number: int) -> None:
        """Remove what was prepared for a sandbox in which nothing was started."""
        self.tree.group(str(number)).remove()
        self.folders(number).remove()

    def remove(self) -> None:
        """Remove everything, and the root if it was made for us."""
        for folder in dict.fromkeys(self.tree.folders.values()):
            remove_cgroups(self.tree.version, folder)
        remove_tree(self.owner.folder)
        root = os.path.dirname(self.owner.folder)
        if self.made_root or root == os.path.realpath(default_root()):
            with contextlib.suppress(OSError):  # another owner is there
                os.rmdir(root)

    def describe(self) -> str:
        """Say what enforces grants and what separates sandboxes."""
        return f"{self._describe_limits()}; {self._describe_isolation()}"

    def _describe_limits(self) -> str:
        tree = self.tree
        if tree.version == 0:
            return "grants are advisory, by CPU affinity, as no cgroups are permitted here, and memory is not limited"
        words = [f"cgroup v{tree.version}"]
        words.append("whole cores by cpuset" if tree.pins else "cores by CPU affinity (advisory)")
        words.append("fractions by quota" if tree.limits_time else "fractions not enforced")
        words.append("memory limited" if "memory" in tree.folders else "memory not limited")
        return ", ".join(words)

    def _describe_isolation(self) -> str:
        if not self.isolation.bwrap:
            return f"sandboxes share files and processes with this machine ({self.isolation.reason})"
        return "bwrap: the machine's files are read-only, processes are the sandbox's own, the network is the machine's"


def open_site(root: str, core_ids: Sequence[int], *, isolation: IsolationChoice, cgroups: bool) -> Site:
    """Sweep what dead owners left, become an owner, and find out what is permitted.

    Args:
        root: the folder for sandboxes.
        core_ids: the cores that sandboxes could get.
        isolation: as for `LocalPool`.
        cgroups: whether own cgroups are tried.

    Raises:
        ConfigurationError: bwrap is asked for and does not work, or the root is somebody else's.
    """
    found = without_bwrap("isolation='none'") if isolation == "none" else find_isolation(root)
    if isolation == "bwrap" and not found.bwrap:
        raise ConfigurationError(f"isolation='bwrap' was asked, and {found.reason}")
    hierarchies = read_hierarchies()
    made_root = make_root(root)
    sweep(root, hierarchies)
    owner = claim(root)
    tree = plant(hierarchies, CGROUP_PREFIX + owner.name, core_ids) if cgroups else NOTHING
    return Site(owner, tree, found, made_root)
