"""A training of several steps: batch after batch, and the scheduler keeps what it has learned."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from arl_tangram.simulate.calls import Rollout, Workload
from arl_tangram.simulate.results import Result
from arl_tangram.simulate.workloads import Coding, Testbed, coding_rollouts
from arl_tangram.studies.contenders import on_cores

_SEEDS_OF_A_TRAINING = 1000


class Steps(NamedTuple):
    """What a training took.

    Attributes:
        act_s: mean action completion time of each step, with admission; seconds.
        took_s: CPU seconds that the simulation took.
    """

    act_s: tuple[float, ...]
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Training:
    """Steps with other tasks each, served by one scheduler.

    Attributes:
        workload: the parameters of each batch.
        steps: how many.
        seed: that of step 0 is 1,000 times this, that of the next one is greater by one.
        contender: who serves them.
        machines: what they are served on.
    """

    workload: Coding
    steps: int
    seed: int
    contender: str
    machines: Testbed

    def outcome(self) -> Steps:
        """Run it, with as much time between the steps that none begins before the one before has ended."""
        began_s = time.process_time()
        batches = [coding_rollouts(self.workload, self.seed * _SEEDS_OF_A_TRAINING + n) for n in range(self.steps)]
        gap_s = 2 * max(_alone_s(rollout) for batch in batches for rollout in batch.rollouts)
        while True:
            workload = one_after_the_other(batches, gap_s)
            result = on_cores(workload, self.machines, self.contender).run()
            if not _overlap(result, self.workload.rollouts, gap_s):
                return Steps(_acts_s(result, self.workload.rollouts), time.process_time() - began_s)
            gap_s *= 2


def one_after_the_other(batches: Sequence[Workload], gap_s: float) -> Workload:
    """Return batches that begin so many seconds after each other; what is learned of a task is of its batch alone."""
    rollouts: list[Rollout] = []
    for number, batch in enumerate(batches):
        for rollout in batch.rollouts:
            turns = [
                replace(turn, calls=tuple([replace(c, key=f"{number}.{c.key}") if c.key else c for c in turn.calls]))
                for turn in rollout.turns
            ]
            group = None if rollout.group is None else f"{number}.{rollout.group}"
            rollouts.append(replace(rollout, turns=tuple(turns), at_s=number * gap_s + rollout.at_s, group=group))
    return Workload(rollouts=tuple(rollouts))


def _alone_s(rollout: Rollout) -> float:
    return sum(turn.thinking_s + max((call.work_s for call in turn.calls), default=0.0) for turn in rollout.turns)


def _overlap(result: Result, batch: int, gap_s: float) -> bool:
    return any(rollout.closed_at_s >= (place // batch + 1) * gap_s for place, rollout in enumerate(result.rollouts))


def _acts_s(result: Result, batch: int) -> tuple[float, ...]:
    steps = len(result.rollouts) // batch
    acts_s: list[list[float]] = [[] for _ in range(steps)]
    waited_s = [0.0] * steps
    for call in result.calls:
        assert call.rollout is not None
        acts_s[call.rollout // batch].append(call.act_s)
    for place, rollout in enumerate(result.rollouts):
        waited_s[place // batch] += rollout.waited_s
    return tuple([fmean(acts) + waited / len(acts) for acts, waited in zip(acts_s, waited_s, strict=True)])
