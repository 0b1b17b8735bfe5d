"""The figures, from events made by hand."""

from __future__ import annotations

import pytest

from arl_tangram.demo.calibration import calibration_of
from arl_tangram.demo.measure import Figures, figures_of, ratios_of
from arl_tangram.model.events import (
    ActionEnded,
    ActionResized,
    ActionStarted,
    Event,
    TrajectoryClosed,
    TrajectoryOpened,
    UnitsReturned,
)
from arl_tangram.model.lifecycle import Demand, FinishedAction, Outcome, PendingAction, RunningAction


def finished(
    id_: int,
    *,
    trajectory: int | None = None,
    queueing_s: float = 0,
    execution_s: float = 1,
    overhead_s: float = 0,
    cpu_s: float = 0,
    cores: float = 1,
    name: str = "tool",
) -> ActionEnded:
    action = FinishedAction(
        id_, name, "", trajectory, Outcome.OK, None, 0, queueing_s, execution_s, overhead_s, cpu_s, cores
    )
    return ActionEnded(50, action)


def started(id_: int, at_s: float, *, reserved: int = 0) -> ActionStarted:
    pending = PendingAction(id_, Demand("tool", (), reserved=reserved), at_s)
    return ActionStarted(at_s, RunningAction(pending, at_s, 1000, 1.0))


def test_act_is_the_sum_of_its_parts_and_admission_counts_into_the_call_that_ends_first() -> None:
    events: list[Event] = [
        TrajectoryOpened(0, 1, None, 0.0, 1000),
        TrajectoryOpened(7, 2, None, 7.0, 1000),
        finished(12, trajectory=2, execution_s=3),  # ends first: the wait counts to it
        finished(11, trajectory=2, queueing_s=0.5, execution_s=1, overhead_s=0.5),
        finished(10, trajectory=1, execution_s=2),
    ]
    figures = figures_of(events, 20.0)
    assert figures.calls == 3
    assert figures.mean_act_s == pytest.approx((3 + 2 + 2) / 3)
    assert figures.mean_act_admission_s == pytest.approx((10 + 2 + 2) / 3)
    assert figures.p99_act_s == pytest.approx(2.98)
    assert figures.p99_act_admission_s == pytest.approx(2 + 8 * 0.98)
    assert figures.mean_admission_s == pytest.approx(3.5)
    assert figures.mean_queueing_s == pytest.approx(0.5 / 3)
    assert figures.mean_execution_s == pytest.approx(2)
    assert figures.step_s == 20.0


def test_overhead_share_is_a_ratio_of_sums() -> None:
    figures = figures_of([finished(1, execution_s=9, overhead_s=0), finished(2, execution_s=0.5, overhead_s=0.5)], 1)
    assert figures.overhead_share == pytest.approx(0.05)
    assert figures.mean_overhead_s == pytest.approx(0.25)


def test_reserved_cores_are_held_from_admission_to_the_end_and_counted_once() -> None:
    events: list[Event] = [
        TrajectoryOpened(2, 1, None, 2.0, 2000),
        started(5, 3, reserved=2000),
        finished(5, trajectory=1, execution_s=4, cpu_s=3.5, cores=2),
        UnitsReturned(7, 5),
        TrajectoryClosed(10, 1),
    ]
    figures = figures_of(events, 10)
    assert figures.held_core_s == pytest.approx(2 * 8)
    assert figures.used_core_s == pytest.approx(3.5)


def test_scheduled_cores_are_held_from_the_promise_to_the_return() -> None:
    events: list[Event] = [
        TrajectoryOpened(0, 1, None, 0.0, 0),
        started(5, 3),
        finished(5, trajectory=1, execution_s=1, cores=2),
        UnitsReturned(4.5, 5),
        started(6, 5),
        finished(6, trajectory=1, execution_s=1, cores=0),  # a search: quota only
        UnitsReturned(6, 6),
        TrajectoryClosed(10, 1),
    ]
    assert figures_of(events, 10).held_core_s == pytest.approx(2 * 1.5)


def test_cores_that_change_are_held_as_they_are_at_each_time() -> None:
    ended = finished(5, execution_s=3, cores=2)
    events: list[Event] = [
        started(5, 3),
        ActionResized(4, 5, 1000),
        ActionResized(6, 5, 0),
        ActionResized(9, 5, 2000),
        ActionEnded(10, ended.action._replace(suspended_s=3, switches=3)),
        UnitsReturned(10.5, 5),
        finished(6),
    ]
    figures = figures_of(events, 10)
    assert figures.held_core_s == pytest.approx(2 * 1 + 1 * 2 + 2 * 1.5)
    assert (figures.switches, figures.mean_suspended_s) == (3, 1.5)
    assert figures.mean_act_s == pytest.approx((3 + 3 + 1) / 2)


def test_nothing_to_measure_is_an_error() -> None:
    with pytest.raises(ValueError, match="no action has ended"):
        figures_of([TrajectoryOpened(0, 1, None, 0.0, 0)], 1)


def figures(step_s: float, act_s: float, held: float) -> Figures:
    return Figures(1, act_s, act_s, 2 * act_s, act_s, 0, act_s, 0, 0, step_s, held, 1, 0)


def test_ratios_are_against_the_better_baseline_figure_by_figure() -> None:
    ratios = ratios_of([figures(60, 8, 100), figures(90, 6, 150)], figures(30, 3, 50))
    assert (ratios.step, ratios.act, ratios.act_admission, ratios.held) == (2, 2, 2, 2)


def test_calibration_divides_by_trajectories_and_leaves_out_queueing() -> None:
    narrow = [finished(1, queueing_s=9, execution_s=1), finished(2, execution_s=2, overhead_s=0.5, name="suite")]
    narrow += [finished(3, execution_s=1.5), finished(4, execution_s=3, name="suite")]
    wide = [finished(1, execution_s=5), finished(2, execution_s=1.1, name="suite")]
    calibration = calibration_of(narrow, wide, trajectories=2, suite="suite")
    assert calibration.tools_s == pytest.approx(4)
    assert calibration.calls == 2
    assert calibration.suite_s == pytest.approx(2.75)
    assert calibration.suite_speedup == pytest.approx(2.5)


def test_calibration_without_a_suite_is_an_error() -> None:
    with pytest.raises(ValueError, match="no suite has ended"):
        calibration_of([finished(1)], [finished(1)], trajectories=1, suite="suite")
