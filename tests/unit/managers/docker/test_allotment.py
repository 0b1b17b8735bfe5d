from __future__ import annotations

import subprocess

import pytest

from arl_tangram.errors import AllocationError
from arl_tangram.managers.cores import Placement
from arl_tangram.managers.docker.allotment import (
    LOOK_INSIDE,
    SUSPENDED,
    Allotment,
    allotment_of,
    check_in_effect,
    check_seen_inside,
)
from arl_tangram.managers.host.machine import read_machine


def test_whole_cores_have_no_quota_and_fractions_have_one() -> None:
    assert allotment_of(Placement((2, 3), 2000), [0, 1]) == Allotment((2, 3), None)
    assert allotment_of(Placement((3,), 250), [0, 1]) == Allotment((3,), 25_000)
    assert allotment_of(Placement((3,), 1), [0, 1]) == Allotment((3,), 1_000), "the kernel takes no less"
    assert allotment_of(None, [0, 1]) == Allotment((0, 1), 10_000)


def test_what_is_suspended_stays_where_it_was() -> None:
    assert allotment_of(SUSPENDED, [0, 1]) == Allotment((), 1_000, comes_last=True)
    assert str(allotment_of(SUSPENDED, [0, 1])) == "next to no time"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Allotment(tuple(range(8)), 10_000), "wanted 8 cores (0,1,2,3,4,5,6,7), but 0.1 cores (0,1,2,3,4,5,6,7) are"),
        (Allotment((0,), None), "but 1 core (0) is in effect"),
        (Allotment((), None), "but 0 cores (none) are in effect"),
    ],
)
def test_a_difference_is_said_in_cores(found: Allotment, words: str) -> None:
    with pytest.raises(AllocationError) as caught:
        check_in_effect(Allotment(tuple(range(8)), None), found)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "told",
    [b"cores 2-3\nquota -1\n", b"cores 2-3\nquota max 100000\n", b"cores 2-3\n", b"noise\ncores 2-3\nquota max\n"],
)
def test_a_container_that_tells_what_was_wanted_is_right(told: bytes) -> None:
    check_seen_inside(Allotment((2, 3), None), told)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (b"cores 0-7\nquota -1\n", "but 8 cores"),
        (b"cores 2-3\nquota 10000 100000\n", "but 0.1 cores"),
        (b"cores 2-3\nquota 10000\n", "but 0.1 cores"),
        (b"", "does not tell"),
        (b"sh: not found\n", "does not tell"),
    ],
)
def test_a_container_that_tells_something_else_is_wrong(told: bytes, words: str) -> None:
    with pytest.raises(AllocationError, match=words):
        check_seen_inside(Allotment((2, 3), None), told)


def test_the_look_inside_runs_in_a_plain_shell_without_any_program() -> None:
    told = subprocess.run(["/bin/sh", "-c", LOOK_INSIDE], env={"PATH": ""}, capture_output=True, check=True)
    assert told.stderr == b""
    cores = read_machine().cores
    first = told.stdout.decode().splitlines()[0]
    assert first.startswith("cores ")
    check_seen_inside(Allotment(cores, None), first.encode())
