"""What is printed, from made-up figures."""

from __future__ import annotations

import pytest

from arl_tangram.bench import show
from arl_tangram.bench.contenders import CPU_ACTION, LIMITER, QUOTA_ACTION, RAY, SEMAPHORE
from arl_tangram.bench.gates import Gate
from arl_tangram.bench.machine import Machine
from arl_tangram.bench.rounds import Series

SIZES = (1_000, 100_000)
SERIES = [
    Series(SEMAPHORE, 1_000, (5.0, 4.0, 7.0)),
    Series(LIMITER, 1_000, (30.0,)),
    Series(QUOTA_ACTION, 1_000, (36.0,)),
    Series(RAY, 1_000, (600.0,)),
    Series(SEMAPHORE, 100_000, (10.0,)),
    Series(LIMITER, 100_000, (90.0,)),
    Series(QUOTA_ACTION, 100_000, (45.0,)),
]


def test_a_row_tells_median_range_and_growth() -> None:
    lines = show.table(SERIES, SIZES).splitlines()
    assert lines[1].split() == ["1,000", "in", "flight", "100,000", "in", "flight", "growth"]
    assert lines[2].endswith(" 2.00")
    assert "5.0 (4.0 - 7.0)" in lines[2]
    assert "10.0 (10.0 - 10.0)" in lines[2]
    assert len({len(line) for line in lines[1:]}) == 1


def test_what_was_not_measured_says_so() -> None:
    row = show.table(SERIES, SIZES).splitlines()[-1]
    assert row.startswith(RAY)
    assert "not measured" in row
    assert row.endswith(" -")


def test_ratios_are_of_medians() -> None:
    rows = {line[:52].strip(): line[52:].split() for line in show.ratio_table(SERIES, SIZES).splitlines()[2:]}
    assert rows == {
        f"{QUOTA_ACTION} / {SEMAPHORE}": ["7.200", "4.500"],
        f"{QUOTA_ACTION} / {LIMITER}": ["1.200", "0.500"],
        f"{QUOTA_ACTION} / {RAY}": ["0.060", "-"],
    }
    assert CPU_ACTION not in str(rows)


def test_promises_are_told_in_one_line_each() -> None:
    text = show.gate_lines([Gate("a", 1.0, 0.5, "x"), Gate("b", 1.0, 1.5, "y"), Gate("c", 1.0, None, "nobody ran")])
    assert text == "pass  a: 0.500 (x)\nFAIL  b: 1.500 (y)\n----  c: nobody ran\n"


def test_the_introduction_names_machine_and_versions() -> None:
    packages = {"anyio": "4.9", "ray": "2.50"}
    machine = Machine("CPython 3.11.9", "Linux 6 x86_64", "A chip", 2, (0.5, 0.25, 0.125), packages)
    text = show.introduction(machine, 5, 10_000)
    assert text.splitlines()[:2] == [
        "CPython 3.11.9 on Linux 6 x86_64, 2 cores of A chip, load 0.50, 0.25, 0.12",
        "anyio 4.9, ray 2.50",
    ]
    assert "Medians of 5 interleaved rounds" in text
    assert "at least 10,000 actions" in text


@pytest.mark.parametrize(("load", "busy"), [(0.4, False), (0.6, True)])
def test_load_of_others_is_noticed(load: float, busy: bool) -> None:
    assert Machine("", "", "", 2, (load, 9.0, 9.0), {}).is_busy is busy
