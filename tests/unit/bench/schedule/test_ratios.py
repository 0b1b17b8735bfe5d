"""Means, ratios and promises of `bench schedule`, from made-up runs."""

from __future__ import annotations

import pytest

from arl_tangram.bench.gates import Gate
from arl_tangram.bench.schedule.grid import (
    DECLARED,
    ELASTIC,
    FIXED,
    INFORMED,
    LEARNED,
    PAPER,
    WRONG,
    Outcome,
    Point,
    Table,
    Task,
)
from arl_tangram.bench.schedule.ratios import geometric_mean, known_gates, known_rows, learned_gates, learned_rows

HERE = Point(0.3, (0.5, 0.9), 0.6)
THERE = Point(1.0, (0.9, 1.0), 0.5, 64)


def known(point: Point, seed: int, elastic_s: float, paper_s: float = 2.0, *fixed_s: float) -> Outcome:
    fixed = dict(zip(FIXED, fixed_s or (4.0, 2.0, 3.0, 5.0, 6.0), strict=True))
    return Outcome(Task(Table.KNOWN, point, seed), fixed | {PAPER: paper_s, ELASTIC: elastic_s}, {})


def learned(point: Point, seed: int, learned_s: float, wrong_s: float, learned_later_s: float) -> Outcome:
    return Outcome(
        Task(Table.LEARNED, point, seed),
        {INFORMED: 2.0, LEARNED: learned_s, WRONG: wrong_s, DECLARED: 2.0},
        {INFORMED: 1.0, LEARNED: learned_later_s, WRONG: 1.5, DECLARED: 1.25},
    )


def test_the_best_fixed_dop_is_the_best_in_the_mean_over_the_seeds() -> None:
    one = known(HERE, 6, 1.0, 2.0, 1.0, 9.0, 4.0, 5.0, 6.0)
    other = known(HERE, 7, 3.0, 4.0, 9.0, 1.0, 4.0, 5.0, 6.0)
    (row,) = known_rows([one, other])
    assert (row.best, row.best_s) == ("fixed(4)", 4.0)
    assert (row.paper_s, row.elastic_s) == (3.0, 2.0)
    assert (row.paper_of_best, row.elastic_of_best) == (0.75, 0.5)
    assert row.elastic_of_paper == pytest.approx(2 / 3)


def test_rows_are_by_point_and_table() -> None:
    outcomes = [known(HERE, 6, 1.0), learned(HERE, 6, 2.0, 2.0, 1.0), known(THERE, 6, 1.0), known(HERE, 7, 1.0)]
    assert [row.point for row in known_rows(outcomes)] == [HERE, THERE]
    assert [row.point for row in learned_rows(outcomes)] == [HERE]


def test_ratios_of_what_is_learned_are_of_means() -> None:
    (row,) = learned_rows([learned(HERE, 6, 2.0, 3.0, 1.0), learned(HERE, 7, 3.0, 3.0, 1.2)])
    assert (row.informed_s, row.learned, row.wrong) == (2.0, 1.25, 1.5)
    assert (row.learned_later, row.wrong_later, row.declared_later) == (pytest.approx(1.1), 1.5, 1.25)


def test_the_geometric_mean() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([0.9]) == pytest.approx(0.9)


def judged(here_s: float, there_s: float, paper_s: float = 2.0) -> list[Gate]:
    return known_gates(known_rows([known(HERE, 6, here_s, paper_s), known(THERE, 6, there_s, paper_s)]))


@pytest.mark.parametrize(
    ("here_s", "there_s", "paper_s", "passed"),
    [
        (1.8, 1.8, 2.0, [True, True, True]),
        (2.2, 1.6, 2.2, [False, True, True]),
        (1.98, 1.96, 2.0, [True, False, True]),
        (1.8, 1.9, 1.8, [True, True, False]),
    ],
)
def test_each_promise_with_durations_known(here_s: float, there_s: float, paper_s: float, passed: list[bool]) -> None:
    assert [gate.passed for gate in judged(here_s, there_s, paper_s)] == passed


def test_the_worst_point_is_named() -> None:
    best, mean, paper = judged(1.0, 2.5)
    assert best.where == paper.where == "burst 64, elastic 1, exponents 0.9-1"
    assert best.value == paper.value == 1.25
    assert mean.where == "2 points"


@pytest.mark.parametrize(
    ("wrong_s", "later_s", "passed"),
    [(2.3, 1.05, [True, True]), (2.3, 1.06, [False, True]), (2.4, 1.05, [True, False])],
)
def test_each_promise_about_learning(wrong_s: float, later_s: float, passed: list[bool]) -> None:
    rows = learned_rows([learned(HERE, 6, 9.0, wrong_s, later_s), learned(THERE, 6, 9.0, 2.0, 1.0)])
    assert [gate.passed for gate in learned_gates(rows)] == passed
