"""The command `bench plan`: what it measures, on a small cluster, and what it makes of made-up figures."""

from __future__ import annotations

import pytest

from arl_tangram.bench.decisions import CORES, NODES, Burst, Rounds, burst, rounds
from arl_tangram.bench.plan import Figures, gates, table
from arl_tangram.scheduling.policies import fixed


def test_a_burst_is_decided_to_its_end() -> None:
    measured = burst(fixed(1), 300)
    assert len(measured.decides_s) >= 1
    assert all(second >= 0 for second in measured.decides_s)
    assert measured.total_s == pytest.approx(sum(measured.decides_s))


def test_rounds_keep_as_many_waiting() -> None:
    measured = rounds(fixed(16), 50, 20)
    assert measured.waiting == 50
    assert len(measured.rounds_s) == 20
    assert measured.per_action_s == pytest.approx((sum(measured.rounds_s) + measured.submits_s) / 20)
    assert NODES * CORES == 3840


def figures(
    decides_ms: tuple[float, ...] = (9.0, 9.0), rounds_us: tuple[float, ...] = (100.0,) * 9, times_dearer: float = 1.0
) -> Figures:
    few = Rounds(1_000, (50e-6,) * 10, 50e-5)
    many = Rounds(100_000, (50e-6 * times_dearer,) * 10, 50e-5 * times_dearer)
    return Figures(
        "mine",
        (Burst(tuple(ms / 1e3 for ms in decides_ms)),),
        (Rounds(10_000, tuple(us / 1e6 for us in rounds_us), 0.0),),
        ((few, many),),
    )


@pytest.mark.parametrize(
    ("changed", "broken"),
    [
        (figures(), []),
        (figures(decides_ms=(9.0,) * 6), [0]),
        (figures(decides_ms=(11.0,)), [1]),
        (figures(rounds_us=(201.0,) * 9), [2]),
        (figures(rounds_us=(*[100.0] * 9, 10_001.0)), [3]),
        (figures(times_dearer=1.51), [4]),
    ],
)
def test_each_promise(changed: Figures, broken: list[int]) -> None:
    assert [number for number, gate in enumerate(gates(changed)) if gate.passed is False] == broken


def test_times_are_medians_of_the_repeats_and_the_longest_is_that_of_all() -> None:
    one, two, three = figures(), figures(decides_ms=(30.0,)), figures(decides_ms=(12.0, 1.0))
    together = Figures("mine", one.bursts + two.bursts + three.bursts, one.many, one.growth)
    assert together.burst_ms == pytest.approx(18.0)
    assert together.longest_decide_ms == pytest.approx(30.0)
    assert together.few_us == pytest.approx(100.0)


def test_the_table_has_a_row_for_each_policy() -> None:
    lines = table([figures(), figures()]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].split() == ["mine", "18.00", "9.00", "100.00", "0.10", "100.00", "100.00", "1.00"]
