"""The figures of the scored trajectories, from events made by hand."""

from __future__ import annotations

import pytest

from arl_tangram.demo.judge.figures import figures_of
from arl_tangram.model.events import ActionEnded, ActionStarted, Event, ServiceEvicted, ServiceRestored
from arl_tangram.model.gpu import Chunk, Instance, Seat
from arl_tangram.model.lifecycle import Demand, FinishedAction, Outcome, PendingAction, RunningAction

CHUNK = Chunk(0, 1)
A, B = Instance("a", 1), Instance("b", 1)


def used(id_: int, instance: Instance, *, restores: bool = False) -> ActionStarted:
    pending = PendingAction(id_, Demand(instance.service, ()), 0.0)
    return ActionStarted(0.0, RunningAction(pending, 0.0, 0, 1.0, Seat(CHUNK, instance, restores=restores)))


def ended(id_: int, name: str, execution_s: float, overhead_s: float) -> ActionEnded:
    action = FinishedAction(id_, name, "", None, Outcome.OK, None, 0, 0.0, execution_s, overhead_s, 0.0, 0.0)
    return ActionEnded(9.0, action)


def test_swaps_hits_and_overheads_are_summed_over_all_runtimes() -> None:
    tools: list[Event] = [ended(1, "tool", 1.0, 0.0)]
    first: list[Event] = [
        used(1, A, restores=True),
        ServiceRestored(0.2, A, CHUNK, 0.2),
        used(2, A),
        ended(1, "a", 1.0, 0.25),
        ended(2, "a", 1.0, 0.05),
        ServiceEvicted(3.0, A, CHUNK),
        used(3, B, restores=True),
        ServiceRestored(3.3, B, CHUNK, 0.3),
        ended(3, "b", 1.0, 0.3),
    ]
    other: list[Event] = [used(1, B), ended(1, "b", 2.0, 0.0)]
    figures = figures_of(
        [tools, first, other], step_s=10.0, tools_s=[1.0], scores_s=[1.0, 2.0, 3.0, 5.0], scoring=["a", "b"]
    )
    assert (figures.calls, figures.scores, figures.step_s) == (5, 4, 10.0)
    assert figures.mean_act_s == pytest.approx(12 / 5)
    assert figures.mean_score_s == pytest.approx(11 / 4)
    assert figures.p99_score_s == pytest.approx(3 + 2 * 0.97)
    assert figures.execution_s == pytest.approx(5 / 4)
    assert (figures.swaps, figures.evictions) == (2, 1)
    assert figures.restore_s == pytest.approx(0.5)
    assert figures.hit_share == pytest.approx(2 / 4)
    assert figures.score_overhead_share == pytest.approx(0.6 / 5.6)
    assert figures.overhead_share == pytest.approx(0.6 / 6.6)
