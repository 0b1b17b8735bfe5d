"""Nodes of a pool: read from the names of the dimensions, and filled in proportion to what they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from arl_tangram.errors import InfeasibleError
from arl_tangram.managers.quota import Quota
from arl_tangram.model.cost import declare_cost
from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.lifecycle import ActionSpec, BodyKind, Demand, PendingAction, RunningAction
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import THREADS, Dimension, Node, Topology, node_of, on_node, resource_of
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.feasibility import resolve, trajectory_demand
from arl_tangram.scheduling.policies import elastic, reserved
from property.worlds import make_nodes


def spec(kind: BodyKind = BodyKind.ASYNC, **cost: object) -> ActionSpec:
    return ActionSpec("act", declare_cost("act", **cost), kind)  # type: ignore[arg-type]


def opened(core: SchedulerCore, *memory_gib: float, first: int = 0) -> list[int]:
    """The nodes of trajectories that are opened one after another."""
    nodes: list[int] = []
    for number, gib in enumerate(memory_gib, first):
        demand = trajectory_demand(core.topology, memory_bytes=round(gib * GIB), reserved=core.policy.reserved_cores)
        core.open(PendingAction(number, demand, 0.0))
        assert core.decide(0.0).opened == [number]
        nodes.append(core.node_of(number))
    return nodes


def core_of(*nodes: tuple[float, int, int | None]) -> SchedulerCore:
    return SchedulerCore(make_nodes(nodes=nodes), elastic())


# Names.


def test_one_node_has_no_name() -> None:
    topology = Topology([Dimension("memory", 8), Dimension("cpu", 4000, MILLI), Dimension(THREADS, 2)])
    assert topology.nodes == (Node("", cpu=1, memory=0),)
    assert (topology.cores, topology.core_scale) == (0b10, MILLI)
    assert Topology([Dimension(THREADS, 2), Dimension("quota:cpu@a/calls", 1)]).nodes == ()


def test_nodes_are_read_from_the_names() -> None:
    names = ["cpu@a", "memory@a", "threads", "sandboxes@b.example:2375", "memory@b.example:2375", "cpu@b.example:2375"]
    topology = Topology([Dimension(name, 1) for name in names])
    assert topology.nodes == (Node("a", 0, 1), Node("b.example:2375", 5, 4, 3))
    assert topology.cores == 0b100001


@pytest.mark.parametrize("name", ["cpus", "cpu@", "cpu@a@b", "quota:cpu@a/calls", "threads@a", "gpu@a"])
def test_other_names_are_no_nodes(name: str) -> None:
    assert resource_of(name) is None
    assert node_of(name) == ""
    assert Topology([Dimension(name, 1)]).nodes == ()


@pytest.mark.parametrize("resource", ["cpu", "memory", "sandboxes"])
def test_names_tell_resource_and_node(resource: str) -> None:
    for node in ("", "1", "a-b.c"):
        name = on_node(resource, node)
        assert (resource_of(name), node_of(name)) == (resource, node)


# Demands.


def test_a_trajectory_has_a_place_on_each_node_that_can_hold_it() -> None:
    topology = make_nodes(nodes=[(4, 8, None), (1, 4, 10), (2, 16, 10)])
    index = topology.index
    demand = trajectory_demand(topology, memory_bytes=6 * GIB, reserved=0)
    assert [(p.node, p.fixed) for p in demand.places] == [
        (0, ((index["memory@n0"], 6 * GIB),)),
        (2, ((index["memory@n2"], 6 * GIB), (index["sandboxes@n2"], 1))),
    ]
    only = trajectory_demand(topology, memory_bytes=12 * GIB, reserved=0)
    assert (only.node, only.places) == (2, ())
    reserved = trajectory_demand(topology, memory_bytes=0, reserved=2 * MILLI)
    assert [p.node for p in reserved.places] == [0, 2]
    with pytest.raises(InfeasibleError, match="17 GiB of memory, and no host has so much: the most is 16 at 'n2'"):
        trajectory_demand(topology, memory_bytes=17 * GIB, reserved=0)
    with pytest.raises(InfeasibleError, match="5 reserved cores, and no host has so much: the most is 4 at 'n0'"):
        trajectory_demand(topology, memory_bytes=GIB, reserved=5 * MILLI)
    with pytest.raises(InfeasibleError, match="asks for 16 GiB of memory and 4 reserved cores, and no host has both"):
        trajectory_demand(topology, memory_bytes=16 * GIB, reserved=4 * MILLI)


def test_one_node_has_one_place() -> None:
    topology = Topology([Dimension("cpu", 4000, MILLI), Dimension("memory", 8 * GIB, GIB), Dimension("sandboxes", 3)])
    demand = trajectory_demand(topology, memory_bytes=0, reserved=0)
    assert (demand.fixed, demand.places, demand.node) == (((2, 1),), (), None)
    assert trajectory_demand(Topology([]), memory_bytes=0, reserved=0).fixed == ()


def test_an_action_takes_what_is_where_it_runs() -> None:
    topology = make_nodes(nodes=[(4, 8, None), (2, 8, None)])
    index = topology.index

    def taken(action: ActionSpec, **where: int | None) -> tuple[dict[int, int], int | None]:
        demand = resolve(action, topology, **where)  # type: ignore[arg-type]
        return dict(demand.fixed) | (
            {} if demand.elastic is None else {demand.elastic: demand.options[-1]}
        ), demand.node

    wide = spec(cpu=Elastic(1, 8), memory_gib=1)
    for node, cores in ((0, 4), (1, 2)):
        expected = {index[f"cpu@n{node}"]: cores * MILLI, index[f"memory@n{node}"]: GIB}
        assert taken(wide, node=node, host=1 - node) == (expected, node)
        assert taken(wide, host=node) == (expected, node)
        thread = spec(BodyKind.THREAD, cpu=1)
        assert taken(thread, node=1 - node, host=node) == ({index[f"cpu@n{node}"]: MILLI, index[THREADS]: 1}, node)
        assert taken(spec(cpu=0.5), node=node, host=None) == ({index[f"cpu@n{node}"]: MILLI // 2}, node)
    assert taken(spec(), node=1, host=0) == ({}, None)
    assert taken(spec(BodyKind.THREAD), host=None) == ({index[THREADS]: 1}, None)


def test_reserved_cores_are_of_use_only_on_their_node() -> None:
    topology = make_nodes(nodes=[(4, 8, None), (2, 8, None)])
    inside = resolve(spec(cpu=1), topology, node=1, host=0, reserved=2 * MILLI)
    assert (inside.reserved, inside.elastic, inside.node) == (2 * MILLI, None, 1)
    outside = resolve(spec(BodyKind.THREAD, cpu=1), topology, node=1, host=0, reserved=2 * MILLI)
    assert (outside.reserved, outside.elastic, outside.node) == (0, topology.index["cpu@n0"], 0)


def test_keys_of_quotas_go_with_the_one_node_of_an_action() -> None:
    quota = Quota("api", concurrency=1, keys=["k1", "k2"])
    topology = Topology([*make_nodes(nodes=[(2, 8, None), (2, 8, None)]).dimensions, *quota.dimensions()])
    demand = resolve(spec(cpu=1, quota={"api": 1}), topology, node=1, host=0)
    assert (demand.node, [place.node for place in demand.places]) == (1, [1, 1])
    assert {place.elastic for place in demand.places} == {topology.index["cpu@n1"]}
    core = SchedulerCore(topology, elastic())
    assert opened(core, 1, 1) == [0, 1]
    for number in (10, 11):
        core.submit(PendingAction(number, demand, 0.0, trajectory=1))
    started = core.decide(0.0).started
    assert sorted(running.pending.demand.keys for running in started) == [(("api", 0),), (("api", 1),)]


# Where trajectories go.


@pytest.mark.parametrize("sizes", [(4, 4), (2, 6), (1, 2, 5), (16, 4, 4, 8)])
@pytest.mark.parametrize("memory_gib", [0, 0.25])
def test_nodes_fill_in_proportion_to_their_size(sizes: Sequence[int], memory_gib: float) -> None:
    core = core_of(*[(size, 4 * size, None) for size in sizes])
    count: Counter[int] = Counter()
    for number in range(1, 12 * sum(sizes)):
        (node,) = opened(core, memory_gib, first=number)
        count[node] += 1
        for other, size in enumerate(sizes):
            assert abs(count[other] - number * size / sum(sizes)) < 2, f"after {number}"
    if memory_gib:
        with pytest.raises(AssertionError):
            opened(core, 4 * max(sizes), first=10_000)


def test_cores_decide_while_there_is_much_memory_and_memory_when_it_is_scarce() -> None:
    core = core_of((4, 1000, None), (4, 100, None))
    assert Counter(opened(core, *[1] * 20)) == {0: 10, 1: 10}
    core = core_of((4, 64, None), (4, 64, None))
    nodes = opened(core, 48, 1, 1, 1, 1, 1)
    assert nodes[0] == 0
    assert Counter(nodes[1:]) == {1: 4, 0: 1}, "where most memory is held, fewer are opened"


def test_where_there_is_no_room_nobody_goes() -> None:
    core = core_of((8, 4, None), (1, 64, None), (1, 64, 1))
    assert opened(core, 4)[0] == 0
    assert Counter(opened(core, *[4] * 5, first=1)) == {1: 4, 2: 1}
    core.close(0, 1.0)
    assert opened(core, 4, first=10) == [0]


def test_sandboxes_fill_in_proportion_too() -> None:
    core = core_of((4, 64, 30), (4, 64, 10))
    assert Counter(opened(core, *[0] * 40)) == {0: 30, 1: 10}
    request = trajectory_demand(core.topology, memory_bytes=0, reserved=0)
    core.open(PendingAction(99, request, 0.0))
    assert core.decide(0.0).opened == []
    core.close(39, 1.0)
    assert core.decide(1.0).opened == [99]


def test_what_has_ended_makes_room_where_it_was() -> None:
    core = core_of((2, 8, None), (2, 8, None))
    nodes = opened(core, *[1] * 8)
    for number, node in enumerate(nodes):
        if node == 1:
            core.close(number, 1.0)
    assert opened(core, *[1] * 4, first=20) == [1] * 4
    for number in [*[n for n, node in enumerate(nodes) if node == 0], *range(20, 24)]:
        core.close(number, 2.0)
    assert all(core.used(d) == 0 for d in range(len(core.topology.dimensions)))
    assert core.trajectories == 0


def test_a_node_without_cores_for_now_is_no_error() -> None:
    core = core_of((2, 8, None), (2, 8, None))
    core.set_capacity(core.topology.index["cpu@n0"], 0, 0.0)
    assert Counter(opened(core, *[0] * 6)) == {1: 6}


# Callers on several nodes.


def calling(core: SchedulerCore, number: int, demand: Demand, **call: int | None) -> RunningAction:
    """An action that starts at once."""
    core.submit(PendingAction(number, demand, 0.0, **call))  # type: ignore[arg-type]
    (running,) = core.decide(0.0).started
    assert running.pending.id == number
    return running


def on(core: SchedulerCore, node: int, cores: int, kind: BodyKind = BodyKind.ASYNC) -> Demand:
    return resolve(spec(kind, cpu=cores), core.topology, node=node, host=0)


def test_cores_kept_on_one_node_do_not_count_on_another() -> None:
    core = core_of((2, 8, None), (4, 8, None))
    assert opened(core, 4, 4, 4) == [1, 0, 1]
    calling(core, 10, on(core, 1, 2), trajectory=0)
    core.lend(10, 0.0, cores=False)  # it keeps two cores of n1
    calling(core, 11, on(core, 1, 2, BodyKind.THREAD), trajectory=0, parent=10)  # on n0, which is this machine
    core.lend(11, 0.0)
    calling(core, 12, on(core, 0, 2), trajectory=1)
    assert not core.reclaim(11, 1.0), "all cores of n0 are in use"
    assert core.decide(1.0).resumed == []
    core.finish(12, 2.0, None)
    assert [running.pending.id for running in core.decide(2.0).resumed] == [11]
    assert [core.free(core.topology.index[f"cpu@n{n}"]) for n in range(2)] == [0, 2 * MILLI]


def test_who_waits_for_cores_of_one_node_does_not_hold_up_who_wants_those_of_another() -> None:
    for late in (False, True):
        core = core_of((2, 8, None), (2, 8, None))
        assert opened(core, 4, 4) == [0, 1]
        for number in (0, 1):
            calling(core, 10 + number, on(core, number, 2), trajectory=number)
            core.lend(10 + number, 0.0)
            calling(core, 20 + number, on(core, number, 2), trajectory=number)
        assert not core.reclaim(10, 1.0)
        if late:
            assert not core.reclaim(11, 1.0)
            assert core.decide(1.0).resumed == []
            core.finish(21, 2.0, None)
            assert [running.pending.id for running in core.decide(2.0).resumed] == [11]
        else:
            core.finish(21, 2.0, None)
            assert core.reclaim(11, 2.0)
        core.finish(20, 3.0, None)
        assert [running.pending.id for running in core.decide(3.0).resumed] == [10]


def test_what_callers_lend_on_one_node_keeps_trajectories_from_that_node_only() -> None:
    core = SchedulerCore(make_nodes(nodes=[(2, 8, None), (2, 8, None)]), reserved(2))
    calling(core, 10, resolve(spec(cpu=2), core.topology, host=0))
    core.lend(10, 0.0)
    request = trajectory_demand(core.topology, memory_bytes=0, reserved=2 * MILLI)
    for number in (20, 21):
        core.open(PendingAction(number, request, 0.0))
    assert core.decide(0.0).opened == [20]
    assert core.node_of(20) == 1
    assert core.reclaim(10, 1.0)
    core.finish(10, 2.0, None)
    assert core.decide(2.0).opened == [21]
    assert core.node_of(21) == 0


def test_who_wants_cores_back_is_not_overtaken_on_its_own_node() -> None:
    core = core_of((3, 8, None), (1, 8, None))
    opened_on = opened(core, 1, 1, 1, 1)
    inside = [number for number, node in enumerate(opened_on) if node == 0]
    for number, trajectory, cores in ((10, inside[0], 2), (11, inside[1], 1)):
        calling(core, number, on(core, 0, cores), trajectory=trajectory)
    for number in (10, 11):
        core.lend(number, 0.0)
    calling(core, 12, on(core, 0, 2), trajectory=inside[2])
    assert not core.reclaim(10, 1.0)
    assert not core.reclaim(11, 1.0), "one core is free, and the first needs it"
    assert core.decide(1.0).resumed == []
    core.finish(12, 2.0, None)
    assert [running.pending.id for running in core.decide(2.0).resumed] == [10, 11]
