"""Where the bench runs: a daemon, an image, and pools of its cores whose manager the bench can ask."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import arl_tangram as tangram
from arl_tangram.bench.aoe.plan import GrantKind, Mode
from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.docker.manager import DockerManager
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.managers.manager import CpuManager
from arl_tangram.managers.one_sandbox import one_sandbox
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.statistics import LatencyStatistics
from arl_tangram.model.topology import CPU
from arl_tangram.trace.sink import MemorySink


@dataclass(frozen=True, slots=True)
class Place:
    """What all measurements share.

    Attributes:
        image: of the containers.
        url: where the daemon listens; None asks the environment.
    """

    image: str
    url: str | None

    def pool(self, mode: Mode) -> Pool:
        """Return a pool of all cores of the daemon, whose commands run in this mode."""
        return Pool(
            tangram.DockerPool(
                image=self.image,
                url=self.url,
                grants=mode.grants,
                channel=mode.channel,
                max_sandboxes=1000,
                pull="never",
            )
        )

    @asynccontextmanager
    async def sandbox(self, grants: GrantKind) -> AsyncGenerator[tuple[DockerManager, DockerSandbox]]:
        """Have one sandbox without a runtime around it: what a grant costs by itself shows there."""
        pool = self.pool(Mode(grants, "session"))
        async with one_sandbox(pool) as (_, box):
            assert isinstance(box, DockerSandbox)
            yield pool.made, box

    async def why_not(self, grants: GrantKind) -> str | None:
        """Say why grants cannot be applied in this way here; None if they can, and then everything is warm."""
        try:
            async with self.sandbox(grants) as (manager, box):
                lease = manager.lease(MILLI, box)
                await box.exec(["true"])
                lease.release()
        except ConfigurationError as error:
            return str(error)
        return None


class Pool:
    """A `DockerPool` that remembers the manager that was made of it."""

    def __init__(self, declared: tangram.DockerPool) -> None:
        self._declared = declared
        self._made: DockerManager | None = None

    def manager(self) -> CpuManager:
        """Return a new manager, as the pool does."""
        made = self._declared.manager()
        assert isinstance(made, DockerManager)
        self._made = made
        return made

    @property
    def made(self) -> DockerManager:
        """The manager that was made last."""
        assert self._made is not None, "no manager was made of this pool"
        return self._made

    def latency(self) -> Mapping[str, LatencyStatistics]:
        """Return how long the daemon took, by operation."""
        (found,) = self.made.latency().values()
        return found


@asynccontextmanager
async def runtime(pool: Pool, sink: MemorySink | None = None) -> AsyncGenerator[tangram.Tangram]:
    """Have a runtime of that pool alone."""
    async with tangram.Tangram(pool, trace=sink) as tg:
        yield tg


def cores_of(tg: tangram.Tangram) -> int:
    """Return how many cores the pool of a runtime has."""
    return int(tg.statistics().dimensions[CPU].capacity)


def capacity_of(manager: DockerManager) -> int:
    """Return how many milli-cores a manager of one node has."""
    return next(dimension.capacity for dimension in manager.dimensions() if dimension.name == CPU)
