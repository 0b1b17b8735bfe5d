"""Seeded workloads to compare policies with: every parameter is stated, and the same seed draws the same calls.

`open_calls` are calls that arrive by themselves, each unlike the others; `kinds_of_calls` are calls of a few
actions, of which something can be learned; `coding_rollouts` are closed: trajectories that think between their calls.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import Elastic, Measured, PowerLaw
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import CPU, MEMORY, THREADS, Dimension, Topology
from arl_tangram.simulate.calls import Arrival, Call, Rollout, Turn, Workload

OPTIONS = (1, 2, 4, 8, 16)
"""Cores that an elastic call of the open workloads can get."""

WORK_MU, WORK_SIGMA = 0.5, 1.2
"""Seconds of a call on one core: log-normal, with this mean and standard deviation of the logarithm."""

MEAN_WORK_S = float(np.exp(WORK_MU + WORK_SIGMA**2 / 2))
"""What that is in the mean: 3.39 s."""


def pool(cores: int, *, memory_gib: int = 1024, threads: int = 128) -> Topology:
    """Return cores, memory and threads of a runtime with one pool of cores."""
    return Topology(
        [Dimension(CPU, cores * MILLI, MILLI), Dimension(MEMORY, memory_gib * GIB, GIB), Dimension(THREADS, threads)]
    )


@dataclass(frozen=True, slots=True)
class Mix:
    """How the calls of an open workload arrive and scale.

    Attributes:
        actions: how many calls; a last burst that is not full is left out.
        load: work that arrives (seconds on one core) per second and core of the pool; above 1 the queue grows.
        burst: calls that arrive at once; the gaps between bursts are exponential.
        elastic: share of calls that can use more than one core.
        exponents: least and most exponent of the power law of their speed-up; uniform in between.
        cores: size of the pool that the load is meant for.
    """

    actions: int
    load: float
    burst: int = 1
    elastic: float = 0.5
    exponents: tuple[float, float] = (0.4, 1.0)
    cores: int = 64


_SINGLE = ActionSpec("single", Cost(cpu=MILLI))
_ELASTIC = ActionSpec("elastic", Cost(cpu=Elastic.of(*OPTIONS)))


def open_calls(mix: Mix, seed: int) -> Workload:
    """Draw calls that have nothing in common; to be run with the durations known."""
    rng = np.random.default_rng(seed)
    arrivals: list[Arrival] = []
    gap_s = mix.burst * MEAN_WORK_S / (mix.load * mix.cores)
    at_s = 0.0
    for _ in range(mix.actions // mix.burst):
        at_s += float(rng.exponential(gap_s))
        for _ in range(mix.burst):
            work_s = float(rng.lognormal(WORK_MU, WORK_SIGMA))
            if rng.random() < mix.elastic:
                exponent = float(rng.uniform(*mix.exponents))
                arrivals.append(Arrival(at_s, Call(_ELASTIC, work_s, PowerLaw(exponent))))
            else:
                arrivals.append(Arrival(at_s, Call(_SINGLE, work_s)))
    return Workload(tuple(arrivals))


@dataclass(frozen=True, slots=True)
class Kinds:
    """What the actions of an open workload are, of which something can be learned.

    The kinds are equally frequent. Their mean work spreads like the work of `open_calls` (at the middle of
    equal parts of that distribution, scaled to its mean); which of them are elastic is drawn.

    Attributes:
        count: how many actions there are.
        noise: standard deviation of the logarithm of a call's work around the mean of its kind.
        prior: None if nothing is declared; else each kind declares as `duration_s` its mean work times this or
            divided by this, whichever a coin says; 1 declares the truth.
        speedups: whether the true speed-up is declared.
    """

    count: int = 8
    noise: float = 0.3
    prior: float | None = None
    speedups: bool = False


def kinds_of_calls(mix: Mix, kinds: Kinds, seed: int) -> Workload:
    """Draw calls of a few actions; what is declared about them changes nothing about the calls."""
    rng = np.random.default_rng(seed)
    actions = _actions(mix, kinds, rng)
    gap_s = mix.burst * MEAN_WORK_S / (mix.load * mix.cores)
    centre = -(kinds.noise**2) / 2  # so that the mean of the noise is 1
    at_s = 0.0
    arrivals: list[Arrival] = []
    for _ in range(mix.actions // mix.burst):
        at_s += float(rng.exponential(gap_s))
        for kind, noise in zip(
            rng.integers(kinds.count, size=mix.burst), rng.lognormal(centre, kinds.noise, mix.burst), strict=True
        ):
            spec, mean_s, speedup = actions[int(kind)]
            arrivals.append(Arrival(at_s, Call(spec, mean_s * float(noise), speedup)))
    return Workload(tuple(arrivals))


def _actions(mix: Mix, kinds: Kinds, rng: np.random.Generator) -> list[tuple[ActionSpec, float, PowerLaw | None]]:
    """Return what is declared of each kind, its mean work in seconds, and its true speed-up."""
    elastic = set(rng.permutation(kinds.count)[: round(mix.elastic * kinds.count)].tolist())
    found: list[tuple[ActionSpec, float, PowerLaw | None]] = []
    for number, mean_s in enumerate(_spread(kinds.count)):
        speedup = PowerLaw(float(rng.uniform(*mix.exponents)))
        longer = bool(rng.random() < 0.5)
        cpu = Elastic.of(*OPTIONS, speedup=speedup if kinds.speedups else None) if number in elastic else MILLI
        prior_s = None
        if kinds.prior is not None:
            prior_s = mean_s * (kinds.prior if longer else 1 / kinds.prior)
        spec = ActionSpec(f"kind{number}", Cost(cpu=cpu), duration_s=prior_s)
        found.append((spec, mean_s, speedup if number in elastic else None))
    return found


def _spread(count: int) -> list[float]:
    """Return mean seconds at the middle of `count` equal parts of the distribution of work, scaled to its mean."""
    normal = NormalDist(WORK_MU, WORK_SIGMA)
    means = np.exp([normal.inv_cdf((i + 0.5) / count) for i in range(count)])
    return [float(mean) for mean in means * (MEAN_WORK_S / means.mean())]


@dataclass(frozen=True, slots=True)
class Coding:
    """How trajectories of a coding agent go: turns of thinking and one command, then a reward.

    Where a source is given, it is 158 recorded trajectories (github.com/eunomia-bpf/agentcgroup): 7,792 calls, of
    which 56 % last less than 50 ms, the longest 5 % hold 42 % of the time, and 3.0 s is the mean.

    Attributes:
        rollouts: how many trajectories.
        every_s: mean of the exponential gaps between their starts; 0 starts all at once, as a synchronous step does.
        turns: median of the commands of a trajectory, log-normal (recorded: 35).
        turns_sigma: standard deviation of its logarithm (recorded: 0.96).
        most_turns: where it is cut off (recorded: 280 at most).
        tool_share: part of an undisturbed trajectory without its reward that is commands, over all (the paper: 0.47).
        thinking_sigma: standard deviation of the logarithm of a thinking time (recorded: 0.90).
        quick: share of commands that only look or edit (recorded: 0.56 below 50 ms).
        quick_s: their median, log-normal with 0.47 (recorded).
        slow_s: mean of the other commands (recorded: 6.85), log-normal.
        slow_sigma: standard deviation of its logarithm; 1.0 gives the recorded share of the longest 5 %.
        suite_s: mean of the reward, a test suite, on one core; our assumption. Log-normal with 1.0.
        tests: files of a suite, each run by one core; their durations are log-normal with 2.0 (recorded suites:
            2.1 to 3.8), which with 100 files lets some suites scale to 16 cores and holds others at 4.
        memory_gib: what a trajectory holds.
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
    slow_s: float = 6.85
    slow_sigma: float = 1.0
    suite_s: float = 60.0
    tests: int = 100
    memory_gib: int = 2


_LOOK = ActionSpec("look", Cost(cpu=MILLI))
_COMMAND = ActionSpec("command", Cost(cpu=MILLI))
_SUITE = ActionSpec("suite", Cost(cpu=Elastic.of(*OPTIONS)))
_QUICK_SIGMA, _SUITE_SIGMA, _TEST_SIGMA = 0.47, 1.0, 2.0


def coding_rollouts(coding: Coding, seed: int) -> Workload:
    """Draw trajectories of a coding agent."""
    rng = np.random.default_rng(seed)
    commands = [_commands(coding, rng) for _ in range(coding.rollouts)]
    pauses = [rng.lognormal(0, coding.thinking_sigma, len(calls)) for calls in commands]
    tools_s = sum(call.work_s for calls in commands for call in calls)
    scale = tools_s * (1 / coding.tool_share - 1) / sum(float(p.sum()) for p in pauses)
    at_s = 0.0
    rollouts: list[Rollout] = []
    for calls, thinking in zip(commands, pauses, strict=True):
        if coding.every_s:
            at_s += float(rng.exponential(coding.every_s))
        turns = [Turn(float(pause) * scale, (call,)) for pause, call in zip(thinking, calls, strict=True)]
        rollouts.append(Rollout((*turns, Turn(0.0, (_suite(coding, rng),))), at_s, coding.memory_gib * GIB))
    return Workload(rollouts=tuple(rollouts))


def _commands(coding: Coding, rng: np.random.Generator) -> list[Call]:
    count = min(coding.most_turns, max(1, round(float(rng.lognormal(math.log(coding.turns), coding.turns_sigma)))))
    calls: list[Call] = []
    for quick in rng.random(count) < coding.quick:
        if quick:
            calls.append(Call(_LOOK, float(rng.lognormal(math.log(coding.quick_s), _QUICK_SIGMA))))
        else:
            centre = math.log(coding.slow_s) - coding.slow_sigma**2 / 2
            calls.append(Call(_COMMAND, float(rng.lognormal(centre, coding.slow_sigma))))
    return calls


def _suite(coding: Coding, rng: np.random.Generator) -> Call:
    work_s = float(rng.lognormal(math.log(coding.suite_s) - _SUITE_SIGMA**2 / 2, _SUITE_SIGMA))
    return Call(_SUITE, work_s, suite_speedup(rng.lognormal(0, _TEST_SIGMA, coding.tests).tolist(), OPTIONS))


def suite_speedup(tests_s: Sequence[float], cores: Iterable[int]) -> Measured:
    """Return how a suite speeds up whose tests go to whichever core is free, the longest first."""
    in_order = sorted(tests_s, reverse=True)
    total_s = sum(in_order)
    return Measured({count: total_s / _makespan_s(in_order, count) for count in cores})


def _makespan_s(tests_s: Iterable[float], cores: int) -> float:
    ends = [0.0] * cores
    for test_s in tests_s:
        heapq.heapreplace(ends, ends[0] + test_s)
    return max(ends)
