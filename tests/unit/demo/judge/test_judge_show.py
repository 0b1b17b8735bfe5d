"""What the user reads of the scored trajectories, and what is found to be wrong with them."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from arl_tangram.demo.command import Options, main, read_options
from arl_tangram.demo.judge import command, show
from arl_tangram.demo.judge.answers import JudgedAnswer, JudgedRun, Score, faults_in
from arl_tangram.demo.judge.figures import JudgedFigures
from arl_tangram.errors import MissingExtraError

FIGURES = JudgedFigures(
    step_s=40.0,
    calls=700,
    mean_act_s=0.4,
    p99_act_s=3.0,
    scores=400,
    mean_score_s=0.5,
    p99_score_s=4.0,
    execution_s=0.1,
    swaps=200,
    evictions=198,
    restore_s=6.0,
    hit_share=0.5,
    overhead_share=0.2,
    score_overhead_share=0.25,
)
SCORES = (Score(-7.5, "aa"), Score(-7.25, "bb"))
ANSWERS = (JudgedAnswer(0, (0, 5), SCORES),)
STATIC = JudgedRun("static", FIGURES, ANSWERS)
LOSS = JudgedRun("loss", replace(FIGURES, step_s=20.0, mean_score_s=0.25), ANSWERS)
ALONE = (SCORES,)


def text_of(*shown: RenderableType, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    for item in shown:
        console.print(item)
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def test_the_table_has_a_column_for_each_way_and_what_was_asked_for() -> None:
    text = text_of(show.comparison_table([STATIC, LOSS], trajectories=24))
    assert "24 trajectories, 6 services, room for 2" in text
    lines = {line.split("  ")[0].strip(): line.split() for line in text.splitlines()}
    assert lines["step time"][-4:] == ["40.0", "s", "20.0", "s"]
    assert lines["hit rate"][-1] == "50.0%"
    assert {"ACT, mean", "ACT of scores, p99", "swaps", "seconds of restoring", "overhead share"} <= lines.keys()


def test_ratios_are_how_many_times_lower_than_the_static_placement() -> None:
    text = text_of(show.ratio_table([STATIC, LOSS]))
    assert "Times lower than static" in text
    lines = {line.split("  ")[0].strip(): line.split()[-1] for line in text.splitlines() if line.strip()}
    assert (lines["step time"], lines["ACT of scores, mean"], lines["ACT, mean"]) == ("2.00x", "2.00x", "1.00x")


def test_runs_that_came_to_the_same_as_the_models_alone_have_no_faults() -> None:
    assert faults_in([STATIC, LOSS], ALONE) == []


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (JudgedAnswer(0, (0, 5), (SCORES[0], Score(-7.25, "bc"))), "loss: trajectory 0: only 1 of 2 scores are those"),
        (JudgedAnswer(0, (1, 5), SCORES), "loss: trajectory 0: its tools returned (1, 5), but (0, 5) with static"),
        (JudgedAnswer(0, error="RestoreError: no"), "loss: trajectory 0 broke: RestoreError: no"),
    ],
    ids=["a bit of a score", "a tool", "an error"],
)
def test_what_differs_is_a_fault(answer: JudgedAnswer, fault: str) -> None:
    (found,) = faults_in([STATIC, replace(LOSS, answers=(answer,))], ALONE)
    assert found.startswith(fault)


def test_it_is_chosen_with_its_own_options() -> None:
    assert read_options(["--judge", "--quick", "--seed", "4"]) == Options(quick=True, seed=4, judge=True)


@pytest.mark.parametrize(
    "other", [["--docker"], ["--sweep"], ["--tool-share", "30"], ["--policies", "scheduler"]], ids=lambda argv: argv[0]
)
def test_the_options_of_the_coding_rollouts_do_not_go_with_it(
    other: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read_options(["--judge", *other])
    assert ended.value.code == 2
    assert "--judge goes with --quick, --seed, --trace and --json only" in capsys.readouterr().err


def test_without_torch_it_names_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing() -> None:
        raise MissingExtraError("GPU services need torch, which is not installed: pip install 'arl-tangram[gpu]'")

    monkeypatch.setattr(command, "need_torch", missing)
    assert main(["--judge", "--quick"]) == 1
    told = capsys.readouterr()
    assert told.err == "demo: GPU services need torch, which is not installed: pip install 'arl-tangram[gpu]'\n"
    assert told.out == ""
