"""Run a batch of coding trajectories on a cluster in virtual time, under one scheduler or one for each group of nodes.

A trajectory goes to a group when it begins, at random or to the one with the fewest for its nodes, and stays there. The
clock is the CPU time of this thread, around each call of `decide`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from arl_tangram.model.sharing import Sharing
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.decisions import Decisions
from arl_tangram.scheduling.policies import elastic, size_aware
from arl_tangram.simulate.calls import Rollout, Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.results import SimulatedCall
from arl_tangram.simulate.workloads import CODING_BATCH, Testbed, coding_rollouts

SWITCH_S = 0.0002
"""What a change of the cores of a running action costs where its cgroup is written directly, generously."""

Assign = Literal["random", "fewest"]


@dataclass(frozen=True, slots=True)
class Cluster:
    """One case.

    Attributes:
        nodes: how many, alike.
        cores: of each of them.
        rollouts: trajectories, all begun at once.
        turns: commands of a trajectory, median.
        groups: of nodes, each with a scheduler of its own.
        assign: who goes to which of them.
        seed: of what is drawn.
    """

    nodes: int
    cores: int
    rollouts: int
    turns: float
    groups: int = 1
    assign: Assign = "fewest"
    seed: int = 1

    @property
    def name(self) -> str:
        """How the table calls it."""
        by = "" if self.groups == 1 else f", {self.assign}"
        return f"{self.rollouts:,} on {self.nodes} x {self.cores}: {self.groups} scheduler{'s' * (self.groups > 1)}{by}"


@dataclass(frozen=True, slots=True)
class Figures:
    """What one case took.

    Attributes:
        cluster: the case.
        calls: how many were made.
        act_s: their mean completion time.
        step_s: virtual seconds until the last has ended.
        decisions: calls of `decide`, of all schedulers.
        busiest_s: CPU seconds that the busiest scheduler decided for.
        median_s: CPU seconds of a decision, median.
        p99_s: what one decision in a hundred takes longer than.
        longest_s: the longest decision.
    """

    cluster: Cluster
    calls: int
    act_s: float
    step_s: float
    decisions: int
    busiest_s: float
    median_s: float
    p99_s: float
    longest_s: float

    @property
    def busy(self) -> float:
        """The share of a processor that the busiest scheduler has need of while the step goes on."""
        return self.busiest_s / self.step_s


class _TimedCore(SchedulerCore):
    """A scheduler that appends to a list how long it decided, each time; further arguments are those of any other."""

    def __init__(self, decided_s: list[float], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._decided_s = decided_s

    def decide(self, now_s: float) -> Decisions:
        """Decide, and take the time."""
        began_s = time.thread_time()
        decisions = super().decide(now_s)
        self._decided_s.append(time.thread_time() - began_s)
        return decisions


def run_cluster(cluster: Cluster) -> Figures:
    """Run one case."""
    batch = replace(CODING_BATCH, rollouts=cluster.rollouts, turns=cluster.turns)
    rollouts = coding_rollouts(batch, cluster.seed).rollouts
    calls: list[SimulatedCall] = []
    decided_s: list[list[float]] = []
    step_s = 0.0
    for group, members in enumerate(_groups(cluster, rollouts)):
        nodes = len(range(group, cluster.nodes, cluster.groups))
        found, taken_s = _run(members, Topology(Testbed(nodes=nodes, cores=cluster.cores).dimensions()))
        decided_s.append(taken_s)
        calls += found
        step_s = max(step_s, *(call.ended_at_s for call in found))
    of_all = np.array([taken_s for times in decided_s for taken_s in times])
    return Figures(
        cluster,
        len(calls),
        float(np.mean([call.act_s for call in calls])),
        step_s,
        len(of_all),
        max(sum(times) for times in decided_s),
        float(np.median(of_all)),
        float(np.percentile(of_all, 99)),
        float(of_all.max()),
    )


def _run(rollouts: Sequence[Rollout], topology: Topology) -> tuple[Sequence[SimulatedCall], list[float]]:
    decided_s: list[float] = []
    workload = Workload(rollouts=tuple(rollouts))
    sharing = Sharing(size_aware(), SWITCH_S)
    result = simulate(workload, topology, elastic(), sharing=sharing, core=partial(_TimedCore, decided_s))
    return result.calls, decided_s


def _groups(cluster: Cluster, rollouts: Sequence[Rollout]) -> list[list[Rollout]]:
    """Return who goes where, in order; groups have as many nodes as others, or one more."""
    groups: list[list[Rollout]] = [[] for _ in range(cluster.groups)]
    if cluster.assign == "random":
        nodes = np.random.default_rng(cluster.seed).integers(cluster.nodes, size=len(rollouts))
    else:
        nodes = np.arange(len(rollouts)) % cluster.nodes
    for node, rollout in zip(nodes.tolist(), rollouts, strict=True):
        groups[node % cluster.groups].append(rollout)
    return groups
