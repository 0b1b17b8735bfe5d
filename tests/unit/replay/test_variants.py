"""How a run can be replayed: policies by their names, other pools, other batches."""

from __future__ import annotations

import pytest

from arl_tangram.errors import ConfigurationError, InfeasibleError
from arl_tangram.model.cost import Cost
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import CPU, Dimension, Topology
from arl_tangram.replay.variants import Variant, of_batch, policy_named, predict, with_cores, with_memory
from arl_tangram.scheduling.policies import elastic, fixed, paper, reserved
from arl_tangram.simulate.calls import Arrival, Call, Rollout, Turn, Workload
from arl_tangram.simulate.workloads import pool

TOOL = ActionSpec("tool", Cost(cpu=MILLI))


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("elastic", elastic()),
        ("elastic()", elastic()),
        ("paper", paper(best_prefix=True)),
        (" fixed(4) ", fixed(4)),
        ("reserved(1)", reserved(1)),
    ],
)
def test_policies_have_the_names_that_traces_know_them_by(name: str, policy: object) -> None:
    assert policy_named(name) == policy


@pytest.mark.parametrize("name", ["", "best", "elastic(2)", "fixed", "fixed()", "fixed(0)", "reserved(-1)", "fixed(2"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"unknown policy .*: there are elastic, paper, fixed\(N\)"):
        policy_named(name)


def test_variants_say_what_they_are() -> None:
    assert Variant(elastic()).name == "elastic"
    assert Variant(fixed(2), "shortest", share=True).name == "fixed(2), shortest, resize"
    assert Variant(reserved(2), share=True).name == "reserved(2)"


def test_cores_and_memory_can_be_set() -> None:
    topology = with_memory(with_cores(pool(4, memory_gib=8), 32), 1.5)
    assert [(d.name, d.capacity) for d in topology.dimensions][:2] == [("cpu", 32_000), ("memory", 3 * GIB // 2)]


def test_several_nodes_cannot_be_one() -> None:
    nodes = Topology([Dimension("cpu@a", 4000, 1000), Dimension("cpu@b", 4000, 1000)])
    with pytest.raises(ConfigurationError, match="the cores of the recorded run cannot be set: it has 2 nodes"):
        with_cores(nodes, 16)
    with pytest.raises(ConfigurationError, match="the memory of the recorded run cannot be set: it has none"):
        with_memory(Topology([Dimension(CPU, 4000, 1000)]), 16)


def test_a_batch_is_the_first_or_all_again() -> None:
    one, two = Rollout((Turn(1.0),)), Rollout((Turn(2.0),))
    workload = Workload(rollouts=(one, two))
    assert of_batch(workload, 1).rollouts == (one,)
    assert of_batch(workload, 5).rollouts == (one, two, one, two, one)


def test_what_is_no_trajectory_has_no_batch() -> None:
    with pytest.raises(ConfigurationError, match="the recording has none"):
        of_batch(Workload(), 2)
    arrivals = (Arrival(0.0, Call(TOOL, 1.0)),)
    with pytest.raises(ConfigurationError, match="1 of the recorded calls are outside of any"):
        of_batch(Workload(arrivals, (Rollout(()),)), 2)


def test_what_never_fits_is_told() -> None:
    workload = Workload(rollouts=(Rollout((Turn(0.0, (Call(TOOL, 1.0),)),), memory_bytes=16 * GIB),))
    with pytest.raises(InfeasibleError, match="16 GiB"):
        predict(workload, pool(4, memory_gib=8), Variant(elastic()))
