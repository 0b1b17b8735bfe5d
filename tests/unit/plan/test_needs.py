"""What a policy needs: figures worked out by hand, for cores, memory and quotas, alone and together."""

from __future__ import annotations

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.quota import Quota
from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import Elastic, Linear
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import CPU, MEMORY, Dimension, Topology, on_node
from arl_tangram.plan.comparison import CapacityPlan, Kept, capacity_plan
from arl_tangram.plan.goal import Goal, Runs, Taken, taken_of
from arl_tangram.plan.needs import Planner
from arl_tangram.plan.resources import resources_of
from arl_tangram.replay.variants import Variant, predict, simulated
from arl_tangram.scheduling.policies import elastic, fixed, reserved
from arl_tangram.simulate.calls import Arrival, Call, Rollout, Turn, Workload
from arl_tangram.simulate.workloads import Coding, coding_rollouts, pool

TOOL = ActionSpec("tool", Cost(cpu=MILLI))
SEARCH = ActionSpec("search", Cost(quota=(("search", MILLI),)))
TESTS = ActionSpec("tests", Cost(cpu=Elastic(1, 4, speedup=Linear())))
ELASTIC = Variant(elastic())


def rollouts(count: int, *, thinks_s: float = 0.0, memory_gib: int = 0, call: Call | None = None) -> Workload:
    """All begin at once, think, and call once, for 1 s of a core unless said otherwise."""
    turn = Turn(thinks_s, (call or Call(TOOL, 1.0),))
    return Workload(rollouts=(Rollout((turn,), memory_bytes=memory_gib * GIB),) * count)


def calls(spec: ActionSpec, count: int, work_s: float = 1.0) -> tuple[Arrival, ...]:
    return (Arrival(0.0, Call(spec, work_s)),) * count


def planned(workload: Workload, topology: Topology, act: float | None = 1.0, step: float | None = None) -> CapacityPlan:
    return capacity_plan(workload, topology, ELASTIC, Kept(act, step))


def amounts(plan: CapacityPlan) -> dict[str, tuple[float, float]]:
    """Return what is needed of each resource, alone and together."""
    return {one.resource.name: (one.amount, one.resource.amount(plan.need.together)) for one in plan.need.alone}


def with_quota(topology: Topology, quota: Quota) -> Topology:
    return Topology([*topology.dimensions, *quota.dimensions()])


@pytest.mark.parametrize(
    ("act", "cores"),
    [
        (1.0, 4),  # all at once: 1 s
        (1.25, 3),  # 1, 1, 1 and 2 s
        (1.5, 2),  # 1, 1, 2 and 2 s
        (2.4, 2),
        (2.5, 1),  # 1, 2, 3 and 4 s
    ],
)
def test_cores_for_a_mean(act: float, cores: int) -> None:
    assert amounts(planned(rollouts(4), pool(16), act)) == {"cores": (cores, cores)}


@pytest.mark.parametrize(("step", "cores"), [(1.0, 4), (1.9, 4), (2.0, 2), (3.0, 2), (4.0, 1)])
def test_cores_for_a_step(step: float, cores: int) -> None:
    """On three cores, the step is as long as on two."""
    assert amounts(planned(rollouts(4), pool(16), None, step)) == {"cores": (cores, cores)}


def test_the_stricter_of_both_holds() -> None:
    assert amounts(planned(rollouts(4), pool(16), 2.5, 1.0)) == amounts(planned(rollouts(4), pool(16), 1.0, 4.0))


def test_memory_that_is_held_and_what_is_not_used() -> None:
    """With 3 GiB less a sixteenth, a trajectory waits for 1 s; quotas that nobody uses are no matter."""
    topology = with_quota(pool(16, memory_gib=64), Quota("search", concurrency=4))
    assert amounts(planned(rollouts(4, memory_gib=3), topology)) == {"cores": (4, 4), "memory, GiB": (12, 12)}


def test_limits_of_a_quota() -> None:
    """Four calls at once, and 10 s later four more; of a window of 5 s they need four, in all eight."""
    quota = Quota("search", calls=100, period_s=5, concurrency=50, total_calls=1000, tokens=None)
    later = tuple(Arrival(10.0, arrival.call) for arrival in calls(SEARCH, 4))
    plan = planned(Workload(calls(SEARCH, 4) + later), with_quota(pool(1), quota))
    found = {"search: calls in 5 s": 4, "search: calls in all": 8, "search: concurrency": 4}
    assert amounts(plan) == {name: (amount, amount) for name, amount in found.items()}
    assert plan.baselines == ()


def test_keys_of_a_quota_have_the_same_limit() -> None:
    quota = Quota("search", concurrency=50, keys=["a", "b"])
    assert amounts(planned(Workload(calls(SEARCH, 4)), with_quota(pool(1), quota))) == {"search: concurrency": (2, 2)}


def test_what_is_enough_alone_may_be_too_little_together() -> None:
    """Half of either makes the mean of 8 calls 1.25 s, half of both 1.5 s; three of four of both are 1.25 s again."""
    workload = Workload(calls(TOOL, 4) + calls(SEARCH, 4))
    plan = planned(workload, with_quota(pool(4), Quota("search", concurrency=4)), 1.25)
    assert amounts(plan) == {"cores": (2, 3), "search: concurrency": (2, 3)}
    assert plan.need.enlarged
    assert plan.need.taken.act_s == 1.25


def test_what_was_enlarged_is_reduced_again_where_it_can_be() -> None:
    """Cores take all that is allowed, and concurrency nothing: the way back enlarges both, and only one needs it."""
    workload = Workload(calls(TOOL, 4) + calls(SEARCH, 4))
    plan = planned(workload, with_quota(pool(4), Quota("search", concurrency=16)), 1.25)
    needed = amounts(plan)
    assert plan.need.taken.act_s <= 1.25
    for one in plan.need.alone:
        level = one.resource.level_in(plan.need.together)
        less = taken_of(simulated(workload, one.resource.at(plan.need.together, level - 1), ELASTIC))
        assert less.act_s > 1.25
    assert needed["cores"][0] == needed["search: concurrency"][0] == 2


def test_calls_that_give_up_do_not_count_as_fast() -> None:
    """On one core the second gives up after 1 s: the mean is 5.5 s instead of 10 s, and nobody wants that."""
    impatient = ActionSpec("tool", Cost(cpu=MILLI), queue_timeout=1.0)
    assert amounts(planned(Workload(calls(impatient, 2, 10.0)), pool(8))) == {"cores": (2, 2)}


def test_baselines_need_more_for_the_same() -> None:
    """Two cores: 1, 1, 2, 2 s. Reserved, whoever has none waits for 4 s: a core for each it is."""
    plan = planned(rollouts(4, thinks_s=3.0), pool(2))
    assert plan.was == Taken(1.5, 5.0, 0)
    assert amounts(plan)["cores"] == (2, 2)
    by_name = {baseline.name: baseline for baseline in plan.baselines}
    assert by_name["reserved"].cores == (("reserved(1)", 4),)
    assert by_name["fixed"].cores == (("fixed(1)", 2),)
    need = by_name["reserved"].need
    assert need is not None
    assert need.taken == Taken(1.0, 4.0, 0)


def test_the_baseline_has_the_number_of_cores_that_suits_it_best() -> None:
    """Tests of 4 s take 1 s on four cores: with fewer for each, no number in all is enough."""
    plan = planned(rollouts(2, call=Call(TESTS, 4.0, Linear())), pool(8), 1.5)
    by_name = {baseline.name: baseline for baseline in plan.baselines}
    assert by_name["reserved"].cores == (("reserved(1)", None), ("reserved(2)", None), ("reserved(4)", 4))
    assert by_name["fixed"].cores == (("fixed(1)", None), ("fixed(2)", None), ("fixed(4)", 4))


def test_a_policy_that_can_never_keep_it_is_told() -> None:
    workload = rollouts(2, call=Call(TESTS, 4.0, Linear()))
    with pytest.raises(ConfigurationError, match=r"fixed\(1\) does not keep that with any number of cores"):
        capacity_plan(workload, pool(8), Variant(fixed(1)), Kept(1.5))


def test_without_anything_to_set_there_is_no_plan() -> None:
    with pytest.raises(ConfigurationError, match="nothing to plan"):
        planned(Workload(calls(ActionSpec("call", Cost()), 1)), pool(4))


def test_more_that_is_worse_is_not_taken_for_enough() -> None:
    """Eight to eleven cores are too few although six and seven are enough: so are six and seven."""

    class Worlds(Runs):
        def taken(self, topology: Topology, variant: Variant) -> Taken | None:
            cores = topology.dimensions[0].capacity // MILLI
            return Taken(1.0 if cores in {6, 7} or cores >= 12 else 2.0, 1.0, 0)

    workload = rollouts(4)
    planner = Planner(Worlds(workload), pool(16), resources_of(pool(16), workload), Goal(1.0), lambda _: None)
    first = planner.first(ELASTIC)
    assert first is not None
    assert first.alone.amount == 12


def test_nodes_keep_their_proportions() -> None:
    nodes = Topology(
        [
            Dimension(on_node(CPU, "a"), 16 * MILLI, MILLI),
            Dimension(on_node(MEMORY, "a"), 10 * GIB + 1, GIB),
            Dimension(on_node(CPU, "b"), 4 * MILLI, MILLI),
        ]
    )
    cores, memory = resources_of(nodes, rollouts(1, memory_gib=1))
    assert [(level, cores.amount(cores.at(nodes, level))) for level in (1, 8, 16, 32)] == [
        (1, 2),  # no node without any
        (8, 10),
        (16, 20),
        (32, 40),
    ]
    assert memory.level == 161  # the byte more counts as a step
    assert memory.at(nodes, 161) == nodes
    assert memory.amount(memory.at(nodes, 160)) == 10


def test_what_is_compared_is_what_replay_prints() -> None:
    workload = coding_rollouts(Coding(rollouts=6), 1)
    for variant in (ELASTIC, Variant(reserved(2)), Variant(elastic(), share=True)):
        taken = Runs(workload).taken(pool(4), variant)
        figures = predict(workload, pool(4), variant).figures
        assert taken is not None
        assert taken.act_s == pytest.approx(figures.admitted_act_mean_s)
        assert taken.step_s == pytest.approx(figures.elapsed_s)
