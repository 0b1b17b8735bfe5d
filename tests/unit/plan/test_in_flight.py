"""How many rollouts are worth having at once."""

from __future__ import annotations

from arl_tangram.model.cost import Cost
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.topology import CPU, SANDBOXES, Dimension, Topology, on_node
from arl_tangram.plan.in_flight import AtOnce, in_flight
from arl_tangram.replay.variants import Variant
from arl_tangram.scheduling.policies import elastic
from arl_tangram.simulate.calls import Arrival, Call, Rollout, Turn, Workload
from arl_tangram.simulate.workloads import pool

CALL = Call(ActionSpec("tool", Cost(cpu=MILLI)), 1.0)
ELASTIC = Variant(elastic())


def test_more_rollouts_than_keep_the_core_busy_gain_nothing() -> None:
    """Each thinks for 1 s and calls for 1 s of the only core: two at a time keep it busy from the first second on."""
    found = in_flight(Workload(rollouts=(Rollout((Turn(1.0, (CALL,)),)),) * 4), pool(1), ELASTIC)
    assert found.enough == 2
    assert found.unbounded == AtOnce(4, 2.5, 5.0)
    assert found.tried[:2] == (AtOnce(1, 1.0, 8.0), AtOnce(2, 1.25, 5.0))
    assert (found.calls, found.calls_of_rollout) == (4, 1)


def test_calls_that_a_rollout_makes_at_once() -> None:
    found = in_flight(Workload(rollouts=(Rollout((Turn(1.0, (CALL, CALL)), Turn(1.0, (CALL,)))),)), pool(4), ELASTIC)
    assert (found.enough, found.calls, found.calls_of_rollout) == (1, 2, 2)


def test_calls_outside_of_rollouts_have_no_bound() -> None:
    found = in_flight(Workload((Arrival(0.0, CALL),) * 3), pool(4), ELASTIC)
    assert (found.enough, found.calls, found.calls_of_rollout) == (0, 3, 0)


def test_nodes_have_equal_bounds_below_their_own() -> None:
    """A node for one sandbox, and one for any number: two at a time are enough for three whose cores are two."""
    nodes = Topology(
        [
            Dimension(on_node(CPU, "a"), MILLI, MILLI),
            Dimension(on_node(SANDBOXES, "a"), 1),
            Dimension(on_node(CPU, "b"), MILLI, MILLI),
        ]
    )
    found = in_flight(Workload(rollouts=(Rollout((Turn(0.0, (CALL,)),)),) * 4), nodes, ELASTIC)
    assert found.enough == 2
    assert found.unbounded.rollouts == 4
