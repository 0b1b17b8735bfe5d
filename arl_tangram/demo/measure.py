"""From the events of a run to its figures; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from arl_tangram.model.events import (
    ActionEnded,
    ActionResized,
    ActionStarted,
    Event,
    TrajectoryClosed,
    TrajectoryOpened,
    UnitsReturned,
)
from arl_tangram.model.lifecycle import FinishedAction


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run, in seconds and core-seconds.

    Attributes:
        calls: actions that ended.
        mean_act_s: mean action completion time.
        p99_act_s: its 99th percentile.
        mean_act_admission_s: the same, with a trajectory's wait for admission counted into its first action.
        p99_act_admission_s: its 99th percentile.
        mean_queueing_s: mean queueing.
        mean_execution_s: mean execution.
        mean_overhead_s: mean overhead.
        mean_admission_s: mean wait of a trajectory for its admission.
        step_s: from the start until the last trajectory ended.
        held_core_s: core-seconds held: by trajectories where cores are reserved, else by running actions.
        used_core_s: CPU seconds of the commands.
        overhead_share: overhead / (execution + overhead), a ratio of sums.
        switches: how often cores of running actions were changed, down to none and back included.
        mean_suspended_s: mean of what actions were suspended for.
    """

    calls: int
    mean_act_s: float
    p99_act_s: float
    mean_act_admission_s: float
    p99_act_admission_s: float
    mean_queueing_s: float
    mean_execution_s: float
    mean_overhead_s: float
    mean_admission_s: float
    step_s: float
    held_core_s: float
    used_core_s: float
    overhead_share: float
    switches: int = 0
    mean_suspended_s: float = 0.0


def figures_of(events: Iterable[Event], step_s: float) -> Figures:
    """Return the figures of a run that took `step_s` and ended all its actions.

    Raises:
        ValueError: no action has ended.
    """
    recorded = list(events)
    ended = [event.action for event in recorded if isinstance(event, ActionEnded)]
    opened = [event for event in recorded if isinstance(event, TrajectoryOpened)]
    if not ended:
        raise ValueError("no action has ended: there is nothing to measure")
    acts = [action.act_s for action in ended]
    with_admission = _acts_with_admission(ended, {event.id: event.waited_s for event in opened})
    execution_s = sum(action.execution_s for action in ended)
    overhead_s = sum(action.overhead_s for action in ended)
    return Figures(
        calls=len(ended),
        mean_act_s=_mean(acts),
        p99_act_s=_p99(acts),
        mean_act_admission_s=_mean(with_admission),
        p99_act_admission_s=_p99(with_admission),
        mean_queueing_s=_mean([action.queueing_s for action in ended]),
        mean_execution_s=execution_s / len(ended),
        mean_overhead_s=overhead_s / len(ended),
        mean_admission_s=_mean([event.waited_s for event in opened]),
        step_s=step_s,
        held_core_s=_held_by_trajectories(recorded) + _held_by_actions(recorded),
        used_core_s=sum(action.cpu_s for action in ended),
        overhead_share=overhead_s / (execution_s + overhead_s),
        switches=sum(action.switches for action in ended),
        mean_suspended_s=sum(action.suspended_s for action in ended) / len(ended),
    )


def _acts_with_admission(ended: Sequence[FinishedAction], waited_s: dict[int, float]) -> list[float]:
    first: dict[int, int] = {}
    for action in ended:
        if action.trajectory is not None:
            first.setdefault(action.trajectory, action.id)
    admissions = {first[trajectory]: wait for trajectory, wait in waited_s.items() if trajectory in first}
    return [action.act_s + admissions.get(action.id, 0.0) for action in ended]


def _held_by_trajectories(events: Iterable[Event]) -> float:
    held, reserved = 0.0, dict[int, tuple[float, float]]()
    for event in events:
        if isinstance(event, TrajectoryOpened):
            reserved[event.id] = (event.at_s, _cores(event))
        elif isinstance(event, TrajectoryClosed):
            since_s, cores = reserved.pop(event.id)
            held += cores * (event.at_s - since_s)
    return held


def _held_by_actions(events: Sequence[Event]) -> float:
    """Sum from the promise of the units to their return, leaving out what runs on a reservation."""
    held, running = 0.0, dict[int, tuple[float, float]]()
    cores = {event.action.id: event.action.cores for event in events if isinstance(event, ActionEnded)}
    for event in events:
        if isinstance(event, ActionStarted):
            action = event.action
            if not action.pending.demand.reserved:
                running[action.pending.id] = (action.started_at_s, cores.get(action.pending.id, 0.0))
        elif isinstance(event, UnitsReturned | ActionResized) and event.id in running:
            since_s, had = running.pop(event.id)
            held += had * (event.at_s - since_s)
            if isinstance(event, ActionResized):
                running[event.id] = (event.at_s, event.units / 1000)
    return held


def _cores(event: TrajectoryOpened) -> float:
    return event.reserved / 1000


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _p99(values: Sequence[float]) -> float:
    return float(np.percentile(values, 99))


@dataclass(frozen=True, slots=True)
class Ratios:
    """How many times lower the scheduler's figures are than the better baseline's, figure by figure.

    Attributes:
        step: of the step time.
        act_admission: of the mean ACT with the wait for admission.
        act: of the mean ACT without it.
        held: of the core-seconds held.
    """

    step: float
    act_admission: float
    act: float
    held: float


def ratios_of(baselines: Sequence[Figures], scheduler: Figures) -> Ratios:
    """Compare with the better of the baselines (at least one) in each figure."""
    return Ratios(
        step=min(b.step_s for b in baselines) / scheduler.step_s,
        act_admission=min(b.mean_act_admission_s for b in baselines) / scheduler.mean_act_admission_s,
        act=min(b.mean_act_s for b in baselines) / scheduler.mean_act_s,
        held=min(b.held_core_s for b in baselines) / scheduler.held_core_s,
    )
