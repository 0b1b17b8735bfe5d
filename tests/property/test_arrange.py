"""DPArrange is exact: for every prefix, its sum is that of a brute force, and its units add up to it."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.model.elasticity import Elastic
from arl_tangram.scheduling.arrange import Arrangement
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.policy import Candidate
from arl_tangram.scheduling.relative import LONGEST_S
from property.worlds import make_demand, make_topology

DURATIONS = st.floats(1e-6, LONGEST_S) | st.integers(1, 5).map(float)


@st.composite
def candidates(draw: st.DrawFn) -> Candidate:
    units = sorted(draw(st.sets(st.integers(1, 9), min_size=1, max_size=5)))
    return Candidate(tuple(units), tuple(draw(DURATIONS) for _ in units))


def brute_force(group: list[Candidate], free: int) -> float:
    """Return the least sum of durations over every choice of units that fits; infinite if none does."""
    return min(
        (
            math.fsum(d for _, d in choice)
            for choice in itertools.product(*(zip(c.units, c.durations_s, strict=True) for c in group))
            if sum(u for u, _ in choice) <= free
        ),
        default=math.inf,
    )


@given(st.lists(candidates(), min_size=1, max_size=5), st.integers(0, 24))
def test_it_equals_brute_force_for_every_prefix(group: list[Candidate], free: int) -> None:
    arrangement = Arrangement(group, free)
    assert arrangement.cost_s(0) == 0
    assert arrangement.units(0) == ()
    for prefix in range(1, len(group) + 1):
        least_s = brute_force(group[:prefix], free)
        if math.isinf(least_s):
            assert math.isinf(arrangement.cost_s(prefix))
            with pytest.raises(ValueError, match="do not fit"):
                arrangement.units(prefix)
            continue
        assert arrangement.cost_s(prefix) == pytest.approx(least_s, rel=1e-12)
        units = arrangement.units(prefix)
        assert len(units) == prefix
        assert sum(units) <= free
        chosen = [c.durations_s[c.units.index(u)] for c, u in zip(group, units, strict=False)]
        assert math.fsum(chosen) == pytest.approx(least_s, rel=1e-12)


@given(st.lists(candidates(), min_size=1, max_size=5), st.integers(0, 24))
def test_more_units_never_cost_more(group: list[Candidate], free: int) -> None:
    costs = [Arrangement(group, more).cost_s(len(group)) for more in range(free, free + 4)]
    assert costs == sorted(costs, reverse=True)


@given(
    st.lists(
        st.tuples(st.floats() | st.sampled_from([0.0, -1.0, 1e308, 5e-324, math.inf, math.nan]), st.floats()),
        min_size=1,
        max_size=4,
    ),
    st.integers(4, 12),
)
def test_garbage_for_speed_ups_and_durations_never_breaks_it(garbage: list[tuple[float, float]], free: int) -> None:
    topology = make_topology(cores=12)
    durations = Durations()
    group = []
    for i, (speedup, seen_s) in enumerate(garbage):
        demand = make_demand(topology, f"a{i}", cpu=Elastic(1, 4, speedup=lambda units, s=speedup: s * units))  # type: ignore[misc]
        for _ in range(3):
            durations.observe(demand, "", demand.options[-1], seen_s)
            durations.observe(demand, "", demand.options[0], -seen_s)
        curve = durations.curve(demand, "")
        assert all(math.isfinite(s) and 0 < s <= LONGEST_S for s in curve)
        group.append(Candidate((1, 2, 3, 4), curve))
    arrangement = Arrangement(group, free)
    assert sum(arrangement.units(len(group))) <= free
    assert arrangement.cost_s(len(group)) == pytest.approx(brute_force(group, free), rel=1e-12)
