from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.managers.usage import UsageMeter


def test_calls_one_after_the_other() -> None:
    meter = UsageMeter()
    for start_s in (0.0, 10.0):
        meter.add_call(start_s, start_s + 5)
        meter.add_command(start_s + 1, start_s + 4, 0.5)
    assert (meter.usage.overhead_s, meter.usage.cpu_s) == (4, 1)


def test_calls_at_the_same_time_count_once() -> None:
    meter = UsageMeter()
    meter.add_command(1, 9, 1)
    meter.add_call(0, 10)
    meter.add_command(2, 9.5, 1)
    meter.add_call(1, 10.5)
    assert meter.usage.overhead_s == pytest.approx(10.5 - 8.5)


def test_a_call_whose_command_never_started_is_overhead() -> None:
    meter = UsageMeter()
    meter.add_call(0, 2)
    assert meter.usage.overhead_s == 2


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=20))
def test_overlaps_equal_a_count_of_ticks(calls: list[tuple[int, int]]) -> None:
    meter = UsageMeter()
    for start, length in calls:
        meter.add_call(start, start + length)
    ticks = {tick for start, length in calls for tick in range(start, start + length)}
    assert meter.usage.overhead_s == len(ticks)
