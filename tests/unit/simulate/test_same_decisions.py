"""The runtime on an event loop and the engine take the same decisions on the same inputs, event for event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arl_tangram.model.events import ActionStarted, Event, TrajectoryOpened
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies import Group, Plan, Policy, fixed, paper, reserved
from arl_tangram.scheduling.policies.elastic import elastic
from arl_tangram.simulate.calls import Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.workloads import Coding, Kinds, Mix, coding_rollouts, kinds_of_calls, open_calls
from unit.simulate.drawn import CORES, MEMORY_GIB, SEARCH, draw_workload, pools
from unit.simulate.in_runtime import run_in_runtime


def most_for_the_first(group: Group) -> Sequence[int]:
    """A policy of a user's own."""
    return [max(units for units in group.candidates[0].units if units <= group.free)]


POLICIES: list[Policy | Plan] = [elastic(), fixed(2), paper(), paper(best_prefix=True), reserved(1), most_for_the_first]
NAMES = ["elastic", "fixed", "paper", "best_prefix", "reserved", "own"]
ORDERS: list[Order] = ["fcfs", "shortest", "trajectory"]


def both(workload: Workload, policy: Policy | Plan, order: Order) -> tuple[list[Event], list[Event]]:
    runtime = run_in_runtime(workload, policy, cores=CORES, memory_gib=MEMORY_GIB, quotas=[SEARCH], order=order)
    engine = simulate(workload, pools(CORES, MEMORY_GIB, SEARCH), policy, order=order, record=True)
    return runtime, list(engine.events)


WORKLOADS = {
    "steady": open_calls(Mix(150, load=0.9, elastic=1.0, cores=CORES), seed=1),
    "bursts": open_calls(Mix(160, load=0.7, burst=20, elastic=0.5, cores=CORES), seed=2),
    "overload": kinds_of_calls(Mix(160, load=1.5, burst=4, elastic=0.5, cores=CORES), Kinds(), seed=3),
    "coding": coding_rollouts(Coding(rollouts=16, turns=4, memory_gib=1, suite_s=20), seed=4),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", POLICIES, ids=NAMES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_same_decisions_on_generated_workloads(name: str, policy: Policy | Plan, order: Order) -> None:
    runtime, engine = both(WORKLOADS[name], policy, order)
    assert runtime == engine
    assert sum(isinstance(event, ActionStarted) for event in engine) >= 60


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), policy=st.sampled_from(POLICIES), order=st.sampled_from(ORDERS))
def test_the_same_decisions_on_any_workload(seed: int, policy: Policy | Plan, order: Order) -> None:
    runtime, engine = both(draw_workload(seed), policy, order)
    assert runtime == engine


def test_what_is_compared_is_all_of_it() -> None:
    """Whole events are equal: ids, times, units, what was expected and so what was learned; and they do differ."""
    _, engine = both(draw_workload(5), paper(best_prefix=True), "fcfs")
    kinds = Counter(type(event).__name__ for event in engine)
    assert kinds.keys() >= {"ActionSubmitted", "ActionStarted", "UnitsReturned", "TrajectoryOpened", "TrajectoryClosed"}
    starts = [event.action for event in engine if isinstance(event, ActionStarted)]
    assert len({start.units for start in starts}) >= 4
    assert any(start.started_at_s > start.pending.submitted_at_s for start in starts)
    assert any(event.waited_s > 0 for event in engine if isinstance(event, TrajectoryOpened))
    assert both(draw_workload(5), fixed(2), "fcfs")[1] != engine
    assert both(draw_workload(5), paper(best_prefix=True), "shortest")[1] != engine
