"""Capacity that changes during a run, pauses, and what a call lends or settles: all exact to the second."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from arl_tangram.model.events import (
    ActionEnded,
    ActionLent,
    ActionResumed,
    ActionStarted,
    CapacityChanged,
    Event,
    Paused,
    TrajectoryOpened,
    UnitsReturned,
    UnitsSettled,
)
from arl_tangram.model.lifecycle import Demand, FinishedAction, Outcome, PendingAction, RunningAction
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.trace.figures import DimensionFigures, Figures
from arl_tangram.trace.report import render
from arl_tangram.trace.summary import Summary

TOPOLOGY = Topology(
    [
        Dimension("cpu", 8000, 1000),
        Dimension("quota:api/tokens", 100_000, 1000, 10.0),
        Dimension("quota:api/tokens/total", 1_000_000, 1000, float("inf")),
    ]
)
ON_CORES = Demand("m:parent", fixed=(), elastic=0, options=(4000,), dimensions=1)
CHILD = Demand("m:child", fixed=((0, 500),), dimensions=1, milli_cores=500)
TOKENS = Demand("m:ask", fixed=((1, 10_000), (2, 10_000)), dimensions=0b110)


def started(id_: int, demand: Demand, at_s: float, units: int = 0, since_s: float | None = None) -> ActionStarted:
    pending = PendingAction(id_, demand, at_s, since_s=since_s)
    return ActionStarted(at_s, RunningAction(pending, at_s, units, 0.0))


def figures_of(events: Iterable[Event], now_s: float | None = None, first_s: float = 0.0) -> Figures:
    summary = Summary(TOPOLOGY)
    summary.opened(first_s)
    summary.add_all(events)
    figures = summary.figures(now_s)
    assert summary.figures(now_s) == figures, "asking changes nothing"
    return figures


def dimension(figures: Figures, index: int) -> DimensionFigures:
    return figures.dimensions[index]


def test_what_a_call_lends_counts_for_whoever_has_it() -> None:
    figures = figures_of(
        [
            started(1, ON_CORES, 0.0, 4000),
            ActionLent(2.0, 1, 4000),
            started(2, CHILD, 2.0),
            UnitsReturned(5.0, 2),
            ActionResumed(7.0, 1, 4000),  # two seconds after its child has ended, because the cores were taken
            ActionLent(8.0, 1, 4000),
            ActionResumed(9.0, 1, 4000),
            UnitsReturned(10.0, 1),
        ]
    )
    assert {action.name: action.core_s for action in figures.actions} == {"m:parent": 4 * (2 + 1 + 1), "m:child": 1.5}
    assert dimension(figures, 0).held_unit_s == 4 * 4 + 1.5


def test_a_call_that_ends_while_it_lends_has_held_nothing_since() -> None:
    events: list[Event] = [started(1, ON_CORES, 0.0, 4000), ActionLent(2.0, 1, 4000)]
    assert figures_of(events, 6.0).total.core_s == 8.0
    assert figures_of([*events, UnitsReturned(6.0, 1)], 10.0).total.core_s == 8.0


def test_a_call_that_keeps_its_cores_while_it_waits_holds_them() -> None:
    events = [started(1, ON_CORES, 0.0, 4000), ActionLent(2.0, 1, 0), ActionResumed(3.0, 1, 0), UnitsReturned(4.0, 1)]
    assert figures_of(events).total.core_s == 16.0


def test_nothing_is_remembered_of_those_that_have_ended() -> None:
    summary = Summary(TOPOLOGY)
    for number in range(100):
        at_s = 20.0 * number
        summary.add_all([started(number, ON_CORES, at_s, 4000), ActionLent(at_s, number, 4000)])
        summary.add_all([started(number + 1000, TOKENS, at_s), UnitsSettled(at_s + 1, number + 1000, 1, 0)])
        summary.add_all([UnitsReturned(at_s + 2, number), UnitsReturned(at_s + 2, number + 1000)])
    holding = summary._holding
    assert not holding._lending.loans
    assert not holding._rates.settled
    assert len(holding._rates._charges[1]) <= 4


def test_lending_by_what_is_not_known_counts_as_nothing() -> None:
    assert figures_of([ActionLent(1.0, 5, 4000), ActionResumed(2.0, 6, 4000)], 3.0).total.core_s == 0


@pytest.mark.parametrize("first_s", [0.0, 1000.0])
def test_shares_are_of_the_capacity_that_there_was_at_each_time(first_s: float) -> None:
    events = [
        started(1, ON_CORES, first_s, 4000),
        CapacityChanged(first_s + 2.0, 0, 16_000),
        CapacityChanged(first_s + 6.0, 0, 4000),
        UnitsReturned(first_s + 10.0, 1),
    ]
    cpu = dimension(figures_of(events, first_s=first_s), 0)
    offered = 8 * 2 + 16 * 4 + 4 * 4
    assert cpu.capacity == 4
    assert cpu.mean_capacity == pytest.approx(offered / 10)
    assert cpu.held_share == pytest.approx(4 * 10 / offered)
    later = dimension(figures_of(events, first_s + 20.0, first_s), 0)
    assert later.held_share == pytest.approx(4 * 10 / (offered + 40))


def test_the_first_event_may_be_a_change_of_capacity() -> None:
    summary = Summary(TOPOLOGY)
    summary.add(CapacityChanged(50.0, 0, 2000))
    assert summary.figures(60.0).dimensions[0].mean_capacity == 2
    assert summary.figures(50.0).dimensions[0].mean_capacity is None


def test_a_capacity_that_changed_is_told_with_its_mean() -> None:
    summary = Summary(TOPOLOGY)
    summary.opened(0.0)
    summary.add(CapacityChanged(5.0, 0, 4000))
    text = render(summary, now_s=10.0)
    assert "4 cores (mean 6.0)" in text
    assert text.count("(mean") == 1


def settled(*amounts: tuple[float, int], dimension_: int = 1) -> list[Event]:
    return [started(1, TOKENS, 0.0), *(UnitsSettled(at_s, 1, dimension_, units) for at_s, units in amounts)]


@pytest.mark.parametrize(
    ("events", "now_s", "tokens_s"),
    [
        (settled(), 20.0, 10 * 10),
        (settled((2.0, 4000)), 2.0, 10 * 2),
        (settled((2.0, 4000)), 5.0, 10 * 2 + 4 * 3),
        (settled((2.0, 4000)), 20.0, 10 * 2 + 4 * 8),
        (settled((2.0, 15_000)), 20.0, 10 * 10 + 5 * 10),
        (settled((2.0, 15_000)), 11.0, 10 * 10 + 5 * 9),
        (settled((2.0, 15_000), (4.0, 8000)), 20.0, 10 * 4 + 5 * 2 + 8 * 6),
        (settled((2.0, 0), (4.0, 3000)), 20.0, 10 * 2 + 3 * 10),
        (settled((12.0, 1000)), 20.0, 10 * 10),  # the window is over: nothing is left to free
        (settled((2.0, 10_000)), 20.0, 10 * 10),
    ],
)  # fmt: skip
def test_what_is_settled_counts_instead_of_what_was_granted(events: list[Event], now_s: float, tokens_s: float) -> None:
    assert dimension(figures_of(events, now_s), 1).held_unit_s == pytest.approx(tokens_s)
    ended = [*events, UnitsReturned(now_s, 1)]
    assert dimension(figures_of(ended, now_s), 1).held_unit_s == pytest.approx(tokens_s)


def test_of_a_budget_what_is_settled_counts_for_ever() -> None:
    events = settled((2.0, 4000), (5.0, 12_000), dimension_=2)
    assert dimension(figures_of(events, 10.0), 2).held_unit_s == pytest.approx(10 * 2 + 4 * 3 + 12 * 5)


def test_pauses_are_counted_up_to_now() -> None:
    events = [Paused(1.0, paused=True), Paused(2.0, paused=True), Paused(3.0, paused=False), Paused(4.0, paused=False)]
    figures = figures_of([*events, Paused(8.0, paused=True)], 9.5)
    assert (figures.pauses, figures.paused_s) == (2, 3.5)
    assert figures_of([TrajectoryOpened(1.0, 1, None, 0.0, 0)]).pauses == 0


def test_a_pause_is_told_in_the_report() -> None:
    summary = Summary(TOPOLOGY)
    summary.add_all([Paused(1.0, paused=True), Paused(3.5, paused=False)])
    assert "paused: once, 2.50 s in all" in render(summary)
    assert "paused" not in render(Summary(TOPOLOGY))


def test_each_attempt_at_a_call_counts_and_further_ones_are_told(finished: Callable[..., FinishedAction]) -> None:
    events: list[Event] = []
    for attempt, outcome in enumerate((Outcome.INFRASTRUCTURE, Outcome.INFRASTRUCTURE, Outcome.OK)):
        at_s = 10.0 * attempt
        events.append(started(1, ON_CORES, at_s, 4000, since_s=0.0 if attempt else None))
        events.append(UnitsReturned(at_s + 1.0, 1))
        events.append(ActionEnded(at_s + 1.0, finished(1, "m:parent", outcome=outcome)))
    figures = figures_of(events)
    (parent,) = figures.actions
    assert (parent.calls, parent.retries, parent.failures) == (3, 2, {"infrastructure": 2})
    assert (figures.total.retries, parent.core_s, figures.holding) == (2, 12.0, 0)
    summary = Summary(TOPOLOGY)
    summary.add_all(events)
    assert "tried again: m:parent: 2 of its 3 calls are further attempts" in render(summary)
