"""MOPD, distillation by several teachers: trajectories are generated, then scored by the teacher of their field."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import PowerLaw
from arl_tangram.model.gpu import HostedService
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.simulate.calls import Call, Rollout, Turn, Workload
from arl_tangram.simulate.workloads.checks import check_least, check_positive, check_share, check_whole
from arl_tangram.simulate.workloads.services import model_service


@dataclass(frozen=True, slots=True)
class Mopd:
    """How trajectories are distilled: the student generates an answer, and one of the teachers scores its tokens.

    Sources. *The paper*: arXiv 2603.13019. *Report*: the technical report of MiMo-V2-Flash, arXiv 2601.02780.
    *Requests*: 26,823 requests to 87 models, cluster-trace-v2026-GenAI of github.com/alibaba/clusterdata. *Measured*:
    what `bench evict` restores with. All others are our assumptions.

    Attributes:
        rollouts: how many trajectories (the paper: 2,048).
        shares: how often each teacher is asked, in any unit; they are the services `teacher0` and so on (the paper: 9
            teachers; requests: the shares of the nine models that are asked for most; that teachers are asked for as
            unevenly is our assumption).
        generation_s: median of the generation of an answer, log-normal; all begin at once.
        generation_sigma: standard deviation of its logarithm.
        longest_generation_s: where it is cut off, as the tokens of an answer are limited; so is its scoring.
        scoring_s: mean of a scoring on the least GPUs that a teacher can be on, log-normal (the paper: 0.621, the mean
            execution at a batch of 2,048, on numbers of GPUs that are not told).
        scoring_sigma: standard deviation of its logarithm (requests: 0.40 within a model). A longer answer takes longer
            to generate and to score: the same draw decides both.
        exponent: of the power law by which a teacher speeds up over GPUs.
        dops: on how many GPUs a teacher can be; it does not fit on fewer.
        max_concurrency: calls that may use an instance at once, without becoming slower.
        weights_gib: of a teacher (report: 309 thousand million weights, in one byte each; that teachers are like the
            student is our assumption. Nine of them fit in the 3 TB of a machine, in which they are evicted).
        work_gib: what an instance needs besides on each GPU.
        copy_gb_per_s: a restore, from host memory to each GPU (measured: 53).
        wake_s: what a restore takes besides (measured: 1.5).

    Raises:
        ConfigurationError: a value that is not possible.
    """

    rollouts: int = 2048
    shares: tuple[float, ...] = (0.366, 0.178, 0.112, 0.094, 0.090, 0.051, 0.043, 0.036, 0.032)
    generation_s: float = 120.0
    generation_sigma: float = 0.9
    longest_generation_s: float = 600.0
    scoring_s: float = 0.621
    scoring_sigma: float = 0.40
    exponent: float = 0.8
    dops: tuple[int, ...] = (4, 8)
    max_concurrency: int = 4
    weights_gib: float = 288.0
    work_gib: float = 6.0
    copy_gb_per_s: float = 53.0
    wake_s: float = 1.5

    def __post_init__(self) -> None:
        check_whole(self, "rollouts")
        check_positive(self, "generation_s", "longest_generation_s", "scoring_s", "copy_gb_per_s")
        check_least(self, "generation_sigma", "scoring_sigma", "wake_s")
        check_share(self, "exponent")
        if self.longest_generation_s < self.generation_s:
            raise ConfigurationError(
                f"Mopd(longest_generation_s={self.longest_generation_s!r}) is below the median, "
                f"generation_s={self.generation_s!r}"
            )
        if not self.shares or not all(0 < share < math.inf for share in self.shares):
            raise ConfigurationError(f"Mopd(shares=) takes a number above 0 for each teacher, not {self.shares!r}")
        self.services()

    def services(self) -> tuple[HostedService, ...]:
        """Return the teachers."""
        return tuple(
            model_service(
                _name(number),
                weights_gib=self.weights_gib,
                work_gib=self.work_gib,
                dops=self.dops,
                max_concurrency=self.max_concurrency,
                copy_gb_per_s=self.copy_gb_per_s,
                wake_s=self.wake_s,
            )
            for number in range(len(self.shares))
        )


def mopd_rollouts(mopd: Mopd, seed: int) -> Workload:
    """Draw trajectories that are generated and scored."""
    rng = np.random.default_rng(seed)
    shares = np.array(mopd.shares)
    teachers = [ActionSpec(f"score{number}", Cost(service=_name(number))) for number in range(len(shares))]
    speedup = PowerLaw(mopd.exponent)
    on_one_s = mopd.scoring_s * speedup(min(mopd.dops))
    rollouts: list[Rollout] = []
    asked: list[int] = rng.choice(len(shares), mopd.rollouts, p=shares / shares.sum()).tolist()
    longest = math.log(mopd.longest_generation_s / mopd.generation_s)
    for teacher, drawn in zip(asked, rng.standard_normal(mopd.rollouts).tolist(), strict=True):
        length = min(drawn, longest / mopd.generation_sigma) if mopd.generation_sigma else drawn
        generation_s = mopd.generation_s * math.exp(mopd.generation_sigma * length)
        scoring_s = on_one_s * math.exp(mopd.scoring_sigma * length - mopd.scoring_sigma**2 / 2)
        rollouts.append(Rollout((Turn(generation_s, (Call(teachers[teacher], scoring_s, speedup),)),)))
    return Workload(rollouts=tuple(rollouts))


def _name(number: int) -> str:
    return f"teacher{number}"
