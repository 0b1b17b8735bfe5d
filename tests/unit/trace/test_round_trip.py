"""What is written as a line is read back as the same event."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.errors import TraceFormatError
from arl_tangram.model.elasticity import PowerLaw
from arl_tangram.model.events import ActionEnded, ActionStarted, ActionSubmitted, Event, TrajectoryOpened
from arl_tangram.model.lifecycle import Demand, FinishedAction, Outcome, PendingAction, RunningAction
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.trace.decode import EventDecoder, read_header
from arl_tangram.trace.encode import EventEncoder, footer_line, header_line
from arl_tangram.trace.fields import parse
from arl_tangram.trace.format import Footer, Header


def through_lines(topology: Topology, events: Iterable[Event]) -> list[object]:
    encoder, decoder = EventEncoder(topology), EventDecoder(topology)
    return [decoder.record(parse(encoder.line(event).encode("ascii"))) for event in events]


def test_every_event_comes_back_as_it_was(
    topology: Topology, events: Sequence[Event], later_events: Sequence[Event], resized_events: Sequence[Event]
) -> None:
    every = [*events, *later_events, *resized_events]
    assert {type(event) for event in every} == set(Event.__args__)
    assert through_lines(topology, every) == every


def test_every_line_is_one_object_with_a_type_and_a_time(topology: Topology, events: Sequence[Event]) -> None:
    encoder = EventEncoder(topology)
    for event in events:
        line = encoder.line(event)
        assert line.isascii()
        assert line.index("\n") == len(line) - 1
        assert json.loads(line)["at_s"] == event.at_s


def test_started_tells_the_whole_grant(topology: Topology, events: Sequence[Event]) -> None:
    line = json.loads(EventEncoder(topology).line(events[5]))
    assert line["grant"] == {"cpu": 2000, "memory": 1 << 30}
    assert line["cores"] == 2


def test_what_runs_on_a_reservation_is_no_grant_of_the_pool(topology: Topology) -> None:
    demand = Demand("m:f", fixed=((2, 1000),), reserved=1000)
    started = ActionStarted(5.0, RunningAction(PendingAction(1, demand, 4.0), 5.0, 1000, 1.0))
    line = json.loads(EventEncoder(topology).line(started))
    assert line["grant"] == {"quota:search/calls": 1000}
    assert line["cores"] == 1


def test_a_fraction_of_a_core_is_fixed_and_told(topology: Topology) -> None:
    started = ActionStarted(5.0, RunningAction(PendingAction(1, Demand("m:f", ((0, 500),)), 4.0), 5.0, 0, 1.0))
    line = json.loads(EventEncoder(topology).line(started))
    assert line["grant"] == {"cpu": 500}
    assert line["cores"] == 0.5


def test_a_line_says_nothing_of_shared_cores_where_none_are(
    topology: Topology, events: Sequence[Event], resized_events: Sequence[Event]
) -> None:
    words = {"preemptible", "resizable", "suspended_s", "switches"}
    encoder = EventEncoder(topology)
    assert not any(words & json.loads(encoder.line(event)).keys() for event in events)
    submitted, *_, ended, _ = (json.loads(encoder.line(event)) for event in resized_events)
    assert (submitted["preemptible"], submitted["resizable"]) == (True, True)
    assert (ended["suspended_s"], ended["switches"]) == (4.0, 3)


def test_a_speedup_is_written_at_the_options(topology: Topology, tests_demand: Demand) -> None:
    demand = replace(tests_demand, speedup=PowerLaw(0.8))
    (event,) = through_lines(topology, [ActionSubmitted(1.0, PendingAction(1, demand, 1.0))])
    assert isinstance(event, ActionSubmitted)
    assert event.action.demand.speedup is not None
    assert [event.action.demand.speedup(n) for n in (1, 2)] == [1.0, 2**0.8]


@pytest.mark.parametrize(
    "speedup", [lambda _: 1 / 0, lambda _: "fast", lambda _: math.nan], ids=["raises", "text", "nan"]
)
def test_a_speedup_that_fails_is_left_out(
    topology: Topology, tests_demand: Demand, speedup: Callable[[int], float]
) -> None:
    demand = replace(tests_demand, speedup=speedup)
    (event,) = through_lines(topology, [ActionSubmitted(1.0, PendingAction(1, demand, 1.0))])
    assert isinstance(event, ActionSubmitted)
    assert event.action.demand.speedup is None


def test_calls_of_one_action_share_their_demand_again(topology: Topology, tests_demand: Demand) -> None:
    events = through_lines(topology, [ActionSubmitted(1.0, PendingAction(i, tests_demand, 1.0)) for i in range(2)])
    first, second = (event.action.demand for event in events if isinstance(event, ActionSubmitted))
    assert first is second


def test_a_long_key_becomes_a_digest_that_tells_keys_apart(topology: Topology, tests_demand: Demand) -> None:
    prompt, other = "secret prompt " * 1000, "secret prompt " * 1001
    encoder = EventEncoder(topology)
    lines = [encoder.line(ActionSubmitted(1.0, PendingAction(1, tests_demand, 1.0, key))) for key in (prompt, other)]
    assert all("secret" not in line and len(line) < 1000 for line in lines)
    again = EventEncoder(topology).line(ActionSubmitted(1.0, PendingAction(1, tests_demand, 1.0, prompt)))
    assert lines[0] == again != lines[1]


def test_more_actions_than_are_remembered_do_not_mix(topology: Topology) -> None:
    actions = [
        PendingAction(i, Demand(f"m:f{i}", ((0, 1000 + i),), dimensions=1, milli_cores=1000 + i), 1.0)
        for i in range(3000)
    ]
    events = [ActionSubmitted(1.0, action) for action in actions]
    assert through_lines(topology, events) == events


def test_a_start_whose_submission_is_missing_is_left_out(topology: Topology, events: Sequence[Event]) -> None:
    assert isinstance(events[5], ActionStarted)
    assert through_lines(topology, [events[5]]) == [None]


def test_a_call_that_gave_up_is_forgotten(topology: Topology, events: Sequence[Event]) -> None:
    decoder, encoder = EventDecoder(topology), EventEncoder(topology)
    for event in events:
        decoder.record(parse(encoder.line(event).encode()))
    assert not decoder._waiting


amounts = st.floats(min_value=-1e9, max_value=1e9)


@given(
    at_s=amounts, measured=st.lists(st.floats(), min_size=6, max_size=6), text=st.text(max_size=64),
    outcome=st.sampled_from(Outcome), error=st.none() | st.text(),
)  # fmt: skip
def test_any_measurement_survives(
    at_s: float, measured: list[float], text: str, outcome: Outcome, error: str | None
) -> None:
    action = FinishedAction(1, text, text, None, outcome, error, at_s, *measured[:5], suspended_s=measured[5])
    (event,) = through_lines(Topology([]), [ActionEnded(at_s, action)])
    assert isinstance(event, ActionEnded)
    assert (event.action.name, event.action.key, event.action.error) == (text, text, error)
    assert event.action.outcome is outcome
    assert event.at_s == pytest.approx(at_s, abs=1e-6)
    read = event.action
    values = (read.queueing_s, read.execution_s, read.overhead_s, read.cpu_s, read.cores, read.suspended_s)
    for value, before in zip(values, measured, strict=True):
        assert value == pytest.approx(before, abs=1e-6) if math.isfinite(before) else math.isnan(value)


def test_header_and_footer_come_back(topology: Topology) -> None:
    header = Header("0.1.0", "paper", "monotonic", 1.7e9, topology)
    assert read_header(parse(header_line(header).encode())) == header
    footer = Footer(1, 2, 3)
    assert EventDecoder(topology).record(parse(footer_line(footer).encode())) == footer


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"[]", "expected an object"),
        (b'{"type": "exploded", "at_s": 1}', "unknown type 'exploded'"),
        (b'{"at_s": 1}', "'type' is missing"),
        (b'{"type": "returned", "at_s": null, "id": 1}', "'at_s' takes a time in seconds"),
        (b'{"type": "returned", "at_s": 1e999, "id": 1}', "'at_s' takes a finite number"),
        (b'{"type": "returned", "at_s": 1, "id": true}', "'id' takes an integer"),
        (b'{"type": "returned", "at_s": 1, "id": 1%s}' % (b"0" * 400), "'id' takes an integer"),
        (b'{"type": "resized", "at_s": 1, "id": 1}', "'units' is missing"),
        (b'{"type": "opened", "at_s": 1, "id": 1, "group": 5, "waited_s": 0, "reserved": 0}', "'group' takes a string"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_damaged_line_is_refused_in_words(topology: Topology, line: bytes, complaint: str) -> None:
    with pytest.raises(TraceFormatError, match=complaint):
        EventDecoder(topology).record(parse(line))


def test_an_unknown_dimension_is_refused(topology: Topology, events: Sequence[Event]) -> None:
    line = EventEncoder(topology).line(events[1]).encode()
    with pytest.raises(TraceFormatError, match="'fixed' takes a dimension of the header, not 'memory'"):
        EventDecoder(Topology([Dimension("cpu", 1)])).record(parse(line))


def test_a_group_may_be_missing(topology: Topology) -> None:
    opened = TrajectoryOpened(1.0, 1, None, 0.0, 2000, ((topology.index["cpu"], 2000),))
    assert through_lines(topology, [opened]) == [opened]
