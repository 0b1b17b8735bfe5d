"""`replay`: what it prints of a trace and of another program's recording, and what it refuses."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from arl_tangram.__main__ import main
from unit.replay.traces import Trace

CALLS = "traj,start_s,dur_s,tool\na,0,2,bash\na,3,1,read\nb,0,2,bash\n"
LINES = (
    '{"traj": "a", "start_s": 0, "dur_s": 2, "tool": "bash"}\n'
    '{"traj": "a", "start_s": 3, "dur_s": 1, "tool": "read"}\n'
    "\n"
    '{"traj": "b", "start_s": 0.0, "dur_s": "2", "tool": "bash"}\n'
)


def two_trajectories() -> Trace:
    """Each calls for 2 s of a core that both want at once; together they have four cores."""
    trace = Trace()
    for id_ in (1, 2):
        trace.opened(id_, 0.0)
    for id_ in (1, 2):
        trace.submitted(id_, 1.0, id_)
        trace.started(id_, 1.0)
    for id_ in (1, 2):
        trace.ended(id_, 3.0, 1.5, overhead_s=0.5, trajectory=id_, cpu_s=1.0)
        trace.closed(id_, 3.0)
    return trace


def rows_of(text: str) -> dict[str, list[str]]:
    """Return the cells of a printed table by the words at the front of each line."""
    table = text.split("\n\n")[1]
    cells = [line[26:].replace(" s", "").split() for line in table.splitlines()]
    return {line[:26].strip(): row for line, row in zip(table.splitlines(), cells, strict=True)}


def test_columns_beside_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On one core the second call waits for 2 s, or its trajectory does, whose first one opens at once."""
    file = two_trajectories().write(tmp_path)
    assert main(["replay", str(file), "--cores", "1", "--policy", "elastic", "--policy", "reserved(1)"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("2 trajectories and 2 calls, recorded under elastic, in virtual time")
    assert rows_of(text) == {
        "": ["measured", "elastic", "reserved(1)"],
        "cores": ["4", "1", "1"],
        "calls": ["2", "2", "2"],
        "step": ["3.000", "5.000", "6.000"],
        "ACT with admission, mean": ["2.000", "3.000", "3.500"],
        "ACT with admission, p99": ["2.020", "4.039", "5.021"],  # within 1 %
        "ACT without, mean": ["2.000", "3.000", "2.000"],
        "queueing": ["0.000", "1.000", "0.000"],
        "execution": ["1.500", "1.500", "1.500"],
        "overhead": ["0.500", "0.500", "0.500"],
        "admission, mean wait": ["0.000", "0.000", "1.500"],
        "core-seconds held": ["4.0", "4.0", "6.0"],
        "cores held, mean": ["1.33", "0.80", "1.00"],
        "of the pool": ["33.3%", "80.0%", "100.0%"],
        "commands used of the pool": ["16.7%", "40.0%", "33.3%"],
    }
    assert text.endswith("The recorded run itself, replayed as elastic on its own pool: ACT +0.0%, step +0.0%.\n")


def test_a_table_for_each_number_of_cores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On one core the two calls of 1.5 s and their overhead share it: the mean ACT is shorter, or the same."""
    file = two_trajectories().write(tmp_path)
    variants = ["--policy", "elastic", "--policy", "elastic, shortest, resize"]
    assert main(["replay", str(file), "--cores", "1", "--cores", "4", *variants]) == 0
    _, one, four, itself = capsys.readouterr().out.split("\n\n")
    assert [line.split()[1:] for line in one.splitlines()[1:2]] == [["4", "1", "1"]]
    assert [line.split()[1:] for line in four.splitlines()[1:2]] == [["4", "4", "4"]]
    assert "elastic, shortest, resize" in one
    assert itself.startswith("The recorded run itself")
    assert main(["replay", str(file), "--cores", "1", "--cores", "4", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [(one["variant"], one["cores"]) for one in record["predicted"]] == [("elastic", 1), ("elastic", 4)]


def test_all_figures_for_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = two_trajectories().write(tmp_path)
    arguments = ["--batch", "8", "--order", "shortest", "--share", "resize", "--memory-gib", "16", "--json"]
    assert main(["replay", str(file), *arguments]) == 0
    record = json.loads(capsys.readouterr().out)
    (predicted,) = record["predicted"]
    assert predicted["variant"] == "elastic, shortest, resize"
    assert predicted["total"]["calls"] == 8
    assert {row["name"]: row["capacity"] for row in predicted["dimensions"]}["memory"] == 16
    assert record["measured"]["total"]["calls"] == record["replayed_as_it_was"]["total"]["calls"] == 2
    assert (record["policy"], record["notes"]) == ("elastic", [])


def impatient(queue_timeout_s: float | None) -> Trace:
    """Each of two trajectories calls for 2 s, with what there is of a budget; none waits for longer."""
    budget = {"name": "quota:search/calls", "capacity": 2000, "scale": 1000, "window_s": None, "total": True}
    trace = Trace(dimensions=(budget,))
    for id_ in (1, 2):
        trace.opened(id_, 0.0)
    for id_ in (1, 2):
        trace.submitted(id_, 1.0, id_, queue_timeout_s=queue_timeout_s, fixed={"quota:search/calls": 1000})
        trace.started(id_, 1.0)
    for id_ in (1, 2):
        trace.ended(id_, 3.0, 2.0, trajectory=id_)
        trace.closed(id_, 3.0)
    return trace


def test_calls_that_would_give_up_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(impatient(1.5).write(tmp_path)), "--cores", "1"]) == 0
    text = capsys.readouterr().out
    assert rows_of(text)["gave up waiting"] == ["0", "1"]
    assert "could never start" not in text


def test_calls_for_which_nothing_is_left_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(impatient(None).write(tmp_path)), "--batch", "4"]) == 0
    text = capsys.readouterr().out
    assert "Note: 2 calls under elastic could never start: a budget was used up.\n" in text
    assert "gave up" not in text


def test_a_run_with_resizing_is_replayed_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = Trace("mine")
    trace.opened(1, 0.0)
    trace.submitted(7, 1.0, 1, preemptible=True)
    trace.started(7, 1.0)
    trace.line("resized", 2.0, id=7, units=0)
    trace.line("resized", 3.0, id=7, units=1000)
    trace.ended(7, 4.0, 2.0, suspended_s=1.0, switches=2, trajectory=1)
    trace.closed(1, 4.0)
    assert main(["replay", str(trace.write(tmp_path))]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert rows[""] == ["measured", "elastic,", "resize"]
    assert rows["suspended"] == ["1.000", "0.000"]


@pytest.mark.parametrize("content", [CALLS.encode(), LINES.encode(), gzip.compress(LINES.encode(), mtime=0)])
def test_a_recording_of_another_program(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a core for each they take 4 s and 2 s; on one core, `b` calls first when `a` thinks: 5 s."""
    file = tmp_path / "calls"
    file.write_bytes(content)
    assert main(["replay", str(file), "--cores", "1"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("2 trajectories and 3 calls, in virtual time")
    rows = rows_of(text)
    assert rows[""] == ["recorded", "elastic"]
    assert rows["cores"] == ["-", "1"]
    assert rows["commands used of the pool"] == ["-", "-"]
    assert rows["step"] == ["4.000", "5.000"]
    assert rows["ACT with admission, mean"] == ["1.667", "2.667"]
    assert "The recorded run itself" not in text


def test_both_kinds_of_lines_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.jsonl"
    spans = '{"traj": "b", "span_s": 9, "model": {"size": 7}}\n{"traj": "a", "span_s": 4, "group": null}\n'
    file.write_text(spans + LINES + '{"traj": "b", "start_s": 5}\n')
    assert main(["replay", str(file), "--cores", "2", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["predicted"][0]["elapsed_s"] == 9
    assert record["notes"] == [
        "Calls without a recorded end, which are left out: 1.",
        "Columns that are not looked at: model.",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"traj": "a", "start_s": 0, "dur_s": -1}\n', "line 1: dur_s is -1; seconds are finite and not negative"),
        ('{"traj": "a", "start_s": NaN, "dur_s": 1}\n', "line 1: start_s is nan; seconds are finite"),
        ('{"traj": "a", "start_s": true, "dur_s": 1}\n', "line 1: start_s takes a number or a text, not true"),
        ('{"traj": "a", "start_s": [0], "dur_s": 1}\n', "line 1: start_s takes a number or a text, not [0]"),
        ('{"traj": "a", "start_s": 0, "dur_s": 1}\n{"traj": "a", "sta', "line 2: not JSON"),
        ('{"traj": "a", "dur_s": 1}\n', "line 1: traj, start_s and dur_s belong together; there is no start_s"),
        ('{"span_s": 1}\n', "line 1: traj and span_s belong together; there is no traj"),
        ('{"traj": "a", "start_s": 0, "dur_s": 1}\n[]\n', "line 2: it is no object"),
        ('{"traj": "a", "span_s": 1}\n', "no file of calls among"),
        ("", "is empty"),
        ("traj,start_s,dur_s\na,0,x\n", "line 2: dur_s is 'x', which is no number"),
        ('{"format": "other", "version": 1}\n', "line 1: not a trace: format is 'other'"),
        ('{"traj": "a", "start_s": 0, "dur_s": 1e12}\n', "line 1: dur_s is 1000000000000.0; seconds are below 1e+12"),
        ('{"traj": "a", "start_s": 0, "dur_s": 1, "dur_s": 2}\n', "line 1: not JSON: a field is there twice: dur_s"),
        ('[{"traj": "a", "start_s": 0, "dur_s": 1}]\n', "line 1: it is no object"),
        ("traj,start_s,dur_s\na,0,1_0\n", "line 2: dur_s is '1_0', which is no number"),
        ("traj,start_s,dur_s\na,0," + "9" * 500 + "x\n", f"line 2: dur_s is '{'9' * 77}...', which is no number"),
        ("traj,start_s,dur_s,dur_s\na,0,1,2\n", "line 1: the column 'dur_s' is there twice"),
        ("traj,start_s,span_s\na,0,1\n", "no file of calls among"),
        ("\ntraj,start_s,dur_s\na,0,1\n", "line 1: it is empty, and should name the columns"),
        (" \n", "is empty"),
    ],
)
def test_what_cannot_be_used_is_named(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text(text)
    assert main(["replay", str(file), "--cores", "1"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert str(file) in printed.err


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        (
            "traj,start_s,dur_s\na,0,1",
            ["The last line of {} has no line break: if it was cut off, its last field is wrong."],
        ),
        ("traj,start_s,dur_s,span_s\na,0,1,9\n", ["Columns that are not looked at: span_s."]),
        (
            "traj,start_s,dur_s\na,0,1\na,5,1\na,5,1\n",
            [
                "Calls that began before one before them had ended, and are made when it has: 1.",
                "Calls that are there again, with the same times and tool, and are made again: 1.",
            ],
        ),
        (
            "traj,start_s,dur_s\na,1.7e9,1\nb,5,1\n",
            ["Trajectories that think for a day or longer before their first call (are these times of a clock?): 1."],
        ),
        (
            '{"traj": 1, "start_s": 0, "dur_s": 1}\n{"traj": 1.0, "span_s": 2, "start_s": 0}\n',
            ["Columns that are not looked at: start_s."],
        ),
        ('{"traj": "a", "start_s": 0, "dur_s": 1, "tool": "format"}\n', []),
        ('\ufeff{"traj": "a", "start_s": 0, "dur_s": 1}\r\n', []),
    ],
)
def test_what_may_not_be_as_it_was_meant_is_told(
    text: str, notes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.jsonl"
    file.write_bytes(text.encode())
    assert main(["replay", str(file), "--cores", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [note.format(file) for note in notes]


def test_what_is_no_file_or_there_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe, calls = tmp_path / "pipe", tmp_path / "calls.csv"
    os.mkfifo(pipe)
    assert main(["replay", str(pipe), "--cores", "1"]) == 2
    assert f"{pipe} is no file; what comes from a pipe must be written to one" in capsys.readouterr().err
    assert main(["replay", str(tmp_path), "--cores", "1"]) == 2
    assert f"Is a directory: '{tmp_path}'" in capsys.readouterr().err
    calls.write_text(CALLS)
    (tmp_path / "again.csv").symlink_to(calls)
    assert main(["replay", str(calls), str(tmp_path / "again.csv"), "--cores", "1"]) == 2
    assert "again.csv is given twice: its calls would be made twice" in capsys.readouterr().err


def test_a_trace_behind_a_byte_order_mark_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = two_trajectories().write(tmp_path)
    assert main(["replay", str(file), "--json"]) == 0
    plain = capsys.readouterr().out
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert main(["replay", str(file), "--json"]) == 0
    assert capsys.readouterr().out == plain


@pytest.mark.parametrize(
    ("policy", "own", "note"),
    [
        ("paper(best_prefix=False, depth=3), share=size-aware", "paper(best_prefix=False, depth=3), resize", ""),
        ("elastic, share=mine", "elastic, resize", "Cores were shared by mine; in the replay"),
        ("mine", "elastic", "Recorded under mine, which is not known here: the run itself"),
    ],
)
def test_policies_that_are_not_known_here_are_told(
    policy: str, own: str, note: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = Trace(policy)
    trace.ran(7, 1.0, 2.0)
    assert main(["replay", str(trace.write(tmp_path))]) == 0
    text = capsys.readouterr().out
    assert text.split("\n\n")[1].splitlines()[0].partition("measured")[2].strip() == own
    assert ("Note: " in text) is bool(note)
    assert note in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--policy", "elastic, fast"],
            "unknown word 'fast' in 'elastic, fast': there are fcfs, shortest, trajectory and",
        ),
        (["--policy", "reserved(1), resize"], "'reserved(1), resize': under reserved(1) no cores are shared"),
        (["--policy", "best"], "unknown policy 'best': there are elastic, paper, fixed(N) and reserved(N)"),
        (["--policy", "reserved(8)"], "trajectory asks for 8 reserved cores; cpu has 4 in all"),
        (["--cores", "0"], "takes a whole number from 1, not '0'"),
        (["--batch", "x"], "takes a whole number from 1, not 'x'"),
        (["--memory-gib", "-1"], "takes an amount above 0, not '-1'"),
        (["--memory-gib", "nan"], "takes an amount above 0, not 'nan'"),
        (["--order", "longest"], "invalid choice: 'longest'"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(two_trajectories().write(tmp_path)), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_what_there_is_nothing_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path / "missing.jsonl")]) == 2
    assert "missing.jsonl" in capsys.readouterr().err
    empty = Trace().write(tmp_path)
    assert main(["replay", str(empty)]) == 2
    assert f"{empty} has 0 calls, of which none has run to its end" in capsys.readouterr().err
    assert main(["replay", str(empty), str(empty)]) == 2
    assert f"a trace is replayed alone; {empty} is one, of 2 files" in capsys.readouterr().err
    calls = tmp_path / "calls.csv"
    calls.write_text(CALLS)
    assert main(["replay", str(calls)]) == 2
    assert "does not say how many cores there were: give --cores" in capsys.readouterr().err
