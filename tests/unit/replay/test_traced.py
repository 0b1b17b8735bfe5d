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


def test_a_trace_of_a_later_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match=r"line 1: version 4 of the format; this library reads up to 3: upgrade"):
        read_run(Trace(version=4).write(tmp_path))
