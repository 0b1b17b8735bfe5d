"""When calls are barred by one that waits for a restore."""

from __future__ import annotations

import pytest

from arl_tangram.scheduling.gpu.bars import bars_calls


@pytest.mark.parametrize(
    ("waited_s", "expected"),
    [
        (0.0, (False, 1.0)),
        (0.99, (False, 1.0)),
        (1.0, (True, 1.5)),
        (1.5, (False, 2.0)),
        (2.0, (True, 3.0)),
        (3.0, (False, 4.0)),
        (1024.0, (True, 1536.0)),
        (1536.0, (False, 2048.0)),
    ],
)
def test_calls_pass_and_are_barred_in_turn_for_twice_as_long_each_time(
    waited_s: float, expected: tuple[bool, float]
) -> None:
    assert bars_calls(waited_s) == expected


def test_time_goes_on_from_each_change_to_the_next() -> None:
    at_s, changes = 0.0, []
    while at_s < 100:
        bars, until_s = bars_calls(at_s)
        assert until_s > at_s
        changes.append(bars)
        at_s = until_s
    assert changes == [number % 2 == 1 for number in range(len(changes))]
