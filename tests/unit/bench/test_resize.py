"""The parts of `bench resize` that need no sandbox: its programs, what it compares, and what it judges."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from arl_tangram.bench.command import main
from arl_tangram.bench.resize import program
from arl_tangram.bench.resize.changing import Changed, _sizes, _wrong
from arl_tangram.bench.resize.costs import Switches, Workers, felt
from arl_tangram.bench.resize.ending import Kill, Timeout, TrainerKill
from arl_tangram.bench.resize.gates import gates
from arl_tangram.bench.resize.plan import QUICK
from arl_tangram.bench.resize.results import Results
from arl_tangram.bench.resize.show import changed, costs, ended
from arl_tangram.model.sandbox import ExecResult

WORK = ("0", "60", "3")


def run_program(*words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", program.__file__, *words]
    return subprocess.run(command, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("workers", ["1", "3", "8"])
def test_work_is_the_same_with_any_number_of_workers(workers: str) -> None:
    done = run_program("work", *WORK, workers)
    assert done.stdout == b"".join(program.work_lines(0, 60, 3))
    assert (done.returncode, done.stderr) == (program.DONE, program.ERRORS)
    assert len(set(done.stdout.splitlines())) == 61


def test_ticks_are_when_it_ran() -> None:
    told = program.tick(0.05)
    assert 0.05 <= told["ended_s"] - told["began_s"] < 5  # type: ignore[operator]


@pytest.mark.parametrize("most", [1, 2, 8])
def test_each_number_of_cores_differs_from_the_one_before(most: int) -> None:
    sizes = [1, *_sizes(most, 300, random.Random(1))]
    assert len(sizes) == 301
    assert all(one != other for one, other in pairwise(sizes))
    assert set(sizes) == set(range(most + 1))


RIGHT = ExecResult(
    exit_code=program.DONE,
    stdout=b"0 a\n1 b\nall c\n",
    stderr=program.ERRORS,
    truncated=False,
    timed_out=False,
    duration_s=1.0,
    cpu_s=1.0,
)


def test_a_right_result_is_not_wrong() -> None:
    assert not _wrong(RIGHT, b"0 a\n1 b\nall c\n")


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        (replace(RIGHT, exit_code=137), "exit code 137, not 7"),
        (replace(RIGHT, timed_out=True), "timed out"),
        (replace(RIGHT, stdout=b"1 b\n0 a\nall c\n"), "1 of 3 lines"),
        (replace(RIGHT, stdout=b"0 a\n1 b\n"), "2 of 3 lines as they should be, 2 in all"),
        (replace(RIGHT, stderr=b""), "standard error: b''"),
    ],
)
def test_what_is_wrong_is_told(result: ExecResult, complaint: str) -> None:
    assert complaint in _wrong(result, b"0 a\n1 b\nall c\n")


@pytest.mark.parametrize(
    ("gaps", "share", "delays_s"),
    [
        ([], 1.0, (0.0, 0.0)),  # it has never stood
        ([(1.0, 2.0), (3.0, 4.0)], 0.0, (0.0, 0.0)),  # it went on at once
        ([(1.0, 2.25), (3.5, 4.0)], 0.25, (0.25, 0.0)),
        ([(0.0, 5.0)], 0.0, (3.0, 1.0)),
    ],
)
def test_what_a_program_felt_of_suspensions(
    gaps: Sequence[tuple[float, float]], share: float, delays_s: tuple[float, ...]
) -> None:
    assert felt(gaps, [(1.0, 2.0), (3.0, 4.0)]) == (share, delays_s)


def test_without_a_suspension_nothing_was_felt() -> None:
    assert felt([(1.0, 2.0)], []) == (None, ())


GOOD = Results(
    grants="by cgroups",
    changed=Changed(10, 1000, 333, ()),
    timeouts=(Timeout(1.01, True), Timeout(1.2, True)),
    kills=(Kill(0.1, 4, 0), Kill(0.2, 5, 0)),
    trainers=(TrainerKill(0.5, 4, 0, 0),),
    switches=Switches(0.0002, (0.0001, 0.0002, 0.0004), 0.01, (0.001, 0.002)),
    workers=Workers((2.0, 2.2), (2.1, 2.6)),
)


def test_good_figures_keep_all_promises() -> None:
    assert [gate.passed for gate in gates(GOOD)] == 7 * [True]
    assert [gate.value for gate in gates(GOOD)] == [0, pytest.approx(0.2), 0.2, 0, pytest.approx(1.0), 0.01, 1.05]


@pytest.mark.parametrize(
    ("number", "bad"),
    [
        (0, replace(GOOD, changed=Changed(10, 1000, 333, ("program 1: exit code 1, not 7",)))),
        (1, replace(GOOD, timeouts=(Timeout(0.4, True),))),  # the time of the suspension counted
        (1, replace(GOOD, timeouts=(Timeout(1.0, False),))),
        (2, replace(GOOD, kills=(Kill(0.1, 4, 1),))),
        (2, replace(GOOD, kills=(Kill(0.1, 0, 0),))),  # nothing ran that could be left
        (2, replace(GOOD, kills=(Kill(2.5, 4, 0),))),
        (3, replace(GOOD, trainers=(TrainerKill(20.0, 4, 1, 0),))),
        (3, replace(GOOD, trainers=(TrainerKill(0.5, 4, 0, 1),))),
        (4, replace(GOOD, switches=replace(GOOD.switches, seconds=(0.001,)))),
        (5, replace(GOOD, switches=replace(GOOD.switches, standing_share=0.5))),
        (6, replace(GOOD, workers=Workers((2.0,), (2.5,)))),
    ],
)
def test_each_promise_can_break(number: int, bad: Results) -> None:
    assert [gate.passed for gate in gates(bad)] == [other != number for other in range(7)]


def test_what_cannot_be_seen_from_here_is_not_judged() -> None:
    far = replace(
        GOOD, trainers=(TrainerKill(0.0, 0, 0, 0),), switches=replace(GOOD.switches, standing_share=None, delays_s=())
    )
    assert [gate.passed for gate in gates(far)] == [True, True, True, None, True, None, True]
    assert "goes on after" not in costs(far.switches, far.workers)


def test_the_text_tells_the_figures() -> None:
    assert changed(replace(GOOD.changed, broken=("program 1: bad",))).splitlines() == [
        "programs: 10, whose cores were changed 1,000 times, 333 of them down to none; 1 went wrong",
        "  program 1: bad",
    ]
    assert "suspended sandboxes with 4 to 5 busy processes: cleaned up in 0.100, 0.200 s, 0 processes left" in ended(
        GOOD.timeouts, GOOD.kills, GOOD.trainers
    )
    assert "median 0.200 ms, longest 0.400 ms of 3; the scheduler counts 0.2 ms" in costs(GOOD.switches, GOOD.workers)


def test_a_quick_run_does_less() -> None:
    assert QUICK.about_s < 30


@pytest.mark.parametrize("argv", [["--url", "unix:///x"], ["--resizes", "0"], ["--resizes", "many"]])
def test_wrong_usage_ends_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["resize", *argv])
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    assert code == 2
    assert "--url goes with --docker" in (err := capsys.readouterr().err) or "is no number of changes" in err
