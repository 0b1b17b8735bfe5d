"""Reading traces that are whole, cut off, newer or damaged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from arl_tangram.errors import TangramError, TraceFormatError
from arl_tangram.model.events import Event
from arl_tangram.model.topology import Topology
from arl_tangram.trace import reader
from arl_tangram.trace.encode import EventEncoder, footer_line, header_line
from arl_tangram.trace.format import Footer, Header
from arl_tangram.trace.reader import open_trace, read_trace


@pytest.fixture
def lines(topology: Topology, events: Sequence[Event]) -> list[bytes]:
    encoder = EventEncoder(topology)
    header = header_line(Header("0.1.0", "paper", "monotonic", 1.7e9, topology))
    texts = [header, *(encoder.line(event) for event in events), footer_line(Footer(len(events), 0, 0))]
    return [text.encode("ascii") for text in texts]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def test_events_can_be_read_one_by_one(path: Path, lines: list[bytes], events: Sequence[Event]) -> None:
    path.write_bytes(b"".join(lines))
    with open_trace(path) as trace:
        assert trace.ending.footer is None
        assert tuple(trace.events()) == tuple(events)
        assert trace.ending.complete


def test_a_cut_at_any_byte_of_the_last_line_is_tolerated(
    path: Path, lines: list[bytes], events: Sequence[Event]
) -> None:
    whole, last = b"".join(lines[:-2]), lines[-2]
    for cut in range(1, len(last)):
        path.write_bytes(whole + last[:cut])
        trace = read_trace(path)
        complete = cut == len(last) - 1  # only the line break is missing
        assert trace.ending.truncated is not complete
        assert trace.events == tuple(events if complete else events[:-1])
        assert trace.ending.footer is None


def test_zeros_at_the_end_are_a_cut_off_line(path: Path, lines: list[bytes], events: Sequence[Event]) -> None:
    path.write_bytes(b"".join(lines[:-1]) + bytes(4096))
    trace = read_trace(path)
    assert trace.events == tuple(events)
    assert trace.ending.truncated


def test_a_damaged_line_is_named(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join([*lines[:3], b"{garbage}\n", *lines[3:]]))
    with pytest.raises(TraceFormatError, match=r"run\.jsonl: line 4: not JSON"):
        read_trace(path)


def test_what_follows_the_footer_is_refused(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join([*lines, lines[1]]))
    with pytest.raises(TraceFormatError, match=f"line {len(lines) + 1}: a line after the footer"):
        read_trace(path)


def test_starts_without_a_submission_are_counted(path: Path, lines: list[bytes], events: Sequence[Event]) -> None:
    path.write_bytes(b"".join(line for line in lines if b'"submitted"' not in line))
    trace = read_trace(path)
    assert trace.ending.unmatched == 2
    assert len(trace.events) == len(events) - 3 - 2


def test_a_newer_version_is_refused_with_the_way_out(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(lines[0].replace(b'"version": 3', b'"version": 4'))
    with pytest.raises(TraceFormatError, match=r"line 1: version 4 of the format.*up to 3: upgrade"):
        read_trace(path)


def test_a_file_of_version_1_is_read(path: Path, lines: list[bytes], events: Sequence[Event]) -> None:
    older = [lines[0].replace(b'"version": 3', b'"version": 1')]
    for line in lines[1:]:
        record = json.loads(line)
        for added in ("parent", "since_s", "learns"):
            record.pop(added, None)
        older.append(json.dumps(record).encode() + b"\n")
    path.write_bytes(b"".join(older))
    trace = read_trace(path)
    assert trace.header.version == 1
    assert trace.events == tuple(events)


def test_a_file_of_version_2_is_read(path: Path, lines: list[bytes], events: Sequence[Event]) -> None:
    """Without shared cores, its lines are those of this version."""
    path.write_bytes(lines[0].replace(b'"version": 3', b'"version": 2') + b"".join(lines[1:]))
    trace = read_trace(path)
    assert trace.header.version == 2
    assert trace.events == tuple(events)


def test_in_a_file_of_this_version_no_field_may_be_missing(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join(lines).replace(b'"parent":null,', b""))
    with pytest.raises(TraceFormatError, match="line 3: the field 'parent' is missing"):
        read_trace(path)


@pytest.mark.parametrize("content", [b"", b"\n", b'{"format": "other"}\n', b"\x89PNG\r\n", b"[1]\n", b'{"form'])
def test_a_file_that_is_no_trace_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(TraceFormatError, match=r"run\.jsonl: line 1: ") as caught:
        read_trace(path)
    assert isinstance(caught.value, TangramError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("scale", [b"0", b"-1", b"null", b'"a"'])
def test_a_header_with_a_broken_dimension_is_refused(path: Path, lines: list[bytes], scale: bytes) -> None:
    path.write_bytes(lines[0].replace(b'"scale": 1000', b'"scale": ' + scale))
    with pytest.raises(TraceFormatError, match="'scale' takes an integer"):
        read_trace(path)


def test_a_line_without_end_is_refused(path: Path, lines: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_LONGEST_LINE", 1000)
    path.write_bytes(lines[0] + b"x" * 5000)
    with pytest.raises(TraceFormatError, match="line 2: not JSON"):
        read_trace(path)


def test_a_missing_file_is_an_os_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(path)
