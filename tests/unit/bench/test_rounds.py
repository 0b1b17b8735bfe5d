"""Interleaved rounds: who runs when, and what counts."""

from __future__ import annotations

import gc

import pytest

from arl_tangram.bench.contenders import Contender
from arl_tangram.bench.rounds import Series, measure, rotated


def _quiet(in_flight: int, round_: int) -> None:
    pass


def test_each_round_begins_with_another_and_the_first_does_not_count() -> None:
    ran: list[str] = []

    def contender(name: str) -> Contender:
        def run(in_flight: int) -> float:
            ran.append(name)
            return len(ran) * in_flight * 1e-6  # the n-th run takes n us per action

        return Contender(name, (10,), run)

    told: list[tuple[int, int]] = []
    series = measure(
        [contender("a"), contender("b")], (10,), 2, lambda size, round_: told.append((size, round_)), least_actions=10
    )
    assert ran == ["a", "b", "b", "a", "a", "b"]
    assert told == [(10, 0), (10, 1), (10, 2)]
    assert [(one.name, one.in_flight) for one in series] == [("a", 10), ("b", 10)]
    assert series[0].samples_us == pytest.approx((4.0, 5.0))
    assert series[1].samples_us == pytest.approx((3.0, 6.0))


def test_a_contender_runs_at_its_sizes_only() -> None:
    sizes: list[int] = []

    def run(in_flight: int) -> float:
        sizes.append(in_flight)
        return 1.0

    both = Contender("both", (10, 20), lambda in_flight: 1.0)
    series = measure([both, Contender("small", (10,), run)], (10, 20), 1, _quiet, least_actions=1)
    assert sizes == [10, 10]
    assert [(one.name, one.in_flight) for one in series] == [("both", 10), ("small", 10), ("both", 20)]


def test_nobody_pays_for_anothers_garbage_and_the_collector_stays_on() -> None:
    pending: list[int] = []

    def run(in_flight: int) -> float:
        assert gc.isenabled()
        pending.append(gc.get_count()[0])
        keep = [[i] for i in range(200)]  # fewer than make the collector come by itself
        keep.append(keep)  # type: ignore[arg-type]
        return 1.0

    measure([Contender("littering", (10,), run), Contender("next", (10,), run)], (10,), 1, _quiet, least_actions=1)
    assert max(pending) < 150


def test_a_sample_of_few_in_flight_is_the_mean_of_many_runs() -> None:
    took_s = iter(range(1, 9))
    series = measure(
        [Contender("x", (2_500,), lambda in_flight: next(took_s))], (2_500,), 1, _quiet, least_actions=9_999
    )
    assert series[0].samples_us == pytest.approx([(5 + 6 + 7 + 8) / 10_000 * 1e6])


@pytest.mark.parametrize(("by", "expected"), [(0, "abc"), (1, "bca"), (2, "cab"), (3, "abc")])
def test_rotation(by: int, expected: str) -> None:
    assert "".join(rotated("abc", by)) == expected


def test_nothing_rotates_to_nothing() -> None:
    assert rotated([], 2) == []


def test_the_median_is_one_of_an_odd_number_of_rounds() -> None:
    assert Series("x", 1, (5.0, 1.0, 100.0)).median_us == 5.0
