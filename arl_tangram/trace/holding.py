"""Integrate over time how much of each dimension is held: by calls, by windows of rates, by reservations."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from arl_tangram.model.events import TrajectoryOpened
from arl_tangram.model.lifecycle import RunningAction
from arl_tangram.model.topology import CPU, Topology
from arl_tangram.trace.figures import DimensionFigures
from arl_tangram.trace.tally import ratio


class Holding:
    """What is held now, and unit-seconds of what was held.

    Memory: one entry per call that holds units, per open trajectory, and per grant of a rate whose
    window is not over.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._cpu = topology.index.get(CPU)
        self._cpu_scale = 1 if self._cpu is None else topology.dimensions[self._cpu].scale
        self._windows = {i: d.window_s for i, d in enumerate(topology.dimensions) if d.window_s is not None}
        self._granted: dict[int, deque[tuple[float, int]]] = {i: deque() for i in self._windows}
        self._running: dict[int, RunningAction] = {}
        self._trajectories: dict[int, TrajectoryOpened] = {}
        self._unit_s = [0.0] * len(topology.dimensions)

    def __len__(self) -> int:
        """Calls that hold units."""
        return len(self._running)

    def start(self, action: RunningAction) -> None:
        """A call holds its units from now on."""
        self._running[action.pending.id] = action
        if not self._windows:
            return
        for dimension, units in action.pending.demand.fixed:
            window_s = self._windows.get(dimension)
            if window_s is not None:
                granted = self._granted[dimension]
                if math.isinf(window_s) and granted:  # nothing ever leaves: one entry at the mean moment says as much
                    at_s, before = granted.pop()
                    mean_s = at_s + (action.started_at_s - at_s) * units / (before + units)
                    granted.append((mean_s, before + units))
                    continue
                while granted and granted[0][0] + window_s <= action.started_at_s:
                    self._unit_s[dimension] += granted.popleft()[1] * window_s
                granted.append((action.started_at_s, units))

    def stop(self, id_: int, at_s: float) -> tuple[str, float] | None:
        """A call returned its units: return its name and its core-seconds; None if it is not known."""
        action = self._running.pop(id_, None)
        if action is None:
            return None
        return action.pending.demand.name, self._add_call(self._unit_s, action, at_s)

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

    def running_core_s(self, until_s: float) -> Iterator[tuple[str, float]]:
        """Yield name and core-seconds so far of the calls that hold units."""
        ignored = [0.0] * len(self._unit_s)
        for action in self._running.values():
            yield action.pending.demand.name, self._add_call(ignored, action, until_s)

    def figures(self, until_s: float, elapsed_s: float, cpu_s: float) -> tuple[DimensionFigures, ...]:
        """Return how much of each dimension was in use.

        Args:
            until_s: until when what is held counts.
            elapsed_s: the observed time up to then.
            cpu_s: CPU seconds of all commands.
        """
        unit_s = self._until(until_s)
        figures: list[DimensionFigures] = []
        for index, dimension in enumerate(self._topology.dimensions):
            offered = dimension.capacity * elapsed_s
            figures.append(
                DimensionFigures(
                    name=dimension.name,
                    capacity=dimension.capacity / dimension.scale,
                    window_s=dimension.window_s,
                    held_unit_s=unit_s[index] / dimension.scale,
                    held_share=ratio(unit_s[index], offered),
                    used_share=ratio(cpu_s * self._cpu_scale, offered) if index == self._cpu else None,
                )
            )
        return tuple(figures)

    def _until(self, until_s: float) -> list[float]:
        unit_s = list(self._unit_s)
        for action in self._running.values():
            self._add_call(unit_s, action, until_s)
        for trajectory in self._trajectories.values():
            self._add_trajectory(unit_s, trajectory, until_s)
        for index, granted in self._granted.items():
            window_s = self._windows[index]
            unit_s[index] += sum(units * min(window_s, max(0.0, until_s - at_s)) for at_s, units in granted)
        return unit_s

    def _add_call(self, unit_s: list[float], action: RunningAction, until_s: float) -> float:
        """Add what a call held of the pool, and return its core-seconds.

        Units of a rate count by their windows. What the call got from its trajectory's reservation
        counts there, but is in its core-seconds.
        """
        demand = action.pending.demand
        elapsed_s = until_s - action.started_at_s
        cores = action.units if demand.reserved else 0
        for dimension, units in demand.fixed:
            if dimension == self._cpu:
                cores += units
            if dimension not in self._windows:
                unit_s[dimension] += units * elapsed_s
        elastic = demand.elastic
        if elastic is not None:
            unit_s[elastic] += action.units * elapsed_s
            if elastic == self._cpu:
                cores += action.units
        return cores / self._cpu_scale * elapsed_s

    def _add_trajectory(self, unit_s: list[float], trajectory: TrajectoryOpened, until_s: float) -> None:
        for dimension, units in trajectory.held:
            unit_s[dimension] += units * (until_s - trajectory.at_s)
