"""The cores of this machine: creates sandboxes, applies grants, and cleans up."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import anyio

from arl_tangram.errors import ConfigurationError, SandboxLostError, SandboxStartError, TangramError
from arl_tangram.managers.local import cgroup, owner
from arl_tangram.managers.local.channel import Channel
from arl_tangram.managers.local.cgroup import CgroupTree, SandboxGroup
from arl_tangram.managers.local.commands import Commands, finish_anyway
from arl_tangram.managers.local.cores import Cores, Placement
from arl_tangram.managers.local.destroy import destroy
from arl_tangram.managers.local.environment import SANDBOX_VARIABLE, inherited
from arl_tangram.managers.local.files import Folders, remove_tree
from arl_tangram.managers.local.hierarchy import read_hierarchies
from arl_tangram.managers.local.isolation import Isolation, find_isolation
from arl_tangram.managers.local.lease import LocalLease
from arl_tangram.managers.local.machine import Machine
from arl_tangram.managers.local.sandbox import LocalSandbox
from arl_tangram.managers.manager import CpuLease, ManagedSandbox
from arl_tangram.model.topology import CPU, MEMORY, Dimension

START_LIMIT_S = 30.0
GIB = 1 << 30
FILE_THREADS = 8


class LocalManager:
    """Owns cores and memory of this machine and the sandboxes on them; made by `LocalPool.manager`."""

    def __init__(
        self,
        machine: Machine,
        *,
        cores: int,
        memory_bytes: int,
        ignore_image: bool,
        isolation: Literal["auto", "bwrap", "none"],
        root: str,
        cgroups: bool = True,
    ) -> None:
        self._machine = machine
        self._capacity = cores
        self._memory_bytes = memory_bytes
        self._ignore_image = ignore_image
        self._wanted_isolation = isolation
        self._root = root
        self._use_cgroups = cgroups
        self._nodes = _choose(machine, cores)
        self._cores = Cores(self._nodes)
        self._tree: CgroupTree = cgroup.NOTHING
        self._isolation = Isolation(None, "not started")
        self._owner: owner.Owner | None = None
        self._sandboxes: dict[str, LocalSandbox] = {}
        self._leased: dict[int, LocalSandbox] = {}
        self._sandbox_numbers = itertools.count(1)
        self._lease_numbers = itertools.count(1)
        self._starting = asyncio.Semaphore(2 * cores)
        self._files = anyio.CapacityLimiter(FILE_THREADS)

    def dimensions(self) -> tuple[Dimension, ...]:
        """What it offers: `cpu` in milli-cores, `memory` in bytes."""
        return (Dimension(CPU, self._capacity * 1000, 1000), Dimension(MEMORY, self._memory_bytes, GIB))

    def check_image(self, image: str | None) -> None:
        """Raise `ConfigurationError` unless there is no image or images are ignored."""
        if image is not None and not self._ignore_image:
            raise ConfigurationError(
                f"a LocalPool has no images, and image={image!r} was asked; LocalPool(ignore_image=True) runs such trajectories "
                "on the files of this machine"
            )

    async def start(self) -> None:
        """Probe what is permitted here and sweep what killed runs left behind.

        Raises:
            ConfigurationError: bwrap was asked for and does not work, or the root is somebody else's.
        """
        await finish_anyway(self._in_thread(self._start))

    async def aclose(self) -> None:
        """Close all sandboxes and remove everything that was created; bounded."""
        await finish_anyway(self._close())

    async def create_sandbox(self, *, image: str | None, memory_bytes: int) -> ManagedSandbox:
        """Create a sandbox; nothing is left behind if that fails or is cancelled.

        Raises:
            SandboxStartError: it could not be created.
        """
        self.check_image(image)
        claimed = self._claimed()
        sandbox_id = f"{claimed.name}.{next(self._sandbox_numbers)}"
        async with self._starting:
            sandbox: LocalSandbox | None = None
            try:
                folders, group = await self._in_thread(partial(self._prepare, sandbox_id, memory_bytes))
                sandbox = self._begin(sandbox_id, folders, group)
                async with asyncio.timeout(START_LIMIT_S):
                    await asyncio.shield(sandbox.ready)
            except BaseException as error:
                complaint = sandbox.complaint() if sandbox is not None else ""
                await finish_anyway(self._discard(sandbox_id, sandbox))
                if isinstance(error, (OSError, TimeoutError, SandboxLostError)):
                    raise SandboxStartError(f"sandbox {sandbox_id} did not start: {complaint or error or type(error).__name__}") from error
                raise
        return sandbox

    def lease(self, milli_cores: int, sandbox: ManagedSandbox | None) -> CpuLease:
        """Apply a grant: pin the sandbox (or, for a host body, just pick) cores; synchronous.

        Raises:
            SandboxLostError: the cgroup of the sandbox is gone.
        """
        key = next(self._lease_numbers)
        moved = self._cores.take(key, milli_cores)
        lease = LocalLease(self._sandboxes[sandbox.id] if sandbox else None, lambda: self._cores.placement(key).core_ids, partial(self._give_back, key))
        if sandbox is not None:
            own = self._leased[key] = self._sandboxes[sandbox.id]
            try:
                own.place(moved.pop(key))
            except OSError as error:
                lease.release()
                raise SandboxLostError(f"sandbox {own.id} does not take its cores: {error}") from error
            own.begin(milli_cores, lease.meter)
        self._place(moved)
        return lease

    def describe(self) -> str:
        """Say in one line what enforces the grants here."""
        return f"{self._capacity} cores, {self._memory_bytes / GIB:.1f} GiB: {self._describe_limits()}; {self._describe_isolation()}"

    def _describe_limits(self) -> str:
        tree = self._tree
        if tree.version == 0:
            return "grants are advisory, by CPU affinity (no cgroups are permitted here), memory is not limited"
        words = [f"cgroup v{tree.version}"]
        words.append("whole cores by cpuset" if tree.pins else "cores by CPU affinity (advisory)")
        words.append("fractions by quota" if tree.limits_time else "fractions not enforced")
        words.append("memory limited" if "memory" in tree.folders else "memory not limited")
        return ", ".join(words)

    def _describe_isolation(self) -> str:
        if self._isolation.bwrap is None:
            return f"sandboxes see this machine's files and processes ({self._isolation.reason})"
        return "bwrap: the machine's files read-only, own processes, the host's network"

    # start and end, in a thread

    def _start(self) -> None:
        self._isolation = self._choose_isolation()
        hierarchies = read_hierarchies()
        owner.sweep(self._root, hierarchies)
        self._owner = owner.claim(self._root)
        if self._use_cgroups:
            ids = [core for node in self._nodes for core in node]
            self._tree = cgroup.plant(hierarchies, owner.CGROUP_PREFIX + self._owner.name, ids)

    def _choose_isolation(self) -> Isolation:
        if self._wanted_isolation == "none":
            return Isolation(None, "isolation='none'")
        found = find_isolation()
        if self._wanted_isolation == "bwrap" and found.bwrap is None:
            raise ConfigurationError(f"isolation='bwrap' was asked, and {found.reason}")
        return found

    async def _close(self) -> None:
        await asyncio.gather(*(sandbox.aclose() for sandbox in list(self._sandboxes.values())), return_exceptions=True)
        if self._owner is not None:
            await self._in_thread(partial(self._remove, self._owner))
            self._owner = None

    def _remove(self, claimed: owner.Owner) -> None:
        for folder in dict.fromkeys(self._tree.folders.values()):
            owner.remove_cgroups(self._tree.version, folder)
        remove_tree(claimed.folder)
        with contextlib.suppress(OSError):
            os.rmdir(self._root)  # if it was the last owner

    # sandboxes

    def _prepare(self, sandbox_id: str, memory_bytes: int) -> tuple[Folders, SandboxGroup | None]:
        folders = Folders(os.path.join(self._claimed().folder, sandbox_id.rpartition(".")[2]))
        folders.create()
        if self._tree.version == 0:
            return folders, None
        group = self._tree.group(sandbox_id.rpartition(".")[2])
        if memory_bytes > 0:
            group.limit_memory(memory_bytes)
        return folders, group

    def _begin(self, sandbox_id: str, folders: Folders, group: SandboxGroup | None) -> LocalSandbox:
        env = {**inherited(os.environ), "HOME": folders.home, "TMPDIR": folders.tmp, SANDBOX_VARIABLE: sandbox_id}
        start = partial(
            Channel, self._isolation.keeper_argv(folders, self._root), env=env, entrances=group.entrances if group else ()
        )
        commands = Commands(...)
        raise NotImplementedError
