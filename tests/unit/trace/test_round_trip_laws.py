"""For any events that a run can have: what is written is read back as the same."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.model.elasticity import Measured
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
    TrajectoryClosed,
    TrajectoryOpened,
    UnitsReturned,
    UnitsSettled,
)
from arl_tangram.model.lifecycle import Demand, FinishedAction, Outcome, PendingAction, RunningAction
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.trace.encode import EventEncoder, footer_line, header_line
from arl_tangram.trace.format import Footer, Header
from arl_tangram.trace.reader import read_trace

TOPOLOGY = Topology(
    [
        Dimension("cpu@a", 64_000, 1000),
        Dimension("memory@a", 64 << 30, 1 << 30),
        Dimension("cpu@the other", 8_000, 1000),
        Dimension("sandboxes@the other", 100),
        Dimension("quota:search/calls", 100_000, 1000, 60.0),
        Dimension("quota:search/tokens/total", 10_000_000, 1000, math.inf),
    ]
)

# Whole microseconds, as they are written.
instants = st.integers(0, 10**12).map(lambda micros: round(micros / 1e6, 6))
ids = st.integers(1, 20)
units = st.integers(0, 1 << 40)
texts = st.text(max_size=64)
dimensions = st.integers(0, len(TOPOLOGY.dimensions) - 1)
nodes = st.none() | st.integers(0, len(TOPOLOGY.nodes) - 1)


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    fixed = draw(st.dictionaries(dimensions, units, max_size=3))
    elastic = draw(st.none() | dimensions.filter(lambda index: index not in fixed))
    scale = 1 if elastic is None else TOPOLOGY.dimensions[elastic].scale
    whole = draw(st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True).map(sorted))
    options = () if elastic is None else tuple(count * scale for count in whole)
    speedup = Measured({count: float(count) for count in whole}) if options and draw(st.booleans()) else None
    mask = sum(1 << index for index in fixed) | (0 if elastic is None else 1 << elastic)
    return Demand(
        name=draw(texts),
        fixed=tuple(fixed.items()),
        elastic=elastic,
        options=options,
        speedup=speedup,
        relative=tuple(1 / count for count in whole) if options else (),
        learns=draw(st.booleans()),
        dimensions=mask,
        priority=draw(st.integers(-1000, 1000)),
        queue_timeout=draw(st.none() | instants),
        duration_s=draw(st.none() | instants),
        reserved=draw(st.sampled_from([0, 1000])),
        milli_cores=sum(fixed.get(node.cpu, 0) for node in TOPOLOGY.nodes),
        node=draw(nodes),
        preemptible=draw(st.booleans()),
        resizable=draw(st.booleans()),
    )


@st.composite
def calls(draw: st.DrawFn, id_: int) -> list[Event]:
    """Some attempts at one call, each submitted under the same id."""
    demand = draw(demands())
    key, trajectory, parent = draw(texts), draw(st.none() | ids), draw(st.none() | ids)
    events: list[Event] = []
    first_s: float | None = None
    for _ in range(draw(st.integers(1, 3))):
        at_s = draw(instants)
        pending = PendingAction(id_, demand, at_s, key, trajectory, draw(st.booleans()), parent=parent, since_s=first_s)
        first_s = at_s if first_s is None else first_s
        events.append(ActionSubmitted(at_s, pending))
        started = draw(st.booleans())
        if started:
            granted = draw(st.sampled_from(demand.options)) if demand.options else demand.reserved
            events.append(ActionStarted(at_s, RunningAction(pending, at_s, granted, draw(instants))))
            events += [ActionResized(at_s, id_, units) for units in draw(st.lists(units, max_size=3))]
        measured = draw(st.lists(instants, min_size=6, max_size=6))
        outcome, error = draw(st.sampled_from(Outcome)), draw(st.none() | texts)
        suspended_s, switches = draw(instants), draw(st.integers(0, 1000))
        ended = FinishedAction(
            id_, demand.name, key, trajectory, outcome, error, *measured, draw(nodes), suspended_s, switches
        )
        events.append(ActionEnded(at_s, ended))
        if started:
            events.append(UnitsReturned(at_s, id_))
    return events


others: st.SearchStrategy[Event] = st.one_of(
    st.builds(ActionDeferred, instants, ids),
    st.builds(ActionLent, instants, ids, units),
    st.builds(ActionResumed, instants, ids, units),
    st.builds(UnitsSettled, instants, ids, dimensions, units),
    st.builds(CapacityChanged, instants, dimensions, units),
    st.builds(Paused, instants, st.booleans()),
    st.builds(PolicyRefused, instants, texts, texts, st.booleans()),
    st.builds(TrajectoryClosed, instants, ids),
    st.builds(
        TrajectoryOpened, instants, ids, st.none() | texts, instants, units,
        st.dictionaries(dimensions, units, max_size=2).map(lambda held: tuple(held.items())), nodes,
    ),
)  # fmt: skip


@st.composite
def runs(draw: st.DrawFn) -> list[Event]:
    """Calls whose events are mixed, each call's own in order, with all other kinds of events between them."""
    lanes = [draw(calls(id_)) for id_ in range(1, draw(st.integers(1, 4)))]
    lanes += [[event] for event in draw(st.lists(others, max_size=8))]
    mixed: list[Event] = []
    while lanes := [lane for lane in lanes if lane]:
        mixed.append(lanes[draw(st.integers(0, len(lanes) - 1))].pop(0))
    return mixed


@given(runs())
def test_any_run_comes_back_from_its_file_as_it_was(events: Sequence[Event]) -> None:
    encoder = EventEncoder(TOPOLOGY)
    lines = [header_line(Header("1", "paper", "monotonic", 1.0, TOPOLOGY))]
    lines += [encoder.line(event) for event in events]
    lines.append(footer_line(Footer(len(events), 0, 0)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        path.write_text("".join(lines), encoding="ascii")
        trace = read_trace(path)
    assert list(trace.events) == events
    assert trace.ending.complete
    assert trace.header.topology == TOPOLOGY
