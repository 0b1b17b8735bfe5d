"""The workloads of `bench schedule --resize`, and what the contenders take for them.

They are those of the grid, except that each call is made in a sandbox of its own, where its cores can be taken and
given while it runs, and that an elastic one may have more or fewer of them then. To a contender that makes no use of
it, this is all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from arl_tangram.bench.schedule.grid import CORES, DOPS, ELASTIC, FIXED, Table, Task, workload_of
from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.sharing import SharePolicy, Sharing
from arl_tangram.scheduling.policies import Policy, equal_shares, fixed, least_attained, size_aware
from arl_tangram.scheduling.policies.elastic import elastic
from arl_tangram.simulate.calls import Rollout, Turn, Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.workloads import pool

SWITCH_S = 0.0002
"""What a change of the cores of a running action costs where its cgroup is written directly, generously."""

EQUAL = "equal_shares"
ATTAINED = "least_attained"
SIZE_AWARE = "size_aware"
SHARING: Mapping[str, SharePolicy] = {EQUAL: equal_shares(), ATTAINED: least_attained(), SIZE_AWARE: size_aware()}

LEARNED_SHARING = (EQUAL, SIZE_AWARE)
"""Least attained service learns nothing but speed-ups, and is by far the slowest to simulate."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Action completion times of one run, in seconds: their mean, and the one that one call in a hundred exceeds."""

    act_s: float
    act_p99_s: float


@dataclass(frozen=True, slots=True)
class ResizeOutcome:
    """What the contenders of a task took, by name."""

    task: Task
    figures: Mapping[str, Figures]


def run_resize_task(task: Task) -> ResizeOutcome:
    """Run the contenders of a task: all where the durations are known, and fewer where everything is learned."""
    found = {ELASTIC: run_contender(task, elastic())}
    shared: Iterable[str] = LEARNED_SHARING
    if task.table is Table.KNOWN:
        found |= {name: run_contender(task, fixed(dop)) for name, dop in zip(FIXED, DOPS, strict=True)}
        shared = SHARING
    found |= {name: run_contender(task, elastic(), SHARING[name]) for name in shared}
    return ResizeOutcome(task, found)


def run_contender(task: Task, policy: Policy, sharing: SharePolicy | None = None) -> Figures:
    """Return what one contender takes for the calls of a task."""
    known = task.table is Table.KNOWN
    workload = in_sandboxes(workload_of(task))
    shared = None if sharing is None else Sharing(sharing, SWITCH_S)
    result = simulate(workload, pool(CORES), policy, known=known, sharing=shared)
    return Figures(result.mean_act_s, result.p99_act_s)


def in_sandboxes(workload: Workload) -> Workload:
    """Return the same calls at the same times, each in a trajectory of its own, the elastic ones resizable."""
    specs: dict[int, ActionSpec] = {}
    rollouts: list[Rollout] = []
    for arrival in workload.arrivals:
        call = arrival.call
        spec = specs.setdefault(id(call.spec), _resizable(call.spec))
        rollouts.append(Rollout((Turn(0.0, (replace(call, spec=spec),)),), arrival.at_s))
    return Workload(rollouts=tuple(rollouts))


def _resizable(spec: ActionSpec) -> ActionSpec:
    cpu = spec.cost.cpu
    if not isinstance(cpu, Elastic):
        return spec
    return replace(spec, cost=replace(spec.cost, cpu=Elastic.of(*cpu.options, speedup=cpu.speedup, resizable=True)))
