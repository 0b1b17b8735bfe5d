"""Where the bench runs: a pool of this machine or of a Docker daemon, and a sandbox that holds the programs.

Cores are changed at the lease of the sandbox, without a scheduler around it, which would decide about them itself.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from inspect import getsource

from arl_tangram.bench.faults.left import VARIABLE
from arl_tangram.bench.faults.where import Where
from arl_tangram.bench.resize import program
from arl_tangram.bench.resize.plan import MOST_CORES
from arl_tangram.machine_image.python_files import interpreter
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.managers.manager import CpuLease, CpuManager, ManagedSandbox
from arl_tangram.managers.one_sandbox import one_sandbox
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.sandbox import ExecResult
from arl_tangram.model.topology import CPU

_FILE = "program.py"


@dataclass(frozen=True, slots=True)
class Bed:
    """A sandbox, and whose cores it has.

    Attributes:
        manager: of the cores.
        box: the sandbox.
        cores: the most that it can have.
        mark: a word in the environment of everything that runs in it.
    """

    manager: CpuManager
    box: ManagedSandbox
    cores: int
    mark: str

    @asynccontextmanager
    async def lease(self, cores: int) -> AsyncGenerator[CpuLease]:
        """Have so many cores for a while, which can become more; what is left at the end is killed."""
        lease = self.manager.lease(cores * MILLI, self.box, most=self.cores * MILLI)
        try:
            await lease.applied()
            yield lease
            if lease.needs_cleanup():
                await lease.clean()
        finally:
            lease.release()

    async def resize(self, lease: CpuLease, cores: int) -> None:
        """Let the sandbox have so many cores from now on, and wait until that is in effect."""
        lease.resize(cores * MILLI)
        if isinstance(self.box, DockerSandbox):  # others have them at once
            await self.box.limits.settled()

    async def run(self, *words: object, timeout: float | None = None) -> ExecResult:
        """Run one of the programs; an action has cores in the sandbox now."""
        argv = [interpreter(), "-I", _FILE, *map(str, words)]
        return await self.box.exec(argv, env=self.environment, timeout=timeout)

    @property
    def environment(self) -> Mapping[str, str]:
        """What everything that runs in the sandbox has in its environment."""
        return {VARIABLE: self.mark}

    async def alive(self) -> int:
        """Return how many marked processes there are in the sandbox beside the one that counts them."""
        done = await self.run("marked", f"{VARIABLE}={self.mark}")
        return int(done.stdout)


@asynccontextmanager
async def bed(where: Where, mark: str) -> AsyncGenerator[Bed]:
    """Have a sandbox with the programs in it.

    Raises:
        ConfigurationError: the pool has nothing to offer here.
        SandboxStartError: there is no sandbox to be had.
    """
    async with one_sandbox(where.pool("resize")) as (manager, box):
        capacity = next(dimension.capacity for dimension in manager.dimensions() if dimension.name == CPU)
        made = Bed(manager, box, min(capacity // MILLI, MOST_CORES), mark)
        async with made.lease(1):
            await box.write_file(_FILE, getsource(program).encode())
        yield made
