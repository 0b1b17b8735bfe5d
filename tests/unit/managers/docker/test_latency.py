from __future__ import annotations

import random

import pytest

from arl_tangram.managers.docker.latency import LatencyMeter


def test_nothing_measured_is_nothing_told() -> None:
    assert LatencyMeter().read() == {}


def test_operations_are_kept_apart_and_failures_counted() -> None:
    meter = LatencyMeter()
    for seconds in (0.1, 0.1, 0.1, 0.4):
        meter.add("create", seconds, ok=seconds < 0.4)
    meter.add("start", 2.0, ok=True)
    create, start = meter.read()["create"], meter.read()["start"]
    assert (create.count, create.failures, create.max_s) == (4, 1, 0.4)
    assert create.mean_s == pytest.approx(0.175)
    assert create.p50_s == pytest.approx(0.1, rel=0.05)
    assert create.p99_s == pytest.approx(0.4, rel=0.05)
    assert (start.count, start.failures) == (1, 0)


def test_quantiles_are_near_the_true_ones() -> None:
    draw = random.Random(5)
    meter, durations = LatencyMeter(), sorted(draw.lognormvariate(-5, 2) for _ in range(5000))
    for seconds in durations:
        meter.add("x", seconds, ok=True)
    told = meter.read()["x"]
    assert told.p50_s == pytest.approx(durations[2499], rel=0.05)
    assert told.p99_s == pytest.approx(durations[4949], rel=0.05)
    assert told.max_s == durations[-1]


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e-9, 1e-5, 1e9])
def test_absurd_durations_are_counted(seconds: float) -> None:
    meter = LatencyMeter()
    meter.add("x", seconds, ok=True)
    told = meter.read()["x"]
    assert told.count == 1
    assert 0.0 <= told.p50_s <= told.max_s == max(0.0, seconds)


def test_memory_does_not_grow() -> None:
    meter = LatencyMeter()
    for n in range(1000):
        meter.add(f"operation {n}", 1.0, ok=True)
    assert len(meter.read()) == 64
