"""Quantiles from buckets are within 1 % of the true ones."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.trace.histogram import RELATIVE_ERROR, Histogram

durations = st.one_of(st.floats(min_value=2e-9, max_value=1e12), st.floats(min_value=1e-4, max_value=1e3))


@given(st.lists(durations, min_size=1, max_size=200), st.floats(min_value=0, max_value=1))
def test_a_quantile_is_within_the_error(values: list[float], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    true = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    assert histogram.quantile(share) == pytest.approx(true, rel=RELATIVE_ERROR)


@given(durations, st.integers(min_value=-2000, max_value=2000))
def test_edges_of_buckets_are_within_the_error(value: float, power: int) -> None:
    edge = 1.02**power
    for duration in (edge, math.nextafter(edge, 0), math.nextafter(edge, math.inf), value):
        if 2e-9 < duration < 1e12:
            histogram = Histogram()
            histogram.add(duration)
            assert histogram.quantile(0.5) == pytest.approx(duration, rel=RELATIVE_ERROR)


@given(st.lists(durations, max_size=50), st.lists(durations, max_size=50))
def test_merging_counts_both(left: list[float], right: list[float]) -> None:
    parts = Histogram(), Histogram()
    whole = Histogram()
    for histogram, values in zip(parts, (left, right), strict=True):
        for value in values:
            histogram.add(value)
            whole.add(value)
    parts[0].merge(parts[1])
    assert parts[0].buckets == whole.buckets


def test_nothing_has_no_quantile() -> None:
    assert Histogram().quantile(0.5) is None


@pytest.mark.parametrize("seconds", [0.0, 1e-9, -1.0, math.nan])
def test_what_takes_no_time_counts_as_zero(seconds: float) -> None:
    histogram = Histogram()
    histogram.add(seconds)
    assert histogram.quantile(0.99) == 0.0


def test_a_count_can_be_taken_back() -> None:
    histogram = Histogram()
    for seconds in (1.0, 2.0):
        histogram.add(seconds)
    histogram.count(2.0, -1)
    histogram.count(8.0, 1)
    assert histogram.quantile(1.0) == pytest.approx(8.0, rel=RELATIVE_ERROR)


def test_a_million_durations_take_few_buckets() -> None:
    histogram = Histogram()
    for i in range(1, 100_001):
        histogram.add(i / 100)  # from 10 ms to 1000 s
    assert len(histogram.buckets) < 600
