"""Costs resolved against what there is: the units, and messages that say what was asked and what there is."""

from __future__ import annotations

import math

import pytest

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.cost import declare_cost
from arl_tangram.model.elasticity import ASSUMED_SPEEDUP, Elastic, Linear
from arl_tangram.model.lifecycle import ActionSpec, BodyKind
from arl_tangram.model.quantities import GIB
from arl_tangram.model.topology import CPU, THREADS, Dimension, Topology
from arl_tangram.scheduling.feasibility import check_beside, resolve, trajectory_demand
from arl_tangram.scheduling.relative import LONGEST_S
from property.worlds import make_demand, make_topology

TOPOLOGY = make_topology()


def test_a_cost_in_the_units_of_the_topology() -> None:
    demand = make_demand(TOPOLOGY, "f", cpu=Elastic(1, 8), memory_gib=2, search=0.5, thread=True, priority=3)
    assert demand.elastic == 0
    assert demand.options == (1000, 2000, 3000, 4000), "what the pool does not have is no option"
    assert demand.fixed == ((1, 2 * GIB), (3, 500), (4, 500), (2, 1))
    assert demand.dimensions == 0b11111
    assert demand.priority == 3
    assert demand.speedup is ASSUMED_SPEEDUP
    assert demand.relative == pytest.approx([1, 2**-0.8, 3**-0.8, 4**-0.8])


def test_whole_cores_are_handed_out_and_fractions_are_fixed() -> None:
    whole, fraction = make_demand(TOPOLOGY, cpu=2), make_demand(TOPOLOGY, cpu=1.5)
    assert (whole.elastic, whole.options, whole.fixed, whole.relative) == (0, (2000,), (), (1.0,))
    assert (fraction.elastic, fraction.options, fraction.fixed) == (None, (), ((0, 1500),))
    nothing = make_demand(TOPOLOGY)
    assert (nothing.elastic, nothing.fixed, nothing.dimensions) == (None, (), 0)


def test_reserved_cores_replace_those_of_the_action() -> None:
    demand = make_demand(TOPOLOGY, cpu=Elastic(1, 64), memory_gib=1, reserved=2000)
    assert (demand.elastic, demand.options, demand.reserved) == (None, (), 2000)
    assert make_demand(TOPOLOGY, search=1, reserved=2000).reserved == 0, "an action without cores uses none of them"


@pytest.mark.parametrize(
    ("cost", "asked", "there_is"),
    [
        ({"cpu": 5}, "5 cores", "cpu has 4 in all"),
        ({"cpu": 4.5}, "4.5 cores", "cpu has 4 in all"),
        ({"cpu": Elastic(6, 8)}, "6 cores", "cpu has 4 in all"),
        ({"memory_gib": 17}, "17 GiB of memory", "memory has 16 in all"),
        ({"search": 4}, "4 calls", "quota:search/calls has 3 in all"),
        ({"search": 3}, "3 calls", "quota:search/concurrency has 2 in all"),
        ({"cpu": 1e306}, "1e+306 cores", "cpu has 4 in all"),
    ],
)
def test_more_than_there_is(cost: dict[str, float], asked: str, there_is: str) -> None:
    with pytest.raises(InfeasibleError) as caught:
        make_demand(TOPOLOGY, "pkg:f", **cost)  # type: ignore[arg-type]
    assert str(caught.value) == f"pkg:f asks for {asked}; {there_is}"


def test_a_resource_that_no_pool_offers() -> None:
    bare = Topology([Dimension(THREADS, 8)])
    with pytest.raises(InfeasibleError, match=r"^f asks for 1 core; this runtime has no pool that offers cpu$"):
        make_demand(bare, "f", cpu=1)
    with pytest.raises(InfeasibleError, match=r"^f asks for 2 GiB of memory; .* no pool that offers memory$"):
        make_demand(bare, "f", memory_gib=2)
    with pytest.raises(InfeasibleError, match=r"no pool that offers cpu$"):
        trajectory_demand(bare, memory_bytes=0, reserved=1000)


def test_unknown_quotas_are_told_from_known_ones() -> None:
    spec = ActionSpec("f", declare_cost("f", quota={"serach": 1}))
    with pytest.raises(InfeasibleError, match=r"^f asks for the quota 'serach'; this runtime has only 'search'$"):
        resolve(spec, TOPOLOGY)
    with pytest.raises(InfeasibleError, match=r"'serach'; this runtime has no quotas$"):
        resolve(spec, Topology([Dimension(CPU, 4000, 1000)]))


def test_a_quota_with_one_of_its_limits() -> None:
    spec = ActionSpec("f", declare_cost("f", quota={"q": 1}), BodyKind.ASYNC)
    demand = resolve(spec, Topology([Dimension("quota:q/concurrency", 2000, 1000)]))
    assert demand.fixed == ((0, 1000),)


def test_what_a_trajectory_holds() -> None:
    demand = trajectory_demand(TOPOLOGY, memory_bytes=GIB, reserved=2000)
    assert demand.fixed == ((1, GIB), (0, 2000))
    assert demand.dimensions == 0b11
    assert trajectory_demand(TOPOLOGY, memory_bytes=0, reserved=0).fixed == ()
    with pytest.raises(InfeasibleError, match="asks for 5 reserved cores; cpu has 4 in all"):
        trajectory_demand(TOPOLOGY, memory_bytes=0, reserved=5000)
    with pytest.raises(InfeasibleError, match="20 GiB"):
        trajectory_demand(TOPOLOGY, memory_bytes=20 * GIB, reserved=0)


def test_an_action_must_fit_beside_what_its_own_trajectory_holds() -> None:
    held = trajectory_demand(TOPOLOGY, memory_bytes=10 * GIB, reserved=0)
    check_beside(make_demand(TOPOLOGY, memory_gib=6), held, TOPOLOGY)
    with pytest.raises(InfeasibleError, match=r"f asks for 7 of memory; it has 16 in all, .*own trajectory holds 10"):
        check_beside(make_demand(TOPOLOGY, "f", memory_gib=7), held, TOPOLOGY)


@pytest.mark.parametrize("useless", [math.nan, math.inf, -math.inf, 0.0, -2.0, 1e-300, 1e308, 5e-324])
def test_a_useless_speed_up_costs_time_and_nothing_else(useless: float) -> None:
    demand = make_demand(TOPOLOGY, cpu=Elastic(1, 4, speedup=lambda units: useless))
    assert all(1 / LONGEST_S <= relative <= LONGEST_S for relative in demand.relative)


def test_a_declared_speed_up_is_used() -> None:
    assert make_demand(TOPOLOGY, cpu=Elastic(1, 4, speedup=Linear())).relative == pytest.approx(
        [1, 1 / 2, 1 / 3, 1 / 4]
    )
