"""`bench schedule --resize`: its workloads and contenders, its ratios and promises, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from arl_tangram.bench import command
from arl_tangram.bench.gates import Gate
from arl_tangram.bench.schedule import command as schedule
from arl_tangram.bench.schedule.grid import ELASTIC, FIXED, Point, Table, Task, grid, known_acts, workload_of
from arl_tangram.bench.schedule.resize_ratios import resize_gates, resize_rows
from arl_tangram.bench.schedule.resize_runs import (
    ATTAINED,
    EQUAL,
    SIZE_AWARE,
    Figures,
    ResizeOutcome,
    in_sandboxes,
    run_contender,
    run_resize_task,
)
from arl_tangram.bench.schedule.resize_show import resize_table
from arl_tangram.model.elasticity import Elastic
from arl_tangram.scheduling.policies import fixed
from arl_tangram.scheduling.policies.elastic import elastic

QUICK = grid(quick=True)
HERE = Point(0.3, (0.5, 0.9), 0.6)
THERE = Point(1.0, (0.9, 1.0), 0.5, 64)
FIGURES = dict.fromkeys(FIXED, Figures(2.0, 20.0)) | {
    ELASTIC: Figures(1.8, 18.0),
    EQUAL: Figures(1.4, 9.0),
    ATTAINED: Figures(1.6, 22.0),
    SIZE_AWARE: Figures(1.2, 10.0),
}


def made_up(task: Task, **acts_s: float) -> ResizeOutcome:
    figures = FIGURES | {name: Figures(act_s, 10.0) for name, act_s in acts_s.items()}
    if task.table is Table.LEARNED:
        figures = {name: figures[name] for name in (ELASTIC, EQUAL, SIZE_AWARE)}
    return ResizeOutcome(task, figures)


class TestWorkloads:
    @pytest.mark.parametrize("table", Table)
    def test_each_call_is_alone_in_its_sandbox_and_an_elastic_one_can_be_resized(self, table: Table) -> None:
        workload = workload_of(Task(table, QUICK[1], 3, quick=True))
        shared = in_sandboxes(workload)
        assert not shared.arrivals
        assert len(shared.rollouts) == len(workload.arrivals) == 320
        resizable = 0
        for arrival, rollout in zip(workload.arrivals, shared.rollouts, strict=True):
            ((call,),) = (turn.calls for turn in rollout.turns)
            assert (rollout.at_s, call.work_s, call.speedup) == (
                arrival.at_s,
                arrival.call.work_s,
                arrival.call.speedup,
            )
            assert call.spec.name == arrival.call.spec.name
            cpu = call.spec.cost.cpu
            if isinstance(cpu, Elastic):
                assert cpu.resizable
                assert cpu.options == (1, 2, 4, 8, 16)
                resizable += 1
            else:
                assert call.spec is arrival.call.spec
        assert 0 < resizable < 320
        assert len({id(rollout.turns[0].calls[0].spec) for rollout in shared.rollouts}) == (
            2 if table is Table.KNOWN else 8
        )

    def test_to_those_that_do_not_share_the_calls_are_the_same(self) -> None:
        task = Task(Table.KNOWN, QUICK[0], 3, quick=True)
        policies = {ELASTIC: elastic(), "fixed(4)": fixed(4)}
        acts_s = known_acts(task, policies)
        assert {name: run_contender(task, policy).act_s for name, policy in policies.items()} == acts_s


@pytest.mark.parametrize("point", QUICK, ids=lambda point: point.arrivals)
def test_a_task_with_durations_known_runs_all_contenders(point: Point) -> None:
    task = Task(Table.KNOWN, point, 3, quick=True)
    outcome = run_resize_task(task)
    assert set(outcome.figures) == {*FIXED, ELASTIC, EQUAL, ATTAINED, SIZE_AWARE}
    assert outcome == run_resize_task(task)
    best_s = min(outcome.figures[name].act_s for name in (*FIXED, ELASTIC))
    assert outcome.figures[SIZE_AWARE].act_s < best_s
    assert len({figures.act_s for figures in outcome.figures.values()}) >= 6


def test_where_everything_is_learned_there_is_no_hindsight() -> None:
    outcome = run_resize_task(Task(Table.LEARNED, QUICK[0], 3, quick=True))
    assert set(outcome.figures) == {ELASTIC, EQUAL, SIZE_AWARE}
    for figures in outcome.figures.values():
        assert 0 < figures.act_s < figures.act_p99_s


def test_rows_are_means_over_the_seeds() -> None:
    outcomes = [
        made_up(Task(Table.KNOWN, HERE, 6), **{"fixed(1)": 1.0, "fixed(4)": 1.5, SIZE_AWARE: 1.0}),
        made_up(Task(Table.KNOWN, HERE, 7), **{"fixed(1)": 3.0, "fixed(4)": 1.5, SIZE_AWARE: 2.0}),
        made_up(Task(Table.LEARNED, HERE, 6)),
    ]
    (known,) = resize_rows(outcomes, Table.KNOWN)
    assert (known.point, known.base) == (HERE, "fixed(4)")
    assert known.figures[SIZE_AWARE] == Figures(1.5, 10.0)
    assert known.act_ratio(SIZE_AWARE, known.base) == 1.0
    (learned,) = resize_rows(outcomes, Table.LEARNED)
    assert learned.base == ELASTIC


def judged(here: Mapping[str, float], there: Mapping[str, float], learned: Mapping[str, float]) -> list[Gate]:
    outcomes = [
        made_up(Task(Table.KNOWN, HERE, 6), **here),
        made_up(Task(Table.KNOWN, THERE, 6), **there),
        made_up(Task(Table.LEARNED, THERE, 6), **learned),
    ]
    return resize_gates(resize_rows(outcomes, Table.KNOWN), resize_rows(outcomes, Table.LEARNED))


@pytest.mark.parametrize(
    ("here_s", "there_s", "learned_s", "passed"),
    [
        (1.8, 1.5, 1.83, [True, True, True, True]),
        (2.8, 1.5, 1.8, [False, True, False, True]),
        (1.8, 1.52, 1.8, [True, False, True, True]),
        (1.84, 1.5, 1.8, [True, True, False, True]),
        (1.8, 1.5, 1.84, [True, True, True, False]),
    ],
)
def test_each_promise(here_s: float, there_s: float, learned_s: float, passed: list[bool]) -> None:
    gates = judged({SIZE_AWARE: here_s}, {SIZE_AWARE: there_s}, {SIZE_AWARE: learned_s})
    assert [gate.passed for gate in gates] == passed


def test_the_worst_point_is_named() -> None:
    mean, elastic_half, known, learned = judged({SIZE_AWARE: 2.5}, {}, {})
    assert mean.where == f"2 points; the worst, 1.250, is {HERE.name}"
    assert elastic_half.where == f"1 points; the worst, 0.600, is {THERE.name}"
    assert (known.where, known.value) == (HERE.name, pytest.approx(2.5 / 1.8))
    assert learned.where == THERE.name


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    tasks: list[Task] = []

    def run_task(task: Task) -> ResizeOutcome:
        tasks.append(task)
        return made_up(task)

    monkeypatch.setattr(schedule, "run_resize_task", run_task)
    return tasks


def test_both_tables_are_run_on_the_grid(ran: list[Task], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["schedule", "--resize", "--workers", "1"]) == 0
    assert {task.point for task in ran} == set(grid())
    assert len(ran) == 2 * 36 * 5
    printed = capsys.readouterr().out
    assert printed.count("pass  ") == 4
    assert printed.count("geometric mean") == 4 + 2
    assert "under equal_shares, least_attained, size_aware running calls share the cores" in printed


def test_a_broken_promise_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(schedule, "run_resize_task", lambda task: made_up(task, **{SIZE_AWARE: 2.2}))
    file = tmp_path / "x.json"
    argv = ["schedule", "--resize", "--workers", "1", "--seeds", "1", "--table", "known", "--json", str(file)]
    assert command.main(argv) == 1
    assert capsys.readouterr().out.count("FAIL  ") == 3
    record = json.loads(file.read_text())
    assert [gate["passed"] for gate in record["gates"]] == [False, False, False]
    assert record["known"][0]["figures"][SIZE_AWARE] == {"act_s": 2.2, "act_p99_s": 10.0}
    assert (len(record["runs"]), record["learned"]) == (36, [])


def test_a_quick_run_judges_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(schedule, "run_resize_task", lambda task: made_up(task, **{SIZE_AWARE: 9.9}))
    assert command.main(["schedule", "--resize", "--workers", "1", "--quick"]) == 0
    assert "no promises" in capsys.readouterr().out


@pytest.mark.parametrize("table", Table)
def test_tables_line_up(table: Table) -> None:
    rows = resize_rows([made_up(Task(table, point, 6)) for point in grid()], table)
    mean, p99 = resize_table(rows).split("\n\n")
    for text in (mean, p99):
        lines = text.splitlines()[1:]
        assert len(lines) == 1 + 36 + 2
        assert len({len(line) for line in lines}) == 1
        assert lines[-2].startswith("geometric mean")
        assert lines[-1].startswith("worst")
    shown = {Table.KNOWN: ("0.900", "0.700", "0.800", "0.600", "0.667"), Table.LEARNED: ("0.778", "0.667")}
    assert tuple(mean.splitlines()[-1].split()[1:]) == shown[table]
