"""What the comparison accepts, and how it finds work that was not the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from arl_tangram import LocalPool
from arl_tangram.demo.agents import Course, draw_scripts
from arl_tangram.demo.comparison import Bench, Run, differences, faults_in, policy_named, trace_path
from arl_tangram.demo.measure import Figures
from arl_tangram.demo.progress import Lines
from arl_tangram.demo.rollout import Answer
from arl_tangram.demo.suite import SourceTree
from arl_tangram.errors import ConfigurationError

SCRIPTS = draw_scripts(0, 4)
FIGURES = Figures(*([1] * 13))


def answers() -> tuple[Answer, ...]:
    return tuple(Answer(s.index, (0, 1), 0.5, 0.5 if s.course is Course.WRONG else 1.0) for s in SCRIPTS)


def test_the_default_policy_is_the_schedulers_own() -> None:
    assert policy_named("scheduler") is None
    assert policy_named("resize") is None


def test_cores_are_shared_by_running_actions_where_that_was_asked_for() -> None:
    pool = LocalPool(cores=1, isolation="none")
    bench = Bench(SourceTree(Path()), "", Lines(Console()), pool)
    assert bench.pool_for("scheduler") is pool
    assert bench.pool_for("resize") == replace(pool, share="resize")


@pytest.mark.parametrize("name", ["reserved(1)", "reserved(2)"])
def test_a_reservation_is_named_as_the_library_names_it(name: str) -> None:
    policy = policy_named(name)
    assert policy is not None
    assert policy.name == name


@pytest.mark.parametrize("name", ["reserved(3)", "reserved(0)", "reserved", "best", ""])
def test_an_unknown_policy_is_refused_with_what_there_is(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"there are reserved\(1\), reserved\(2\), scheduler, resize and"):
        policy_named(name)


def test_each_policy_has_a_trace_of_its_own() -> None:
    assert trace_path(Path("a/run.jsonl"), "reserved(1)") == Path("a/run.reserved-1.jsonl")
    assert trace_path(Path("run"), "scheduler") == Path("run.scheduler")


def test_the_same_answers_have_no_differences_and_no_faults() -> None:
    assert faults_in(SCRIPTS, answers()) == []
    assert differences([Run("a", FIGURES, 0, answers()), Run("b", FIGURES, 0, answers())]) == []


@pytest.mark.parametrize("change", [{"passed": 0.75}, {"similarity": 0.6}, {"results": (0, 0)}, {"error": "E: x"}])
def test_another_answer_is_a_difference_with_both_policies_named(change: dict[str, object]) -> None:
    changed = list(answers())
    changed[2] = replace(changed[2], **change)  # type: ignore[arg-type]
    found = differences([Run("a", FIGURES, 0, answers()), Run("b", FIGURES, 0, tuple(changed))])
    assert len(found) == 1
    assert found[0].startswith("trajectory 2 came to ")
    assert "under b" in found[0]
    assert "under a" in found[0]


def test_a_broken_trajectory_is_a_fault() -> None:
    changed = list(answers())
    changed[1] = Answer(1, error="SandboxLostError: gone")
    assert faults_in(SCRIPTS, changed) == ["trajectory 1 broke: SandboxLostError: gone"]


@pytest.mark.parametrize(("course", "passed"), [(Course.RIGHT, 0.75), (Course.MENDED, 0.0), (Course.WRONG, 1.0)])
def test_rewards_that_do_not_fit_the_patch_are_a_fault(course: Course, passed: float) -> None:
    index = next(s.index for s in SCRIPTS if s.course is course)
    changed = list(answers())
    changed[index] = replace(changed[index], passed=passed)
    found = faults_in(SCRIPTS, changed)
    assert len(found) == 1
    assert f"{passed:.0%}" in found[0]
