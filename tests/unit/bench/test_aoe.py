"""The plan of `bench aoe`, its arithmetic, its promises and what it prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arl_tangram.bench.aoe import show
from arl_tangram.bench.aoe.cores import CorePair
from arl_tangram.bench.aoe.crowd import CrowdCost
from arl_tangram.bench.aoe.gates import gates
from arl_tangram.bench.aoe.grants import GrantTimes
from arl_tangram.bench.aoe.overhead import Pooled, Sample, pooled
from arl_tangram.bench.aoe.plan import DEFAULT, FULL, MODES, QUICK, Cell, Mode

API = Mode("api", "exec")
CELLS = [Pooled(Cell(DEFAULT, live, s), 10, 0.02, 2.0, 3.0, 0.025) for live in (1, 8) for s in (0.1, 1.0)]
GRANTS = [GrantTimes("direct", (1e-4, 1e-4, 2e-4)), GrantTimes("api", (0.02, 0.03, 0.01))]


def test_each_round_has_every_mode_and_is_begun_by_another() -> None:
    orders = [order for _, order in FULL.orders()]
    assert all(set(order) == set(MODES) for order in orders)
    assert len({order[0] for order in orders}) == len(orders)


def test_the_longest_commands_take_part_in_few_rounds() -> None:
    assert [s for s, _ in FULL.repeats_in(0)] == [0.1, 1.0, 10.0]
    assert [s for s, _ in FULL.repeats_in(1)] == [0.1, 1.0]


def test_all_of_it_takes_less_than_a_quarter_of_an_hour_on_two_cores() -> None:
    assert FULL.about_s(2) < 15 * 60
    assert QUICK.about_s(2) < 2 * 60


def sample(live: int, overhead_s: float, round_: int) -> Sample:
    return Sample(Cell(DEFAULT, live, 1.0), round_, (overhead_s, 3 * overhead_s), 2.0, 2.0, 2.0, 2.0 + 5 * overhead_s)


def test_rounds_are_put_together_as_a_ratio_of_sums() -> None:
    one, eight = pooled([sample(8, 0.5, 0), sample(1, 0.1, 0), sample(1, 0.3, 1)])
    assert (one.cell.live, eight.cell.live) == (1, 8)
    assert one.actions == 4
    assert one.share == pytest.approx(1.6 / 5.6)
    assert one.checked_share == pytest.approx(1 - 4 / 6)
    assert (one.each_ms, one.worst_ms) == pytest.approx((300, 900))


def test_promises_that_are_kept() -> None:
    judged = gates(CELLS, GRANTS)
    assert [gate.passed for gate in judged] == [True, True, True]
    assert judged[0].value == pytest.approx(0.02)
    assert judged[2].value == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"share": 0.031}, [0]),
        ({"share": 0.11}, [0, 1]),
        ({"checked_share": 0.11}, []),  # it counts the start of the program, which is the command's own time
    ],
)
def test_one_cell_breaks_a_promise(change: dict[str, float], broken: list[int]) -> None:
    worse = [replace(one, **change) if one.cell.live == 8 else one for one in CELLS]  # type: ignore[arg-type]
    judged = gates(worse, GRANTS)
    assert [number for number, gate in enumerate(judged) if not gate.passed] == broken
    assert all(judged[number].where == "8 live" for number in broken)


def test_other_modes_promise_nothing() -> None:
    dear = [replace(CELLS[0], cell=Cell(API, 1, 0.1), share=0.6)]
    assert all(gate.passed for gate in gates(CELLS + dear, GRANTS))


def test_a_direct_grant_that_is_not_cheap_breaks_a_promise() -> None:
    judged = gates(CELLS, [GrantTimes("direct", (0.001,)), GRANTS[1]])
    assert judged[2].passed is False


def test_without_direct_grants_nothing_about_them_is_judged() -> None:
    judged = gates([replace(CELLS[0], cell=Cell(API, 1, 0.1))], GRANTS[1:])
    assert [gate.passed for gate in judged] == [None, None, None]


def test_the_tables_name_what_was_measured() -> None:
    table = show.overhead_table(CELLS)
    assert table.count("direct + session") == 2
    assert "2.00%" in table
    assert "2.50%" in table
    assert "0.100" in show.grant_table(GRANTS)
    crowd = [CrowdCost(DEFAULT, live, (ms / 1e3,)) for live, ms in ((10, 2.0), (200, 3.0), (10, 2.0))]
    assert "1.50" in show.crowd_table(crowd)
    pairs = [CorePair((2.0, 1.0), (2.1, 0.9)), CorePair((1.8, 1.2), (2.4, 1.2))]
    assert "1.80" in show.cores_table(pairs)  # the best of each, which need not be of one pair
    assert "not measured" in show.cores_table([])
