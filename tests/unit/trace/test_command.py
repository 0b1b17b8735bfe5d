"""The command that reports a trace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from arl_tangram.model.events import Event
from arl_tangram.model.topology import Topology
from arl_tangram.trace.command import main
from arl_tangram.trace.jsonl import JsonlSink


@pytest.fixture
async def path(tmp_path: Path, topology: Topology, events: Sequence[Event]) -> Path:
    path = tmp_path / "run.jsonl"
    sink = JsonlSink(path, topology=topology, policy="paper")
    for event in events:
        sink.write(event)
    await sink.aclose()
    return path


def test_the_report_of_a_file_is_that_of_the_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("3 actions in 10.0 s, policy paper\n")
    assert "note:" not in out
    assert err == ""


def test_json_holds_the_same_figures(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["policy"] == "paper"
    assert record["complete"] is True
    assert record["total"]["calls"] == 3
    assert record["dimensions"][0]["held_unit_s"] == 8.0


def test_a_killed_run_is_reported_with_a_note(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(path.read_bytes().partition(b'{"type":"closed"')[0] + b'{"type":"clo')
    assert main([str(path)]) == 0
    out = capsys.readouterr().out
    assert "note: the trace has no end" in out
    assert "note: the last line is cut off" in out


def test_dropped_events_are_told(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(path.read_bytes().replace(b'"dropped": 0', b'"dropped": 5'))
    assert main([str(path)]) == 0
    assert "note: 5 events were dropped" in capsys.readouterr().out


def test_lines_that_are_missing_and_fields_that_nobody_knows_are_told(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = path.read_bytes().replace(b'"type":"closed"', b'"type":"closed","besides":1').splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], *lines[4:]]))
    assert main([str(path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["complete"] is False
    assert record["notes"] == [
        "The last line counts 14 events and the file has 13: lines were taken out or put in.",
        "fields that are not looked at: besides",
    ]


def test_lines_that_are_not_sorted_are_refused(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[4], *lines[1:4], *lines[5:]]))
    assert main([str(path)]) == 2
    assert "line 3: its time 102.000000 s is before 102.500000 s, that of an earlier line" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_an_error_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in (None, b"garbage\n"):
        path = tmp_path / "other.jsonl"
        if content is not None:
            path.write_bytes(content)
        assert main([str(path)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert "other.jsonl" in err


@pytest.mark.parametrize("argv", [[], ["a", "b"], ["--nope"], ["a", "--rows", "0"]])
def test_wrong_arguments_are_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "usage: python -m arl_tangram report" in capsys.readouterr().err


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "run.jsonl" in capsys.readouterr().out
