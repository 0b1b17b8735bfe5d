"""Files are handed out in order, and a process of pytest that dies does not make the others wait for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from distribution import LONG

TESTS = Path(__file__).parents[1]
CONFTEST = """
from distribution import FilesInOrder

def pytest_xdist_make_scheduler(config, log):
    return FilesInOrder(config, log)
"""
KILLS_THE_FIRST = """
import os
from pathlib import Path

def test_it():
    try:
        Path({path!r}).touch(exist_ok=False)
    except FileExistsError:
        return
    os._exit(1)
"""


def test_all_the_others_are_run_when_a_process_dies(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyprojecttoml(f'[tool.pytest]\npythonpath = ["{TESTS}"]\n')
    kills = KILLS_THE_FIRST.format(path=str(pytester.path / "was-here"))
    pytester.makepyfile(test_one=kills, test_other="def test_it():\n    pass\n")
    ran = pytester.runpytest_subprocess("-n1", "--dist=loadfile", "-p", "no:cacheprovider", timeout=40)
    ran.assert_outcomes(failed=1, passed=2)


def test_the_long_files_are_there() -> None:
    assert [file for file in LONG if not (TESTS.parent / file).is_file()] == []
