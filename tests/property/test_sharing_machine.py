"""The core under any order of what can happen to it, while what runs shares its cores."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from arl_tangram.model.elasticity import Elastic, Linear
from arl_tangram.model.sharing import SharePolicy, Sharing
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies import Policy, equal_shares, least_attained, size_aware
from property.shared_worlds import SharedWorld
from property.test_core_machine import COSTS, KEPT, ORDERS, POLICIES, Callers, Core
from property.worlds import make_nodes, make_topology
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
