"""From what a trace says of a call back to the declared action and the call that the simulator makes.

The work of a call is its execution projected to one core, with the speed-up that was declared, or else with the one
that `Durations` learns from the runs of the trace itself. Its overhead does not depend on its cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import ASSUMED_SPEEDUP, Elastic, Measured, Speedup
from arl_tangram.model.lifecycle import ActionSpec, BodyKind, Demand, FinishedAction, Outcome, RunningAction
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.topology import PROCESSES, THREADS, Topology, resource_of
from arl_tangram.replay.calls import MeasuredCall
from arl_tangram.replay.traced import TracedCall
from arl_tangram.scheduling.durations import Durations

_KEEPS_ITS_TIME = (Outcome.RUN_TIMEOUT, Outcome.CANCELLED, Outcome.INFRASTRUCTURE)
_FIRST_WITH_PREEMPTIBLE = 3


class Costs:
    """Makes calls of what a trace says about them.

    Args:
        topology: the dimensions that the trace counts.
        version: of its format.
        calls: all that were traced; speed-ups are learned from those that ended well.

    Attributes:
        assumed: actions whose speed-up is neither declared nor could be learned, as all their runs had as many cores.
        reserved: the most cores of a call that had those of its trajectory; 0 if none did.
        seated: calls with a seat of a GPU.
        limited: the most cores that an elastic action can have, if that is all that the recorded pool had; else 0.
    """

    def __init__(self, topology: Topology, version: int, calls: Iterable[TracedCall]) -> None:
        self._topology = topology
        self._version = version
        self._quotas = _quotas(topology)
        self._specs: dict[tuple[Demand, tuple[tuple[str, int], ...]], ActionSpec] = {}
        self._durations = Durations()
        self._units: dict[str, set[int]] = {}
        self._curves: dict[tuple[Demand, str], Speedup] = {}
        self.assumed: set[str] = set()
        self.reserved = 0
        self.seated = 0
        self.limited = 0
        for call in calls:
            if call.started is not None and call.ended is not None:
                self._learn(call.started, call.ended)

    def call(self, traced: TracedCall, others_s: float = 0.0) -> MeasuredCall | None:
        """Return the call to make; None for one that never ran, or had not ended.

        Args:
            traced: what became of it.
            others_s: seconds of its execution in which it waited for calls that it had made.
        """
        running, ended = traced.started, traced.ended
        if running is None or ended is None:
            return None
        demand = running.pending.demand
        spec = self._spec(traced, demand)
        speedup = None if ended.outcome in _KEEPS_ITS_TIME else self._speedup(demand, ended.key)
        execution_s, overhead_s = max(0.0, ended.execution_s - others_s), max(0.0, ended.overhead_s)
        waited_s = 0.0
        if demand.seat is not None:
            self.seated += 1
            if spec.cost == Cost():  # nothing else is held while it waits for its seat
                waited_s = max(0.0, ended.queueing_s)
        return MeasuredCall(
            spec,
            execution_s if speedup is None else execution_s * _mean_speedup(speedup, traced),
            speedup,
            ended.key,
            overhead_s=overhead_s,
            waited_s=waited_s,
            cpu_s=ended.cpu_s if 0 <= ended.cpu_s < math.inf else 0.0,
        )

    # Speed-ups.

    def _learn(self, running: RunningAction, ended: FinishedAction) -> None:
        demand = running.pending.demand
        if len(demand.options) > 1 and demand.learns and ended.outcome is Outcome.OK and not ended.switches:
            self._units.setdefault(demand.name, set()).add(running.units)
            self._durations.observe(demand, ended.key, running.units, ended.execution_s)

    def _speedup(self, demand: Demand, key: str) -> Speedup | None:
        """Return how a call scales over whole cores; None if it has one, or none, or a fraction."""
        if demand.reserved:
            self.reserved = max(self.reserved, demand.reserved // MILLI)
            return _assumed_up_to(demand.reserved // MILLI)
        if demand.elastic is None or not demand.options:
            return None
        most = demand.options[-1]
        if len(demand.options) == 1:
            return _assumed_up_to(most // MILLI)
        if most == self._topology.dimensions[demand.elastic].capacity:
            self.limited = max(self.limited, most // MILLI)
        if not demand.learns:
            return demand.speedup
        if len(self._units.get(demand.name, ())) < 2:
            self.assumed.add(demand.name)
        name = (demand, key)
        if name not in self._curves:
            self._curves[name] = self._learned(demand, key)
        return self._curves[name]

    def _learned(self, demand: Demand, key: str) -> Speedup:
        least = demand.options[0] // MILLI
        first = (demand.speedup or ASSUMED_SPEEDUP)(least)
        expected_s = self._durations.expected_curve(demand, key)
        points = {
            units // MILLI: first * expected_s[0] / at_s for units, at_s in zip(demand.options, expected_s, strict=True)
        }
        return Measured({1: 1.0} | points)

    # Declarations.

    def _spec(self, traced: TracedCall, demand: Demand) -> ActionSpec:
        """Return the action; one object for all calls that take the same."""
        tokens = self._tokens(demand, traced.settled)
        found = self._specs.get((demand, tokens))
        if found is None:
            found = self._specs[demand, tokens] = ActionSpec(
                demand.name,
                self._cost(demand, tokens),
                self._kind(demand),
                demand.priority,
                queue_timeout=demand.queue_timeout,
                duration_s=demand.duration_s,
                # A trajectory's own cores are never shared, so that its calls do not say whether they could be.
                preemptible=demand.preemptible or demand.reserved > 0 or self._version < _FIRST_WITH_PREEMPTIBLE,
            )
        return found

    def _kind(self, demand: Demand) -> BodyKind:
        names = {self._topology.dimensions[index].name for index, _ in demand.fixed}
        if THREADS in names:
            return BodyKind.THREAD
        return BodyKind.PROCESS if PROCESSES in names else BodyKind.ASYNC

    def _cost(self, demand: Demand, tokens: tuple[tuple[str, int], ...]) -> Cost:
        cpu: int | Elastic = demand.reserved or demand.milli_cores
        if len(demand.options) > 1:
            speedup = None if demand.learns else demand.speedup
            whole = (units // MILLI for units in demand.options)
            cpu = Elastic.of(*whole, speedup=speedup, resizable=demand.resizable)
        elif demand.options:
            cpu = demand.options[0]
        memory = 0
        calls: dict[str, int] = {}
        for index, units in demand.fixed:
            if resource_of(self._topology.dimensions[index].name) == "memory":
                memory = units
            elif index in self._quotas:
                quota, counted = self._quotas[index]
                if counted == "calls":
                    calls[quota] = units
                else:
                    calls.setdefault(quota, MILLI)
        return Cost(cpu=cpu, memory_bytes=memory, quota=tuple(sorted(calls.items())), tokens=tokens)

    def _tokens(self, demand: Demand, settled: dict[int, int]) -> tuple[tuple[str, int], ...]:
        """Return the tokens that a call really took of each quota, of what it may take at most."""
        found: dict[str, int] = {}
        for index, units in demand.fixed:
            quota, counted = self._quotas.get(index, ("", ""))
            if counted == "tokens" and units:
                taken = min(max(0, settled.get(index, units)), self._topology.dimensions[index].capacity)
                if taken:
                    found[quota] = taken
        return tuple(sorted(found.items()))


def _quotas(topology: Topology) -> dict[int, tuple[str, str]]:
    """Return for each dimension of a quota (its index) the name of the quota, and what it counts."""
    found: dict[int, tuple[str, str]] = {}
    for name, keys in topology.quotas.items():
        for key in keys:
            found |= dict.fromkeys(key.calls + key.concurrency, (name, "calls"))
            found |= dict.fromkeys(key.tokens, (name, "tokens"))
            found |= dict.fromkeys(key.breaker, (name, "breaker"))
    return found


def _assumed_up_to(cores: int) -> Speedup | None:
    """Return how a call with a fixed number of cores is taken to scale: not beyond them."""
    return None if cores == 1 else Measured({n: ASSUMED_SPEEDUP(n) for n in range(1, cores + 1)})


def _mean_speedup(speedup: Speedup, traced: TracedCall) -> float:
    """Return the mean over the time in which a call had cores, if these changed while it ran."""
    spans = [
        (until_s - at_s, units) for (at_s, units), (until_s, _) in pairwise([*traced.units, (traced.ended_at_s, 0)])
    ]
    held = [(span_s, speedup(units // MILLI)) for span_s, units in spans if units >= MILLI and span_s > 0]
    held_s = sum(span_s for span_s, _ in held)
    if held_s == 0:
        return speedup(max(1, traced.units[0][1] // MILLI)) if traced.units else 1.0
    return sum(span_s * faster for span_s, faster in held) / held_s
