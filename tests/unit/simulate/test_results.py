"""The figures of a run, from made-up calls."""

from __future__ import annotations

import math

import pytest

from arl_tangram.model.lifecycle import Outcome
from arl_tangram.simulate.results import Result, SimulatedCall, SimulatedRollout


def made(act_s: float, *, name: str = "act", queueing_s: float = 0.0, at_s: float = 0.0) -> SimulatedCall:
    return SimulatedCall(1, name, "", None, Outcome.OK, at_s, at_s + queueing_s, at_s + act_s, 1000)


def of(*calls: SimulatedCall, rollouts: tuple[SimulatedRollout, ...] = ()) -> Result:
    return Result(calls, rollouts, (), 0)


def test_means_and_quantiles_are_over_all_calls() -> None:
    result = of(*(made(float(act_s), queueing_s=act_s / 4) for act_s in range(1, 102)))
    assert result.mean_act_s == pytest.approx(51)
    assert result.mean_queueing_s == pytest.approx(12.75)
    assert result.p50_act_s == pytest.approx(51)
    assert result.p99_act_s == pytest.approx(100)
    assert result.act_quantile_s(0) == 1
    assert result.act_quantile_s(1) == 101


def test_nothing_has_no_mean() -> None:
    assert all(math.isnan(figure) for figure in (of().mean_act_s, of().mean_queueing_s, of().p50_act_s, of().p99_act_s))
    assert of().step_s == 0


def test_a_step_ends_with_the_last_of_calls_and_rollouts() -> None:
    rollout = SimulatedRollout(1, 0, 2, 9)
    assert of(made(4, at_s=3)).step_s == 7
    assert of(made(4, at_s=3), rollouts=(rollout,)).step_s == 9
    assert of(made(4, at_s=8), rollouts=(rollout,)).step_s == 12


def test_the_first_runs_of_each_action_can_be_left_out() -> None:
    calls = [made(float(i), name="ab"[i % 2]) for i in range(7)]
    assert [one.act_s for one in of(*calls).after(2)] == [4, 5, 6]
    assert of(*calls).after(0) == tuple(calls)
    assert of(*calls).after(4) == ()
