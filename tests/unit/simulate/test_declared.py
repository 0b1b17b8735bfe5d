"""What is declared of a workload's durations changes nothing else of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.simulate.calls import Call, Workload
from arl_tangram.simulate.workloads import (
    Coding,
    Mix,
    Mopd,
    coding_rollouts,
    mopd_rollouts,
    open_calls,
    with_durations,
)


def calls_of(workload: Workload) -> list[Call]:
    closed = [call for one in workload.rollouts for turn in one.turns for call in turn.calls]
    return [*(arrival.call for arrival in workload.arrivals), *closed]


@pytest.mark.parametrize(
    "workload",
    [
        open_calls(Mix(100, load=0.8), seed=1),
        coding_rollouts(Coding(rollouts=8, turns=5), seed=1),
        mopd_rollouts(Mopd(rollouts=50), seed=1),
    ],
    ids=["open", "coding", "mopd"],
)
@pytest.mark.parametrize("factor", [0.1, 1.0, 10.0])
def test_each_action_declares_its_mean_work_times_the_factor(workload: Workload, factor: float) -> None:
    told = with_durations(workload, factor)
    by_name: dict[str, list[Call]] = {}
    for before, after in zip(calls_of(workload), calls_of(told), strict=True):
        assert replace(after, spec=before.spec) == before
        assert replace(after.spec, duration_s=None) == before.spec
        by_name.setdefault(after.spec.name, []).append(after)
    for calls in by_name.values():
        assert len({id(call.spec) for call in calls}) == 1
        assert calls[0].spec.duration_s == pytest.approx(factor * np.mean([call.work_s for call in calls]))
    assert [one.at_s for one in told.arrivals] == [one.at_s for one in workload.arrivals]
    assert [[turn.thinking_s for turn in one.turns] for one in told.rollouts] == [
        [turn.thinking_s for turn in one.turns] for one in workload.rollouts
    ]
    assert [(one.group, one.memory_bytes) for one in told.rollouts] == [
        (one.group, one.memory_bytes) for one in workload.rollouts
    ]


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_a_factor_is_above_nothing(factor: float) -> None:
    with pytest.raises(ConfigurationError, match="above 0"):
        with_durations(Workload(), factor)


def test_some_actions_may_declare_otherwise() -> None:
    workload = coding_rollouts(Coding(rollouts=8, turns=5), seed=1)
    told = {call.spec.name: call.spec.duration_s for call in calls_of(with_durations(workload, 2.0, of={"suite": 0.1}))}
    true = {call.spec.name: call.spec.duration_s for call in calls_of(with_durations(workload))}
    assert set(told) == {"look", "command", "suite"}
    for name, duration_s in true.items():
        assert duration_s is not None
        assert told[name] == pytest.approx((0.1 if name == "suite" else 2.0) * duration_s)
    with pytest.raises(ConfigurationError, match="no action 'tests'"):
        with_durations(workload, of={"tests": 2.0})
    with pytest.raises(ConfigurationError, match="above 0"):
        with_durations(workload, of={"suite": 0.0})
