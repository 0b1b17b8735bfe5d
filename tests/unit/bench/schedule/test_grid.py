"""The points of `bench schedule`, and that every contender of one sees the same calls."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from arl_tangram.bench.schedule.grid import (
    BURSTS,
    DECLARED,
    ELASTIC,
    FIXED,
    INFORMED,
    LEARNED,
    LOADS,
    PAPER,
    WRONG,
    Point,
    Table,
    Task,
    contenders,
    grid,
    known_acts,
    run_task,
)
from arl_tangram.scheduling.policies import Group, fixed

QUICK = grid(quick=True)


def test_the_grid_is_that_of_the_promises() -> None:
    points = grid()
    assert len(points) == len(set(points)) == (len(LOADS) + len(BURSTS)) * 4
    assert {(p.load, p.burst) for p in points} == {
        *((x, 1) for x in (0.3, 0.6, 0.9, 1.1, 1.3)),
        *((0.5, b) for b in BURSTS),
    }
    assert {(p.elastic, p.exponents) for p in points} == {(e, x) for e in (0.3, 1.0) for x in ((0.5, 0.9), (0.9, 1.0))}
    assert BURSTS == (16, 64, 256, 1024)


def test_a_point_has_a_name() -> None:
    assert Point(0.3, (0.5, 0.9), 1.1).name == "load 1.1, elastic 0.3, exponents 0.5-0.9"
    assert Point(1.0, (0.9, 1.0), 0.5, 1024).name == "burst 1,024, elastic 1, exponents 0.9-1"


@pytest.mark.parametrize("point", QUICK, ids=lambda point: point.arrivals)
def test_a_task_runs_all_contenders(point: Point) -> None:
    outcome = run_task(Task(Table.KNOWN, point, 3, quick=True))
    assert set(outcome.act_s) == set(contenders()) == {*FIXED, PAPER, ELASTIC}
    assert len(set(outcome.act_s.values())) >= 4
    assert outcome == run_task(Task(Table.KNOWN, point, 3, quick=True))
    assert outcome.act_s != run_task(Task(Table.KNOWN, point, 4, quick=True)).act_s


def test_a_task_of_what_is_learned_runs_four_times() -> None:
    outcome = run_task(Task(Table.LEARNED, QUICK[0], 3, quick=True))
    assert set(outcome.act_s) == set(outcome.later_s) == {INFORMED, LEARNED, WRONG, DECLARED}
    assert outcome.later_s != outcome.act_s


def test_any_policy_can_be_tried_on_a_point() -> None:
    """The durations are known: a policy sees for each call what it really takes."""
    curves: set[tuple[float, ...]] = set()

    def looking(group: Group) -> Sequence[int]:
        curves.update(candidate.durations_s for candidate in group.candidates)
        return fixed(1).plan(group)

    acts = known_acts(Task(Table.KNOWN, QUICK[0], 3, quick=True), {"mine": looking, "fixed": fixed(1)})
    assert acts["mine"] == acts["fixed"]
    assert len(curves) == 320
