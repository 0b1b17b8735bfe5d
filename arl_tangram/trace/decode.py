"""Turn lines of a trace back into events; the fields are listed in `trace.format`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import cast

from arl_tangram.errors import TraceFormatError
from arl_tangram.model.elasticity import Measured, Speedup
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
from arl_tangram.model.gpu import Chunk, Instance, Seat, SeatNeed
from arl_tangram.model.lifecycle import Demand, FinishedAction, Outcome, PendingAction, RunningAction
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import CPU, MEMORY, Dimension, Topology, resource_of
from arl_tangram.trace.fields import Fields, integer_of, number_of, refuse, shown
from arl_tangram.trace.format import FIELDS, FORMAT, VERSION, Footer, Header

_REMEMBERED_DEMANDS = 1024
_SCALES = {CPU: MILLI, MEMORY: GIB}


def read_header(value: object) -> Header:
    """Return the header that a parsed first line holds.

    Raises:
        TraceFormatError: it is not the header of a trace, or one of a newer version of the format.
    """
    fields = Fields(value)
    if fields.get("format") != FORMAT:
        raise TraceFormatError(f"not a trace: format is {shown(fields.get('format'))}, not {FORMAT!r}")
    version = fields.integer("version")
    if not 1 <= version <= VERSION:
        raise TraceFormatError(f"version {version} of the format; this library reads up to {VERSION}: upgrade it")
    return Header(
        written_by=fields.text("library"),
        policy=fields.text("policy"),
        clock=fields.text("clock"),
        created_unix_s=fields.number("created_unix_s"),
        topology=Topology(_dimensions(fields)),
        version=version,
    )


def _dimensions(fields: Fields) -> Iterable[Dimension]:
    """Return the dimensions of a header, each of which is there once."""
    found: dict[str, Dimension] = {}
    for item in fields.items("dimensions"):
        dimension = _dimension(Fields(item))
        if dimension.name in found:
            raise TraceFormatError(f"the dimension {shown(dimension.name)} is there twice")
        found[dimension.name] = dimension
    return found.values()


def _dimension(fields: Fields) -> Dimension:
    name, scale, capacity = fields.text("name"), fields.integer("scale"), fields.integer("capacity")
    if scale < 1:
        refuse("scale", "an integer from 1", scale)
    if (usual := _SCALES.get(resource_of(name) or "", scale)) != scale:
        refuse("scale", f"{usual} for {name}", scale)
    if capacity < 0:
        refuse("capacity", "an integer from 0", capacity)
    window_s = math.inf if fields.is_true("total") else fields.number_or_none("window_s")
    if window_s is not None and not window_s > 0:
        refuse("window_s", "seconds above 0", window_s)
    return Dimension(name, capacity, scale, window_s)


class EventDecoder:
    """Decode the lines after the header; remembers the calls that wait, because `started` only names their id.

    Args:
        topology: the dimensions, from the header.
        version: of the format, from the header; earlier ones lack some fields.
    """

    def __init__(self, topology: Topology, version: int = VERSION) -> None:
        self._topology = topology
        self._version = version
        self._nodes = {node.name: number for number, node in enumerate(topology.nodes)}
        self.unknown: dict[str, None] = {}  # fields that are on lines and that no version has, in their order
        self._waiting: dict[int, PendingAction] = {}
        self._demands: dict[Demand, Demand] = {}
        self._readers: dict[str, Callable[[Fields], Event | Footer | None]] = {
            "submitted": self._submitted,
            "started": self._started,
            "resized": lambda fields: ActionResized(
                fields.instant("at_s"), fields.integer("id"), fields.integer("units")
            ),
            "ended": self._ended,
            "deferred": lambda fields: ActionDeferred(fields.instant("at_s"), fields.integer("id")),
            "returned": lambda fields: UnitsReturned(fields.instant("at_s"), fields.integer("id")),
            "lent": lambda fields: ActionLent(fields.instant("at_s"), fields.integer("id"), fields.integer("units")),
            "resumed": lambda fields: ActionResumed(
                fields.instant("at_s"), fields.integer("id"), fields.integer("units")
            ),
            "settled": lambda fields: UnitsSettled(
                fields.instant("at_s"), fields.integer("id"), self._dimension(fields), fields.integer("units")
            ),
            "opened": self._opened,
            "refused": lambda fields: PolicyRefused(
                fields.instant("at_s"),
                fields.text("policy"),
                fields.text("reason"),
                fields.has("shares") and fields.flag("shares"),
            ),
            "closed": lambda fields: TrajectoryClosed(fields.instant("at_s"), fields.integer("id")),
            "capacity": lambda fields: CapacityChanged(
                fields.instant("at_s"), self._dimension(fields), fields.integer("capacity")
            ),
            "evicted": lambda fields: ServiceEvicted(fields.instant("at_s"), *_instance(fields)),
            "restored": lambda fields: ServiceRestored(
                fields.instant("at_s"), *_instance(fields), fields.number("took_s")
            ),
            "unrestored": lambda fields: RestoreFailed(fields.instant("at_s"), *_instance(fields)),
            "died": lambda fields: ServiceLost(fields.instant("at_s"), *_instance(fields)),
            "paused": lambda fields: Paused(fields.instant("at_s"), fields.flag("paused")),
            "footer": _footer,
        }

    def record(self, value: object) -> Event | Footer | None:
        """Return what a parsed line records; None for a start whose submission is not in the file.

        Raises:
            TraceFormatError: a field is missing or has the wrong type; the message names it.
        """
        fields = Fields(value)
        kind = fields.text("type")
        reader = self._readers.get(kind)
        if reader is None:
            raise TraceFormatError(f"unknown type {shown(kind)}; there are {', '.join(self._readers)}")
        if not fields.are_among(FIELDS[kind]):
            self.unknown |= fields.besides(FIELDS[kind])
        return reader(fields)

    def _submitted(self, fields: Fields) -> ActionSubmitted:
        action = PendingAction(
            id=fields.integer("id"),
            demand=self._demand(fields),
            submitted_at_s=fields.instant("submitted_at_s"),
            key=fields.text("key"),
            trajectory=fields.integer_or_none("trajectory"),
            turn=fields.flag("turn"),
            parent=fields.integer_or_none("parent") if self._version > 1 else None,
            since_s=fields.number_or_none("since_s") if self._version > 1 else None,
        )
        self._waiting[action.id] = action
        return ActionSubmitted(fields.instant("at_s"), action)

    def _started(self, fields: Fields) -> ActionStarted | None:
        pending = self._waiting.pop(fields.integer("id"), None)
        if pending is None:
            return None
        if not pending.demand.dimensions or _has_a_choice_of_gpus(pending.demand):
            # It had several places to go to, or could have more GPUs: what it was granted says which, and how many.
            pending = pending._replace(demand=self._placed(pending.demand, self._units(fields, "grant")))
        running = RunningAction(
            pending,
            fields.instant("started_at_s"),
            fields.integer("units"),
            fields.number("expected_s"),
            _seat(Fields(fields.get("seat"))) if fields.has("seat") else None,
        )
        return ActionStarted(fields.instant("at_s"), running)

    def _ended(self, fields: Fields) -> ActionEnded:
        outcome = fields.text("outcome")
        if outcome not in _OUTCOMES:
            refuse("outcome", f"one of {', '.join(_OUTCOMES)}", outcome)
        action = FinishedAction(
            id=fields.integer("id"),
            name=fields.text("name"),
            key=fields.text("key"),
            trajectory=fields.integer_or_none("trajectory"),
            outcome=_OUTCOMES[outcome],
            error=fields.text_or_none("error"),
            submitted_at_s=fields.instant("submitted_at_s"),
            queueing_s=fields.number("queueing_s"),
            execution_s=fields.number("execution_s"),
            overhead_s=fields.number("overhead_s"),
            cpu_s=fields.number("cpu_s"),
            cores=fields.number("cores"),
            node=self._node(fields),
            suspended_s=fields.number("suspended_s") if fields.has("suspended_s") else 0.0,
            switches=fields.integer("switches") if fields.has("switches") else 0,
        )
        self._waiting.pop(action.id, None)
        return ActionEnded(fields.instant("at_s"), action)

    def _demand(self, fields: Fields) -> Demand:
        """Return the demand of a submission, one object for all calls that have the same, as in a run."""
        fixed = self._units(fields, "fixed")
        name = fields.text_or_none("elastic")
        elastic = None if name is None else self._index("elastic", name)
        dimensions = 0
        for index in [i for i, _ in fixed] + ([] if elastic is None else [elastic]):
            dimensions |= 1 << index
        demand = Demand(
            name=fields.text("name"),
            fixed=fixed,
            elastic=elastic,
            options=tuple(integer_of("options", units) for units in fields.items("options")),
            speedup=_speedup(fields),
            relative=tuple(number_of("relative", value) for value in fields.items("relative")),
            learns=fields.flag("learns") if self._version > 1 else False,
            dimensions=dimensions,
            priority=fields.integer("priority"),
            queue_timeout=fields.number_or_none("queue_timeout_s"),
            duration_s=fields.number_or_none("duration_s"),
            reserved=fields.integer("reserved"),
            milli_cores=self._milli_cores(fixed),
            node=self._node(fields),
            seat=_seat_need(Fields(fields.get("seat"))) if fields.has("seat") else None,
            preemptible=fields.has("preemptible") and fields.flag("preemptible"),
            resizable=fields.has("resizable") and fields.flag("resizable"),
        )
        if len(self._demands) >= _REMEMBERED_DEMANDS:
            self._demands.clear()
        return self._demands.setdefault(demand, demand)

    def _placed(self, demand: Demand, granted: tuple[tuple[int, int], ...]) -> Demand:
        dimensions = 0
        for index, _ in granted:
            dimensions |= 1 << index
        return replace(demand, fixed=granted, dimensions=dimensions, milli_cores=self._milli_cores(granted))

    def _milli_cores(self, fixed: tuple[tuple[int, int], ...]) -> int:
        return sum(units for index, units in fixed if self._topology.cores >> index & 1)

    def _opened(self, fields: Fields) -> TrajectoryOpened:
        return TrajectoryOpened(
            at_s=fields.instant("at_s"),
            id=fields.integer("id"),
            group=fields.text_or_none("group"),
            waited_s=fields.number("waited_s"),
            reserved=fields.integer("reserved"),
            held=self._units(fields, "held"),
            node=self._node(fields),
        )

    def _units(self, fields: Fields, key: str) -> tuple[tuple[int, int], ...]:
        return tuple((self._index(key, name), integer_of(key, units)) for name, units in fields.pairs(key))

    def _node(self, fields: Fields) -> int | None:
        """Return the number of the node that a line names, if it names one."""
        if not fields.has("node"):
            return None
        name = fields.text("node")
        number = self._nodes.get(name)
        return refuse("node", "a node of the header's dimensions", name) if number is None else number

    def _dimension(self, fields: Fields) -> int:
        return self._index("dimension", fields.text("dimension"))

    def _index(self, key: str, name: str) -> int:
        index = self._topology.index.get(name)
        return refuse(key, "a dimension of the header", name) if index is None else index


_OUTCOMES = {outcome.value: outcome for outcome in Outcome}


def _footer(fields: Fields) -> Footer:
    return Footer(fields.integer("written"), fields.integer("dropped"), fields.integer("lost"))


def _instance(fields: Fields) -> tuple[Instance, Chunk]:
    dop = fields.integer("dop")
    return Instance(fields.text("service"), dop), Chunk(fields.integer("first"), dop)


def _seat_need(fields: Fields) -> SeatNeed:
    relative = fields.items("relative") if fields.has("relative") else ()
    return SeatNeed(
        fields.text_or_none("service"),
        tuple(integer_of("dops", dop) for dop in fields.items("dops")),
        tuple(number_of("relative", value) for value in relative),
    )


def _has_a_choice_of_gpus(demand: Demand) -> bool:
    return demand.seat is not None and demand.seat.service is None and len(demand.seat.dops) > 1


def _seat(fields: Fields) -> Seat:
    chunk, service = Chunk(fields.integer("first"), fields.integer("dop")), fields.text_or_none("service")
    return Seat(
        chunk,
        None if service is None else Instance(service, chunk.size),
        fields.flag("restores"),
        tuple(_pair(item) for item in fields.items("evicts")),
    )


def _pair(item: object) -> Instance:
    given: object = item
    pair = cast("list[object]", item) if isinstance(item, list) else []
    if len(pair) == 2 and isinstance(pair[0], str):
        return Instance(pair[0], integer_of("evicts", pair[1]))
    return refuse("evicts", "pairs of a service and its dop", given)


def _speedup(fields: Fields) -> Speedup | None:
    if fields.get("speedup") is None:
        return None
    points: dict[int, float] = {}
    for units, speedup in fields.pairs("speedup"):
        value = number_of("speedup", speedup)
        if not units.isdecimal() or int(units) < 1:
            refuse("speedup", "whole units from 1 as keys", units)
        if math.isfinite(value) and value > 0:
            points[int(units)] = value
    if not fields.pairs("speedup"):
        refuse("speedup", "a speed-up for each option, or null", {})
    return Measured(points) if points else None
