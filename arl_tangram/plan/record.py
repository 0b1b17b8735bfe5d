"""All that a plan found, for a program."""

from __future__ import annotations

import math
from collections.abc import Mapping

from arl_tangram.model.topology import Topology
from arl_tangram.plan import settings
from arl_tangram.plan.comparison import Baseline, CapacityPlan
from arl_tangram.plan.goal import Taken
from arl_tangram.plan.needs import Alone, Need
from arl_tangram.plan.show import saved
from arl_tangram.replay.source import Source


def record_of(source: Source, plan: CapacityPlan) -> dict[str, object]:
    """Return the figures as JSON has them; amounts in the units that their names tell, times in seconds."""
    resources = [one.resource for one in plan.need.alone]
    was = _amounts(plan.need, plan.recorded)
    needed = _amounts(plan.need, plan.need.together)
    return {
        "notes": source.notes,
        "recorded": {"resources": was, **_taken(plan.was)},
        "goal": {
            "act_s": None if math.isinf(plan.goal.act_s) else plan.goal.act_s,
            "step_s": None if math.isinf(plan.goal.step_s) else plan.goal.step_s,
        },
        "plan": {**_need(plan.need), "saved": _saved(needed, was)},
        "baselines": [_baseline(baseline, needed) for baseline in plan.baselines],
        "settings": list(settings.pools(plan.need.together, resources)),
        "in_flight": {
            "rollouts": plan.in_flight.enough,
            "calls": plan.in_flight.calls,
            "calls_of_rollout": plan.in_flight.calls_of_rollout,
            "tried": [run._asdict() for run in plan.in_flight.tried],
        },
    }


def _amounts(need: Need, topology: Topology) -> dict[str, float]:
    return {one.resource.name: one.resource.amount(topology) for one in need.alone}


def _saved(needed: Mapping[str, float], there: Mapping[str, float]) -> dict[str, float]:
    return {name: saved(amount, there[name]) for name, amount in needed.items()}


def _need(need: Need) -> dict[str, object]:
    return {
        "variant": need.variant.name,
        "resources": _amounts(need, need.together),
        **_taken(need.taken),
        "enlarged": need.enlarged,
        "alone": [_alone(one) for one in need.alone],
    }


def _alone(alone: Alone) -> dict[str, object]:
    tried = [{"amount": amount, **({} if run is None else _taken(run))} for amount, run in alone.tried]
    return {"name": alone.resource.name, "amount": alone.amount, "tried": tried}


def _baseline(baseline: Baseline, needed: Mapping[str, float]) -> dict[str, object]:
    need = baseline.need
    return {
        "name": baseline.name,
        "cores": dict(baseline.cores),
        "need": None if need is None else _need(need),
        "saved": None if need is None else _saved(needed, _amounts(need, need.together)),
    }


def _taken(run: Taken) -> dict[str, object]:
    return run._asdict()
