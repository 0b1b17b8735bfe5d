"""Workloads of calls that arrive by themselves, with or without something to learn about them."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import Elastic, PowerLaw
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import MILLI
from arl_tangram.simulate.calls import Arrival, Call, Workload

OPTIONS = (1, 2, 4, 8, 16)
"""Cores that an elastic call of the open workloads can get."""

WORK_MU, WORK_SIGMA = 0.5, 1.2
"""Seconds of a call on one core: log-normal, with this mean and standard deviation of the logarithm."""

MEAN_WORK_S = float(np.exp(WORK_MU + WORK_SIGMA**2 / 2))
"""What that is in the mean: 3.39 s."""


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
