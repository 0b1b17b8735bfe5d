"""Measure the scheduler by itself: what a burst costs, and what each end of an action costs while many wait.

Fifteen nodes of 256 cores each, as in the paper's cluster; calls are pinned to one node, as a sandbox is, and are
elastic with five options. The clock is the CPU time of this thread: a decision neither waits nor sleeps, and what
else happens on the machine does not count. The garbage collector comes as it does by default.
"""

from __future__ import annotations

import gc
import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arl_tangram.model.elasticity import PowerLaw
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.policies import Policy

NODES = 15
CORES = 256
OPTIONS = (1, 2, 4, 8, 16)
_KINDS = 16
_SEED = 1


@dataclass(frozen=True, slots=True)
class Burst:
    """A burst on an idle cluster: seconds of each call of `decide` until nothing more could start."""

    decides_s: tuple[float, ...]

    @property
    def total_s(self) -> float:
        """Seconds until all that can start has started."""
        return sum(self.decides_s)


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds on a full cluster: one call ends, the core decides, another is submitted.

    Attributes:
        waiting: calls that wait all the time.
        rounds_s: seconds of each `finish` with the `decide` after it.
        submits_s: seconds of all submissions.
    """

    waiting: int
    rounds_s: tuple[float, ...]
    submits_s: float

    @property
    def per_action_s(self) -> float:
        """Seconds that a call costs: submitting, deciding and ending it."""
        return (sum(self.rounds_s) + self.submits_s) / len(self.rounds_s)


def burst(policy: Policy, actions: int) -> Burst:
    """Submit a burst to an idle cluster, then decide until nothing more is to be done."""
    cluster = _Cluster(policy)
    for _ in range(actions):
        cluster.submit()
    gc.collect()
    decides_s: list[float] = []
    more = True
    while more:
        began_s = time.thread_time()
        more = cluster.decide()
        decides_s.append(time.thread_time() - began_s)
    return Burst(tuple(decides_s))


def rounds(policy: Policy, waiting: int, count: int) -> Rounds:
    """Fill the cluster, let `waiting` more queue up, and measure `count` rounds."""
    cluster = _Cluster(policy)
    for _ in range(NODES * CORES + waiting):
        cluster.submit()
    cluster.settle()
    while cluster.waiting > waiting:
        cluster.finish_first()
        cluster.settle()
    gc.collect()
    rounds_s: list[float] = []
    submits_s = 0.0
    for _ in range(count):
        began_s = time.thread_time()
        cluster.finish_first()
        cluster.settle()
        decided_s = time.thread_time()
        rounds_s.append(decided_s - began_s)
        while cluster.waiting < waiting:
            cluster.submit()
        submits_s += time.thread_time() - decided_s
    return Rounds(waiting, tuple(rounds_s), submits_s)


class _Cluster:
    """A core with calls that last exactly as long as it expects, and the time at which they do."""

    def __init__(self, policy: Policy) -> None:
        self._core = SchedulerCore(
            Topology([Dimension(f"cpu:{node}", CORES * MILLI, MILLI) for node in range(NODES)]), policy
        )
        self._rng = np.random.default_rng(_SEED)
        self._demands = _demands(self._rng)
        self._now_s = 0.0
        self._next_id = 0
        self._ends: list[tuple[float, int, RunningAction]] = []

    @property
    def waiting(self) -> int:
        """Calls that wait."""
        return self._core.waiting

    def submit(self) -> None:
        """Submit a call to the next node."""
        self._next_id += 1
        node = self._demands[self._next_id % NODES]
        self._core.submit(PendingAction(self._next_id, node[self._next_id // NODES % _KINDS], self._now_s))

    def decide(self) -> bool:
        """Decide once; return whether there is more to decide."""
        decisions = self._core.decide(self._now_s)
        for running in decisions.started:
            heapq.heappush(self._ends, (self._now_s + running.expected_s, running.pending.id, running))
        return decisions.more

    def settle(self) -> None:
        """Decide until nothing more is to be done."""
        while self.decide():
            pass

    def finish_first(self) -> None:
        """Go to the next end of a call, and end it."""
        self._now_s, action_id, running = heapq.heappop(self._ends)
        self._core.finish(action_id, self._now_s, running.expected_s)


def _demands(rng: np.random.Generator) -> Sequence[Sequence[Demand]]:
    """Return sixteen kinds of calls for each node, alike on all nodes but for their place."""
    options = tuple(units * MILLI for units in OPTIONS)
    kinds = [(float(rng.lognormal(0.5, 1.2)), PowerLaw(float(rng.uniform(0.5, 1.0)))) for _ in range(_KINDS)]
    return [
        [
            Demand(
                name=f"kind{kind}",
                fixed=(),
                elastic=node,
                options=options,
                speedup=speedup,
                relative=tuple(1 / speedup(units) for units in OPTIONS),
                dimensions=1 << node,
                duration_s=work_s,
            )
            for kind, (work_s, speedup) in enumerate(kinds)
        ]
        for node in range(NODES)
    ]
