"""A running mean of durations: it is a mean, it follows steps, and single runs do not spoil it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

import pytest

from arl_tangram.scheduling.relative import LONGEST_S
from arl_tangram.scheduling.running_mean import RunningMean, bounded


def mean_of(durations_s: Iterable[float], at_once: int = 1) -> RunningMean:
    durations = list(durations_s)
    mean = RunningMean(durations[0])
    for i in range(1, len(durations), at_once):
        mean.add(durations[i : i + at_once])
    return mean


def lognormal(chance: random.Random, sigma: float, mean_s: float = 1.0) -> float:
    return mean_s * chance.lognormvariate(-sigma * sigma / 2, sigma)


def off(estimate: float, truth: float) -> float:
    """How far off an estimate is, as a factor of at least 1."""
    return math.exp(abs(math.log(estimate / truth)))


def typical(run: Callable[[random.Random], float], seeds: int = 40) -> float:
    """The root mean square of the logarithm of what comes out over seeds, as a factor of at least 1."""
    return math.exp(math.sqrt(sum(math.log(run(random.Random(seed))) ** 2 for seed in range(seeds)) / seeds))


def test_the_first_runs_weigh_the_same() -> None:
    assert mean_of([1.0, 2.0, 6.0]).mean_s == pytest.approx(3)
    assert mean_of([5.0] * 3 + [7.0] * 20).mean_s == pytest.approx((15 + 140) / 23)


@pytest.mark.parametrize(("sigma", "runs", "factor"), [(0.3, 16, 1.1), (1.2, 64, 1.3), (1.2, 400, 1.15)])
def test_it_is_the_mean_of_work_with_heavy_tails_not_the_median(sigma: float, runs: int, factor: float) -> None:
    assert typical(lambda chance: mean_of(lognormal(chance, sigma) for _ in range(runs)).mean_s) < factor


def test_a_tail_of_one_run_in_ten_is_believed() -> None:
    def run(chance: random.Random) -> float:
        seen = (100.0 if chance.random() < 0.1 else 0.01 for _ in range(1000))
        return mean_of(seen).mean_s / 10

    assert typical(run) < 1.4


@pytest.mark.parametrize("sigma", [0.0, 0.1, 0.3, 1.2])
@pytest.mark.parametrize("step", [5.0, 0.2])
def test_a_step_is_believed_within_some_tens_of_runs(sigma: float, step: float) -> None:
    def run(chance: random.Random) -> float:
        before = [lognormal(chance, sigma) for _ in range(297)]
        return mean_of([*before, *(lognormal(chance, sigma, step) for _ in range(40))], at_once=8).mean_s / step

    assert typical(run) < 1.5


@pytest.mark.parametrize("sigma", [0.1, 0.3, 1.2])
def test_steady_durations_make_no_steps(sigma: float) -> None:
    steps = 0
    for seed in range(30):
        chance = random.Random(seed)
        steps += mean_of([lognormal(chance, sigma) for _ in range(1000)], at_once=8).steps
    assert steps <= 6, "in 30,000 runs"


@pytest.mark.parametrize(("sigma", "most"), [(0.0, 1.03), (0.3, 1.05), (1.2, 1.3)])
@pytest.mark.parametrize("outlier", [1000.0, 0.001])
def test_one_outlier_among_hundreds_moves_it_by_little(sigma: float, most: float, outlier: float) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        mean = mean_of(lognormal(chance, sigma) for _ in range(300))
        before_s, steps = mean.mean_s, mean.steps
        mean.add((outlier,))
        assert off(mean.mean_s, before_s) < most
        assert mean.steps == steps


@pytest.mark.parametrize("absurd", [LONGEST_S, 1e-6])
@pytest.mark.parametrize("place", range(8))
def test_an_absurd_run_among_the_first_is_soon_forgotten(absurd: float, place: int) -> None:
    durations = [2.0] * 64
    durations[place] = absurd
    assert off(mean_of(durations[:9]).mean_s, 2.0) < 2.1
    assert off(mean_of(durations).mean_s, 2.0) < 1.2


@pytest.mark.parametrize("burst", [16, 64, 256, 1024])
@pytest.mark.parametrize("sigma", [0.3, 1.2])
def test_what_starts_together_and_ends_in_order_of_duration_makes_no_steps(burst: int, sigma: float) -> None:
    steps = 0
    for seed in range(5):
        chance = random.Random(seed)
        bursts = [sorted(lognormal(chance, sigma) for _ in range(burst)) for _ in range(4096 // burst)]
        steps += mean_of([duration_s for ended in bursts for duration_s in ended], at_once=8).steps
    assert steps <= 5, "in 20,480 runs"


def test_several_at_once_come_to_much_the_same() -> None:
    chance = random.Random(3)
    seen = [lognormal(chance, 0.5, 1.0 if i < 300 else 4.0) for i in range(600)]
    assert mean_of(seen, at_once=8).mean_s == pytest.approx(mean_of(seen, at_once=4).mean_s, rel=0.1)
    assert mean_of(seen, at_once=8).runs == 600


@pytest.mark.parametrize("runs", [3, 300])
def test_what_was_seen_can_be_projected(runs: int) -> None:
    mean, other = mean_of([2.0] * runs), mean_of([6.0] * runs)
    mean.project(math.log(3))
    mean.add((6.0,) * 5)
    other.add((6.0,) * 5)
    assert mean.mean_s == pytest.approx(other.mean_s)
    assert mean.level == pytest.approx(other.level)


@pytest.mark.parametrize(
    ("expected_s", "told_s"), [(0.0, 1e-6), (-1.0, 1e-6), (3.0, 3.0), (1e308, LONGEST_S), (math.nan, LONGEST_S)]
)
def test_estimates_are_bounded(expected_s: float, told_s: float) -> None:
    assert bounded(expected_s) == told_s
