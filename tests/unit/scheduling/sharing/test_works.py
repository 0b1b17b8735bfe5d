"""What is expected to remain of a call: as declared, as guessed, or by the quotients of what was seen."""

from __future__ import annotations

from math import inf, isfinite, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.sharing.works import Remaining, Works
from property.worlds import make_demand, make_topology

TOPOLOGY = make_topology(cores=8)
PLAIN = make_demand(TOPOLOGY, "plain", cpu=1)
TESTS = make_demand(TOPOLOGY, "tests", cpu=1, duration_s=10)


def test_a_declared_duration_is_believed_until_it_is_over() -> None:
    remaining = Works(Durations()).of(TESTS, "")
    assert remaining.remaining_s(0.0) == 10
    assert remaining.remaining_s(7.0) == pytest.approx(3)
    assert remaining.remaining_s(10.0) == 10, "as much again"
    assert remaining.remaining_s(25.0) == 25
    assert remaining.next_s(0.0) == 5


def test_where_nothing_is_declared_as_much_remains_as_was_done() -> None:
    remaining = Works(Durations()).of(PLAIN, "")
    assert remaining.remaining_s(0.0) == 1
    assert remaining.next_s(0.0) == 1
    assert remaining.remaining_s(4.0) == 4


def test_calls_that_are_alike_have_left_what_they_have_not_done() -> None:
    works = Works(Durations())
    remaining = works.of(PLAIN, "")
    for _ in range(20):
        works.observe(PLAIN, "", 10.0)
    assert remaining.remaining_s(0.0) == pytest.approx(10), "it follows what is learned"
    assert remaining.remaining_s(5.1) == pytest.approx(5, rel=0.2)
    assert remaining.remaining_s(20.0) == 20


def test_where_a_few_are_far_longer_the_rest_grows_with_what_was_done() -> None:
    works = Works(Durations())
    for _ in range(10):
        for work_s in (0.1,) * 9 + (100.0,):
            works.observe(PLAIN, "", work_s)
    remaining = works.of(PLAIN, "")
    assert remaining.remaining_s(0.0) == pytest.approx(0.111, rel=0.01), "0.1 s each, and nine of ten end"
    assert remaining.remaining_s(1.0) > 50, "that it is one of the long ones is certain"
    assert remaining.next_s(0.0) <= 0.15


def test_keys_tell_calls_apart_and_new_ones_are_taken_for_the_others() -> None:
    works = Works(Durations())
    for _ in range(8):
        works.observe(PLAIN, "short", 0.1)
        works.observe(PLAIN, "long", 50.0)
    assert works.of(PLAIN, "short").remaining_s(0.0) == pytest.approx(0.1)
    assert works.of(PLAIN, "long").remaining_s(0.0) == pytest.approx(50)
    assert 0.1 < works.of(PLAIN, "new").remaining_s(0.0) < 1
    assert works.of(TESTS, "new").remaining_s(0.0) == 10


def test_the_last_works_count() -> None:
    works = Works(Durations())
    for work_s in (1.0, 40.0):
        for _ in range(200):
            works.observe(PLAIN, "", work_s)
    assert works.of(PLAIN, "").remaining_s(0.0) == pytest.approx(40)


def test_what_is_known_is_bounded() -> None:
    works = Works(Durations())
    for number in range(21_000):
        works.observe(PLAIN, str(number), 1.0)
    assert len(works._known) <= 20_000


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=200), st.floats(0, 1e9))
def test_what_remains_is_a_number_whatever_was_seen(seen: list[float], attained_s: float) -> None:
    works = Works(Durations())
    remaining = works.of(PLAIN, "")
    for work_s in (*seen, nan, inf, -1.0):
        works.observe(PLAIN, "", work_s)
    left_s, next_s = remaining.remaining_s(attained_s), remaining.next_s(attained_s)
    assert isfinite(left_s)
    assert left_s > 0
    assert next_s > attained_s


def test_it_is_asked_for_rarely() -> None:
    works, chance = Works(Durations()), Random(1)
    for _ in range(128):
        works.observe(PLAIN, "", chance.lognormvariate(0, 2))
    assert _asked(works.of(PLAIN, ""), 1000.0) < 40
    assert _asked(works.of(TESTS, ""), 9.999) < 12


def _asked(remaining: Remaining, until_s: float) -> int:
    attained_s, times = 0.0, 0
    while attained_s < until_s:
        attained_s = remaining.next_s(attained_s)
        times += 1
    return times
