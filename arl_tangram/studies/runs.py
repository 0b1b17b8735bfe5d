"""One simulation as a value that can be compared, sent to another process, and run: what comes out are its figures."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import NamedTuple

from arl_tangram.model.gpu import GpuNode
from arl_tangram.simulate.calls import Workload
from arl_tangram.simulate.gpus import Gpus
from arl_tangram.simulate.results import Result
from arl_tangram.simulate.workloads import (
    Coding,
    DeepSearch,
    Mopd,
    Testbed,
    coding_rollouts,
    deepsearch_rollouts,
    mopd_rollouts,
    with_durations,
)
from arl_tangram.studies.contenders import OURS, Served, on_cores, on_quotas, on_teachers

Parameters = Coding | DeepSearch | Mopd
Told = float | tuple[tuple[str, float], ...] | None
_MACHINES = Testbed()


class Figures(NamedTuple):
    """What a simulation took; seconds of simulated time, means over the calls, NaN without any.

    Attributes:
        calls: how many there were.
        act_s: action completion time; who waits for admission waits for the first call of its trajectory.
        queueing_s: of that, the wait for units or quotas, and the one for admission.
        execution_s: of that, the call itself, and on cores what the runtime adds to it.
        overhead_s: of that, the wait for the restore of a service.
        act_p99_s: the action completion time, without admission, that one call in a hundred exceeds.
        environment_s: mean action completion time of all calls but rewards; with admission.
        reward_s: that of the rewards, which are the last calls of trajectories.
        step_s: until the last trajectory has ended.
        took_s: CPU seconds that the simulation took.
    """

    calls: int
    act_s: float
    queueing_s: float
    execution_s: float
    overhead_s: float
    act_p99_s: float
    environment_s: float
    reward_s: float
    step_s: float
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """One batch, served in one way.

    Attributes:
        workload: the parameters of the trajectories.
        seed: what is drawn with.
        contender: who serves them; see `contenders`.
        machines: what they are served on.
        gpus: how many GPUs of these machines there are, whole machines and then a part of one; None for all.
        told: the factor by which actions declare their mean duration, or pairs of an action and its factor, while the
            others declare the truth; None if nothing is told.
    """

    workload: Parameters
    seed: int
    contender: str = OURS
    machines: Testbed = _MACHINES
    gpus: int | None = None
    told: Told = None

    def outcome(self) -> Figures:
        """Run it.

        Raises:
            ConfigurationError: there is no such contender for these trajectories.
            InfeasibleError: a call or trajectory that the machines can never meet.
        """
        began_s = time.process_time()
        workload = drawn(self.workload, self.seed)
        if isinstance(self.told, tuple):
            workload = with_durations(workload, of=dict(self.told))
        elif self.told is not None:
            workload = with_durations(workload, self.told)
        result = self._served(workload).run()
        return figures_of(result, rewards_of(workload))._replace(took_s=time.process_time() - began_s)

    def _served(self, workload: Workload) -> Served:
        asked = self.workload
        if isinstance(asked, Coding):
            return on_cores(workload, self.machines, self.contender)
        gpus = Gpus(first_gpus(self.machines, self.gpus), asked.services())
        if isinstance(asked, DeepSearch):
            return on_quotas(workload, asked, gpus, self.contender)
        return on_teachers(workload, gpus, self.contender)


@lru_cache(maxsize=8)
def drawn(asked: Parameters, seed: int) -> Workload:
    """Draw trajectories; the last ones are kept, as the contenders are run one after the other."""
    if isinstance(asked, Coding):
        return coding_rollouts(asked, seed)
    if isinstance(asked, DeepSearch):
        return deepsearch_rollouts(asked, seed)
    return mopd_rollouts(asked, seed)


def first_gpus(machines: Testbed, count: int | None) -> tuple[GpuNode, ...]:
    """Return the first GPUs of machines that are alike, as many as asked for; of as many machines as that takes."""
    if count is None:
        return machines.devices()
    whole, rest = divmod(count, machines.gpus)
    nodes = replace(machines, gpu_nodes=whole + (rest > 0)).devices()
    if rest:
        last = nodes[-1]
        nodes = (*nodes[:-1], GpuNode(last.name, last.devices[:rest]))
    return nodes


def rewards_of(workload: Workload) -> frozenset[str]:
    """Return the actions that are rewards: those of the last turn of a trajectory."""
    return frozenset(call.spec.name for rollout in workload.rollouts for call in rollout.turns[-1].calls)


def figures_of(result: Result, rewards: frozenset[str]) -> Figures:
    """Return the figures of a simulated batch."""
    waited_s = sum(rollout.waited_s for rollout in result.rollouts)
    admission_s = waited_s / len(result.calls)
    environment = [call.act_s for call in result.calls if call.name not in rewards]
    return Figures(
        calls=len(result.calls),
        act_s=result.mean_act_s + admission_s,
        queueing_s=result.mean_queueing_s + admission_s,
        execution_s=result.mean_execution_s,
        overhead_s=result.mean_overhead_s,
        act_p99_s=result.p99_act_s,
        environment_s=(sum(environment) + waited_s) / len(environment) if environment else float("nan"),
        reward_s=_mean(call.act_s for call in result.calls if call.name in rewards),
        step_s=result.step_s,
    )


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return fmean(known) if known else float("nan")
