"""Generated workloads have the properties that they state, and the seed is all that they depend on."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest

from arl_tangram.model.elasticity import Elastic, Measured, PowerLaw
from arl_tangram.model.quantities import GIB
from arl_tangram.scheduling.policies import fixed
from arl_tangram.simulate.calls import Call, Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.workloads import (
    MEAN_WORK_S,
    OPTIONS,
    Coding,
    Kinds,
    Mix,
    coding_rollouts,
    kinds_of_calls,
    open_calls,
    pool,
    suite_speedup,
)

STEADY = Mix(20_000, load=0.8, elastic=0.3, exponents=(0.5, 0.9))


def load_of(workload: Workload, cores: int) -> float:
    work_s = sum(arrival.call.work_s for arrival in workload.arrivals)
    return work_s / workload.arrivals[-1].at_s / cores


def elastic_of(call: Call) -> bool:
    return isinstance(call.spec.cost.cpu, Elastic)


def test_open_calls_are_as_stated() -> None:
    workload = open_calls(STEADY, seed=1)
    calls = [arrival.call for arrival in workload.arrivals]
    work = np.log([call.work_s for call in calls])
    assert len(calls) == 20_000
    assert (work.mean(), work.std()) == pytest.approx((0.5, 1.2), abs=0.03)
    assert np.mean([call.work_s for call in calls]) == pytest.approx(MEAN_WORK_S, rel=0.05)
    assert load_of(workload, 64) == pytest.approx(0.8, rel=0.05)
    elastic = [call for call in calls if elastic_of(call)]
    assert len(elastic) / len(calls) == pytest.approx(0.3, abs=0.02)
    exponents = [call.speedup.exponent for call in elastic if isinstance(call.speedup, PowerLaw)]
    assert len(exponents) == len(elastic)
    assert (min(exponents), max(exponents)) == pytest.approx((0.5, 0.9), abs=0.01)
    assert all(call.speedup is None for call in calls if not elastic_of(call))


def test_bursts_arrive_at_once_and_only_full_ones() -> None:
    mix = Mix(1000, load=0.5, burst=64)
    times = [arrival.at_s for arrival in open_calls(mix, seed=1).arrivals]
    assert [len(list(group)) for _, group in groupby(times)] == [64] * 15
    long = open_calls(Mix(64_000, load=0.5, burst=64), seed=1)
    assert load_of(long, 64) == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("prior", [None, 1.0, 3.0])
@pytest.mark.parametrize("speedups", [False, True])
def test_what_is_declared_of_a_kind_changes_no_call(prior: float | None, speedups: bool) -> None:
    mix = Mix(400, load=0.8, elastic=0.3)
    plain = kinds_of_calls(mix, Kinds(), seed=3)
    declared = kinds_of_calls(mix, Kinds(prior=prior, speedups=speedups), seed=3)
    for one, other in zip(plain.arrivals, declared.arrivals, strict=True):
        assert (one.at_s, one.call.work_s, one.call.speedup) == (other.at_s, other.call.work_s, other.call.speedup)
        assert one.call.spec.name == other.call.spec.name
        cpu = other.call.spec.cost.cpu
        if isinstance(cpu, Elastic):
            assert cpu.options == OPTIONS
            assert cpu.speedup == (other.call.speedup if speedups else None)


def test_kinds_have_their_own_mean_and_noise() -> None:
    workload = kinds_of_calls(Mix(40_000, load=0.8, elastic=0.5), Kinds(noise=0.3, prior=1.0), seed=1)
    by_kind = {
        name: [arrival.call for arrival in workload.arrivals if arrival.call.spec.name == name]
        for name in sorted({arrival.call.spec.name for arrival in workload.arrivals})
    }
    assert list(by_kind) == [f"kind{i}" for i in range(8)]
    means = []
    for calls in by_kind.values():
        assert len(calls) / 40_000 == pytest.approx(1 / 8, rel=0.1)
        means.append(np.mean([call.work_s for call in calls]))
        assert means[-1] == pytest.approx(calls[0].spec.duration_s, rel=0.03)
        assert np.log([call.work_s for call in calls]).std() == pytest.approx(0.3, abs=0.01)
        assert len({call.speedup for call in calls}) == 1
    assert means == sorted(means)
    assert means[-1] / means[0] > 20
    assert np.mean(means) == pytest.approx(MEAN_WORK_S, rel=0.02)
    assert sum(elastic_of(calls[0]) for calls in by_kind.values()) == 4
    assert load_of(workload, 64) == pytest.approx(0.8, rel=0.05)


def test_wrong_priors_are_wrong_either_way() -> None:
    ratios: set[float] = set()
    for seed in range(3):
        true = kinds_of_calls(Mix(100, load=0.8), Kinds(prior=1.0), seed)
        wrong = kinds_of_calls(Mix(100, load=0.8), Kinds(prior=3.0), seed)
        for one, other in zip(true.arrivals, wrong.arrivals, strict=True):
            assert one.call.spec.duration_s is not None
            assert other.call.spec.duration_s is not None
            ratios.add(round(other.call.spec.duration_s / one.call.spec.duration_s, 6))
    assert ratios == {3.0, 0.333333}


def test_coding_rollouts_are_as_stated() -> None:
    workload = coding_rollouts(Coding(rollouts=400), seed=1)
    commands = [call for one in workload.rollouts for turn in one.turns[:-1] for call in turn.calls]
    work = np.array([call.work_s for call in commands])
    assert (work < 0.05).mean() == pytest.approx(0.56, abs=0.02)
    assert work.mean() == pytest.approx(3.0, rel=0.1)
    longest = np.sort(work)[-len(work) // 20 :]
    assert longest.sum() / work.sum() == pytest.approx(0.42, abs=0.04)
    thinking = sum(turn.thinking_s for one in workload.rollouts for turn in one.turns)
    assert work.sum() / (work.sum() + thinking) == pytest.approx(0.47)
    turns = [len(one.turns) - 1 for one in workload.rollouts]
    assert np.median(turns) == pytest.approx(35, rel=0.15)
    assert min(turns) >= 1
    assert max(turns) <= 280
    assert all(one.at_s == 0 and one.memory_bytes == 2 * GIB for one in workload.rollouts)
    rewards = [one.turns[-1].calls[0] for one in workload.rollouts]
    assert all(len(one.turns[-1].calls) == 1 and one.turns[-1].thinking_s == 0 for one in workload.rollouts)
    assert np.mean([call.work_s for call in rewards]) == pytest.approx(60, rel=0.15)
    speedups = [call.speedup(16) for call in rewards if isinstance(call.speedup, Measured)]
    assert len(speedups) == 400
    assert min(speedups) < 5
    assert max(speedups) > 13


def test_rollouts_can_start_one_after_the_other() -> None:
    starts = [one.at_s for one in coding_rollouts(Coding(rollouts=2000, turns=1, every_s=3.0), seed=1).rollouts]
    assert starts == sorted(starts)
    assert np.diff(starts).mean() == pytest.approx(3, rel=0.1)


def test_a_suite_goes_to_whichever_core_is_free_the_longest_test_first() -> None:
    speedup = suite_speedup([1, 2, 3, 4], (1, 2, 4, 8))
    assert [speedup(cores) for cores in (1, 2, 4, 8)] == [1, 2, 2.5, 2.5]
    assert suite_speedup([5.0], (1, 2))(2) == 1


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: open_calls(Mix(200, load=0.9), seed),
        lambda seed: kinds_of_calls(Mix(200, load=0.9), Kinds(prior=3.0), seed),
        lambda seed: coding_rollouts(Coding(rollouts=8, turns=5, every_s=1.0), seed),
    ],
    ids=["open", "kinds", "coding"],
)
def test_a_seed_draws_the_same_calls(draw) -> None:  # type: ignore[no-untyped-def]
    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_they_run() -> None:
    result = simulate(coding_rollouts(Coding(rollouts=8, turns=5), seed=1), pool(8), fixed(4))
    assert len(result.rollouts) == 8
    assert {one.name for one in result.calls} == {"look", "command", "suite"}
    assert result.step_s > result.p99_act_s > result.mean_act_s > 0
