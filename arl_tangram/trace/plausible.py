"""What single events say that cannot be: times that go back, amounts below nothing, parts that are not the whole."""

from __future__ import annotations

from collections.abc import Iterable

from arl_tangram.model.events import (
    ActionEnded,
    ActionLent,
    ActionResized,
    ActionResumed,
    ActionStarted,
    ActionSubmitted,
    CapacityChanged,
    Event,
    TrajectoryOpened,
    UnitsSettled,
)
from arl_tangram.model.lifecycle import Demand, FinishedAction
from arl_tangram.model.topology import Topology
from arl_tangram.trace.tally import LONGEST_S

ROUNDING_S = 1e-3
"""How far times may be apart that are the same."""

_PARTS = ("queueing_s", "execution_s", "overhead_s", "suspended_s")
_OFF_BY_S, _OFF_BY = 0.01, 0.01  # clocks are read one after the other, also under load


class Plausible:
    """Judges the events of one run in their order.

    Args:
        topology: the dimensions, with what there was of them at the beginning.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._most = [dimension.capacity for dimension in topology.dimensions]
        self._last_s = -LONGEST_S

    def refusal(self, event: Event) -> str | None:
        """Say what of an event cannot be; None if all can."""
        at_s = event.at_s
        if at_s < self._last_s - ROUNDING_S:
            return f"its time {at_s:.6f} s is before {self._last_s:.6f} s, that of an earlier line: is it sorted?"
        if at_s >= LONGEST_S:
            return f"its time {at_s:g} s is later than any clock's"
        self._last_s = max(self._last_s, at_s)
        match event:
            case ActionSubmitted(action=action):
                if not -LONGEST_S < action.submitted_at_s <= at_s + ROUNDING_S:
                    return (
                        f"call {action.id} is submitted at {action.submitted_at_s:.6f} s, and its line is of {at_s:g} s"
                    )
                since_s = action.submitted_at_s if action.since_s is None else action.since_s
                if not -LONGEST_S < since_s <= action.submitted_at_s + ROUNDING_S:
                    return f"call {action.id} is tried again before it was first submitted, at {since_s:.6f} s"
                return self._of_demand(f"call {action.id}", action.demand)
            case ActionStarted():
                return self._of_start(event)
            case ActionEnded(action=action):
                return _of_end(at_s, action)
            case TrajectoryOpened():
                return self._of_trajectory(event)
            case CapacityChanged(dimension=dimension, capacity=capacity):
                self._most[dimension] = max(self._most[dimension], capacity)
                return self._below_nothing(((dimension, capacity),), "the capacity")
            case UnitsSettled(id=id_, dimension=dimension, units=units):
                return self._below_nothing(((dimension, units),), f"call {id_}")
            case (
                ActionResized(id=id_, units=units)
                | ActionLent(id=id_, units=units)
                | ActionResumed(id=id_, units=units)
            ):
                return f"call {id_} has {units} units" if units < 0 else None
            case _:
                return None

    def _of_demand(self, who: str, demand: Demand) -> str | None:
        options, scale = demand.options, self._topology.core_scale
        if list(options) != sorted({units for units in options if units > 0}):
            return f"{who} has the options {list(options)}, which are not ascending from 1"
        if len(demand.relative) != len(options) or any(value <= 0 for value in demand.relative):
            return f"{who} has the relative durations {list(demand.relative)} for the options {list(options)}"
        if (demand.elastic is None) is not (not options):
            return f"{who} has options of no dimension" if options else f"{who} has an elastic dimension and no options"
        of_cores = demand.elastic is not None and self._topology.cores >> demand.elastic & 1
        if demand.reserved < 0 or any(units % scale for units in (demand.reserved, *(options if of_cores else ()))):
            return (
                f"{who} has {demand.reserved} reserved units and the options {list(options)}, which are no whole cores"
            )
        if demand.queue_timeout is not None and not demand.queue_timeout >= 0:
            return f"{who} has queue_timeout_s {demand.queue_timeout:g}; seconds are not negative"
        if demand.duration_s is not None and not demand.duration_s >= 0:
            return f"{who} has duration_s {demand.duration_s:g}; seconds are not negative"
        return self._below_nothing(demand.fixed, who)

    def _of_start(self, event: ActionStarted) -> str | None:
        running = event.action
        demand, id_ = running.pending.demand, running.pending.id
        if running.started_at_s < running.pending.submitted_at_s - ROUNDING_S:
            return f"call {id_} starts before it was submitted"
        if running.started_at_s > event.at_s + ROUNDING_S:
            return f"call {id_} starts at {running.started_at_s:.6f} s, later than its line"
        may_have = demand.options or (demand.reserved,)
        if running.units not in may_have and (running.units or not demand.preemptible):
            there = ", ".join(map(str, may_have))
            return f"call {id_} starts on {running.units} units; it may have {there}"
        taken = demand.fixed if demand.elastic is None else (*demand.fixed, (demand.elastic, running.units))
        return self._more_than_all(taken, f"call {id_}")

    def _of_trajectory(self, event: TrajectoryOpened) -> str | None:
        who = f"trajectory {event.id}"
        if not 0 <= event.waited_s < LONGEST_S:
            return f"{who} has waited_s {event.waited_s:g}; seconds are finite and not negative"
        if event.reserved < 0 or event.reserved % self._topology.core_scale:
            return f"{who} has {event.reserved} reserved units, which are no whole cores"
        return self._below_nothing(event.held, who) or self._more_than_all(event.held, who)

    def _below_nothing(self, taken: Iterable[tuple[int, int]], who: str) -> str | None:
        for dimension, units in taken:
            if units < 0:
                return f"{who} has {units} units of {self._topology.dimensions[dimension].name}"
        return None

    def _more_than_all(self, taken: Iterable[tuple[int, int]], who: str) -> str | None:
        for dimension, units in taken:
            if units > self._most[dimension]:
                name = self._topology.dimensions[dimension].name
                return f"{who} has {units} units of {name}, which never had more than {self._most[dimension]}"
        return None


def _of_end(at_s: float, action: FinishedAction) -> str | None:
    who = f"call {action.id}"
    whole_s = 0.0
    for name in _PARTS:
        value = getattr(action, name)
        if not -ROUNDING_S <= value < LONGEST_S:
            return f"{who} has {name} {value:g}; seconds are finite and not negative"
        whole_s += value
    if action.cpu_s < 0 or action.cpu_s >= LONGEST_S or action.switches < 0:
        return f"{who} has cpu_s {action.cpu_s:g} and {action.switches} switches"
    took_s = at_s - action.submitted_at_s
    if abs(took_s - whole_s) > _OFF_BY_S + _OFF_BY * whole_s:
        return f"{who} took {took_s:.6f} s from its submission, and its parts are {whole_s:.6f} s together"
    return None
