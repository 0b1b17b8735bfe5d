"""The command `bench schedule`: its options, what it prints, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arl_tangram.bench import command
from arl_tangram.bench.schedule import command as schedule
from arl_tangram.bench.schedule import show as schedule_show
from arl_tangram.bench.schedule.grid import (
    DECLARED,
    ELASTIC,
    FIXED,
    INFORMED,
    LEARNED,
    PAPER,
    WRONG,
    Outcome,
    Table,
    Task,
)
from arl_tangram.bench.schedule.ratios import known_rows, learned_rows


def made_up(task: Task, elastic_s: float = 1.8) -> Outcome:
    if task.table is Table.KNOWN:
        return Outcome(task, dict.fromkeys(FIXED, 2.0) | {PAPER: 1.9, ELASTIC: elastic_s}, {})
    acts = {INFORMED: 1.0, LEARNED: 1.02, WRONG: 1.1, DECLARED: 1.01}
    return Outcome(task, acts, acts)


@pytest.fixture
def quick_runs(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    ran: list[Task] = []

    def run_task(task: Task) -> Outcome:
        ran.append(task)
        return made_up(task)

    monkeypatch.setattr(schedule, "run_task", run_task)
    return ran


def test_without_options_both_tables_are_run_on_the_published_seeds(
    quick_runs: list[Task], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["schedule", "--workers", "1"]) == 0
    assert len(quick_runs) == 2 * 36 * 5
    assert {task.seed for task in quick_runs} == {6, 7, 8, 9, 10}
    printed = capsys.readouterr()
    assert printed.out.count("pass  ") == 5
    assert "means over the seeds 6, 7, 8, 9, 10" in printed.out
    assert "360 of 360 tasks" in printed.err


def test_one_table_and_other_seeds(quick_runs: list[Task], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["schedule", "--workers", "1", "--table", "known", "--seeds", "1", "2"]) == 0
    assert {(task.table, task.seed) for task in quick_runs} == {(Table.KNOWN, 1), (Table.KNOWN, 2)}
    assert "everything learned" not in capsys.readouterr().out


def test_a_broken_promise_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(schedule, "run_task", lambda task: made_up(task, 2.2))
    assert command.main(["schedule", "--workers", "1", "--json", str(tmp_path / "x.json")]) == 1
    assert capsys.readouterr().out.count("FAIL  ") == 3
    record = json.loads((tmp_path / "x.json").read_text())
    assert [gate["passed"] for gate in record["gates"]] == [False, False, False, True, True]
    assert len(record["runs"]) == 360
    assert record["known"][0]["elastic_s"] == pytest.approx(2.2)


def test_a_quick_run_judges_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(schedule, "run_task", lambda task: made_up(task, 9.9))
    assert command.main(["schedule", "--workers", "1", "--quick"]) == 0
    assert "no promises" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["--workers", "3"], ["--table", "both"], ["--seeds"], ["--seeds", "x"]])
def test_wrong_options_are_told(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["schedule", *argv])
    assert ended.value.code == 2
    assert argv[0] in capsys.readouterr().err


def test_tables_line_up() -> None:
    tasks = [Task(table, point, 6) for table in Table for point in schedule.grid()]
    outcomes = [made_up(task) for task in tasks]
    for text in (
        schedule_show.known_table(known_rows(outcomes)),
        schedule_show.learned_table(learned_rows(outcomes)),
    ):
        rows = text.splitlines()[-38:]
        assert len({len(row) for row in rows}) == 1
        assert rows[-2].startswith("geometric mean")
        assert rows[-1].startswith("worst")
