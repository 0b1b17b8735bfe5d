"""The figures of a report: what a run's events amount to, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ActionFigures:
    """What the calls of one action name took; durations in seconds, None without a call.

    Attributes:
        name: the action's name; `other` for names beyond the limit, `all` for the total.
        calls: attempts at calls that ended, well or not; one for each call that was not tried again.
        retries: those that started and were not the first attempt at their call.
        failures: calls that did not end well, by outcome.
        act_mean_s: mean action completion time = queueing + execution + overhead, and what it was suspended for.
        act_p50_s: its median, within 1 %.
        act_p99_s: its 99th percentile, within 1 %.
        queueing_mean_s: mean wait for the units.
        execution_mean_s: mean time of the body itself.
        overhead_mean_s: mean of all the rest.
        queueing_p50_s: median wait for the units; this and the following are within 1 %.
        queueing_p99_s: 99th percentile of the same.
        execution_p50_s: median time of the body itself.
        execution_p99_s: 99th percentile of the same.
        overhead_p50_s: median of all the rest.
        overhead_p99_s: 99th percentile of the same.
        overhead_share: sum of overhead / (sum of execution + sum of overhead).
        cpu_s: CPU seconds of the commands in sandboxes, in all.
        core_s: core-seconds held, in all, until the cores were returned.
        resized: calls whose cores were changed while they ran.
        switches: how often that was, down to none and back included.
        suspended_s: seconds in which they had none, in all.
    """

    name: str
    calls: int
    retries: int
    failures: dict[str, int]
    act_mean_s: float | None
    act_p50_s: float | None
    act_p99_s: float | None
    queueing_mean_s: float | None
    execution_mean_s: float | None
    overhead_mean_s: float | None
    queueing_p50_s: float | None
    queueing_p99_s: float | None
    execution_p50_s: float | None
    execution_p99_s: float | None
    overhead_p50_s: float | None
    overhead_p99_s: float | None
    overhead_share: float | None
    cpu_s: float
    core_s: float
    resized: int = 0
    switches: int = 0
    suspended_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DimensionFigures:
    """How much of one dimension was in use; in whole units (cores, bytes / 2**30 of memory, calls).

    Attributes:
        name: the dimension.
        capacity: whole units that there are, at the end of the observed time.
        mean_capacity: their mean over the observed time, of which the shares are; None if nothing was observed.
        window_s: for a rate, the seconds after which a unit returns; else None.
        held_unit_s: whole units times seconds for which they were held, reservations included.
        held_share: the same as a share of capacity times the observed time; None if nothing was observed.
        used_share: CPU seconds of commands as the same share; None where use is not measured.
    """

    name: str
    capacity: float
    mean_capacity: float | None
    window_s: float | None
    held_unit_s: float
    held_share: float | None
    used_share: float | None


@dataclass(frozen=True, slots=True)
class TrajectoryFigures:
    """How trajectories were admitted; seconds, None without a trajectory.

    Attributes:
        opened: trajectories that were admitted.
        closed: trajectories that gave back what they held.
        waited_mean_s: mean wait for admission.
        waited_p99_s: its 99th percentile, within 1 %.
    """

    opened: int
    closed: int
    waited_mean_s: float | None
    waited_p99_s: float | None


@dataclass(frozen=True, slots=True)
class ServiceFigures:
    """What a service of a pool of GPUs cost, and was used for; all its dops together.

    Attributes:
        name: the service.
        uses: actions that had a seat on it.
        restores: how often it was restored.
        restore_s: seconds that these took, in all.
        hit_share: share of the uses for which it did not have to be restored; None without a use.
        evictions: how often it was evicted.
        failures: restores that failed.
        losses: how often it has died.
    """

    name: str
    uses: int
    restores: int
    restore_s: float
    hit_share: float | None
    evictions: int
    failures: int
    losses: int


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a run.

    Attributes:
        elapsed_s: the observed time, from the first event (or the opening) to the last (or now).
        actions: one entry per action name, those with the largest sum of completion times first.
        total: all of them together.
        admitted_act_mean_s: mean completion time, where a trajectory's wait for admission counts to the first
            of its actions that ends.
        admitted_act_p99_s: the 99th percentile of the same, within 1 %.
        dimensions: one entry per dimension.
        trajectories: how trajectories were admitted.
        holding: calls that have not returned their units yet.
        refused: why the policy was not asked any more from some time on, with that time; None if it always was.
        refused_share: the same of the policy by which running actions share cores.
        pauses: how often the runtime was paused.
        paused_s: for how long, in all.
        services: one entry per service of a pool of GPUs that was used.
    """

    elapsed_s: float
    actions: tuple[ActionFigures, ...]
    total: ActionFigures
    admitted_act_mean_s: float | None
    admitted_act_p99_s: float | None
    dimensions: tuple[DimensionFigures, ...]
    trajectories: TrajectoryFigures
    holding: int
    refused: str | None = None
    refused_share: str | None = None
    pauses: int = 0
    paused_s: float = 0.0
    services: tuple[ServiceFigures, ...] = ()
