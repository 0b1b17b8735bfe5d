"""GPU services as values: where devices are, what a service needs on them, and where an action sits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from arl_tangram.errors import ConfigurationError

CHUNK_SIZES = (1, 2, 4, 8)
"""How many devices a chunk can have: a service that is on several, or a body that has some to itself."""


class Instance(NamedTuple):
    """A service at one degree of parallelism; each dop is an instance of its own.

    Attributes:
        service: the name of the service.
        dop: on how many devices it is.
    """

    service: str
    dop: int

    def __str__(self) -> str:
        return f"{self.service}/{self.dop}"


class Chunk(NamedTuple):
    """Neighbouring devices of one node, aligned to their number, which is a power of two.

    Attributes:
        first: the number of the first device, counted over all nodes of the pool.
        size: one of `CHUNK_SIZES`.
    """

    first: int
    size: int

    @property
    def devices(self) -> range:
        """The numbers of its devices."""
        return range(self.first, self.first + self.size)


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One device, as the scheduler sees it.

    Attributes:
        name: by which it is known outside: a GPU's UUID, or `cpu:0`.
        capacity_bytes: that services can have of it.
    """

    name: str
    capacity_bytes: int


@dataclass(frozen=True, slots=True)
class GpuNode:
    """The devices of one machine that chunks can be made of.

    Attributes:
        name: of the machine; empty for the only one.
        devices: in an order in which neighbours are near each other.
    """

    name: str
    devices: tuple[GpuDevice, ...]


def checked_dops(value: object, what: str) -> tuple[int, ...]:
    """Return on how many devices each a service is to be, ascending.

    Raises:
        ConfigurationError: none, one twice, or one that chunks cannot have.
    """
    dops = tuple(cast("Sequence[object]", value)) if isinstance(value, Sequence) and not isinstance(value, str) else ()
    chosen = tuple(size for size in CHUNK_SIZES if size in dops)
    if not dops or len(chosen) != len(dops) or any(type(dop) is not int for dop in dops):
        raise ConfigurationError(f"{what}: dops= takes different numbers out of 1, 2, 4 and 8, not {value!r}")
    return chosen


def chunks_of(nodes: Sequence[GpuNode], size: int) -> tuple[Chunk, ...]:
    """Return all chunks of a size that nodes have, ascending; devices are counted over all nodes, in their order."""
    if size not in CHUNK_SIZES:
        return ()
    chunks: list[Chunk] = []
    first = 0
    for node in nodes:
        chunks += [Chunk(first + at, size) for at in range(0, len(node.devices) - size + 1, size)]
        first += len(node.devices)
    return tuple(chunks)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What an instance needs on each of its devices.

    Attributes:
        resident_bytes: while actions can use it.
        peak_bytes: while it is being restored; at least as many.
        evicted_bytes: what it keeps there while it is evicted, as an engine that sleeps does; at most as many.
    """

    resident_bytes: int
    peak_bytes: int
    evicted_bytes: int = 0


@dataclass(frozen=True, slots=True)
class HostedService:
    """A service as the scheduler sees it.

    Attributes:
        name: unique in its pool.
        footprints: by dop, ascending.
        restore_s: what a restore is expected to take, by dop, until one was measured.
        max_concurrency: how many actions may use an instance at once.
        exclusive: whether nothing else computes on its devices while an action uses it.
        chunks: where the instances are that cannot be anywhere else, by dop; empty for those that can.
    """

    name: str
    footprints: tuple[tuple[int, Footprint], ...]
    restore_s: tuple[tuple[int, float], ...]
    max_concurrency: int = 1
    exclusive: bool = False
    chunks: tuple[tuple[int, Chunk], ...] = ()

    @property
    def dops(self) -> tuple[int, ...]:
        """The degrees of parallelism that there are, ascending."""
        return tuple(dop for dop, _ in self.footprints)


@dataclass(frozen=True, slots=True)
class SeatNeed:
    """What an action needs of a pool of GPUs.

    Attributes:
        service: the service that it uses; None for one that has GPUs to itself.
        dops: on how many GPUs it may be, ascending; one number where there is no choice.
        relative: the expected duration on each of them, relative to one GPU, as declared; empty where it is learned.
    """

    service: str | None
    dops: tuple[int, ...]
    relative: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Seat:
    """Where an action with a service, or with devices of its own, is.

    Attributes:
        chunk: its devices.
        instance: which instance it uses; None for one that has the devices to itself.
        restores: whether the instance is to be restored for it; it waits for that.
        evicts: what has to go first, in this order.
    """

    chunk: Chunk
    instance: Instance | None = None
    restores: bool = False
    evicts: tuple[Instance, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceStatistics:
    """What a service has cost and was used for, all its dops together.

    Attributes:
        uses: actions that have taken a seat on it.
        restores: how often it was restored.
        restore_s: seconds that these took, without waiting for others.
        evictions: how often it was evicted.
        moves: how often it was moved within a device, so that nothing had to be evicted.
        failures: restores that failed.
        losses: how often it has died while it was resident.
        asked: uses for which it was to be restored.
    """

    uses: int = 0
    restores: int = 0
    restore_s: float = 0.0
    evictions: int = 0
    moves: int = 0
    failures: int = 0
    losses: int = 0
    asked: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of the uses that did not ask for a restore; 0 if there were none."""
        return (self.uses - self.asked) / self.uses if self.uses else 0.0
