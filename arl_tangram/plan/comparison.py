"""What a recorded run needs under a policy and under the baselines, for the same ACT and step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.topology import Topology
from arl_tangram.plan.goal import Goal, Runs, Taken
from arl_tangram.plan.in_flight import InFlight, in_flight
from arl_tangram.plan.needs import Need, Planner
from arl_tangram.plan.resources import CORES, resources_of
from arl_tangram.progress import Tell
from arl_tangram.replay.calls import calls_of
from arl_tangram.replay.variants import Variant
from arl_tangram.scheduling.policies import elastic, fixed, reserved
from arl_tangram.scheduling.policy import Policy
from arl_tangram.simulate.calls import Workload


@dataclass(frozen=True, slots=True)
class Kept:
    """What is to be kept, as multiples of what the recorded run takes in the replay; from 1.

    Attributes:
        act: of the mean ACT with admission, or None.
        step: of the step, or None.
    """

    act: float | None = 1.1
    step: float | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a way to reserve or fix cores needs.

    Attributes:
        name: `reserved` or `fixed`.
        cores: for each policy, by its name, how many cores it needs; None if no number is enough.
        need: what the one with the fewest needs of everything; None if there is none.
    """

    name: str
    cores: tuple[tuple[str, float | None], ...]
    need: Need | None


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """How much of each resource is needed.

    Attributes:
        recorded: what there was to share.
        was: what the recorded run takes there under the default policy.
        goal: what is to be kept of that.
        need: what the policy needs.
        baselines: what others need for the same.
        in_flight: how many rollouts are worth having at once, on what is needed.
    """

    recorded: Topology
    was: Taken
    goal: Goal
    need: Need
    baselines: tuple[Baseline, ...]
    in_flight: InFlight


def capacity_plan(
    workload: Workload,
    recorded: Topology,
    variant: Variant,
    kept: Kept,
    *,
    host: int = 0,
    tell: Tell = lambda _text, _done, _of: None,
) -> CapacityPlan:
    """Return how much of each resource keeps what a recorded run had.

    Args:
        workload: what happened.
        recorded: what there was to share.
        variant: under which policy the run is to go.
        kept: what is to be kept of it.
        host: the number of the node where what is outside of sandboxes runs, if there are several.
        tell: hears how it goes on.

    Raises:
        InfeasibleError: a call or trajectory that the recorded pools can never meet.
        ConfigurationError: the run uses nothing that can be set, or no number of cores keeps it under the policy.
    """
    resources = resources_of(recorded, workload)
    if not resources:
        raise ConfigurationError("the recording uses no cores, memory or quotas: there is nothing to plan")
    runs = Runs(workload, host)
    was = runs.possible(recorded, Variant(elastic()))
    goal = Goal(
        math.inf if kept.act is None else kept.act * was.act_s,
        math.inf if kept.step is None else kept.step * was.step_s,
        was.failed,
    )
    families = _families(workload) if resources[0].name == CORES else []
    # Each policy: its resources one by one, then all together. And last, what is in flight.
    stages = (len(families) + 1) * len(resources) + sum(len(policies) for _, policies in families) + 2
    counted = count()
    planner = Planner(runs, recorded, resources, goal, lambda text: tell(text, next(counted), stages))
    first = planner.first(variant)
    if first is None:
        raise ConfigurationError(f"{variant.name} does not keep that with any number of cores")
    need = planner.need(first)
    baselines = tuple(_baseline(planner, name, policies) for name, policies in families)
    planner.tell(f"{variant.name}: rollouts in flight")
    return CapacityPlan(recorded, was, goal, need, baselines, in_flight(workload, need.together, variant, host=host))


def _families(workload: Workload) -> list[tuple[str, list[Policy]]]:
    """Return the policies of each baseline; without trajectories, nothing can be reserved for one."""
    numbers = _numbers(workload)
    found: list[tuple[str, list[Policy]]] = [("reserved", [reserved(k) for k in numbers])] if workload.rollouts else []
    return [*found, ("fixed", [fixed(k) for k in numbers])]


def _baseline(planner: Planner, name: str, policies: Sequence[Policy]) -> Baseline:
    """Return what the policy needs that suits the baseline best: the one that needs the fewest cores."""
    found = [planner.first(Variant(policy)) for policy in policies]
    cores = tuple(
        (policy.name, None if first is None else first.alone.amount)
        for policy, first in zip(policies, found, strict=True)
    )
    enough = [first for first in found if first is not None]
    best = min(enough, key=lambda first: first.alone.amount, default=None)
    return Baseline(name, cores, None if best is None else planner.need(best))


def _numbers(workload: Workload) -> list[int]:
    """Return the numbers of cores to try: powers of two up to the most that a call can use, and these."""
    most = 1
    for _, call in calls_of(workload):
        cpu = call.spec.cost.cpu
        most = max(most, cpu.maximum if isinstance(cpu, Elastic) else -(-cpu // MILLI))
    return sorted({most, *(1 << power for power in range(most.bit_length()))})
