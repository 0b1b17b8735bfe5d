"""AI coding: trajectories that think and run one command after the other, and end with the tests of a reward."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import Elastic, Measured
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.simulate.calls import Call, Rollout, Turn, Workload
from arl_tangram.simulate.workloads.checks import (
    check_least,
    check_positive,
    check_share,
    check_tool_share,
    check_whole,
)
from arl_tangram.simulate.workloads.drawing import (
    number_of_turns,
    seconds_of_mean,
    seconds_of_median,
    thinking_scale,
)
from arl_tangram.simulate.workloads.open_loop import OPTIONS
from arl_tangram.simulate.workloads.suites import suite_speedup


@dataclass(frozen=True, slots=True)
class Coding:
    """How trajectories of a coding agent go: turns of thinking and one command, then a reward.

    Sources. *Recorded*: 158 trajectories of github.com/eunomia-bpf/agentcgroup with 7,792 calls: 56 % last less
    than 50 ms, the longest 5 % hold 42 % of the time, and 3.0 s is the mean. *Evaluations*: run times of 1,413
    evaluations, github.com/aorwall/SWE-bench-docker. *Suites*: the durations of the tests of four suites (OneGov,
    Hypha, mlcg, spras). *The paper*: arXiv 2603.13019. All others are our assumptions. `CODING_BATCH` is the
    published batch; the defaults are a small one, in which each trajectory has a task of its own.

    Attributes:
        rollouts: how many trajectories.
        every_s: mean of the exponential gaps between their starts; 0 starts all at once, as a synchronous step does.
        turns: median of the commands of a trajectory, log-normal (recorded: 35.5 as the mean of the logarithm has it).
        turns_sigma: standard deviation of its logarithm (recorded: 0.96).
        most_turns: where it is cut off (recorded: 199 at most; our assumption).
        tool_share: part of an undisturbed trajectory without its reward that is commands, over all (the paper: 0.47;
            recorded: 0.38, of single trajectories 0.002 to 0.86).
        thinking_sigma: standard deviation of the logarithm of a thinking time (recorded: 0.90).
        quick: share of commands that only look or edit (recorded: 0.56 below 50 ms).
        quick_s: their median, log-normal (recorded: 0.021).
        quick_sigma: standard deviation of its logarithm (recorded: 0.47).
        slow_s: mean of the other commands (recorded: 6.85), log-normal.
        slow_sigma: standard deviation of its logarithm; 1.0 gives the recorded share of the longest 5 %.
        slow_between: part of that variance that is between trajectories (recorded: 0.2).
        testing: share of these commands that run tests of the task, on as many cores as its suite (recorded: 0.28).
        group: trajectories of one task, one after the other: they share its suite, and the key of what is learned.
        suite_s: mean of the reward, a test suite, on one core (evaluations: 14.5). Log-normal.
        suite_sigma: standard deviation of its logarithm (evaluations: 2.18).
        suite_noise: standard deviation of its logarithm within a task (evaluations: 0.57 within an instance); part of
            `suite_sigma`. Without effect where each trajectory has a task of its own.
        longest_suite_s: where it is cut off (evaluations: 940 at most).
        tests: files of a suite, each run by one core (evaluations: 47 tests in the median, 78 in the mean).
        test_sigma: standard deviation of the logarithm of the duration of a test (suites: 2.1 to 3.8). 2.0 with 100
            files lets some suites scale to 16 cores and holds others at 4.
        suites: durations of tests of real suites, in seconds: a task takes one of these and draws its tests from it;
            without any, tests are log-normal.
        memory_gib: what a trajectory holds (recorded: peaks of 0.28 GB in the median, 2.1 GB at most).

    Raises:
        ConfigurationError: a value that is not possible.
    """

    rollouts: int = 64
    every_s: float = 0.0
    turns: float = 35
    turns_sigma: float = 0.96
    most_turns: int = 280
    tool_share: float = 0.47
    thinking_sigma: float = 0.9
    quick: float = 0.58
    quick_s: float = 0.021
    quick_sigma: float = 0.47
    slow_s: float = 6.85
    slow_sigma: float = 1.0
    slow_between: float = 0.0
    testing: float = 0.0
    group: int = 1
    suite_s: float = 60.0
    suite_sigma: float = 1.0
    suite_noise: float = 0.0
    longest_suite_s: float = math.inf
    tests: int = 100
    test_sigma: float = 2.0
    suites: tuple[tuple[float, ...], ...] = ()
    memory_gib: int = 2

    def __post_init__(self) -> None:
        check_whole(self, "rollouts", "most_turns", "group", "tests")
        check_whole(self, "memory_gib", least=0)
        check_positive(self, "turns", "quick_s", "slow_s", "suite_s")
        check_least(
            self, "every_s", "turns_sigma", "thinking_sigma", "quick_sigma", "slow_sigma", "suite_sigma", "suite_noise",
            "test_sigma",
        )  # fmt: skip
        check_share(self, "quick", "slow_between", "testing")
        check_tool_share(self, self.tool_share)
        if not self.longest_suite_s > 0:
            raise ConfigurationError(f"Coding(longest_suite_s=) takes seconds above 0, not {self.longest_suite_s!r}")
        if self.suite_noise > self.suite_sigma:
            raise ConfigurationError(
                f"Coding(suite_noise={self.suite_noise!r}) is part of suite_sigma={self.suite_sigma!r}, and no more"
            )
        if not all(tests_s and all(0 < test_s < math.inf for test_s in tests_s) for tests_s in self.suites):
            raise ConfigurationError("Coding(suites=) takes lists of durations above 0, and none that is empty")


CODING_BATCH = Coding(
    rollouts=1280,
    group=16,
    most_turns=199,
    slow_between=0.2,
    testing=0.28,
    suite_s=14.5,
    suite_sigma=2.18,
    suite_noise=0.57,
    longest_suite_s=940.0,
    memory_gib=4,
)
"""AI coding as published, a batch of 1280; other batches by `dataclasses.replace(CODING_BATCH, rollouts=256)`.

What is not told there is as recorded; that 16 trajectories share a task, and 4 GiB for each, are our assumptions.
"""


@dataclass(frozen=True, slots=True)
class _Task:
    """What trajectories of one task share.

    Attributes:
        key: of what is learned.
        group: its name, or None where each trajectory has a task of its own.
        suite_s: seconds of its suite on one core, before the noise of each run.
        speedup: of its suite.
    """

    key: str
    group: str | None
    suite_s: float
    speedup: Measured


_LOOK = ActionSpec("look", Cost(cpu=MILLI))
_COMMAND = ActionSpec("command", Cost(cpu=MILLI))
_TESTING = ActionSpec("testing", Cost(cpu=Elastic.of(*OPTIONS)))
_SUITE = ActionSpec("suite", Cost(cpu=Elastic.of(*OPTIONS)))


def coding_rollouts(coding: Coding, seed: int) -> Workload:
    """Draw trajectories of a coding agent."""
    rng = np.random.default_rng(seed)
    commands = [_commands(coding, rng) for _ in range(coding.rollouts)]
    pauses = [rng.lognormal(0, coding.thinking_sigma, len(calls)) for calls in commands]
    tools_s = sum(call.work_s for calls in commands for call in calls)
    scale = thinking_scale(tools_s, pauses, coding.tool_share)
    at_s = 0.0
    rollouts: list[Rollout] = []
    task: _Task | None = None
    for number, (calls, thinking) in enumerate(zip(commands, pauses, strict=True)):
        if coding.every_s:
            at_s += float(rng.exponential(coding.every_s))
        if task is None or number % coding.group == 0:
            task = _task(coding, number // coding.group, rng)
        known = [_of_task(call, task, coding, rng) for call in calls]
        turns = [Turn(float(pause) * scale, (call,)) for pause, call in zip(thinking, known, strict=True)]
        reward = Turn(0.0, (_suite(task, coding, rng),))
        rollouts.append(Rollout((*turns, reward), at_s, coding.memory_gib * GIB, task.group))
    return Workload(rollouts=tuple(rollouts))


def _commands(coding: Coding, rng: np.random.Generator) -> list[Call]:
    count = number_of_turns(rng, coding.turns, coding.turns_sigma, coding.most_turns)
    between = coding.slow_sigma * math.sqrt(coding.slow_between)
    within = coding.slow_sigma * math.sqrt(1 - coding.slow_between)
    mean_s = seconds_of_mean(rng, coding.slow_s, between) if between else coding.slow_s
    calls: list[Call] = []
    for quick in rng.random(count) < coding.quick:
        if quick:
            calls.append(Call(_LOOK, seconds_of_median(rng, coding.quick_s, coding.quick_sigma)))
        else:
            calls.append(Call(_COMMAND, seconds_of_mean(rng, mean_s, within)))
    return calls


def _task(coding: Coding, number: int, rng: np.random.Generator) -> _Task:
    noise = coding.suite_noise if coding.group > 1 else 0.0
    suite_s = seconds_of_mean(rng, coding.suite_s, math.sqrt(coding.suite_sigma**2 - noise**2))
    if coding.suites:
        chosen = coding.suites[int(rng.integers(len(coding.suites)))]
        tests_s = rng.choice(chosen, coding.tests)
    else:
        tests_s = rng.lognormal(0, coding.test_sigma, coding.tests)
    name = f"task{number}" if coding.group > 1 else None
    return _Task(name or "", name, suite_s, suite_speedup(tests_s.tolist(), OPTIONS))


def _of_task(call: Call, task: _Task, coding: Coding, rng: np.random.Generator) -> Call:
    """Return a command as it is, or as one that runs tests of the task."""
    if call.spec is _COMMAND and coding.testing and rng.random() < coding.testing:
        return replace(call, spec=_TESTING, speedup=task.speedup, key=task.key)
    return call


def _suite(task: _Task, coding: Coding, rng: np.random.Generator) -> Call:
    noise = seconds_of_mean(rng, 1.0, coding.suite_noise) if task.group and coding.suite_noise else 1.0
    return Call(_SUITE, min(task.suite_s * noise, coding.longest_suite_s), task.speedup, task.key)
