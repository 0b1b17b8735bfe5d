"""Turn events, and the frame around them, into lines of JSON; the fields are listed in `trace.format`.

Encoding competes with the event loop for the interpreter, so that lines are formatted by hand and
what all calls of an action have in common is formatted once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from math import inf, isfinite
from typing import assert_never

from arl_tangram.model.events import (
    ActionDeferred,
    ActionEnded,
    ActionLent,
    ActionResized,
    ActionResumed,
    ActionStarted,
    ActionSubmitted,
    CapacityChanged,
    Event,
    Paused,
    PolicyRefused,
    RestoreFailed,
    ServiceEvicted,
    ServiceLost,
    ServiceRestored,
    TrajectoryClosed,
    TrajectoryOpened,
    UnitsReturned,
    UnitsSettled,
)
from arl_tangram.model.gpu import Seat
from arl_tangram.model.lifecycle import Demand, FinishedAction
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.trace.format import FORMAT, Footer, Header

_LONGEST_KEY = 64
_REMEMBERED_DEMANDS = 1024


def header_line(header: Header) -> str:
    """Return the first line of a trace."""
    dimensions = [_dimension(d) for d in header.topology.dimensions]
    record = {
        "format": FORMAT,
        "version": header.version,
        "library": header.written_by,
        "policy": header.policy,
        "clock": header.clock,
        "created_unix_s": round(header.created_unix_s, 6),
        "dimensions": dimensions,
    }
    return json.dumps(record) + "\n"


def _dimension(dimension: Dimension) -> dict[str, object]:
    record: dict[str, object] = {
        "name": dimension.name,
        "capacity": dimension.capacity,
        "scale": dimension.scale,
        "window_s": dimension.window_s,
    }
    if dimension.window_s == inf:  # JSON has no such number
        record |= {"window_s": None, "total": True}
    return record


def footer_line(footer: Footer) -> str:
    """Return the last line of a trace."""
    record = {"type": "footer", "written": footer.written, "dropped": footer.dropped, "lost": footer.lost}
    return json.dumps(record) + "\n"


@dataclass(frozen=True, slots=True)
class _DemandText:
    """What is written about a demand, formatted once."""

    demand: Demand
    submitted: str
    fixed: str
    elastic: str
    cpu: int


class EventEncoder:
    """Encode the events of one runtime.

    Args:
        topology: the dimensions that demands name by index.
    """

    def __init__(self, topology: Topology) -> None:
        self._names = [_text(dimension.name) for dimension in topology.dimensions]
        self._scales = [dimension.scale for dimension in topology.dimensions]
        self._nodes = [_text(node.name) for node in topology.nodes]
        self._cores_of = topology.cores
        self._core_scale = topology.core_scale
        self._demands: dict[int, _DemandText] = {}

    def line(self, event: Event) -> str:
        """Return the line of one event, with its line break."""
        match event:
            case ActionSubmitted():
                line = self._submitted(event)
            case ActionStarted():
                line = self._started(event)
            case ActionEnded():
                line = self._ended(event)
            case TrajectoryOpened():
                line = self._opened(event)
            case UnitsReturned() | ActionDeferred() | TrajectoryClosed():
                line = f'{_begin(event)},"id":{event.id}}}\n'
            case ActionResized() | ActionLent() | ActionResumed():
                line = f'{_begin(event)},"id":{event.id},"units":{event.units}}}\n'
            case UnitsSettled():
                dimension = self._names[event.dimension]
                line = f'{_begin(event)},"id":{event.id},"dimension":{dimension},"units":{event.units}}}\n'
            case CapacityChanged():
                line = f'{_begin(event)},"dimension":{self._names[event.dimension]},"capacity":{event.capacity}}}\n'
            case ServiceEvicted() | ServiceRestored() | RestoreFailed() | ServiceLost():
                line = f"{_begin(event)}{_of_service(event)}}}\n"
            case Paused():
                line = f'{_begin(event)},"paused":{"true" if event.paused else "false"}}}\n'
            case PolicyRefused():
                shares = ',"shares":true' if event.shares else ""
                line = f'{_begin(event)},"policy":{_text(event.policy)},"reason":{_text(event.reason)}{shares}}}\n'
            case _:
                assert_never(event)
        return line

    def _submitted(self, event: ActionSubmitted) -> str:
        action = event.action
        return (
            f'{{"type":"submitted","at_s":{_seconds(event.at_s)},"id":{action.id},'
            f'"submitted_at_s":{_seconds(action.submitted_at_s)},"key":{_key(action.key)},'
            f'"trajectory":{_number(action.trajectory)},"turn":{"true" if action.turn else "false"},'
            f'"parent":{_number(action.parent)},"since_s":{_instant(action.since_s)},'
            f"{self._demand(action.demand).submitted}}}\n"
        )

    def _started(self, event: ActionStarted) -> str:
        action = event.action
        demand = self._demand(action.pending.demand)
        # `elastic` ends with the colon that its units follow.
        granted = f"{demand.elastic}{action.units}" if demand.elastic else ""
        comma = "," if granted and demand.fixed else ""
        cores = self._cores(demand, action.units)
        return (
            f'{{"type":"started","at_s":{_seconds(event.at_s)},"id":{action.pending.id},'
            f'"started_at_s":{_seconds(action.started_at_s)},"units":{action.units},"cores":{_seconds(cores)},'
            f'"grant":{{{granted}{comma}{demand.fixed}}},"expected_s":{_seconds(action.expected_s)}'
            f"{'' if action.seat is None else _seat(action.seat)}}}\n"
        )

    def _opened(self, event: TrajectoryOpened) -> str:
        group = "null" if event.group is None else _text(event.group)
        return (
            f'{{"type":"opened","at_s":{_seconds(event.at_s)},"id":{event.id},"group":{group},'
            f'"waited_s":{_seconds(event.waited_s)},"reserved":{event.reserved},'
            f'"held":{{{self._units(event.held)}}}{self._node(event.node)}}}\n'
        )

    def _ended(self, event: ActionEnded) -> str:
        action = event.action
        error = "null" if action.error is None else _text(action.error)
        return (
            f'{{"type":"ended","at_s":{_seconds(event.at_s)},"id":{action.id},'
            f'"submitted_at_s":{_seconds(action.submitted_at_s)},"name":{_text(action.name)},"key":{_key(action.key)},'
            f'"trajectory":{_number(action.trajectory)},"outcome":"{action.outcome.value}","error":{error},'
            f'"queueing_s":{_seconds(action.queueing_s)},"execution_s":{_seconds(action.execution_s)},'
            f'"overhead_s":{_seconds(action.overhead_s)},"cpu_s":{_seconds(action.cpu_s)},'
            f'"cores":{_seconds(action.cores)}{self._node(action.node)}{_changes(action)}}}\n'
        )

    def _node(self, number: int | None) -> str:
        """Return the field that names a node, where there are several."""
        return "" if number is None else f',"node":{self._nodes[number]}'

    def _units(self, units: tuple[tuple[int, int], ...]) -> str:
        return ",".join(f"{self._names[index]}:{amount}" for index, amount in units)

    def _cores(self, text: _DemandText, units: int) -> float:
        elastic = text.demand.elastic
        from_units = text.demand.reserved or (elastic is not None and self._cores_of >> elastic & 1)
        return (text.cpu + (units if from_units else 0)) / self._core_scale

    def _demand(self, demand: Demand) -> _DemandText:
        known = self._demands.get(id(demand))
        if known is None:
            if len(self._demands) >= _REMEMBERED_DEMANDS:
                self._demands.clear()
            # The entry keeps the demand alive, so that its id stays its own.
            known = self._demands[id(demand)] = self._describe(demand)
        return known

    def _describe(self, demand: Demand) -> _DemandText:
        fixed = self._units(demand.fixed)
        elastic = "null" if demand.elastic is None else self._names[demand.elastic]
        relative = [value if isfinite(value) else None for value in demand.relative]
        submitted = (
            f'"name":{_text(demand.name)},"priority":{demand.priority},'
            f'"queue_timeout_s":{_number(demand.queue_timeout)},"duration_s":{_number(demand.duration_s)},'
            f'"fixed":{{{fixed}}},"elastic":{elastic},"options":{json.dumps(demand.options)},'
            f'"speedup":{json.dumps(self._speedups(demand))},"relative":{json.dumps(relative)},'
            f'"reserved":{demand.reserved},"learns":{"true" if demand.learns else "false"}'
            f"{self._node(demand.node)}"
        )
        if demand.preemptible:
            submitted += ',"preemptible":true'
        if demand.resizable:
            submitted += ',"resizable":true'
        if (need := demand.seat) is not None:
            declared = f',"relative":{json.dumps(need.relative)}' if need.relative else ""
            submitted += f',"seat":{{"service":{_text_or_none(need.service)},"dops":{json.dumps(need.dops)}{declared}}}'
        return _DemandText(
            demand=demand,
            submitted=submitted,
            fixed=fixed,
            elastic="" if demand.elastic is None else f"{elastic}:",
            cpu=sum(units for index, units in demand.fixed if self._cores_of >> index & 1),
        )

    def _speedups(self, demand: Demand) -> dict[int, float | None] | None:
        """Evaluate the declared speed-up at the options; a curve that is the user's own may raise anything."""
        if demand.speedup is None or demand.elastic is None:
            return None
        scale = self._scales[demand.elastic]
        values: dict[int, float | None] = {}
        for option in demand.options:
            try:
                value = float(demand.speedup(option // scale))
            except Exception:  # noqa: BLE001
                return None
            values[option // scale] = value if isfinite(value) else None
        return values


_TYPES: dict[type[Event], str] = {
    UnitsReturned: "returned",
    ActionDeferred: "deferred",
    TrajectoryClosed: "closed",
    ActionResized: "resized",
    ActionLent: "lent",
    ActionResumed: "resumed",
    UnitsSettled: "settled",
    CapacityChanged: "capacity",
    ServiceEvicted: "evicted",
    ServiceRestored: "restored",
    RestoreFailed: "unrestored",
    ServiceLost: "died",
    Paused: "paused",
    PolicyRefused: "refused",
}


def _begin(event: Event) -> str:
    return f'{{"type":"{_TYPES[type(event)]}","at_s":{_seconds(event.at_s)}'


def _of_service(event: ServiceEvicted | ServiceRestored | RestoreFailed | ServiceLost) -> str:
    fields = f',"service":{_text(event.instance.service)},"dop":{event.instance.dop},"first":{event.chunk.first}'
    return f'{fields},"took_s":{_seconds(event.took_s)}' if isinstance(event, ServiceRestored) else fields


def _changes(action: FinishedAction) -> str:
    """Return the fields about changes of its cores, if there were any."""
    if not (action.switches or action.suspended_s):
        return ""
    return f',"suspended_s":{_seconds(action.suspended_s)},"switches":{action.switches}'


def _seat(seat: Seat) -> str:
    service = None if seat.instance is None else seat.instance.service
    return (
        f',"seat":{{"service":{_text_or_none(service)},"dop":{seat.chunk.size},"first":{seat.chunk.first},'
        f'"restores":{"true" if seat.restores else "false"},"evicts":{json.dumps(seat.evicts)}}}'
    )


def _seconds(value: float) -> str:
    return f"{value:.6f}" if isfinite(value) else "null"


def _instant(at_s: float | None) -> str:
    return "null" if at_s is None else _seconds(at_s)


def _number(value: float | None) -> str:
    return repr(value) if value is not None and isfinite(value) else "null"


def _key(key: str) -> str:
    if len(key) <= _LONGEST_KEY:
        return _text(key)
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f'"blake2b:{digest}"'


def _text_or_none(value: str | None) -> str:
    return "null" if value is None else _text(value)


@lru_cache(maxsize=4096)
def _text(value: str) -> str:
    return json.dumps(value)
