"""Tasks in processes of their own: all outcomes come, and the first error ends it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from arl_tangram.side_by_side import side_by_side

PROGRAM = """
import os
from arl_tangram.side_by_side import side_by_side


def square_and_process(number):
    return number * number, os.getpid()


if __name__ == "__main__":
    found = list(side_by_side(range(8), 2, square_and_process))
    assert sorted(square for square, _ in found) == [number * number for number in range(8)]
    assert os.getpid() not in {process for _, process in found}
    list(side_by_side(["1", "one", "2"], 2, int))
"""


def test_two_processes_do_all_tasks_and_the_first_error_ends_it(tmp_path: Path) -> None:
    """In a program of its own: what `multiprocessing` starts besides lives as long as that."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ValueError: invalid literal for int() with base 10: 'one'"


def process_of(_: int) -> int:
    return os.getpid()


def test_one_process_is_this_one() -> None:
    assert list(side_by_side(range(3), 1, process_of)) == [os.getpid()] * 3
    with pytest.raises(ValueError, match="invalid literal"):
        list(side_by_side(["1", "one"], 1, int))
