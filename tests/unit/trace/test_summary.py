"""What a run's events amount to."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Sequence

import pytest

from arl_tangram.model.events import (
    ActionEnded,
    ActionStarted,
    ActionSubmitted,
    Event,
    TrajectoryClosed,
    TrajectoryOpened,
    UnitsReturned,
)
from arl_tangram.model.lifecycle import Demand, FinishedAction, Outcome, PendingAction, RunningAction
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.trace.figures import ActionFigures, DimensionFigures, Figures
from arl_tangram.trace.summary import OTHER, Summary


@pytest.fixture
def summary(topology: Topology, events: Sequence[Event]) -> Summary:
    summary = Summary(topology)
    summary.opened(100.0)
    for event in events:
        summary.add(event)
    return summary


def action(figures: Figures, name: str) -> ActionFigures:
    return next(action for action in figures.actions if action.name == name)


def dimension(figures: Figures, name: str) -> DimensionFigures:
    return next(dimension for dimension in figures.dimensions if dimension.name == name)


def test_parts_of_the_completion_time_add_up_by_name(summary: Summary) -> None:
    tests = action(summary.figures(), "agent:run_tests")
    assert (tests.calls, tests.failures) == (1, {})
    assert (tests.queueing_mean_s, tests.execution_mean_s, tests.overhead_mean_s) == (1.0, 2.5, 0.5)
    assert tests.act_mean_s == 4.0
    assert tests.act_p99_s == pytest.approx(4.0, rel=0.01)
    assert tests.overhead_share == 0.5 / 3.0
    assert tests.cpu_s == 4.0


def test_the_total_is_over_all_names_and_the_share_a_ratio_of_sums(summary: Summary) -> None:
    total = summary.figures().total
    assert total.calls == 3
    assert total.failures == {"queue_timeout": 1}
    assert total.act_mean_s == pytest.approx((1.0 + 0.5 + 4.0) / 3)
    assert total.overhead_share == pytest.approx((0.5 + 0.125) / (2.5 + 0.5 + 0.875 + 0.125))


def test_core_seconds_run_until_the_units_are_returned(summary: Summary) -> None:
    figures = summary.figures()
    assert action(figures, "agent:run_tests").core_s == 2 * 4.0  # started at 103, ended at 106, returned at 107
    cpu = dimension(figures, "cpu")
    assert (cpu.held_unit_s, cpu.held_share, cpu.used_share) == (8.0, 8 / (2 * 12), 4 / (2 * 12))
    assert dimension(figures, "memory").held_unit_s == 4.0


def test_core_seconds_follow_the_cores_of_a_call_that_is_resized(
    topology: Topology, resized_events: Sequence[Event]
) -> None:
    summary = Summary(topology)
    for number, held in enumerate((0.0, 0.0, 4.0, 5.0, 5.0, 6.0, 7.5, 8.0)):
        summary.add(resized_events[number])
        figures = summary.figures()
        assert figures.total.core_s == held
        assert dimension(figures, "cpu").held_unit_s == held
    assert dimension(figures, "memory").held_unit_s == 10.0
    assert not summary._holding._resizing.shares


def test_what_a_call_was_suspended_for_counts_to_its_completion_time(
    topology: Topology, resized_events: Sequence[Event]
) -> None:
    summary = Summary(topology)
    summary.add(TrajectoryOpened(100.0, 7, None, 2.0, 0))
    for event in resized_events:
        in_trajectory = isinstance(event, ActionEnded)
        summary.add(event._replace(action=event.action._replace(trajectory=7)) if in_trajectory else event)
    figures = summary.figures()
    assert (figures.total.act_mean_s, figures.total.overhead_share) == (9.5, 0.5 / 5.5)
    assert (figures.total.resized, figures.total.switches, figures.total.suspended_s) == (1, 3, 4.0)
    assert figures.total.act_p99_s == pytest.approx(9.5, rel=0.01)
    assert figures.admitted_act_mean_s == 11.5
    assert figures.admitted_act_p99_s == pytest.approx(11.5, rel=0.01)


def test_a_change_of_cores_of_a_call_that_does_not_run_is_left_out(
    topology: Topology, resized_events: Sequence[Event]
) -> None:
    summary = Summary(topology)
    for event in (*resized_events, *resized_events[2:5]):
        summary.add(event)
    assert summary.figures(200.0).total.core_s == 8.0
    assert not summary._holding._resizing.shares


def test_a_rate_is_held_for_its_window(summary: Summary) -> None:
    calls = dimension(summary.figures(), "quota:search/calls")  # granted at 102.5; the last event is at 112
    assert calls.held_unit_s == 9.5
    assert dimension(summary.figures(120.0), "quota:search/calls").held_unit_s == 10.0
    assert calls.held_share == 9.5 / (3 * 12)
    assert calls.used_share is None


def test_grants_whose_window_is_over_are_not_kept(topology: Topology, search_demand: Demand) -> None:
    summary = Summary(topology)
    for i in range(1000):
        pending = PendingAction(i, search_demand, 5.0 * i)
        summary.add(ActionStarted(5.0 * i, RunningAction(pending, 5.0 * i, 0, 0.1)))
        summary.add(UnitsReturned(5.0 * i, i))
    assert len(summary._holding._rates._charges[2]) <= 2
    assert dimension(summary.figures(), "quota:search/calls").held_unit_s == 998 * 10 + 5 + 5 - 5


def test_the_wait_for_admission_counts_to_the_action_that_ends_first(summary: Summary) -> None:
    figures = summary.figures()
    assert figures.trajectories.waited_mean_s == 2.0
    assert (figures.trajectories.opened, figures.trajectories.closed) == (1, 1)
    # The search ended first, though the tests were submitted first.
    assert figures.admitted_act_mean_s == pytest.approx((4.0 + 3.0 + 0.5) / 3)
    assert figures.admitted_act_p99_s == pytest.approx(4.0, rel=0.01)
    assert figures.total.act_p99_s == pytest.approx(4.0, rel=0.01)


def test_a_reservation_is_held_by_its_trajectory_and_not_twice(topology: Topology) -> None:
    demand = Demand("m:f", fixed=(), reserved=1000)
    summary = Summary(topology)
    summary.add(TrajectoryOpened(0.0, 1, None, 0.0, 1000, ((topology.index["cpu"], 1000),)))
    running = RunningAction(PendingAction(2, demand, 1.0, trajectory=1), 1.0, 1000, 1.0)
    summary.add(ActionStarted(1.0, running))
    summary.add(UnitsReturned(4.0, 2))
    summary.add(TrajectoryClosed(10.0, 1))
    figures = summary.figures()
    assert dimension(figures, "cpu").held_unit_s == 10.0
    assert action(figures, "m:f").core_s == 3.0


def test_what_still_runs_counts_up_to_now(topology: Topology, events: Sequence[Event]) -> None:
    summary = Summary(topology)
    for event in events[:6]:
        summary.add(event)
    figures = summary.figures(now_s=105.0)
    assert figures.holding == 2
    assert figures.elapsed_s == 3.0
    assert dimension(figures, "cpu").held_unit_s == 4.0
    assert action(figures, "agent:run_tests").core_s == 4.0
    assert summary.figures(now_s=105.0) == figures  # asking changes nothing


def test_a_fraction_of_a_core_is_held_too(topology: Topology) -> None:
    summary = Summary(topology)
    pending = PendingAction(1, Demand("m:f", fixed=((0, 500),)), 0.0)
    summary.add(ActionStarted(0.0, RunningAction(pending, 0.0, 0, 1.0)))
    summary.add(UnitsReturned(2.0, 1))
    assert summary.figures().total.core_s == 1.0
    assert dimension(summary.figures(), "cpu").held_unit_s == 1.0


def test_without_an_event_there_is_nothing_to_divide(topology: Topology) -> None:
    figures = Summary(topology).figures()
    assert figures.elapsed_s == 0.0
    assert figures.total.act_mean_s is None
    assert figures.total.overhead_share is None
    assert all(d.held_share is None for d in figures.dimensions)
    assert figures.trajectories.waited_mean_s is None


def test_broken_measurements_count_as_nothing(topology: Topology, finished: Callable[..., FinishedAction]) -> None:
    summary = Summary(topology)
    for i, broken in enumerate((math.nan, math.inf, -math.inf, 1e300)):
        summary.add(ActionEnded(1.0, finished(i, queueing_s=broken, cpu_s=broken)))
    total = summary.figures().total
    assert (total.calls, total.act_mean_s, total.cpu_s) == (4, 1.75, 0.0)


def test_every_outcome_is_told(topology: Topology, finished: Callable[..., FinishedAction]) -> None:
    summary = Summary(topology)
    for i, outcome in enumerate(Outcome):
        summary.add(ActionEnded(1.0, finished(i, outcome=outcome)))
    assert summary.figures().total.failures == dict.fromkeys((o.value for o in Outcome if o is not Outcome.OK), 1)


def test_names_without_end_take_no_memory_without_end(
    topology: Topology, finished: Callable[..., FinishedAction]
) -> None:
    summary = Summary(topology)

    def play(names: range) -> None:
        for i in names:
            demand = Demand(f"m:call_{i}", ((0, 1000),))
            pending = PendingAction(i, demand, float(i), trajectory=i)
            summary.add(TrajectoryOpened(float(i), i, None, 1.0, 0))
            summary.add(ActionSubmitted(float(i), pending))
            summary.add(ActionStarted(float(i), RunningAction(pending, float(i), 0, 1.0)))
            summary.add(ActionEnded(float(i), finished(i, demand.name, trajectory=i)))
            summary.add(UnitsReturned(float(i), i))
            summary.add(TrajectoryClosed(float(i), i))
            summary.add(TrajectoryOpened(float(i), -i, None, 1.0, 0))  # and closed without an action
            summary.add(TrajectoryClosed(float(i), -i))

    play(range(90_000))
    tracemalloc.start()
    try:
        play(range(90_000, 100_000))
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    figures = summary.figures()
    assert grown < 100_000
    assert len(figures.actions) == 129
    assert action(figures, OTHER).calls == 100_000 - 128
    assert figures.total.calls == 100_000
    assert figures.admitted_act_mean_s == pytest.approx(3.25)


def test_a_dimension_that_nobody_uses_is_there_with_its_capacity() -> None:
    (threads,) = Summary(Topology([Dimension("threads", 32)])).figures().dimensions
    assert (threads.name, threads.capacity, threads.held_unit_s) == ("threads", 32, 0.0)


def test_an_event_that_comes_late_does_not_turn_time_back(topology: Topology) -> None:
    summary = Summary(topology)
    for at_s in (1.0, 5.0, 4.0):
        summary.add(UnitsReturned(at_s, 1))
    assert summary.figures().elapsed_s == 4.0
