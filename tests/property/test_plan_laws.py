"""Plans of random runs: what is said to be enough is, one step less is not, and no more is needed than was recorded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.managers.quota import Quota
from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import Amdahl, Elastic
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import Topology
from arl_tangram.plan.comparison import Kept, capacity_plan
from arl_tangram.plan.goal import Runs
from arl_tangram.replay.variants import Variant
from arl_tangram.scheduling.policies import elastic
from arl_tangram.simulate.calls import Call, Rollout, Turn, Workload
from arl_tangram.simulate.workloads import pool

SPECS = (
    ActionSpec("tool", Cost(cpu=MILLI)),
    ActionSpec("tests", Cost(cpu=Elastic(1, 4, speedup=Amdahl(0.9)))),
    ActionSpec("search", Cost(quota=(("search", MILLI),))),
    ActionSpec("impatient", Cost(cpu=2 * MILLI), queue_timeout=1.0),
)
RECORDED = Topology(
    [*pool(12, memory_gib=8).dimensions, *Quota("search", calls=3, period_s=1, concurrency=4).dimensions()]
)
SECONDS = st.integers(0, 40).map(lambda tenths: tenths / 10)
CALLS = st.builds(Call, st.sampled_from(SPECS), SECONDS, st.just(Amdahl(0.9)))
TURNS = st.builds(Turn, SECONDS, st.lists(CALLS, min_size=1, max_size=2).map(tuple))
ROLLOUTS = st.builds(
    Rollout, st.lists(TURNS, min_size=1, max_size=3).map(tuple), SECONDS, st.integers(0, 2).map(GIB.__mul__)
)
WORKLOADS = st.lists(ROLLOUTS, min_size=1, max_size=6).map(lambda rollouts: Workload(rollouts=tuple(rollouts)))


@given(WORKLOADS, st.sampled_from([1.0, 1.1, 2.0]), st.sampled_from([None, 1.0, 1.5]), st.booleans())
def test_what_is_said_to_be_enough_is(workload: Workload, act: float, step: float | None, share: bool) -> None:
    """With shared cores the recorded pool itself may be too little: only then is there more of anything."""
    variant = Variant(elastic(), share=share)
    plan = capacity_plan(workload, RECORDED, variant, Kept(act, step))
    runs = Runs(workload)
    for need in [plan.need, *(baseline.need for baseline in plan.baselines if baseline.need is not None)]:
        assert runs.taken(need.together, need.variant) == need.taken
        assert plan.goal.kept_by(need.taken)
        for one in need.alone:
            kept = [(amount, plan.goal.kept_by(taken)) for amount, taken in one.tried]
            assert all(is_kept for amount, is_kept in kept if amount >= one.amount)
            assert (one.amount, True) in kept
            below = [is_kept for amount, is_kept in kept if amount < one.amount]
            assert below[-1:] == [False] or not below
    if not share:
        for one in plan.need.alone:
            assert one.amount <= one.resource.amount(plan.need.together) <= one.resource.amount(plan.recorded)
