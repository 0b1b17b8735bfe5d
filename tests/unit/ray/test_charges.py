"""What ended calls took of rates counts until its window is over, in bounded memory."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.integrations.ray.charges import Charges
from arl_tangram.model.topology import CPU, Dimension

RATE, BUDGET, CORES = Dimension("rate", 9, 1, 60.0), Dimension("budget", 9, 1, math.inf), Dimension(CPU, 9)


@given(taken=st.lists(st.tuples(st.floats(0, 300), st.integers(0, 9)), max_size=60), after_s=st.floats(0, 100))
def test_nothing_is_free_too_early_and_hardly_anything_too_late(taken: list[tuple[float, int]], after_s: float) -> None:
    charges = Charges()
    for at_s, units in taken:
        charges.add(0, RATE, units, at_s, 300.0)
    now_s = 300.0 + after_s
    counts = sum(units for _, units, _ in charges.told(now_s))
    assert counts >= sum(units for at_s, units in taken if at_s + 60 > now_s)
    assert counts <= sum(units for at_s, units in taken if at_s + 60 + 60 / 256 > now_s)
    assert all(age_s < 60 for _, _, age_s in charges.told(now_s))


def test_memory_is_bounded_and_budgets_are_summed() -> None:
    charges = Charges()
    for n in range(20_000):
        now_s = n * 0.1
        charges.add(0, RATE, 1, now_s, now_s)
        charges.add(1, BUDGET, 2, now_s, now_s)
        charges.add(2, CORES, 1, now_s, now_s)
        assert len(charges) <= 514
    told = list(charges.told(now_s))
    assert 600 <= sum(units for index, units, _ in told if index == 0) <= 603
    assert [units for index, units, _ in told if index == 1] == [40_000]
    assert not [units for index, units, _ in told if index == 2]
    charges.clear()
    assert list(charges.told(now_s)) == []
