"""For any changes of cores: what a call is said to have held is the integral of what it had."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.trace.holding import Holding

TOPOLOGY = Topology([Dimension("cpu", 8000, 1000), Dimension("memory", 8 << 30, 1 << 30)])
DEMAND = Demand("m:f", ((1, 1 << 30),), elastic=0, options=tuple(range(1000, 9000, 1000)), resizable=True)

steps = st.lists(st.tuples(st.floats(0, 100), st.integers(0, 8)), min_size=1, max_size=20)


@given(st.dictionaries(st.integers(1, 9), steps, min_size=1, max_size=4), st.booleans())
def test_core_seconds_are_the_integral_over_all_changes(
    calls: dict[int, Sequence[tuple[float, int]]], ends: bool
) -> None:
    """Each step is how long a call has so many cores; the first is its start."""
    holding = Holding(TOPOLOGY)
    changes: list[tuple[float, int, int]] = []
    ended: dict[int, float] = {}
    for id_, steps in calls.items():
        at_s = 0.0
        for lasts_s, cores in steps:
            changes.append((at_s, id_, 1000 * cores))
            at_s += lasts_s
        ended[id_] = at_s
    started: set[int] = set()
    for at_s, id_, units in sorted(changes, key=lambda change: change[0]):
        if id_ not in started:
            started.add(id_)
            holding.start(RunningAction(PendingAction(id_, DEMAND, 0.0), 0.0, units, 1.0))
        else:
            holding.resize(id_, units, at_s)
    had = {id_: sum(lasts_s * cores for lasts_s, cores in steps) for id_, steps in calls.items()}
    last_s = max(ended.values())
    idle = {id_: (last_s - ended[id_]) * calls[id_][-1][1] for id_ in calls}
    assert holding.unit_s(last_s)[0] / 1000 == pytest.approx(sum(had.values()) + sum(idle.values()))
    if ends:
        for id_, at_s in ended.items():
            assert holding.stop(id_, at_s) == ("m:f", pytest.approx(had[id_]))
        assert holding.unit_s(1e6)[0] / 1000 == pytest.approx(sum(had.values()))
        assert holding.unit_s(1e6)[1] == pytest.approx((1 << 30) * sum(ended.values()))
        assert not holding._resizing.shares
