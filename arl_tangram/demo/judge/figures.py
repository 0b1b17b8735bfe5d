"""From the events and times of a run of `demo --judge` to its figures; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from arl_tangram.model.events import ActionEnded, ActionStarted, Event, ServiceEvicted, ServiceRestored
from arl_tangram.model.lifecycle import FinishedAction
from arl_tangram.trace.swaps import Swaps


@dataclass(frozen=True, slots=True)
class JudgedFigures:
    """The figures of one run, in seconds.

    Attributes:
        step_s: from the start until the last trajectory ended.
        calls: actions that ended.
        mean_act_s: mean action completion time, as the trajectories saw it.
        p99_act_s: its 99th percentile.
        scores: actions that used a service.
        mean_score_s: mean action completion time of these.
        p99_score_s: its 99th percentile.
        execution_s: of these, execution, mean.
        swaps: how often a service was restored.
        evictions: how often one was evicted.
        restore_s: seconds that restores took, in all.
        hit_share: share of the actions with a service that did not have it restored.
        overhead_share: overhead / (execution + overhead) over all actions, a ratio of sums.
        score_overhead_share: the same over those that used a service.
    """

    step_s: float
    calls: int
    mean_act_s: float
    p99_act_s: float
    scores: int
    mean_score_s: float
    p99_score_s: float
    execution_s: float
    swaps: int
    evictions: int
    restore_s: float
    hit_share: float
    overhead_share: float
    score_overhead_share: float


def figures_of(
    traces: Iterable[Iterable[Event]],
    *,
    step_s: float,
    tools_s: Sequence[float],
    scores_s: Sequence[float],
    scoring: Collection[str],
) -> JudgedFigures:
    """Return the figures of a run.

    Args:
        traces: the events of each of its runtimes.
        step_s: how long it took.
        tools_s: how long each call of a tool took.
        scores_s: how long each score took; at least one.
        scoring: the names of the actions that use a service.
    """
    swaps = Swaps()
    ended: list[FinishedAction] = []
    for event in (event for trace in traces for event in trace):
        if isinstance(event, ActionEnded):
            ended.append(event.action)
        elif isinstance(event, ActionStarted):
            swaps.started(event)
        elif isinstance(event, ServiceRestored):
            swaps.restored(event)
        elif isinstance(event, ServiceEvicted):
            swaps.evicted(event)
    services = swaps.figures()
    scores = [action for action in ended if action.name in scoring]
    acts_s = [*tools_s, *scores_s]
    hits = sum((service.hit_share or 0.0) * service.uses for service in services)
    return JudgedFigures(
        step_s=step_s,
        calls=len(ended),
        mean_act_s=float(np.mean(acts_s)),
        p99_act_s=float(np.percentile(acts_s, 99)),
        scores=len(scores),
        mean_score_s=float(np.mean(scores_s)),
        p99_score_s=float(np.percentile(scores_s, 99)),
        execution_s=float(np.mean([action.execution_s for action in scores])),
        swaps=sum(service.restores for service in services),
        evictions=sum(service.evictions for service in services),
        restore_s=sum(service.restore_s for service in services),
        hit_share=hits / sum(service.uses for service in services),
        overhead_share=_overhead_share(ended),
        score_overhead_share=_overhead_share(scores),
    )


def _overhead_share(actions: Sequence[FinishedAction]) -> float:
    overhead_s = sum(action.overhead_s for action in actions)
    return overhead_s / (overhead_s + sum(action.execution_s for action in actions))
