"""What `Tangram.statistics()` returns: the state of a runtime at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DimensionStatistics:
    """One counted resource, in whole units (cores, GiB, calls, threads).

    Attributes:
        capacity: what there is.
        used: what is promised or in use; for a rate, what started within its window.
        free: the rest.
    """

    capacity: float
    used: float
    free: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """The state of a runtime.

    Attributes:
        waiting: calls and trajectories that wait.
        running: calls that hold units.
        lingering: names of actions whose caller was answered and whose body still holds units.
        trajectories: open trajectories.
        dimensions: each counted resource by name, such as `cpu` or `quota:search/calls`.
    """

    waiting: int
    running: int
    lingering: tuple[str, ...]
    trajectories: int
    dimensions: Mapping[str, DimensionStatistics]
