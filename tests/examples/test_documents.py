"""What the README and the documentation show is run, as a reader would run it.

The Python blocks of a page are one program, in the order of the page. Shell blocks run in a copy of the project, after
the README's command for the demo has set it up there with `--quick`. The README's test command would run this test
again: .ci/run runs it, and here the two are compared.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from documents import OF_TRAINERS, README, ROOT, Block, not_run, pages, script, shell

# The blocks that are left out, with the reasons that stand above them. A new one is a decision: add it here.
LEFT_OUT: dict[str, str] = {}

HERE = {name: page for page in pages() if (name := page.relative_to(ROOT).as_posix()) not in OF_TRAINERS}
PROGRAMS = {name: program for name, page in HERE.items() if (program := script(page)).strip()}
WITH_DOCKER = [page for page, program in PROGRAMS.items() if "DockerPool(" in program]
SETUP = "python3 -m venv .venv && .venv/bin/pip install "
COPIED_NOT = shutil.ignore_patterns(".git", ".nox", ".venv", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info")


def _is_demo(block: Block) -> bool:
    return block.page == README and block.source.startswith(SETUP) and block.source.endswith("arl_tangram demo\n")


def _is_test(block: Block) -> bool:
    return block.page == README and block.source.startswith(SETUP) and "nox" in block.source


COMMANDS = [block for page in HERE.values() for block in shell(page) if not _is_demo(block) and not _is_test(block)]


def _run(command: list[str], folder: Path, timeout_s: float, more: dict[str, str] | None = None) -> str:
    """Run a command with the Python of this test first on the PATH; return what it printed, errors included."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment | {"PATH": path, "NO_COLOR": "1"} | (more or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest.mark.parametrize("page", [page for page in PROGRAMS if page not in WITH_DOCKER])
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    _run_page(page, tmp_path)


@pytest.mark.parametrize("page", WITH_DOCKER)
def test_the_python_of_a_page_about_docker_runs(page: str, docker_url: str, tmp_path: Path) -> None:
    _run_page(page, tmp_path, {"DOCKER_HOST": docker_url})


def _run_page(page: str, folder: Path, more: dict[str, str] | None = None) -> None:
    program = folder / "page.py"
    program.write_text(PROGRAMS[page])
    _run([sys.executable, "-W", "error", str(program)], folder, timeout_s=100, more=more)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Copy the project and set it up with the README's command for the demo, which also shows that this works."""
    copy = tmp_path_factory.mktemp("project") / "clone"
    shutil.copytree(ROOT, copy, ignore=COPIED_NOT)
    (demo,) = [block for block in shell(README) if _is_demo(block)]
    printed = _run(["bash", "-euo", "pipefail", "-c", f"{demo.source.strip()} --quick"], copy, timeout_s=540)
    assert printed
    yield copy
    shutil.rmtree(copy)


@pytest.mark.timeout(600)
def test_the_demo_command_sets_up_and_runs_the_demo(project: Path) -> None:
    assert (project / ".venv" / "bin" / "python").exists()


@pytest.mark.timeout(1200)
def test_every_other_shell_block_runs(project: Path) -> None:
    for block in COMMANDS:
        _run(["bash", "-euo", "pipefail", "-c", block.source], project, timeout_s=300)


def test_two_commands_are_enough_and_each_is_one_line() -> None:
    setups = [block for block in shell(README) if block.source.startswith(SETUP)]
    assert [_is_demo(block) for block in setups] == [True, False]
    assert [_is_test(block) for block in setups] == [False, True]
    assert all(block.source.count("\n") == 1 for block in setups)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    (command,) = [block.source.strip() for block in shell(README) if _is_test(block)]
    assert f"\ntest_command='{command}'\n" in (ROOT / ".ci" / "run").read_text()


def test_what_is_not_run_is_listed_here() -> None:
    assert {str(block): block.not_run for block in not_run()} == LEFT_OUT
