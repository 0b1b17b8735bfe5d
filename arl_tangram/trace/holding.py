"""Integrate over time how much of each dimension is held: by calls, by windows of rates, by reservations."""

from __future__ import annotations

from collections.abc import Iterator

from arl_tangram.model.events import TrajectoryOpened
from arl_tangram.model.lifecycle import RunningAction
from arl_tangram.model.topology import Topology
from arl_tangram.trace.lending import Lending
from arl_tangram.trace.rates import Rates
from arl_tangram.trace.resizing import Resizing


class Holding:
    """What is held now, and unit-seconds of what was held.

    Memory: one entry per call that holds units, per open trajectory, and per grant of a rate whose
    window is not over.
    """

    def __init__(self, topology: Topology) -> None:
        self._cores = topology.cores
        self._core_scale = topology.core_scale
        self._rates = Rates(topology)
        self._running: dict[int, RunningAction] = {}
        self._lending = Lending()
        self._resizing = Resizing()
        self._trajectories: dict[int, TrajectoryOpened] = {}
        self._unit_s = [0.0] * len(topology.dimensions)

    def __len__(self) -> int:
        """Calls that hold units."""
        return len(self._running)

    # Calls.

    def start(self, action: RunningAction) -> None:
        """A call holds its units from now on."""
        self._running[action.pending.id] = action
        if self._rates.dimensions:
            self._rates.start(action)

    def resize(self, id_: int, units: int, at_s: float) -> None:
        """A call has so many units of its elastic dimension from now on."""
        action = self._running.get(id_)
        if action is not None:
            self._resizing.change(action, units, at_s)

    def lend(self, id_: int, units: int, at_s: float) -> None:
        """A call lets others have `units` of its cores from now on."""
        if id_ in self._running:
            self._lending.lend(id_, units, at_s)

    def resume(self, id_: int, at_s: float) -> None:
        """A call has all of its cores again."""
        self._lending.resume(id_, at_s)

    def settle(self, id_: int, dimension: int, units: int, at_s: float) -> None:
        """A call counts for other units of a rate or a budget than it did before."""
        action = self._running.get(id_)
        if action is not None:
            self._rates.settle(action, dimension, units, at_s)

    def stop(self, id_: int, at_s: float) -> tuple[str, float] | None:
        """A call returned its units: return its name and its core-seconds; None if it is not known."""
        action = self._running.pop(id_, None)
        if action is None:
            return None
        core_s = self._add_call(self._unit_s, action, at_s)
        if self._lending.loans:
            self._lending.forget(id_)
        if self._resizing.shares:
            self._resizing.forget(id_)
        if self._rates.settled:
            self._rates.stop(id_)
        return action.pending.demand.name, core_s

    # Trajectories.

    def open(self, trajectory: TrajectoryOpened) -> None:
        """A trajectory holds memory or cores from now on."""
        self._trajectories[trajectory.id] = trajectory

    def close(self, id_: int, at_s: float) -> bool:
        """A trajectory gave back what it held; return whether it was known."""
        trajectory = self._trajectories.pop(id_, None)
        if trajectory is None:
            return False
        self._add_trajectory(self._unit_s, trajectory, at_s)
        return True

    # What it amounts to.

    def running_core_s(self, until_s: float) -> Iterator[tuple[str, float]]:
        """Yield name and core-seconds so far of the calls that hold units."""
        ignored = [0.0] * len(self._unit_s)
        for action in self._running.values():
            yield action.pending.demand.name, self._add_call(ignored, action, until_s)

    def unit_s(self, until_s: float) -> list[float]:
        """Return for each dimension its unit-seconds; what is still held counts up to `until_s`."""
        unit_s = list(self._unit_s)
        for action in self._running.values():
            self._add_call(unit_s, action, until_s)
        for trajectory in self._trajectories.values():
            self._add_trajectory(unit_s, trajectory, until_s)
        self._rates.add(unit_s, until_s)
        return unit_s

    def _add_call(self, unit_s: list[float], action: RunningAction, until_s: float) -> float:
        """Add what a call held of the pool, and return its core-seconds.

        Units of a rate count by their windows. What the call got from its trajectory's reservation
        counts there, but is in its core-seconds. What it lent counts for whoever had it, and its cores
        count as they were at each time.
        """
        demand = action.pending.demand
        elapsed_s = until_s - action.started_at_s
        lent_unit_s = self._lending.unit_s(action.pending.id, until_s) if self._lending.loans else 0.0
        cores_unit_s, cpu = 0.0, -1
        for dimension, units in demand.fixed:
            if self._cores >> dimension & 1:
                cores_unit_s, cpu = cores_unit_s + units * elapsed_s, dimension
            elif dimension not in self._rates.dimensions:
                unit_s[dimension] += units * elapsed_s
        if demand.elastic is not None:
            elastic_unit_s = self._resizing.unit_s(action, until_s)
            if self._cores >> demand.elastic & 1:
                cores_unit_s, cpu = cores_unit_s + elastic_unit_s, demand.elastic
            else:
                unit_s[demand.elastic] += elastic_unit_s
        if cores_unit_s:
            cores_unit_s -= lent_unit_s
            unit_s[cpu] += cores_unit_s
        if demand.reserved:
            cores_unit_s += action.units * elapsed_s
        return cores_unit_s / self._core_scale

    def _add_trajectory(self, unit_s: list[float], trajectory: TrajectoryOpened, until_s: float) -> None:
        for dimension, units in trajectory.held:
            unit_s[dimension] += units * (until_s - trajectory.at_s)
