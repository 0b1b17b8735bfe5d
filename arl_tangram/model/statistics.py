"""What `Tangram.statistics()` returns: the state of a runtime at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from arl_tangram.model.gpu import ServiceStatistics


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
class LatencyStatistics:
    """How long one operation of a daemon took.

    Attributes:
        count: how often it was asked for.
        failures: how often it failed, was late or was cancelled (a refusal is an answer); these count above as well.
        mean_s: mean, like the rest from asking to the answer, without the time spent waiting for a turn.
        p50_s: median, within 5 %.
        p99_s: 99th percentile, within 5 %.
        max_s: longest.
    """

    count: int
    failures: int
    mean_s: float
    p50_s: float
    p99_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """The state of a runtime.

    Attributes:
        waiting: calls and trajectories that wait, those that wait to be tried again included.
        running: calls that hold units, and those that are suspended.
        lingering: names of actions whose caller was answered and whose body still holds units.
        trajectories: open trajectories.
        dimensions: each counted resource by name, such as `cpu` or `quota:search/calls`.
        breakers: for each quota with a breaker, `"closed"`, `"open"`, `"probing"` or `"down"`; by the name of the quota
            and, if it has several keys, the number of the key: `search#2`.
        daemons: of a `DockerPool`, how long each daemon took for each operation; by the name of the host (`docker`
            if it has none), and by operation: `create`, `start`, `update`, `remove` and so on.
        services: of a `GpuPool`, what each service has cost and was used for, by its name.
    """

    waiting: int
    running: int
    lingering: tuple[str, ...]
    trajectories: int
    dimensions: Mapping[str, DimensionStatistics]
    breakers: Mapping[str, str] = field(default_factory=dict[str, str])
    daemons: Mapping[str, Mapping[str, LatencyStatistics]] = field(
        default_factory=dict[str, Mapping[str, LatencyStatistics]]
    )
    services: Mapping[str, ServiceStatistics] = field(default_factory=dict[str, ServiceStatistics])
