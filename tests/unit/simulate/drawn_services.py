"""Random workloads of calls that use services, and the pools for them: of the runtime's tests, and simulated."""

from __future__ import annotations

import numpy as np

from arl_tangram.managers.gpu.manager import EvictionPolicy
from arl_tangram.model.cost import declare_cost
from arl_tangram.model.elasticity import PowerLaw
from arl_tangram.model.gpu import GpuDevice, GpuNode
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import GIB
from arl_tangram.model.topology import PROCESSES, Dimension, Topology
from arl_tangram.simulate.calls import Arrival, Call, Rollout, Turn, Workload
from arl_tangram.simulate.gpus import Gpus
from arl_tangram.testing import FakeGpuPool, FakeService
from unit.simulate.drawn import CORES, MEMORY_GIB, SEARCH, SPECS, pools

SERVICES = (
    FakeService("small", gib=40, restore_s=0.5625, max_concurrency=3),
    FakeService("wide", gib=40, restore_s=2.3125, dops=(1, 2, 4), max_concurrency=2),
    FakeService("pair", gib=80, restore_s=4.1875, dops=(2,)),
    FakeService("alone", gib=40, restore_s=1.21875, exclusive=True, peak_gib=60),
    FakeService("large", gib=80, restore_s=8.4375, dops=(1, 2)),
)
"""Of 80 GiB on each device. Of their sizes, any hole is one that fits: the engine knows of no moves within a device.

No restore takes as long as the window of a quota, so that hardly two things happen at one instant by chance.
"""

USES = (
    *[ActionSpec(f"use {one.name}", declare_cost("use", service=one.name)) for one in SERVICES],
    ActionSpec("impatient use", declare_cost("use", service="small", cpu=1), queue_timeout=2),
    ActionSpec("limited use", declare_cost("use", service="wide", quota={"search": 1}), timeout=1.5, priority=-1),
)
"""Calls that use them, with and without cores and quotas beside."""


def fake_pool(gpus: int, policy: EvictionPolicy) -> FakeGpuPool:
    """Return the pool for a runtime."""
    return FakeGpuPool(*SERVICES, gpus=gpus, gib=80, policy=policy)


def simulated(gpus: int, policy: EvictionPolicy) -> Gpus:
    """Return the same pool for the engine."""
    devices = tuple(GpuDevice(f"fake:{number}", 80 * GIB) for number in range(gpus))
    return Gpus((GpuNode("", devices),), tuple(one.hosted() for one in SERVICES), policy)


def beside() -> Topology:
    """Return the dimensions of a runtime without GPUs, in its order."""
    return Topology([*pools(CORES, MEMORY_GIB, SEARCH).dimensions, Dimension(PROCESSES, 2 * CORES)])


def draw_uses(seed: int, *, arrivals: int = 40, rollouts: int = 10) -> Workload:
    """Draw calls, most of which use a service; times are multiples of a part of a second that floats can hold."""
    rng = np.random.default_rng(seed)
    found: list[Arrival] = []
    at_s = 0.0
    while len(found) < arrivals:
        at_s += _grain(rng.exponential(2))
        found += [Arrival(at_s, _draw_call(rng)) for _ in range(rng.integers(1, 6))]
    return Workload(tuple(found), tuple(_draw_rollout(rng) for _ in range(rollouts)))


def _draw_rollout(rng: np.random.Generator) -> Rollout:
    turns = [
        Turn(_grain(rng.exponential(1)), tuple(_draw_call(rng) for _ in range(rng.integers(0, 4))))
        for _ in range(rng.integers(0, 6))
    ]
    return Rollout(tuple(turns), _grain(rng.exponential(3)) if rng.random() < 0.5 else 0.0, 2 * GIB, "group")


def _draw_call(rng: np.random.Generator) -> Call:
    specs = USES if rng.random() < 0.8 else SPECS
    spec = specs[rng.integers(len(specs))]
    return Call(spec, _grain(rng.lognormal(0, 1)), PowerLaw(float(rng.choice([0.5, 1]))), str(rng.integers(2)))


def _grain(seconds: float) -> float:
    return max(1, round(seconds * 2**20)) / 2**20
