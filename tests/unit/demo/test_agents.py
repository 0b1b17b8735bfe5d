"""The scripts of the agents: the same from the same seed, and about code that is really there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from arl_tangram.demo import suite
from arl_tangram.demo.agents import CheckOut, Course, Edit, Script, Search, Shell, Step, draw_scripts
from arl_tangram.demo.suite import find_source_tree

FULL = draw_scripts(0, 16)
QUICK = draw_scripts(0, 4, quick=True)


def steps(script: Script) -> list[Step]:
    return [step for turn in script.turns for step in turn.steps]


def test_the_same_seed_gives_the_same_scripts() -> None:
    assert draw_scripts(3, 16) == draw_scripts(3, 16)


def test_another_seed_gives_other_scripts() -> None:
    assert draw_scripts(3, 16) != draw_scripts(4, 16)


def test_a_script_does_not_depend_on_how_many_there_are() -> None:
    assert draw_scripts(0, 4) == FULL[:4]


@pytest.mark.parametrize("script", FULL + QUICK, ids=lambda s: f"{s.index}-{len(s.turns)}")
def test_a_script_does_everything_that_an_agent_does(script: Script) -> None:
    done = steps(script)
    assert isinstance(done[0], CheckOut)
    for kind in (Shell, Edit, Search):
        assert any(isinstance(step, kind) for step in done), kind
    assert all(turn.steps for turn in script.turns)
    assert script.calls == len(done) + 2


@pytest.mark.parametrize("script", FULL + QUICK, ids=lambda s: f"{s.index}-{len(s.turns)}")
def test_the_edits_apply_one_after_another_and_end_at_the_patch(script: Script) -> None:
    path = find_source_tree().numpy / "polynomial" / f"{script.module}.py"
    text = path.read_text()
    for step in steps(script):
        if isinstance(step, Edit):
            assert step.path == f"polynomial/{script.module}.py"
            assert text.count(step.old) == 1
            text = text.replace(step.old, step.new)
    assert text.count(script.patch) == 1


def test_agents_fare_differently() -> None:
    assert {script.course for script in FULL} == set(Course)
    assert {script.course for script in QUICK} == set(Course)


@pytest.mark.parametrize("operation", ["add", "sub"])
@pytest.mark.parametrize("course", [Course.RIGHT, Course.WRONG])
def test_a_patch_is_as_right_as_its_course_says(tmp_path: Path, operation: str, course: Course) -> None:
    chosen = next(
        s
        for seed in range(50)
        for s in draw_scripts(seed, 4)
        if s.course is course and s.function.endswith(operation) and s.module == "legendre"
    )
    source = (find_source_tree().numpy / "polynomial" / "legendre.py").read_text()
    old = suite.ADD if operation == "add" else suite.SUBTRACT
    module = tmp_path / "patched.py"
    module.write_text(source.replace(old, chosen.patch).replace("from . import", "from numpy.polynomial import")
                      .replace("from ._polybase", "from numpy.polynomial._polybase"))  # fmt: skip
    expected = "[4, 6, 5]" if operation == "add" else "[-2, -2, -5]"
    check = f"import patched; assert list(patched.leg{operation}([1, 2], [3, 4, 5])) == {expected}"
    done = subprocess.run([sys.executable, "-c", check], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode == 0) == (course is Course.RIGHT), done.stderr.decode()
