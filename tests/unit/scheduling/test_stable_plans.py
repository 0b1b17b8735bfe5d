"""One estimator and one plan: the same state is planned the same way, and nobody's units change without need."""

from __future__ import annotations

import pytest

from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.lifecycle import PendingAction
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.policies import Policy, elastic, fixed, paper
from property.worlds import make_demand, make_topology


def busy_core(policy: Policy) -> SchedulerCore:
    """Return a core that has learned from some runs, with twenty actions that wait for eight cores."""
    topology = make_topology(cores=8)
    core = SchedulerCore(topology, policy)
    demands = [make_demand(topology, f"m:f{kind}", cpu=Elastic(1, 8)) for kind in range(3)]
    for number in range(1, 31):
        core.submit(PendingAction(number, demands[number % 3], 0.0, key="xyz"[number % 3]))
        for running in core.decide(float(number)).started:
            core.finish(running.pending.id, number + 0.5, 1.0 + number % 3)
    for number in range(31, 51):
        core.submit(PendingAction(number, demands[number % 3], 40.0, key="xyz"[number % 3]))
    return core


def decided(core: SchedulerCore) -> list[tuple[int, int, float]]:
    """Return who starts at one moment, with how many units and for how long, as far as is expected."""
    started: list[tuple[int, int, float]] = []
    more = True
    while more:
        decisions = core.decide(40.0)
        started += [(running.pending.id, running.units, running.expected_s) for running in decisions.started]
        more = decisions.more
    return started


@pytest.mark.parametrize("policy", [elastic(), paper(), paper(best_prefix=True), fixed(2)], ids=lambda p: p.name)
def test_case_60_the_same_state_is_planned_the_same_way_once(policy: Policy) -> None:
    plans = [decided(busy_core(policy)) for _ in range(100)]
    assert plans[0]
    assert all(plan == plans[0] for plan in plans)
    core = busy_core(policy)
    started = decided(core)
    assert not [one for _ in range(100) for one in decided(core)], "without an event, nothing is decided again"
    core.finish(started[0][0], 41.0, 1.0)
    again = [running.pending.id for running in core.decide(41.0).started]
    assert not set(again) & {action_id for action_id, _, _ in started}, "who runs keeps what it has"
