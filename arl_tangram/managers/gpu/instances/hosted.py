"""One instance in the hands of the manager: where it is, and what is being done with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import Enum, auto
from typing import Any

from arl_tangram.managers.gpu.instances.backend import Backend, Place
from arl_tangram.model.gpu import Chunk, Footprint, Instance


class Stage(Enum):
    """What an instance is at this moment, in the real world."""

    EVICTED = auto()
    RESTORING = auto()
    RESIDENT = auto()
    MOVING = auto()
    EVICTING = auto()
    STUCK = auto()
    """It was to be evicted, and its memory did not become free."""


PASSING = frozenset({Stage.RESTORING, Stage.MOVING, Stage.EVICTING})
"""Stages that end by themselves, soon."""


class Stay:
    """One stay of an instance on a chunk: from the decision to restore it there to the decision to evict it.

    Attributes:
        chunk: where.
        coming: done when it is resident; fails if that fails.
        places: what it has there, once it has it.
        over: whether it was decided to evict it, or it has failed or died: nobody joins it any more.
    """

    __slots__ = ("chunk", "coming", "over", "places")

    def __init__(self, chunk: Chunk, coming: asyncio.Future[None]) -> None:
        self.chunk = chunk
        self.coming = coming
        self.places: list[Place] = []
        self.over = False


class Hosted:
    """One instance.

    Attributes:
        instance: its name.
        backend: its service.
        footprint: what it needs on each device, as the scheduler counts it.
        region_bytes: of its regions: exactly what it has asked for.
        stage: what it is now.
        stay: the last one that was decided; None before the first.
        there: the stay for which it has memory now, or None.
        last: the last transition that was begun. Each begins when the one before has ended.
        died: what its backend has told during a restore.
    """

    __slots__ = ("backend", "died", "footprint", "instance", "last", "region_bytes", "stage", "stay", "there")

    def __init__(self, instance: Instance, backend: Backend, footprint: Footprint, region_bytes: int) -> None:
        self.instance = instance
        self.backend = backend
        self.footprint = footprint
        self.region_bytes = region_bytes
        self.stage = Stage.EVICTED
        self.stay: Stay | None = None
        self.there: Stay | None = None
        self.last: asyncio.Future[None] | None = None
        self.died: Exception | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether it is resident, or will be, by what was decided last."""
        return self.stay is not None and not self.stay.over

    @property
    def stays(self) -> bool:
        """Whether it is resident, nothing is being done with it, and nothing was decided to be done."""
        return self.stage is Stage.RESIDENT and self.there is not None and not self.there.over

    @property
    def is_passing(self) -> bool:
        """Whether its memory will change by what has begun or was decided, without anything else."""
        return self.there is not None and (self.stage in PASSING or (self.stage is Stage.RESIDENT and self.there.over))


async def ended(futures: Iterable[asyncio.Future[Any] | None]) -> None:
    """Wait until all of them are done, whatever came of it; cancelling does not cancel them."""
    pending = {future for future in futures if future is not None and not future.done()}
    if pending:
        await asyncio.wait(pending)
