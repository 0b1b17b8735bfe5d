from __future__ import annotations

import pytest

from arl_tangram.bench.machine import Machine
from arl_tangram.bench.ray import show
from arl_tangram.bench.ray.figures import BARE, SHARED, Round, Row, Span, round_of, rows, share_of
from arl_tangram.bench.ray.gates import gates

KEPT = [
    Row(BARE, 1, 1.0, 2.0, 900),
    Row(SHARED, 1, 1.5, 3.0, 800),
    Row(BARE, 16, 9, 9, 1000),
    Row(SHARED, 16, 9, 9, 3000),
]


def test_a_share_of_values_is_one_of_them() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [share_of(values, share) for share in (0.01, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert share_of([7.0], 0.99) == 7


def test_a_round_counts_from_the_first_begin_to_the_last_end() -> None:
    found = round_of("x", 2, [0.001, 0.003, 0.002], [Span(10, 12, 300), Span(11, 14, 100)])
    assert found == Round("x", 2, 2.0, 3.0, 100.0)


def test_rows_are_medians_of_each_contender_with_as_many_clients() -> None:
    rounds = [Round("x", 1, ms, 10 * ms, 100 * ms) for ms in (3.0, 1.0, 2.0)] + [Round("y", 1, 5, 5, 5)]
    assert rows(rounds) == (Row("x", 1, 2.0, 20.0, 200.0), Row("y", 1, 5, 5, 5))


def test_promises_are_kept_at_their_limits_and_broken_beyond() -> None:
    assert [gate.passed for gate in gates(KEPT)] == [True, True]
    slow = [row._replace(p50_ms=1.51) if row == KEPT[1] else row for row in KEPT]
    assert [gate.passed for gate in gates(slow)] == [False, True]
    few = [row._replace(per_s=2999) if row == KEPT[3] else row for row in KEPT]
    assert [gate.passed for gate in gates(few)] == [True, False]


def test_what_was_not_measured_is_neither_kept_nor_broken() -> None:
    assert [gate.passed for gate in gates(KEPT[:1])] == [None, None]


@pytest.mark.parametrize("load", [0.0, 2.0])
def test_the_text_tells_the_machine_and_each_row(load: float) -> None:
    machine = Machine("CPython 3", "Linux", "a processor", 2, (load, 0, 0), {"ray": "2.60.0"})
    assert ("busy" in show.introduction(machine, 3, 64)) == (load > 0)
    table = show.table(KEPT)
    assert [line.split()[-4] for line in table.splitlines()[1:]] == ["1", "1", "16", "16"]
