"""Random workloads of every kind of call, open and closed, and the pools for them."""

from __future__ import annotations

import numpy as np

from arl_tangram.managers.quota import Quota
from arl_tangram.model.cost import declare_cost
from arl_tangram.model.elasticity import Elastic, PowerLaw
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import GIB
from arl_tangram.model.topology import THREADS, Dimension, Topology
from arl_tangram.simulate.calls import Arrival, Call, Rollout, Turn, Workload
from arl_tangram.testing import FakePool

CORES, MEMORY_GIB = 6, 8
SEARCH = Quota("search", calls=3, period_s=2, concurrency=2)
MOST_THREADS = 128

SPECS = (
    ActionSpec("elastic", declare_cost("elastic", cpu=Elastic(1, 4))),
    ActionSpec("impatient", declare_cost("impatient", cpu=1), queue_timeout=3),
    ActionSpec("fraction", declare_cost("fraction", cpu=0.5), timeout=1.5),
    ActionSpec("search", declare_cost("search", quota={"search": 1}), queue_timeout=1),
    ActionSpec("late", declare_cost("late", cpu=Elastic.of(2, 4), memory_gib=2), priority=1, duration_s=2.0),
    ActionSpec("early", declare_cost("early", cpu=1, quota={"search": 1}), priority=-1),
)


def pools(cores: int = CORES, memory_gib: int = MEMORY_GIB, *quotas: Quota) -> Topology:
    """Return the dimensions of a runtime with a `FakePool`, in its order."""
    dimensions = [
        *FakePool(cores=cores, memory_gib=memory_gib).manager().dimensions(),
        Dimension(THREADS, MOST_THREADS),
    ]
    for quota in quotas:
        dimensions += quota.dimensions()
    return Topology(dimensions)


def draw_workload(seed: int, *, arrivals: int = 30, rollouts: int = 10) -> Workload:
    """Draw a workload whose times are multiples of a microsecond or so, so that hardly two of them coincide by chance.

    Those that coincide do so on purpose: bursts, and rollouts that open together.
    """
    rng = np.random.default_rng(seed)
    found: list[Arrival] = []
    at_s = 0.0
    while len(found) < arrivals:
        at_s += _grain(rng.exponential(1))
        found += [Arrival(at_s, _draw_call(rng)) for _ in range(rng.integers(1, 6))]
    return Workload(tuple(found), tuple(_draw_rollout(rng) for _ in range(rollouts)))


def _draw_rollout(rng: np.random.Generator) -> Rollout:
    turns = [
        Turn(_grain(rng.exponential(1)), tuple(_draw_call(rng) for _ in range(rng.integers(0, 4))))
        for _ in range(rng.integers(0, 6))
    ]
    at_s = _grain(rng.exponential(3)) if rng.random() < 0.5 else 0.0
    memory_bytes = int(rng.integers(2, 5)) * GIB if rng.random() < 0.5 else 0
    return Rollout(tuple(turns), at_s, memory_bytes, "group")


def _draw_call(rng: np.random.Generator) -> Call:
    spec = SPECS[rng.integers(len(SPECS))]
    return Call(spec, _grain(rng.lognormal(0, 1)), PowerLaw(float(rng.uniform(0.3, 1))), str(rng.integers(2)))


def _grain(seconds: float) -> float:
    return max(1, round(seconds * 2**20)) / 2**20
