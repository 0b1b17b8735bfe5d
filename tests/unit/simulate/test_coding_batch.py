"""The published batch of AI coding is as its sources tell."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.elasticity import Elastic, Measured
from arl_tangram.model.quantities import GIB
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.policies import elastic, reserved
from arl_tangram.simulate.calls import Call, Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.workloads import CODING_BATCH, Coding, Testbed, coding_rollouts, suite_speedup


@pytest.fixture(scope="module")
def batch() -> Workload:
    return coding_rollouts(CODING_BATCH, seed=1)


def commands_of(workload: Workload) -> list[Call]:
    return [call for one in workload.rollouts for turn in one.turns[:-1] for call in turn.calls]


def rewards_of(workload: Workload) -> list[Call]:
    return [one.turns[-1].calls[0] for one in workload.rollouts]


def test_all_start_at_once_and_hold_memory(batch: Workload) -> None:
    assert len(batch.rollouts) == 1280
    assert all(one.at_s == 0 and one.memory_bytes == 4 * GIB for one in batch.rollouts)
    assert max(len(one.turns) for one in batch.rollouts) <= 200


def test_commands_are_as_recorded(batch: Workload) -> None:
    work = np.array([call.work_s for call in commands_of(batch)])
    assert (work < 0.05).mean() == pytest.approx(0.56, abs=0.02)
    assert work.mean() == pytest.approx(3.03, rel=0.1)
    longest = np.sort(work)[-len(work) // 20 :]
    assert longest.sum() / work.sum() == pytest.approx(0.42, abs=0.04)
    thinking_s = sum(turn.thinking_s for one in batch.rollouts for turn in one.turns)
    assert work.sum() / (work.sum() + thinking_s) == pytest.approx(0.47)


@pytest.mark.parametrize("share", [0.1, 0.86])
def test_the_share_of_time_in_tools_is_what_is_asked_for(share: float) -> None:
    workload = coding_rollouts(replace(CODING_BATCH, rollouts=100, tool_share=share), seed=2)
    work_s = sum(call.work_s for call in commands_of(workload))
    thinking_s = sum(turn.thinking_s for one in workload.rollouts for turn in one.turns)
    assert work_s / (work_s + thinking_s) == pytest.approx(share)


def test_slow_commands_of_a_trajectory_are_alike_as_recorded(batch: Workload) -> None:
    logs = [
        np.log([call.work_s for turn in one.turns[:-1] for call in turn.calls if call.spec.name != "look"])
        for one in batch.rollouts
    ]
    many = [values for values in logs if len(values) >= 20]
    within = np.mean([values.var(ddof=1) for values in many])
    between = np.var([values.mean() for values in many], ddof=1) - np.mean(
        [values.var() / len(values) for values in many]
    )
    assert len(many) > 200
    assert between / (within + between) == pytest.approx(0.2, abs=0.04)
    assert within + between == pytest.approx(1.0, rel=0.1)


def test_some_commands_run_tests_on_several_cores(batch: Workload) -> None:
    slow = [call for call in commands_of(batch) if call.spec.name != "look"]
    tests = [call for call in slow if isinstance(call.spec.cost.cpu, Elastic)]
    assert len(tests) / len(slow) == pytest.approx(0.28, abs=0.01)
    assert all(call.speedup is None for call in slow if call.spec.name == "command")
    for one in batch.rollouts:
        reward = one.turns[-1].calls[0]
        own = [call for turn in one.turns[:-1] for call in turn.calls if call.spec.name == "testing"]
        assert all(call.speedup is reward.speedup and call.key == reward.key for call in own)


def test_rewards_are_as_evaluations_were() -> None:
    many = replace(CODING_BATCH, rollouts=8000, group=2, turns=1, turns_sigma=0.0, tests=1)
    rewards = rewards_of(coding_rollouts(many, seed=1))
    work = np.array([call.work_s for call in rewards])
    assert np.log(work).std() == pytest.approx(2.18, rel=0.05)
    assert np.median(work) == pytest.approx(1.45, rel=0.15)
    assert work.mean() == pytest.approx(14.5, rel=0.25)
    assert work.max() <= 940
    longest = np.sort(work)[-len(work) // 20 :]
    assert longest.sum() / work.sum() == pytest.approx(0.63, abs=0.08)
    differences = np.log(work[::2]) - np.log(work[1::2])
    assert differences.std() / np.sqrt(2) == pytest.approx(0.57, rel=0.05)


def test_trajectories_of_a_task_share_its_suite_and_its_key(batch: Workload) -> None:
    for number, (name, members) in enumerate(groupby(batch.rollouts, key=lambda one: one.group)):
        rewards = [one.turns[-1].calls[0] for one in members]
        assert name == f"task{number}"
        assert len(rewards) == 16
        assert {call.key for call in rewards} == {name}
        assert len({id(call.speedup) for call in rewards}) == 1
        assert len({call.work_s for call in rewards}) > 1
    assert number == 79


def test_suites_scale_as_differently_as_recorded_ones(batch: Workload) -> None:
    speedups = [call.speedup(16) for call in rewards_of(batch)[::16] if isinstance(call.speedup, Measured)]
    assert len(speedups) == 80
    assert min(speedups) < 3  # by file, recorded suites reach 3.3 to 11.9
    assert max(speedups) > 11


def test_a_last_task_may_have_fewer_trajectories() -> None:
    workload = coding_rollouts(Coding(rollouts=5, group=2, turns=1), seed=1)
    assert [one.group for one in workload.rollouts] == ["task0", "task0", "task1", "task1", "task2"]


def test_tests_are_drawn_from_lists_of_durations() -> None:
    one_long = (1.0, 1.0, 1.0, 1.0, 1000.0)
    alike = (3.0,)
    workload = coding_rollouts(Coding(rollouts=40, turns=1, tests=16, suites=(one_long, alike)), seed=1)
    speedups = {call.speedup for call in rewards_of(workload)}
    assert suite_speedup([3.0] * 16, (1, 2, 4, 8, 16)) in speedups
    uneven = [speedup for speedup in speedups if speedup is not None and speedup(16) < 16]
    assert len(uneven) > 1


def test_a_seed_draws_the_same_batch() -> None:
    small = replace(CODING_BATCH, rollouts=32, turns=3)
    assert coding_rollouts(small, 6) == coding_rollouts(small, 6)
    assert coding_rollouts(small, 6) != coding_rollouts(small, 7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rollouts": 0}, "rollouts.*whole number from 1, not 0"),
        ({"group": 1.5}, "group.*1.5"),
        ({"memory_gib": 0.5}, "memory_gib.*whole number from 0, not 0.5"),
        ({"tool_share": 1.0}, "tool_share.*below 1, not 1.0"),
        ({"tool_share": 0.0}, "tool_share.*above 0"),
        ({"slow_s": 0.0}, "slow_s.*above 0"),
        ({"slow_s": float("nan")}, "slow_s.*nan"),
        ({"every_s": -1.0}, "every_s.*from 0, not -1.0"),
        ({"testing": 1.1}, "testing.*from 0 to 1, not 1.1"),
        ({"suite_noise": 1.5}, "suite_noise=1.5.*suite_sigma=1.0"),
        ({"longest_suite_s": 0.0}, "longest_suite_s.*above 0"),
        ({"suites": ((),)}, "suites"),
        ({"suites": ((1.0, 0.0),)}, "suites"),
    ],
)
def test_what_is_not_possible_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Coding(**options)  # type: ignore[arg-type]


def test_it_runs_on_the_machines() -> None:
    small = coding_rollouts(replace(CODING_BATCH, rollouts=48, turns=3), seed=6)
    machines = Topology(Testbed(nodes=2, cores=16).dimensions())
    assert len(machines.nodes) == 2
    ours = simulate(small, machines, elastic())
    theirs = simulate(small, machines, reserved(4))
    assert {call.name for call in ours.calls} == {"look", "command", "testing", "suite"}
    assert len(ours.rollouts) == len(theirs.rollouts) == 48
    assert ours.step_s < theirs.step_s  # eight hold cores at a time, of 48
