"""What a core holds that was rebuilt, and what is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from arl_tangram.errors import OwnerLostError
from arl_tangram.integrations.ray.owner.rebuilding import Rebuilt, rebuild
from arl_tangram.integrations.ray.wire import Declare, HeldCall, HeldTrajectory, Open, Resume, Shape, Submit
from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import CPU, MEMORY, Dimension, Topology, on_node, quota_calls, quota_tokens
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.feasibility import trajectory_demand
from arl_tangram.scheduling.policies import elastic
from property.worlds import make_demand, make_nodes, make_topology

NOW_S = 1000.0


class Told:
    """Puts together what a session tells; everything gets the next id, from 1."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.shape: Shape | None = Shape(1, topology.dimensions, ())
        self.demands: list[Demand] = []
        self.trajectories: list[HeldTrajectory] = []
        self.running: list[HeldCall] = []
        self.waiting: list[Submit | Open] = []
        self.charges: list[tuple[int, int, float]] = []
        self._ids = itertools.count(1)

    def submit(self, demand: Demand, age_s: float = 10.0, **more: Any) -> Submit:
        fields = {"trajectory": None, "turn": False, "parent": None, **more}
        return Submit(next(self._ids), self._declare(demand), "", age_s=age_s, **fields)

    def runs(
        self, demand: Demand, *, ran_s: float = 5.0, units: int = 0, place: int | None = None, seated: bool = False,
        lent: bool | None = None, settled: Sequence[tuple[int, int]] = (), **more: Any,
    ) -> int:  # fmt: skip
        if demand.elastic is not None and not units:
            units = demand.options[0]
        submit = self.submit(demand, **more)
        self.running.append(HeldCall(submit, place, units, seated, lent, None, ran_s, tuple(settled)))
        return submit.id

    def waits(self, demand: Demand, **more: Any) -> int:
        self.waiting.append(self.submit(demand, **more))
        return self.waiting[-1].id

    def opened(self, demand: Demand, node: int = 0, *, closing: bool = False, age_s: float = 50.0) -> int:
        asked = Open(next(self._ids), self._declare(demand), "group", age_s)
        self.trajectories.append(HeldTrajectory(asked, node, closing))
        return asked.id

    def resume(self) -> Resume:
        declared = tuple(Declare(number, demand) for number, demand in enumerate(self.demands))
        parts = (tuple(self.trajectories), tuple(self.running), tuple(self.waiting), tuple(self.charges))
        return Resume(self.shape, declared, *parts)

    def _declare(self, demand: Demand) -> int:
        self.demands.append(demand)
        return len(self.demands) - 1


def again(topology: Topology, *told: Told) -> tuple[SchedulerCore, Rebuilt]:
    core = SchedulerCore(topology, elastic(), record=True)
    return core, rebuild(core, [one.resume() for one in told], NOW_S, itertools.count(100).__next__)


def why(rebuilt: Rebuilt) -> dict[tuple[int, int], str]:
    assert all(type(refused.error) is OwnerLostError for refused in rebuilt.refused)
    return {(refused.held, refused.id): str(refused.error) for refused in rebuilt.refused}


def test_what_two_claim_is_given_to_the_one_that_came_first() -> None:
    topology = make_topology(cores=4)
    four = make_demand(topology, cpu=4)
    late, early = Told(topology), Told(topology)
    lost = late.runs(four, age_s=10)
    kept = early.runs(four, age_s=11)
    core, rebuilt = again(topology, late, early)
    assert why(rebuilt) == {(0, lost): why(rebuilt)[0, lost]}
    assert "others hold what it held" in why(rebuilt)[0, lost]
    assert rebuilt.ids == ({}, {kept: 100})
    assert (core.free(0), core.running, core.waiting) == (0, 1, 0)
    core.finish(100, NOW_S, 1.0)
    assert core.free(0) == 4 * MILLI


def test_it_has_just_the_units_that_it_had_and_learning_goes_on() -> None:
    topology = make_topology(cores=8)
    demand = make_demand(topology, cpu=Elastic(1, 8))
    told = Told(topology)
    told.runs(demand, units=3 * MILLI, ran_s=7)
    core, rebuilt = again(topology, told)
    (running,) = rebuilt.running.values()
    assert (running.units, running.started_at_s, running.pending.submitted_at_s) == (3 * MILLI, NOW_S - 7, NOW_S - 10)
    assert core.free(0) == 5 * MILLI
    core.finish(running.pending.id, NOW_S, 7.0)
    core.submit(PendingAction(500, demand, NOW_S))
    assert core.decide(NOW_S).started
    odd = Told(topology)
    odd.runs(demand, units=2500)
    assert "it can not have 2500 units" in why(again(topology, odd)[1])[0, 1]


def test_a_trajectory_and_its_calls_are_where_they_were() -> None:
    topology = make_nodes(nodes=[(4, 8, None), (2, 8, None)])
    told = Told(topology)
    t = told.opened(trajectory_demand(topology, memory_bytes=3 * GIB, reserved=0), node=1)
    told.runs(make_demand(topology, cpu=2, node=1), trajectory=t, turn=True)
    waits = told.waits(make_demand(topology, cpu=2, node=1), trajectory=t, turn=True)
    core, rebuilt = again(topology, told)
    assert not rebuilt.refused
    assert core.node_of(rebuilt.ids[0][t]) == 1
    assert core.used(topology.index[on_node(MEMORY, "n1")]) == 3 * GIB
    assert core.free(topology.index[on_node(CPU, "n1")]) == 0
    assert [(w.id, w.item.id) for w in rebuilt.waiting] == [(rebuilt.ids[0][waits], waits)]


def test_a_lost_trajectory_takes_its_calls_along() -> None:
    topology = make_topology(memory_gib=4)
    first, second = Told(topology), Told(topology)
    demand = trajectory_demand(topology, memory_bytes=3 * GIB, reserved=0)
    first.opened(demand, age_s=60)
    t = second.opened(demand, age_s=50)
    runs = second.runs(make_demand(topology, cpu=1), trajectory=t, turn=True)
    waits = second.waits(make_demand(topology, cpu=1), trajectory=t, turn=True)
    core, rebuilt = again(topology, first, second)
    assert why(rebuilt).keys() == {(1, t), (1, runs), (1, waits)}
    assert "its trajectory is lost" in why(rebuilt)[1, waits]
    assert (core.trajectories, core.running, rebuilt.ids[1], rebuilt.waiting) == (1, 0, {}, ())


def test_a_trajectory_on_a_node_that_is_no_place_for_it_is_lost() -> None:
    topology = make_nodes(nodes=[(4, 8, None), (2, 1, None)])
    told = Told(topology)
    t = told.opened(trajectory_demand(topology, memory_bytes=3 * GIB, reserved=0), node=1)
    _, rebuilt = again(topology, told)
    assert "on its node" in why(rebuilt)[0, t]


def test_a_trajectory_that_was_closed_ends_with_its_last_call() -> None:
    topology = make_topology()
    told = Told(topology)
    t = told.opened(trajectory_demand(topology, memory_bytes=GIB, reserved=0), closing=True)
    runs = told.runs(make_demand(topology, cpu=1), trajectory=t)
    core, rebuilt = again(topology, told)
    assert core.trajectories == 1
    core.finish(rebuilt.ids[0][runs], NOW_S, None)
    assert core.trajectories == 0
    assert core.used(topology.index[MEMORY]) == 0


def test_who_has_lent_has_lent_and_gets_it_back() -> None:
    topology = make_topology(cores=4)
    four = make_demand(topology, cpu=4)
    told = Told(topology)
    caller = told.runs(four, lent=True, age_s=30, ran_s=30)
    called = told.runs(four, parent=caller, age_s=20, ran_s=20)
    waits = told.waits(four, parent=caller, age_s=10)
    core, rebuilt = again(topology, told)
    ids = rebuilt.ids[0]
    assert not rebuilt.refused
    assert rebuilt.running[ids[called]].pending.parent == ids[caller]
    assert core.free(0) == 0
    core.submit(PendingAction(ids[waits], four, NOW_S - 10, parent=ids[caller]))
    assert not core.decide(NOW_S).started
    core.finish(ids[called], NOW_S, None)
    assert [running.pending.id for running in core.decide(NOW_S).started] == [ids[waits]]
    assert not core.reclaim(ids[caller], NOW_S)
    core.finish(ids[waits], NOW_S, None)
    assert [running.pending.id for running in core.decide(NOW_S).resumed] == [ids[caller]]
    assert core.free(0) == 0


def test_a_caller_that_has_its_cores_again_may_have_a_call_that_still_lends() -> None:
    """As when its call lingers: the call has lent four cores that its caller has by now."""
    topology = make_topology(cores=4)
    four = make_demand(topology, cpu=4)
    for lent in (None, False):
        told = Told(topology)
        caller = told.runs(four, age_s=30, ran_s=30, lent=lent)
        called = told.runs(four, parent=caller, age_s=20, ran_s=20, lent=True)
        core, rebuilt = again(topology, told)
        assert not rebuilt.refused
        assert (core.free(0), core.running) == (0, 2)
        if lent is None:
            assert not core.reclaim(rebuilt.ids[0][called], NOW_S)
            core.finish(rebuilt.ids[0][caller], NOW_S, None)
            assert [running.pending.id for running in core.decide(NOW_S).resumed] == [rebuilt.ids[0][called]]
            assert core.free(0) == 0


def test_two_that_say_to_have_the_same_turn() -> None:
    topology = make_topology(cores=4)
    one = make_demand(topology, cpu=1)
    for lent in (None, False):
        told = Told(topology)
        t = told.opened(trajectory_demand(topology, memory_bytes=GIB, reserved=0))
        told.runs(one, trajectory=t, turn=True, lent=False)
        second = told.runs(one, trajectory=t, turn=True, lent=lent)
        core, rebuilt = again(topology, told)
        assert why(rebuilt).keys() == {(0, second)}
        assert core.used(0) == MILLI


def test_who_is_on_a_gpu_is_lost_and_has_the_rest_until_it_has_ended() -> None:
    topology = make_topology(cores=4)
    one = make_demand(topology, cpu=1)
    told = Told(topology)
    seated = told.runs(one, seated=True, lent=True)
    called = told.runs(one, parent=seated)
    core, rebuilt = again(topology, told)
    assert "GPU" in why(rebuilt)[0, seated]
    assert rebuilt.running[rebuilt.ids[0][called]].pending.parent == rebuilt.ids[0][seated]
    assert core.used(0) == MILLI
    core.finish(rebuilt.ids[0][called], NOW_S, None)
    assert core.reclaim(rebuilt.ids[0][seated], NOW_S)
    assert core.used(0) == MILLI
    core.finish(rebuilt.ids[0][seated], NOW_S, None)
    assert core.used(0) == 0


def test_units_of_rates_return_when_they_would_have() -> None:
    topology = make_topology(calls=10, period_s=60)
    calls = topology.index[quota_calls("search")]
    told, other = Told(topology), Told(topology)
    told.charges = [(calls, 2 * MILLI, 40.0), (calls, MILLI, 70.0), (calls, 3 * MILLI, 10.0)]
    other.charges = [(calls, 500, 30.0)]
    other.runs(make_demand(topology, search=1), ran_s=25.0)
    other.runs(make_demand(topology, search=1), ran_s=65.0)
    core, rebuilt = again(topology, told, other)
    assert not rebuilt.refused

    def used(at_s: float) -> int:
        core.advance(at_s)
        return core.used(calls)

    assert used(NOW_S) == 6500
    assert [used(NOW_S + s) for s in (19.9, 20, 30, 34.9, 35, 49.9, 50)] == [6500, 4500, 4000, 4000, 3000, 3000, 0]


def test_what_was_settled_counts_and_what_is_unused_comes_back() -> None:
    topology = Topology(
        [
            Dimension(quota_tokens("llm"), 100, 1, 60.0),
            Dimension(quota_calls("llm", window_s=math.inf), 9, 1, math.inf),
        ]
    )
    demand = Demand("ask", ((0, 40), (1, 1)), dimensions=3)
    told = Told(topology)
    told.runs(demand, settled=[(0, 90)])
    told.runs(demand, ran_s=1)
    told.charges = [(1, 2, 5000.0)]
    core, rebuilt = again(topology, told)
    settled, unused = rebuilt.running
    assert (core.free(0), core.free(1)) == (100 - 90 - 40, 9 - 1 - 1 - 2)
    core.unused(unused, NOW_S)
    core.finish(unused, NOW_S, None)
    assert (core.free(0), core.free(1)) == (10, 6)
    core.settle(settled, 0, 10, NOW_S)
    assert core.free(0) == 90
    core.finish(settled, NOW_S, 1.0)
    core.decide(NOW_S + 100)
    assert (core.free(0), core.free(1)) == (100, 6)


def test_what_was_settled_beyond_a_grant_is_not_free_with_it() -> None:
    topology = Topology([Dimension(quota_tokens("llm"), 100, 1, 60.0)])
    told = Told(topology)
    told.runs(Demand("ask", ((0, 40),), dimensions=1), ran_s=50.0, settled=[(0, 90)])
    told.runs(Demand("ask", ((0, 40),), dimensions=1), ran_s=50.0, settled=[(0, 10)])
    core, _ = again(topology, told)

    def used(at_s: float) -> int:
        core.advance(at_s)
        return core.used(0)

    assert [used(NOW_S + s) for s in (0, 9.9, 10, 59.9, 60)] == [100, 100, 50, 50, 0]


def test_what_is_lost_has_taken_of_a_budget_what_it_took() -> None:
    budget = Dimension(quota_calls("llm", window_s=math.inf), 9, 1, math.inf)
    topology = Topology([Dimension(CPU, 1, 1), budget, Dimension(quota_tokens("llm"), 100, 1, 60.0)])
    told = Told(topology)
    for age_s in (12.0, 11.0):
        told.runs(Demand("ask", ((0, 1), (1, 2), (2, 10)), dimensions=7), age_s=age_s, settled=[(2, 15)])
    core, rebuilt = again(topology, told)
    assert len(rebuilt.refused) == 1
    assert [(held, call.submit.age_s) for held, call in rebuilt.ended] == [(0, 11.0)]
    assert (core.free(0), core.used(1), core.used(2)) == (0, 4, 30)


def test_a_call_has_the_key_of_a_quota_that_it_had() -> None:
    topology = Topology([Dimension(quota_calls("llm", key), 1, 1, 60.0) for key in (1, 2)])
    keys = tuple(Demand("ask", ((d, 1),), dimensions=1 << d, keys=(("llm", d),)) for d in (0, 1))
    told = Told(topology)
    told.runs(Demand("ask", (), dimensions=3, places=keys), place=1)
    core, rebuilt = again(topology, told)
    assert not rebuilt.refused
    assert (core.free(0), core.free(1)) == (1, 0)


def test_nothing_is_taken_over_where_the_pools_are_others() -> None:
    topology = make_topology()
    told = Told(topology)
    told.shape = Shape(1, topology.dimensions[1:], ())
    told.charges = [(3, MILLI, 1.0)]
    told.runs(make_demand(topology, cpu=1))
    told.waits(make_demand(topology, cpu=1))
    core, rebuilt = again(topology, told)
    assert len(why(rebuilt)) == 2
    assert rebuilt.waiting == ()
    assert all(core.used(i) == 0 for i in range(len(topology.dimensions)))
    fewer = Told(topology)
    fewer.shape = Shape(1, topology.dimensions[:1], ())
    fewer.runs(make_demand(topology, cpu=1))
    assert not again(topology, fewer)[1].refused


def test_who_waits_waits_in_the_order_of_age_over_all_sessions() -> None:
    topology = make_topology()
    one, two = Told(topology), Told(topology)
    demand = make_demand(topology, cpu=1)
    young = one.waits(demand, age_s=1)
    retried = two.waits(demand, age_s=0, first_age_s=9)
    old = one.waits(demand, age_s=5)
    _, rebuilt = again(topology, one, two)
    assert [(w.held, w.item.id) for w in rebuilt.waiting] == [(1, retried), (0, old), (0, young)]
    assert [w.id for w in rebuilt.waiting] == sorted(w.id for w in rebuilt.waiting)


def test_what_is_traced_is_in_the_order_of_time() -> None:
    topology = make_topology(calls=10)
    told = Told(topology)
    t = told.opened(trajectory_demand(topology, memory_bytes=GIB, reserved=0))
    caller = told.runs(make_demand(topology, cpu=4), trajectory=t, lent=True, age_s=30, ran_s=30)
    told.runs(make_demand(topology, cpu=2, search=1), parent=caller, trajectory=t, age_s=20, ran_s=20)
    told.charges = [(topology.index[quota_calls("search")], MILLI, 1.0)]
    core, _ = again(topology, told)
    times = [event.at_s for event in core.drain_events()]
    assert times == sorted(times)
    assert len(times) >= 8
