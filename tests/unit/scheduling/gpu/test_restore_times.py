"""What a restore is expected to take."""

from __future__ import annotations

import math

import pytest

from arl_tangram.model.gpu import Footprint, HostedService, Instance
from arl_tangram.scheduling.gpu.restore_times import RestoreTimes
from arl_tangram.scheduling.relative import LONGEST_S

ONE, TWO = Instance("judge", 1), Instance("judge", 2)


def times(*restore_s: tuple[int, float]) -> RestoreTimes:
    return RestoreTimes([HostedService("judge", ((1, Footprint(1, 1)), (2, Footprint(1, 1))), restore_s)])


def test_what_was_declared_holds_until_one_was_measured() -> None:
    known = times((1, 4.0), (2, 2.0))
    known.add(ONE, 1.0)
    assert (known.expected_s(ONE), known.expected_s(TWO)) == (1.0, 2.0)


def test_then_it_is_the_mean_of_those_that_were_measured() -> None:
    known = times((1, 4.0))
    for took_s in (1.0, 2.0, 1.0, 2.0):
        known.add(ONE, took_s)
    assert known.expected_s(ONE) == pytest.approx(1.5, abs=0.2)


def test_it_follows_when_restores_become_slower() -> None:
    known = times((1, 1.0))
    for took_s in [1.0] * 50 + [10.0] * 10:
        known.add(ONE, took_s)
    assert known.expected_s(ONE) == pytest.approx(10, rel=0.2)


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -1.0])
def test_what_is_no_duration_changes_nothing(garbage: float) -> None:
    known = times((1, 4.0))
    known.add(ONE, garbage)
    assert known.expected_s(ONE) == 4.0
    assert math.isfinite(times((1, garbage)).expected_s(ONE))


def test_what_takes_no_time_is_no_zero_and_what_takes_for_ever_is_bounded() -> None:
    known = times((1, 1e300))
    assert known.expected_s(ONE) == LONGEST_S
    known.add(ONE, 0.0)
    assert 0 < known.expected_s(ONE) < 1e-3
    assert known.expected_s(Instance("unknown", 1)) > 0
