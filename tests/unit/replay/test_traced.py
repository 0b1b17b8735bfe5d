"""Traces that are read for a replay: whole, compressed, cut off, damaged, and those that cannot be true."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from arl_tangram.errors import TraceFormatError
from arl_tangram.replay.traced import read_run
from unit.replay.traces import Trace


def whole() -> Trace:
    trace = Trace()
    trace.opened(1, 1.0)
    trace.ran(7, 2.0, 3.0, 1)
    trace.closed(1, 4.0)
    return trace


def test_each_call_and_trajectory(tmp_path: Path) -> None:
    run = read_run(whole().write(tmp_path))
    (call,) = run.calls
    assert call.started is not None
    assert call.ended is not None
    assert (call.pending.submitted_at_s, call.ended_at_s, call.ended.execution_s) == (2, 3, 1)
    assert run.trajectories[1].closed_at_s == 4
    assert run.figures.elapsed_s == 3


def test_a_trace_that_is_compressed_is_the_same(tmp_path: Path) -> None:
    file = whole().write(tmp_path)
    packed = tmp_path / "run.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    assert read_run(packed) == read_run(file)


def test_a_compressed_file_that_ends_early_is_told(tmp_path: Path) -> None:
    packed = tmp_path / "run.jsonl.gz"
    packed.write_bytes(gzip.compress(whole().text().encode(), mtime=0)[:-9])
    with pytest.raises(TraceFormatError, match=r"run.jsonl.gz: line \d+: .* cannot be decompressed"):
        read_run(packed)


def test_a_call_whose_restore_failed_is_one_attempt(tmp_path: Path) -> None:
    trace = Trace()
    trace.submitted(7, 1.0)
    trace.started(7, 1.0)
    trace.line("returned", 2.0, id=7)
    trace.submitted(7, 2.0, submitted_at_s=1.0)
    trace.started(7, 3.0)
    trace.ended(7, 4.0, 1.0)
    (call,) = read_run(trace.write(tmp_path)).calls
    assert call.started is not None
    assert call.started.started_at_s == 3


def test_a_call_that_is_tried_again_is_two_attempts(tmp_path: Path) -> None:
    trace = Trace()
    trace.ran(7, 1.0, 2.0)
    trace.ran(7, 3.0, 5.0)
    assert [call.pending.submitted_at_s for call in read_run(trace.write(tmp_path)).calls] == [1, 3]


def twice_submitted(trace: Trace) -> None:
    trace.submitted(7, 1.0)
    trace.submitted(7, 2.0)


def twice_opened(trace: Trace) -> None:
    trace.opened(1, 1.0)
    trace.opened(1, 2.0)


def twice_ended(trace: Trace) -> None:
    trace.ran(7, 1.0, 1.5)
    trace.ended(7, 1.5, 0.5)


def unsorted(trace: Trace) -> None:
    trace.ran(7, 2.0, 3.0)
    trace.ran(8, 1.0, 3.0)


def negative(trace: Trace) -> None:
    trace.submitted(7, 1.0)
    trace.started(7, 1.0)
    trace.ended(7, 2.0, -1.0)


def unknown_number(trace: Trace) -> None:
    trace.submitted(7, 1.0)
    trace.started(7, 1.0)
    trace.ended(7, 2.0, 1.0)
    trace.lines[-1]["overhead_s"] = None


def negative_wait(trace: Trace) -> None:
    trace.opened(1, 1.0, -2.0)


def too_early(trace: Trace) -> None:
    trace.submitted(7, 1.0)
    trace.started(7, 1.0, started_at_s=0.5)


def later_than_its_line(trace: Trace) -> None:
    trace.submitted(7, 1.0)
    trace.started(7, 1.0, started_at_s=2.0)


def submitted_later(trace: Trace) -> None:
    trace.submitted(7, 1.0, submitted_at_s=2.0)


def tried_again_before(trace: Trace) -> None:
    trace.submitted(7, 1.0, since_s=3.0)


def endless(trace: Trace) -> None:
    trace.closed(1, 1e13)


def longer_than_the_world(trace: Trace) -> None:
    trace.ran(7, 1.0, 2.0)
    trace.lines[-1]["execution_s"] = 1e300


def other_parts(trace: Trace) -> None:
    trace.ran(7, 1.0, 2.0)
    trace.lines[-1]["execution_s"] = 0.5


def negative_cpu(trace: Trace) -> None:
    trace.ran(7, 1.0, 2.0)
    trace.lines[-1]["cpu_s"] = -1.0


def another_name(trace: Trace) -> None:
    trace.ran(7, 1.0, 2.0, 1)
    trace.lines[-1]["name"] = "other"


def another_trajectory(trace: Trace) -> None:
    trace.ran(7, 1.0, 2.0, 1)
    trace.lines[-1]["trajectory"] = 2


def another_submission(trace: Trace) -> None:
    trace.ran(7, 1.0, 9.0)
    trace.lines[-1] |= {"submitted_at_s": 4.0, "execution_s": 5.0}


def twice_closed(trace: Trace) -> None:
    trace.opened(1, 1.0)
    trace.closed(1, 2.0)
    trace.closed(1, 2.0)


def more_than_there_is(trace: Trace) -> None:
    trace.submitted(7, 1.0, options=[8000])
    trace.started(7, 1.0, 8000)


def memory_that_there_is_not(trace: Trace) -> None:
    trace.opened(1, 1.0, memory=9 << 30)


def less_than_nothing(trace: Trace) -> None:
    trace.submitted(7, 1.0, fixed={"memory": -1})


def no_such_option(trace: Trace) -> None:
    trace.submitted(7, 1.0)
    trace.started(7, 1.0, 2000)


def resized_to_no_option(trace: Trace) -> None:
    trace.submitted(7, 1.0)
    trace.started(7, 1.0)
    trace.line("resized", 1.0, id=7, units=1500)


def descending(trace: Trace) -> None:
    trace.submitted(7, 1.0, options=[2000, 1000], relative=[0.5, 1.0])


def fractions(trace: Trace) -> None:
    trace.submitted(7, 1.0, options=[1500])


def half_a_reservation(trace: Trace) -> None:
    trace.submitted(7, 1.0, elastic=None, options=[], relative=[], reserved=500)


def relative_to_nothing(trace: Trace) -> None:
    trace.submitted(7, 1.0, relative=[])


def options_of_nothing(trace: Trace) -> None:
    trace.submitted(7, 1.0, elastic=None)


def impatient(trace: Trace) -> None:
    trace.submitted(7, 1.0, queue_timeout_s=-1.0)


def negative_prior(trace: Trace) -> None:
    trace.submitted(7, 1.0, duration_s=-1.0)


def negative_capacity(trace: Trace) -> None:
    trace.line("capacity", 1.0, dimension="cpu", capacity=-1)


def settled_below_nothing(trace: Trace) -> None:
    trace.line("settled", 1.0, id=7, dimension="cpu", units=-1)


def lent_below_nothing(trace: Trace) -> None:
    trace.line("lent", 1.0, id=7, units=-1)


def half_of_an_opening(trace: Trace) -> None:
    trace.line("opened", 1.0, id=1, group=None, waited_s=0.0, reserved=1, held={})


def not_finite(trace: Trace) -> None:
    trace.line("closed", float("inf"), id=7)


def twice_there(trace: Trace) -> None:
    trace.lines[0]["dimensions"] = [trace.lines[0]["dimensions"][0]] * 2


def whole_cores(trace: Trace) -> None:
    trace.lines[0]["dimensions"] = [{"name": "cpu", "capacity": 4, "scale": 1, "window_s": None}]


def no_capacity(trace: Trace) -> None:
    trace.lines[0]["dimensions"] = [{"name": "threads", "capacity": -1, "scale": 1, "window_s": None}]


def no_window(trace: Trace) -> None:
    trace.lines[0]["dimensions"] = [{"name": "quota:a/calls", "capacity": 1, "scale": 1000, "window_s": 0}]


def unknown_type(trace: Trace) -> None:
    trace.line("exploded", 1.0)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (twice_submitted, "line 3: call 7 is submitted while it waits or runs"),
        (twice_opened, "line 3: trajectory 1 is opened twice"),
        (twice_ended, "line 7: call 7 ends twice"),
        (unsorted, "line 6: its time 1.000000 s is before 3.000000 s"),
        (negative, "line 5: call 7 has execution_s -1; seconds are finite and not negative"),
        (unknown_number, "line 5: call 7 has overhead_s nan"),
        (negative_wait, "line 2: trajectory 1 has waited_s -2"),
        (too_early, "line 3: call 7 starts before it was submitted"),
        (later_than_its_line, "line 3: call 7 starts at 2.000000 s, later than its line"),
        (submitted_later, "line 2: call 7 is submitted at 2.000000 s, and its line is of 1 s"),
        (tried_again_before, "line 2: call 7 is tried again before it was first submitted, at 3.000000 s"),
        (endless, "line 2: its time 1e\\+13 s is later than any clock's"),
        (longer_than_the_world, "line 5: call 7 has execution_s 1e\\+300; seconds are finite and not negative"),
        (other_parts, "line 5: call 7 took 1.000000 s from its submission, and its parts are 0.500000 s together"),
        (negative_cpu, "line 5: call 7 has cpu_s -1 and 0 switches"),
        (another_name, "line 5: call 7 ends as other of trajectory 1; it was submitted as tool of trajectory 1"),
        (another_trajectory, "line 5: call 7 ends as tool of trajectory 2; it was submitted as tool of trajectory 1"),
        (another_submission, "line 5: call 7 ends as one that was submitted at 4.000000 s; it was .* at 1.000000 s"),
        (twice_closed, "line 4: trajectory 1 is closed twice"),
        (more_than_there_is, "line 3: call 7 has 8000 units of cpu, which never had more than 4000"),
        (memory_that_there_is_not, "line 2: trajectory 1 has 9663676416 units of memory, which never had more than"),
        (less_than_nothing, "line 2: call 7 has -1 units of memory"),
        (no_such_option, "line 3: call 7 starts on 2000 units; it may have 1000"),
        (resized_to_no_option, r"line 4: call 7 has 1500 units; it may have \[1000\]"),
        (descending, r"line 2: call 7 has the options \[2000, 1000\], which are not ascending from 1"),
        (fractions, r"line 2: call 7 has 0 reserved units and the options \[1500\], which are no whole cores"),
        (half_a_reservation, "line 2: call 7 has 500 reserved units and the options .* no whole cores"),
        (relative_to_nothing, r"line 2: call 7 has the relative durations \[\] for the options \[1000\]"),
        (options_of_nothing, "line 2: call 7 has options of no dimension"),
        (impatient, "line 2: call 7 has queue_timeout_s -1; seconds are not negative"),
        (negative_prior, "line 2: call 7 has duration_s -1; seconds are not negative"),
        (negative_capacity, "line 2: the capacity has -1 units of cpu"),
        (settled_below_nothing, "line 2: call 7 has -1 units of cpu"),
        (lent_below_nothing, "line 2: call 7 has -1 units"),
        (half_of_an_opening, "line 2: trajectory 1 has 1 reserved units, which are no whole cores"),
        (not_finite, "line 2: not JSON: Infinity is no number of JSON"),
        (twice_there, "line 1: the dimension 'cpu' is there twice"),
        (whole_cores, "line 1: the field 'scale' takes 1000 for cpu, not 1"),
        (no_capacity, "line 1: the field 'capacity' takes an integer from 0, not -1"),
        (no_window, "line 1: the field 'window_s' takes seconds above 0, not 0"),
        (unknown_type, "line 2: unknown type 'exploded'"),
    ],
)
def test_what_cannot_be_is_named_with_its_line(damage: Callable[[Trace], None], said: str, tmp_path: Path) -> None:
    trace = Trace()
    damage(trace)
    file = trace.write(tmp_path)
    with pytest.raises(TraceFormatError, match=said) as refused:
        read_run(file)
    assert str(file) in str(refused.value)


def test_a_capacity_that_grew_is_what_there_was(tmp_path: Path) -> None:
    trace = Trace()
    trace.line("capacity", 1.0, dimension="cpu", capacity=8000)
    trace.submitted(7, 1.0, options=[8000])
    trace.started(7, 1.0, 8000)
    trace.ended(7, 2.0, 1.0)
    assert len(read_run(trace.write(tmp_path)).calls) == 1


def test_a_trace_of_a_later_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match=r"line 1: version 4 of the format; this library reads up to 3: upgrade"):
        read_run(Trace(version=4).write(tmp_path))
