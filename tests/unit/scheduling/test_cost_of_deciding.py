"""`decide` costs what changed, not what waits: counted in executed lines and calls, which no slow machine changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.lifecycle import PendingAction
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.policies import Policy, fixed, paper
from property.worlds import make_demand, make_topology

TOPOLOGY = make_topology(cores=4, calls=1000, period_s=1e6)


def steps_of(work: Callable[[], object]) -> int:
    """Return how many lines of Python some work executes, plus its calls of Python and of C functions."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile(), sys.gettrace()
    sys.setprofile(profile)
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before[1])
        sys.setprofile(before[0])
    return count


def full_core(policy: Policy, waiting: int) -> SchedulerCore:
    """Return a core whose cores and calls are taken, with so many others waiting."""
    core = SchedulerCore(TOPOLOGY, policy)
    kinds = [
        make_demand(TOPOLOGY, "elastic", cpu=Elastic(1, 4)),
        make_demand(TOPOLOGY, "fraction", cpu=0.5),
        make_demand(TOPOLOGY, "call", search=1, priority=1),
        make_demand(TOPOLOGY, "both", cpu=1, search=2, queue_timeout=1e9),
        make_demand(TOPOLOGY, "memory", memory_gib=16),
    ]
    for i in range(1, 5):
        core.submit(PendingAction(i, make_demand(TOPOLOGY, "whole", cpu=1), 0.0))
    for i in range(5, 8):
        core.submit(PendingAction(i, make_demand(TOPOLOGY, "call", search=1), 0.0))
    core.submit(PendingAction(8, kinds[-1], 0.0))
    core.decide(0.0)
    for i in range(waiting):
        core.submit(PendingAction(100 + i, kinds[i % len(kinds)], 0.0))
    core.decide(0.0)
    return core


@pytest.mark.parametrize("policy", [paper(), paper(best_prefix=True), fixed(2)], ids=lambda p: p.name)
def test_a_decision_costs_the_same_with_a_thousand_and_a_hundred_thousand_waiting(policy: Policy) -> None:
    costs = {}
    for waiting in (1_000, 100_000):
        core = full_core(policy, waiting)

        def turn(core: SchedulerCore = core) -> None:
            core.finish(1, 1.0, 1.0)
            core.decide(1.0)
            core.next_wakeup_s()

        costs[waiting] = steps_of(turn)
    assert abs(costs[100_000] - costs[1_000]) <= 20
    assert costs[1_000] < 15_000


@pytest.mark.parametrize("waiting", [1_000, 100_000])
def test_withdrawing_costs_the_same_whoever_waits(waiting: int) -> None:
    core = full_core(paper(), waiting)
    ids = range(100 + waiting // 2, 100 + waiting // 2 + 50)
    assert steps_of(lambda: [core.withdraw(i) for i in ids]) < 50 * 60


def test_a_turn_that_comes_to_an_early_action_costs_little_however_many_came_later() -> None:
    """Its place is found by halving, not by walking past all who came later."""
    costs = {}
    for waiting in (1_000, 100_000):
        core = SchedulerCore(TOPOLOGY, paper())
        core.open(PendingAction(1, make_demand(TOPOLOGY, "held"), 0.0))
        core.decide(0.0)
        whole = make_demand(TOPOLOGY, "whole", cpu=4)
        for i in (2, 3):
            core.submit(PendingAction(i, whole, 0.0, trajectory=1, turn=True))
        core.decide(0.0)
        for i in range(waiting):
            core.submit(PendingAction(100 + i, whole, 0.0, trajectory=1))
        costs[waiting] = steps_of(lambda core=core: core.finish(2, 1.0, 1.0))  # type: ignore[misc]
        (running,) = core.decide(1.0).started
        assert running.pending.id == 3
    assert costs[100_000] <= costs[1_000] + 20
