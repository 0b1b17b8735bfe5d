"""The core under any order of what can happen to it, while what runs shares its cores."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from arl_tangram.model.elasticity import Elastic, Linear
from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.sharing import SharePolicy, Sharing
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies import Policy, elastic, equal_shares, least_attained, size_aware
from property.shared_worlds import SharedWorld
from property.test_core_machine import COSTS, KEPT, ORDERS, POLICIES, Callers, Core
from property.worlds import make_demand, make_nodes, make_topology
from property.wrong_shares import WRONG

GOOD: list[SharePolicy] = [equal_shares(), least_attained(), size_aware()]
SHARINGS = st.builds(Sharing, st.sampled_from([*GOOD, *GOOD, *WRONG]), st.sampled_from([0.0, 0.0002, 0.02]))
SHARED = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(
            [
                *(1, 1, 2, 3),
                Elastic(1, 4, resizable=True),
                Elastic.of(1, 2, 4, resizable=True, speedup=Linear()),
                Elastic(2, 3, resizable=True),
                Elastic(1, 3),
                Elastic(1, 4, speedup=lambda u: float("nan"), resizable=True),
            ]
        )
    },
    optional={
        "preemptible": st.sampled_from([True, False]),
        "priority": st.sampled_from([0, 0, 1]),
        "search": st.sampled_from([0.5, 1]),
        "queue_timeout": st.sampled_from([0.3, 50]),
        "duration_s": st.sampled_from([0.01, 1, 1e9]),
    },
)


class Sharers(Callers):
    """One node, of few cores and many sharers."""

    @initialize(
        cores=st.sampled_from([1, 2, 2.5, 4, 7]),
        threads=st.sampled_from([1, 3]),
        policy=POLICIES,
        order=ORDERS,
        sharing=SHARINGS,
        costs=st.lists(SHARED | SHARED | KEPT | COSTS, min_size=2, max_size=6),
    )
    def begin(self, cores, threads, policy, order, sharing, costs) -> None:  # type: ignore[no-untyped-def,override]
        self.sharing = sharing
        Core.begin(self, make_topology(cores=cores, memory_gib=8, threads=threads, calls=5), policy, order, costs)

    def new_world(self, topology: Topology, policy: Policy, order: Order) -> SharedWorld:
        return SharedWorld(topology, policy, order, self.sharing)


class SharersOnNodes(Sharers):
    """Several nodes: sharers in the sandboxes of each, others on the first."""

    @initialize(
        nodes=st.lists(
            st.tuples(st.sampled_from([1, 2, 2.5, 4]), st.sampled_from([4, 6]), st.sampled_from([None, 1, 3])),
            min_size=2,
            max_size=3,
        ),
        policy=POLICIES,
        order=ORDERS,
        sharing=SHARINGS,
        costs=st.lists(SHARED | SHARED | KEPT | COSTS, min_size=2, max_size=6),
    )
    def begin(self, nodes, policy, order, sharing, costs) -> None:  # type: ignore[no-untyped-def,override]
        self.sharing = sharing
        Core.begin(self, make_nodes(nodes=nodes, calls=5), policy, order, costs)


TestSharers = Sharers.TestCase
TestSharersOnNodes = SharersOnNodes.TestCase


OTHERS = st.fixed_dictionaries(
    {"cpu": st.sampled_from([0.5, 1, 2, Elastic(1, 3)]), "preemptible": st.just(False), "thread": st.booleans()}
)
ENDLESS = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from([1, 2, 4, Elastic(1, 4, resizable=True), Elastic(2, 4, resizable=True), Elastic(3, 4)]),
        "preemptible": st.sampled_from([True, True, False]),
    }
)
STEP_S, WORK_S, EXPECTED_S = 0.25, 0.5, 5


class Flow:
    """A core object to which more comes than it can do: each action does half a second's work of one core."""

    def __init__(self, demands: list[Demand], topology: Topology, sharing: Sharing) -> None:
        self.core = SchedulerCore(topology, elastic(), sharing=sharing)
        self.demands = demands
        self.now_s = 0.0
        self.left_s: dict[int, float] = {}
        self._units: dict[int, int] = {}
        self._last = 0

    def come(self) -> list[int]:
        """One of each kind comes."""
        ids = range(self._last + 1, self._last + 1 + len(self.demands))
        for action_id, demand in zip(ids, self.demands, strict=True):
            self.core.submit(PendingAction(action_id, demand, self.now_s))
            self.left_s[action_id] = WORK_S
        self._last = ids[-1]
        return list(ids)

    def step(self) -> None:
        more = True
        while more:
            decided = self.core.decide(self.now_s)
            more = decided.more
            for running in (*decided.resized, *decided.started):
                is_elastic = running.pending.demand.elastic is not None
                self._units[running.pending.id] = running.units if is_elastic else 1000
        self.now_s += STEP_S
        for action_id, units in list(self._units.items()):
            self.left_s[action_id] -= units / 1000 * STEP_S
            if self.left_s[action_id] <= 0:
                del self._units[action_id], self.left_s[action_id]
                self.core.finish(action_id, self.now_s, None)


@settings(max_examples=30)
@given(
    cores=st.sampled_from([4, 4.5, 6]),
    costs=st.tuples(OTHERS, ENDLESS) | st.tuples(OTHERS, OTHERS, ENDLESS),
    policy=st.sampled_from([equal_shares(), size_aware()]),
)
def test_nobody_waits_for_ever_though_others_keep_coming(cores, costs, policy) -> None:  # type: ignore[no-untyped-def]
    """Under policies by which those that are alike come in order, and long before anybody is overdue."""
    topology = make_topology(cores=cores, memory_gib=8, threads=8)
    demands = [
        make_demand(topology, f"kind {at}", node=0, duration_s=EXPECTED_S, **cost) for at, cost in enumerate(costs)
    ]
    flow = Flow(demands, topology, Sharing(policy, 0.0002))
    for _ in range(8):
        flow.come()
        flow.step()
    waiting = flow.come()
    while flow.now_s < 100 and any(action_id in flow.left_s for action_id in waiting):
        flow.come()
        flow.step()
    late = [costs[at] for at, action_id in enumerate(waiting) if action_id in flow.left_s]
    assert not late, f"{late} did not end"
