"""The table of faults: which cases there are, how they are shared out, and that each broken promise is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arl_tangram.bench.faults import command as faults
from arl_tangram.bench.faults.actions import faulty
from arl_tangram.bench.faults.bodies import FAULTS
from arl_tangram.bench.faults.cases import BY_NAME, CASES, ENDED_S, WORDS, Case, Kind, Promise, batches, chosen
from arl_tangram.bench.faults.command import table, verdict_lines, verdicts
from arl_tangram.bench.faults.runs import Results
from arl_tangram.bench.faults.trainer import Row
from arl_tangram.bench.faults.watch import Ending
from arl_tangram.bench.faults.where import Where

ENFORCED = "cgroup v2, memory limited"


def kept(case: Case) -> Row:
    """Return what comes of a case where every promise is kept."""
    note = "named in the log" if case.is_named else ""
    if case.is_ruin:
        return Row(case.name, case.outcome, note=note)
    holds = case.promise is Promise.HOLDS
    capacity_s = 0.6 if holds else None
    return Row(case.name, case.outcome, case.infrastructure, 0.5, capacity_s, 0.0, not holds, True, case.leaves, note)


def ended(*cases: Case) -> Ending:
    """Return how their trainer ends where every promise is kept."""
    closed = all(case.is_closed for case in cases)
    strays = sum(case.strays for case in cases)
    return Ending(tuple(case.name for case in cases), 17, 0 if closed else -9, closed, 0.1, strays, 0 if closed else 2)


def results(*names: str, row: dict[str, Any] | None = None, ending: dict[str, Any] | None = None) -> Results:
    cases = [BY_NAME[name] for name in names]
    rows = tuple(replace(kept(case), **(row or {})) for case in cases)
    return Results(rows, tuple(replace(ended(case), **(ending or {})) for case in cases), ENFORCED, 0)


def broken(found: Results) -> list[str]:
    return [one.promise for one in verdicts(found) if one.broken]


def test_the_issue_names_these_faults_in_bodies_of_every_kind() -> None:
    named = ["regex", "spin", "sleep", "exit", "segfault", "large", "SystemExit", "KeyboardInterrupt", "StopIteration"]
    for kind in (Kind.LOOP, Kind.THREAD, Kind.PROCESS, Kind.COMMAND):
        assert [fault for fault in named if f"{kind}/{fault}" not in BY_NAME] == []


def test_names_are_unique_and_each_fault_can_be_had() -> None:
    assert len(BY_NAME) == len(CASES)
    assert set(WORDS) == {case.fault for case in CASES} == {*FAULTS, "await"}
    assert all(callable(faulty(case)) for case in CASES)


@pytest.mark.parametrize(
    ("only", "count"),
    [
        ([], len(CASES)),
        (["thread"], sum(case.kind == "thread" for case in CASES)),
        (["process/spin", "process/exit"], 2),
    ],
)
def test_which_cases_are_chosen(only: list[str], count: int) -> None:
    assert len(chosen(only)) == count


def test_an_unknown_word_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert faults.run(faults.Options(only=("speed",))) == 2
    assert "there is no 'speed'; there are" in capsys.readouterr().err


def test_what_ruins_its_trainer_has_one_of_its_own() -> None:
    shared = batches(CASES)
    assert sorted(case.name for batch in shared for case in batch) == sorted(BY_NAME)
    for batch in shared:
        assert len({case.kind for case in batch}) == 1
        assert len(batch) == 1 or not any(case.is_alone for case in batch)


def test_nothing_is_broken_where_all_is_kept() -> None:
    found = results(*BY_NAME)
    assert broken(found) == []
    assert "FAIL" not in verdict_lines(verdicts(found))


@pytest.mark.parametrize(
    ("found", "promises"),
    [
        (results("process/spin", row={"outcome": "returned"}), ["every caller gets what the table says"]),
        (results("process/spin", row={"infrastructure": True}), ["every caller gets what the table says"]),
        (results("process/spin", row={"answer_s": None}), ["it gets that in time"]),
        (results("thread/spin", row={"answer_s": 3.1}), ["it gets that in time"]),
        (results("process/spin", row={"capacity_s": None}), ["all units are free again in time"]),
        (results("thread/spin", row={"lingering": False}), ["a thread that does not end is shown as lingering"]),
        (results("command/spin", row={"left": ("cgroup",)}), ["nothing is left but what is said"]),
        (results("loop/survivor", row={"left": ()}), ["nothing is left but what is said"]),
        (results("command/spin", row={"served": False}), ["the next action is served"]),
        (results("loop/spin", row={"note": ""}), ["a body that blocks the loop is named"]),
        (results("process/spin", ending={"closed": False}), ["a runtime closes, and leaves nothing"]),
        (results("loop/SystemExit", ending={"behind": 1}), ["a runtime closes, and leaves nothing"]),
        (results("process/spin", ending={"ended_s": ENDED_S + 1}), ["a runtime closes, and leaves nothing"]),
        (results("trajectory/exit", ending={"left": 1}), ["a trainer that is killed leaves no process"]),
        (replace(results("loop/exit"), unswept=1), ["the next start removes what it left"]),
    ],
)  # fmt: skip
def test_each_promise(found: Results, promises: list[str]) -> None:
    assert broken(found) == promises
    lines = verdict_lines(verdicts(found))
    assert lines.count("FAIL") == 1
    assert f"FAIL  {promises[0]}" in lines


def test_memory_that_cannot_be_limited_here_is_not_promised() -> None:
    unlimited = replace(results("command/memory"), enforced="grants are advisory, and memory is not limited")
    assert broken(unlimited) == ["every caller gets what the table says"]
    done = replace(unlimited, rows=(replace(unlimited.rows[0], outcome="exit code 0"),))
    assert broken(done) == []


def test_the_table_has_a_line_for_each_case() -> None:
    lines = table(results("process/spin", "thread/sleep", "loop/regex", "loop/SystemExit").rows).splitlines()
    cells = [[cell for cell in line.split("  ") if cell] for line in lines[1:]]
    assert [line[1].strip() for line in cells] == [WORDS[fault] for fault in ("spin", "sleep", "regex", "SystemExit")]
    assert lines[1].split()[-6:] == ["no", "0.500", "0.600", "0.000", "yes", "nothing"]
    assert "lingers" in lines[2]
    assert "never" in lines[3]


def test_containers_always_limit_memory() -> None:
    in_containers = replace(results("command/memory"), enforced="direct", in_containers=True)
    assert broken(in_containers) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (faults.Options(only=("process/spin",), docker=True), "with --docker there are command and trajectory"),
        (faults.Options(url="unix:///x.sock"), "--url goes with --docker"),
        (faults.Options(only=("nonsense",)), "--only: there is no 'nonsense'"),
    ],
)
def test_options_that_make_no_sense_are_told(
    options: faults.Options, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert faults.run(options) == 2
    assert message in capsys.readouterr().err


def test_a_trainer_reads_what_it_is_told() -> None:
    for where in (Where(Path("/r")), Where(Path("/r"), "image:1"), Where(Path("/r"), "image:1", "unix:///x.sock")):
        assert Where.read([*where.argv(), "command/exit"]) == (where, ["command/exit"])
