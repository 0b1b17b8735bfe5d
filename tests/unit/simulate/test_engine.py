"""Scenarios that can be worked out by hand, and what holds of every run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arl_tangram.errors import ConfigurationError, InfeasibleError
from arl_tangram.managers.quota import Quota
from arl_tangram.model.cost import declare_cost
from arl_tangram.model.elasticity import Elastic, Linear, Measured, PowerLaw, Speedup
from arl_tangram.model.events import (
    ActionStarted,
    ActionSubmitted,
    TrajectoryClosed,
    TrajectoryOpened,
    UnitsReturned,
)
from arl_tangram.model.lifecycle import ActionSpec, BodyKind, Outcome
from arl_tangram.model.quantities import GIB
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.policies import Group, Policy, fixed, paper, reserved
from arl_tangram.scheduling.policies.elastic import elastic
from arl_tangram.simulate.calls import Arrival, Call, Rollout, Turn, Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.results import Result
from property.worlds import make_nodes
from unit.simulate.drawn import CORES, MEMORY_GIB, SEARCH, draw_workload, pools


def spec(
    name: str = "act", *, cpu: float | Elastic = 1, quota: dict[str, float] | None = None, **more: object
) -> ActionSpec:
    return ActionSpec(name, declare_cost(name, cpu=cpu, quota=quota), **more)  # type: ignore[arg-type]


ONE = spec("one")
URGENT = spec("urgent", priority=-1)
ELASTIC = spec("elastic", cpu=Elastic.of(1, 2, 4))


def call(work_s: float, of: ActionSpec = ONE, speedup: Speedup | None = None) -> Call:
    return Call(of, work_s, speedup)


def arriving(*calls: tuple[float, Call]) -> Workload:
    return Workload(tuple(Arrival(at_s, one) for at_s, one in calls))


def rolling(*rollouts: Rollout) -> Workload:
    return Workload(rollouts=rollouts)


def spans(result: Result) -> list[tuple[float, float]]:
    return [(one.started_at_s, one.ended_at_s) for one in result.calls]


# Calls that arrive by themselves.


def test_calls_that_do_not_fit_wait_in_order() -> None:
    result = simulate(arriving((0, call(2)), (0, call(3)), (1, call(1))), pools(1), fixed(1))
    assert spans(result) == [(0, 2), (2, 5), (5, 6)]
    assert [one.act_s for one in result.calls] == [2, 5, 5]
    assert [one.queueing_s for one in result.calls] == [0, 2, 4]
    assert [one.execution_s for one in result.calls] == [2, 3, 1]
    assert result.step_s == 6


def test_a_call_takes_as_long_as_its_units_let_it() -> None:
    workload = arriving((0, call(8, ELASTIC, Linear())), (0, call(8, ELASTIC, Measured({1: 1, 2: 1.6, 4: 2}))))
    assert spans(simulate(workload, pools(4), fixed(2))) == [(0, 4), (0, 5)]
    assert spans(simulate(workload, pools(4), fixed(4))) == [(0, 2), (2, 6)]
    assert [one.units for one in simulate(workload, pools(4), fixed(4)).calls] == [4000, 4000]


def test_more_cores_than_it_declares_do_not_help() -> None:
    rollout = Rollout((Turn(0, (call(8, ELASTIC, Linear()), call(8, ONE))),))
    result = simulate(rolling(rollout), pools(8), reserved(8))
    assert [one.execution_s for one in result.calls] == [2, 8]
    assert [one.units for one in result.calls] == [8000, 8000]


def test_events_of_one_instant_are_fed_before_the_decision() -> None:
    """At 2 s the core becomes free and somebody urgent arrives: the one who waited longer does not get in between."""
    workload = arriving((0, call(2)), (1, call(1)), (2, call(4, URGENT)))
    assert spans(simulate(workload, pools(1), fixed(1))) == [(0, 2), (6, 7), (2, 6)]


def test_of_one_instant_the_first_in_the_workload_comes_first() -> None:
    workload = Workload(
        (Arrival(1, call(1)), Arrival(0, call(1)), Arrival(0, call(2))), (Rollout((Turn(0, (call(4),)),)),)
    )
    result = simulate(workload, pools(1), fixed(1))
    assert spans(result) == [(0, 1), (1, 3), (3, 7), (7, 8)]
    assert [(one.id, one.rollout) for one in result.calls] == [(1, None), (2, None), (4, 0), (5, None)]


def test_what_a_start_causes_at_the_same_instant_is_seen_at_that_instant() -> None:
    assert spans(simulate(arriving((1, call(0)), (1, call(0)), (1, call(2))), pools(1), fixed(1))) == [
        (1, 1), (1, 1), (1, 3),
    ]  # fmt: skip


def test_a_call_that_waits_too_long_gives_up() -> None:
    impatient = spec("impatient", queue_timeout=1.5)
    result = simulate(arriving((0, call(4)), (1, call(1, impatient)), (2, call(1))), pools(1), fixed(1))
    assert [one.outcome for one in result.calls] == [Outcome.OK, Outcome.QUEUE_TIMEOUT, Outcome.OK]
    assert spans(result) == [(0, 4), (2.5, 2.5), (4, 5)]
    assert (result.calls[1].queueing_s, result.calls[1].act_s, result.calls[1].units) == (1.5, 1.5, 0)


def test_a_call_that_runs_too_long_is_ended_and_teaches_nothing() -> None:
    limited = spec("limited", timeout=2, duration_s=7.0, cpu=Elastic.of(1, 2))
    workload = arriving((0, call(5, limited)), (3, call(2, limited)), (6, call(1, limited)), (9, call(1, limited)))
    result = simulate(workload, pools(1), fixed(1), record=True)
    over = Outcome.RUN_TIMEOUT
    assert [one.outcome for one in result.calls] == [over, over, Outcome.OK, Outcome.OK]
    assert spans(result) == [(0, 2), (3, 5), (6, 7), (9, 10)]
    expected = [event.action.expected_s for event in result.events if isinstance(event, ActionStarted)]
    assert expected[:3] == [7, 7, 7]
    assert expected[3] < 7


def test_units_of_a_rate_return_by_themselves() -> None:
    api = spec("api", cpu=0, quota={"api": 1})
    quota = Quota("api", calls=2, period_s=10)
    result = simulate(arriving(*[(0, call(1, api))] * 5), pools(1, 8, quota), fixed(1))
    assert [one.started_at_s for one in result.calls] == [0, 0, 10, 10, 20]
    assert [one.units for one in result.calls] == [0] * 5


def test_a_plain_function_takes_a_thread_and_a_fraction_of_a_core_its_share() -> None:
    plain = spec("plain", cpu=0.5, kind=BodyKind.THREAD)
    assert spans(simulate(arriving(*[(0, call(3, plain, Linear()))] * 3), pools(1), fixed(1))) == [
        (0, 3), (0, 3), (3, 6),
    ]  # fmt: skip


def test_a_decision_that_is_not_finished_is_gone_on_with_at_once() -> None:
    result = simulate(arriving(*[(0, call(1, spec(cpu=0.001)))] * 2000), pools(4), fixed(1))
    assert {one.started_at_s for one in result.calls} == {0}
    assert result.decisions > 2


# Rollouts.


def test_a_rollout_thinks_calls_and_closes() -> None:
    rollout = Rollout((Turn(1, (call(2),)), Turn(0.5, (call(1),)), Turn(0.25)), at_s=4)
    result = simulate(rolling(rollout), pools(1), fixed(1))
    assert spans(result) == [(5, 7), (7.5, 8.5)]
    (only,) = result.rollouts
    assert (only.at_s, only.opened_at_s, only.closed_at_s) == (4, 4, 8.75)
    assert (only.waited_s, only.span_s, result.step_s) == (0, 4.75, 8.75)


def test_the_calls_of_a_turn_take_turns_in_the_sandbox_and_all_end_before_the_next() -> None:
    api = spec("api", cpu=0, quota={"api": 1})
    rollout = Rollout((Turn(1, (call(2), call(3), call(4, api))), Turn(1, (call(1),))))
    result = simulate(rolling(rollout), pools(8, 8, Quota("api", concurrency=9)), fixed(1))
    assert spans(result) == [(1, 3), (3, 6), (1, 5), (7, 8)]


def test_rollouts_share_what_is_free() -> None:
    rollouts = [Rollout((Turn(thinking_s, (call(2),)),)) for thinking_s in (1, 1, 2)]
    result = simulate(rolling(*rollouts), pools(1), fixed(1))
    assert sorted(spans(result)) == [(1, 3), (3, 5), (5, 7)]
    assert [one.closed_at_s for one in result.rollouts] == [3, 5, 7]
    assert [one.rollout for one in result.calls] == [0, 1, 2]


def test_a_rollout_waits_for_its_memory() -> None:
    rollouts = [Rollout((Turn(2),), memory_bytes=5 * GIB), Rollout((Turn(1),), memory_bytes=4 * GIB)]
    result = simulate(rolling(*rollouts), pools(1, 8), fixed(1))
    assert [(one.opened_at_s, one.closed_at_s) for one in result.rollouts] == [(0, 2), (2, 3)]
    assert result.rollouts[1].waited_s == 2
    assert result.step_s == 3
    assert math.isnan(result.mean_act_s)


def test_reserved_cores_are_held_from_the_first_turn_to_the_last() -> None:
    """Two trajectories of four fit on 4 cores; the others wait, though nothing runs while those think."""
    rollout = Rollout((Turn(10, (call(4, ELASTIC, Linear()),)), Turn(2, (call(1),))))
    result = simulate(rolling(*[rollout] * 4), pools(4), reserved(2))
    assert [(one.opened_at_s, one.closed_at_s) for one in result.rollouts] == [(0, 15), (0, 15), (15, 30), (15, 30)]
    assert [one.execution_s for one in result.calls] == [2, 2, 1, 1] * 2
    assert [one.queueing_s for one in result.calls] == [0] * 8
    shared = simulate(rolling(*[rollout] * 4), pools(4), fixed(2))
    assert [one.closed_at_s for one in shared.rollouts] == [15, 15, 17, 17]


def test_plain_functions_take_turns_on_reserved_cores_only() -> None:
    plain = spec("plain", kind=BodyKind.THREAD)
    rollout = Rollout((Turn(0, (call(1, plain), call(2, plain))),))
    assert spans(simulate(rolling(rollout), pools(4), reserved(2))) == [(0, 1), (1, 3)]
    assert spans(simulate(rolling(rollout), pools(4), fixed(2))) == [(0, 1), (0, 2)]


def test_a_rollout_without_turns_or_calls_ends() -> None:
    result = simulate(
        rolling(Rollout(()), Rollout((Turn(0), Turn(0))), Rollout((Turn(3),), at_s=1)), pools(1), fixed(1)
    )
    assert [one.closed_at_s for one in result.rollouts] == [0, 0, 4]
    assert result.calls == ()


def test_a_call_that_gives_up_does_not_end_its_rollout() -> None:
    impatient = spec("impatient", queue_timeout=1)
    workload = Workload((Arrival(0, call(10)),), (Rollout((Turn(2, (call(1, impatient),)), Turn(8, (call(1),)))),))
    result = simulate(workload, pools(1), fixed(1))
    assert [one.outcome for one in result.calls] == [Outcome.OK, Outcome.QUEUE_TIMEOUT, Outcome.OK]
    assert spans(result)[2] == (11, 12)


def test_the_next_call_of_a_rollout_comes_after_the_decision_on_its_last() -> None:
    """As on an event loop: a caller hears that its call has ended one turn after the core does."""
    workload = Workload((Arrival(1, call(5)),), (Rollout((Turn(0, (call(2),)), Turn(0, (call(1, URGENT),)))),))
    assert spans(simulate(workload, pools(1), fixed(1))) == [(0, 2), (2, 7), (7, 8)]


# What the core knows.


def test_the_core_learns_from_what_it_measures() -> None:
    workload = arriving(*[(10 * i, call(3, ELASTIC, PowerLaw(0.8))) for i in range(40)])
    result = simulate(workload, pools(4), fixed(1), record=True)
    expected = [event.action.expected_s for event in result.events if isinstance(event, ActionStarted)]
    assert expected[0] == pytest.approx(1)  # nothing is known
    assert expected[-1] == pytest.approx(3, rel=0.1)


def test_what_is_known_is_exact_and_nothing_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Durations, "observe", lambda *observed: pytest.fail("learned from"))
    curve = Measured({1: 1, 2: 1.5, 4: 3})
    workload = arriving(*[(10 * i, call(1 + i % 3, of, curve)) for i in range(9) for of in (ELASTIC, ONE)])
    for policy in (fixed(1), fixed(4)):
        result = simulate(workload, pools(8), policy, known=True, record=True)
        starts = [event.action for event in result.events if isinstance(event, ActionStarted)]
        assert [start.expected_s for start in starts] == pytest.approx([one.execution_s for one in result.calls])
        assert {one.name for one in result.calls} == {"elastic", "one"}


def test_known_durations_can_be_none_at_all() -> None:
    assert spans(simulate(arriving((0, call(0, ELASTIC)), (0, call(0))), pools(1), fixed(1), known=True)) == [
        (0, 0), (0, 0),
    ]  # fmt: skip


def test_shortest_first_needs_to_know() -> None:
    workload = arriving((0, call(1)), *[(0.5, call(work_s)) for work_s in (3, 1, 2)])
    known = simulate(workload, pools(1), fixed(1), known=True, order="shortest")
    assert [one.started_at_s for one in known.calls] == [0, 4, 1, 2]
    assert [one.started_at_s for one in simulate(workload, pools(1), fixed(1), known=True).calls] == [0, 1, 4, 5]


# Bad input.


def test_what_can_never_run_is_told() -> None:
    with pytest.raises(InfeasibleError, match="asks for 8 cores"):
        simulate(arriving((0, call(1, spec(cpu=8)))), pools(4), fixed(1))
    with pytest.raises(InfeasibleError, match="9 GiB of memory"):
        simulate(rolling(Rollout((), memory_bytes=9 * GIB)), pools(4, 8), fixed(1))


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_times_that_cannot_be_are_told(bad: float) -> None:
    with pytest.raises(ConfigurationError, match="finite and not negative"):
        simulate(arriving((bad, call(1))), pools(1), fixed(1))
    with pytest.raises(ConfigurationError, match=r"one really takes .* on 1 cores"):
        simulate(arriving((0, call(bad))), pools(1), fixed(1))
    with pytest.raises(ConfigurationError, match="at 4 s the workload plans for"):
        simulate(rolling(Rollout((Turn(bad),), at_s=4)), pools(1), fixed(1))


def test_a_policy_that_plans_nonsense_is_named_and_the_run_goes_on() -> None:
    def greedy(group: Group) -> Sequence[int]:
        return [99]

    result = simulate(arriving(*[(0, call(1, ELASTIC))] * 4), pools(2), greedy)
    assert spans(result) == [(0, 1), (0, 1), (1, 2), (1, 2)]
    assert result.refused is not None
    assert "99" in result.refused
    assert simulate(arriving((0, call(1, ELASTIC))), pools(2), fixed(1)).refused is None


def test_a_policy_must_be_one() -> None:
    with pytest.raises(ConfigurationError, match=r"policies\.fixed"):
        simulate(arriving(), pools(1), fixed)  # type: ignore[arg-type]


def test_rollouts_stay_on_the_node_where_they_were_admitted() -> None:
    topology = make_nodes(nodes=[(4, 8, None), (2, 8, 2)])
    cpu = [topology.index["cpu@n0"], topology.index["cpu@n1"]]
    rollout = Rollout((Turn(0.5, (call(1),)), Turn(0.5, (call(4, ELASTIC, Linear()),))), memory_bytes=GIB)
    result = simulate(rolling(*[rollout] * 30), topology, paper(best_prefix=True), record=True)
    assert len(result.rollouts) == 30
    at = {event.id: event.node for event in result.events if isinstance(event, TrajectoryOpened)}
    assert set(at.values()) == {0, 1}
    started = [event.action for event in result.events if isinstance(event, ActionStarted)]
    assert len(started) == 60
    for action in started:
        node = at[action.pending.trajectory or 0]
        assert (action.pending.demand.node, action.pending.demand.elastic) == (node, cpu[node or 0])
        assert action.units <= [4000, 2000][node or 0]
    alone = simulate(arriving((0, call(1)), (0, call(1))), topology, paper(), record=True, host=1)
    assert [e.action.pending.demand.node for e in alone.events if isinstance(e, ActionStarted)] == [1, 1]
    with pytest.raises(InfeasibleError, match="no node of the pool"):
        simulate(arriving((0, call(1))), topology, paper(), host=None)


def test_nothing_takes_no_time() -> None:
    result = simulate(Workload(), pools(1), fixed(1), record=True)
    assert (result.calls, result.rollouts, result.events, result.step_s) == ((), (), (), 0)
    assert math.isnan(result.mean_act_s)


# What holds of every run.

ANY = st.integers(0, 2**32)
POLICIES: list[Policy] = [elastic(), fixed(2), paper(), paper(best_prefix=True), reserved(1)]
TOPOLOGY = pools(CORES, MEMORY_GIB, SEARCH)


@settings(max_examples=30)
@given(seed=ANY, policy=st.sampled_from(POLICIES), known=st.booleans())
def test_nothing_is_lost_and_nothing_is_granted_twice(seed: int, policy: Policy, known: bool) -> None:
    workload = draw_workload(seed)
    result = simulate(workload, TOPOLOGY, policy, known=known, record=True)
    made = len(workload.arrivals) + sum(len(turn.calls) for one in workload.rollouts for turn in one.turns)
    assert len(result.calls) == made
    assert len(result.rollouts) == len(workload.rollouts)
    ids = [one.id for one in result.calls]
    assert ids == sorted(set(ids))
    counts = Counter(type(event) for event in result.events)
    started = sum(one.outcome is not Outcome.QUEUE_TIMEOUT for one in result.calls)
    assert counts[ActionSubmitted] == made
    assert counts[ActionStarted] == counts[UnitsReturned] == started
    assert counts[TrajectoryOpened] == counts[TrajectoryClosed] == len(workload.rollouts)
    _check_capacity(result)
    for one in result.calls:
        assert one.submitted_at_s <= one.started_at_s <= one.ended_at_s <= result.step_s
    times = [event.at_s for event in result.events]
    assert times == sorted(times)


def _check_capacity(result: Result) -> None:
    """Add up what the events say is held of each dimension that is given back."""
    free = [dimension.capacity for dimension in TOPOLOGY.dimensions]
    held: dict[int, list[tuple[int, int]]] = {}
    for event in result.events:
        if isinstance(event, ActionStarted):
            demand, units = event.action.pending.demand, event.action.units
            own = [(demand.elastic, units)] if demand.elastic is not None else []
            held[event.action.pending.id] = [*demand.fixed, *own]
        elif isinstance(event, TrajectoryOpened):
            held[event.id] = list(event.held)
        elif isinstance(event, (UnitsReturned, TrajectoryClosed)):
            for dimension, units in held.pop(event.id):
                free[dimension] += units
            continue
        else:
            continue
        for dimension, units in list(held.values())[-1]:
            free[dimension] -= units
        lasting = [free[i] for i, one in enumerate(TOPOLOGY.dimensions) if one.window_s is None]
        assert min(lasting) >= 0
    assert not held


@settings(max_examples=10)
@given(seed=ANY, policy=st.sampled_from(POLICIES))
def test_the_same_workload_takes_the_same(seed: int, policy: Policy) -> None:
    first = simulate(draw_workload(seed), TOPOLOGY, policy, record=True)
    assert simulate(draw_workload(seed), TOPOLOGY, policy, record=True) == first
    assert simulate(draw_workload(seed), TOPOLOGY, policy).calls == first.calls
    assert simulate(draw_workload(seed + 1), TOPOLOGY, policy) != first
