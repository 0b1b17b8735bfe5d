"""What simulated calls ask for, resolved: once for all that stand alike, or, if all is known, for each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from arl_tangram.model.elasticity import Elastic, PowerLaw
from arl_tangram.model.gpu import HostedService
from arl_tangram.model.lifecycle import ActionSpec, Demand
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.feasibility import resolve, trajectory_demand
from arl_tangram.scheduling.relative import relative_duration
from arl_tangram.simulate.calls import Call

_NO_SPEEDUP = PowerLaw(0)
_SHORTEST_S = 1e-6


class Demands:
    """The demands of one run.

    Args:
        core: the scheduler.
        services: those of the pool of GPUs.
        host: the number of the node where calls outside of rollouts have their cores and memory, if there are several.
        reserved: milli-cores that each rollout holds.
        known: whether the scheduler is told how long each call takes at any units; each then has a name of its own.
    """

    def __init__(
        self,
        core: SchedulerCore,
        services: Sequence[HostedService],
        *,
        host: int | None,
        reserved: int,
        known: bool,
    ) -> None:
        self._core = core
        self._services = {service.name: service for service in services}
        self._host = host
        self._reserved = reserved
        self._known = known
        self._resolved: dict[tuple[int, int, int | None], tuple[ActionSpec, Demand]] = {}
        self._rollouts: dict[int, Demand] = {}

    def rollout(self, memory_bytes: int) -> Demand:
        """Return what a rollout asks for that holds so much memory.

        Raises:
            InfeasibleError: more than any node has.
        """
        found = self._rollouts.get(memory_bytes)
        if found is None:
            topology = self._core.topology
            found = trajectory_demand(topology, memory_bytes=memory_bytes, reserved=self._reserved)
            self._rollouts[memory_bytes] = found
        return found

    def outside(self, call: Call, action_id: int) -> Demand:
        """Return what a call outside of rollouts asks for.

        Raises:
            InfeasibleError: the pools can never meet it.
        """
        return self._of(call, action_id, 0, 0, None)

    def inside(self, call: Call, action_id: int, *, memory_bytes: int, node: int) -> Demand:
        """Return what a call of a rollout asks for that holds so much memory on the node of that number.

        Raises:
            InfeasibleError: the pools can never meet it.
        """
        return self._of(call, action_id, self._reserved, memory_bytes, node)

    def _of(self, call: Call, action_id: int, reserved: int, held: int, node: int | None) -> Demand:
        if self._known:
            spec = replace(_declared(call), name=f"{call.spec.name}#{action_id}")
            return _told(call, self._resolve(spec, node, reserved, held))
        key = id(call.spec), held, node
        found = self._resolved.get(key)
        if found is None:
            found = self._resolved[key] = call.spec, self._resolve(call.spec, node, reserved, held)
        return found[1]

    def _resolve(self, spec: ActionSpec, node: int | None, reserved: int, held: int) -> Demand:
        demand = resolve(
            spec,
            self._core.topology,
            node=node,
            host=self._host,
            reserved=reserved,
            memory_held=held,
            services=self._services,
        )
        if demand.seat is not None:
            self._core.seating.check(demand)
        return demand


def _declared(call: Call) -> ActionSpec:
    """Return the action of a call as somebody would declare it who knows how long this very call takes."""
    cost = call.spec.cost
    if isinstance(cost.cpu, Elastic):
        options = cost.cpu.options
        speedup = call.speedup or _NO_SPEEDUP
        cost = replace(cost, cpu=Elastic.of(*options, speedup=speedup, resizable=cost.cpu.resizable))
    return replace(call.spec, cost=cost, duration_s=max(call.work_s, _SHORTEST_S))


def _told(call: Call, demand: Demand) -> Demand:
    """Return a demand that says how a call speeds up over GPUs."""
    seat = demand.seat
    if seat is None:
        return demand
    speedup = call.speedup or _NO_SPEEDUP
    relative = tuple([relative_duration(speedup, dop) for dop in seat.dops])
    return replace(demand, seat=replace(seat, relative=relative))
