"""`bench swap`: its promises and its table, from made-up figures; the lag of a loop that is held up."""

from __future__ import annotations

import asyncio
import time

import pytest

from arl_tangram.bench.command import read_options
from arl_tangram.bench.swap.figures import Round
from arl_tangram.bench.swap.gates import gates
from arl_tangram.bench.swap.lag import lag_s
from arl_tangram.bench.swap.show import table

GOOD = {
    "copy_s": 0.05,
    "restore_s": 0.06,
    "evict_s": 0.0002,
    "to_s": 0.7,
    "drop_s": 0.02,
    "cold_s": 0.2,
    "copy_lag_s": 0.002,
    "restore_lag_s": 0.002,
}
DISTURBED = {name: value * 9 for name, value in GOOD.items()}


def rounds(**changes: float) -> list[Round]:
    return [Round(**DISTURBED), Round(**(GOOD | changes)), Round(**DISTURBED)]


def test_good_figures_keep_all_promises_though_some_rounds_were_disturbed() -> None:
    found = gates(rounds())
    assert [gate.passed for gate in found] == [True] * 4
    assert found[0].value == pytest.approx(0.06 / 0.05)
    assert "a restore has 83% of its bandwidth" in found[0].where
    assert "11.7 times as fast" in found[1].where


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"restore_s": 0.084, "to_s": 1.0}, 0),
        ({"to_s": 0.29}, 1),
        ({"evict_s": 0.0011}, 2),
        ({"restore_lag_s": 0.0026}, 3),
    ],
    ids=["copy", "to", "evict", "lag"],
)
def test_each_promise_can_break(changes: dict[str, float], broken: int) -> None:
    assert [gate.passed for gate in gates(rounds(**changes))] == [number != broken for number in range(4)]


def test_the_table_has_bandwidths_where_bytes_are_copied() -> None:
    lines = table(rounds(), 600_000_000).splitlines()
    cells = {line[:46].strip(): line[46:].split() for line in lines[1:]}
    assert cells["restore, warm pages, ms"] == ["60.00", "540.00", "540.00", "10.00"]
    assert cells["evict, ms"] == ["0.20", "1.80", "1.80"]
    assert len(cells) == 8


async def test_a_loop_that_is_held_up_is_late_by_as_much() -> None:
    async def hold_up() -> None:
        await asyncio.sleep(0.02)
        until_s = time.perf_counter() + 0.1
        while time.perf_counter() < until_s:
            pass
        await asyncio.sleep(0.02)

    assert 0.08 < await lag_s(hold_up, 0.99) < 1

    late_s = await lag_s(lambda: asyncio.sleep(0.05), 0.5)
    assert 0 <= late_s < 0.05


def test_the_command_line_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_options(["swap", "--help"])
    assert "quick" in capsys.readouterr().out
