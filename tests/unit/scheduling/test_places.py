"""What could go to several nodes goes to one that has room; a trajectory's actions stay where it is."""

from __future__ import annotations

from collections import Counter

import pytest

from arl_tangram.model.elasticity import PowerLaw
from arl_tangram.model.events import ActionStarted, TrajectoryOpened
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.feasibility import trajectory_demand
from arl_tangram.scheduling.policies import fixed, paper

NODES = 3
# cpu@0, memory@0, cpu@1, memory@1, …
TOPOLOGY = Topology(
    [d for n in range(NODES) for d in (Dimension(f"cpu@{n}", 4), Dimension(f"memory@{n}", 8))],
)


def placed(name: str, places: list[Demand]) -> Demand:
    dimensions = 0
    for demand in places:
        dimensions |= demand.dimensions
    return Demand(name, fixed=(), dimensions=dimensions, places=tuple(places))


def holding(gib: int) -> Demand:
    """A trajectory that holds memory on one of the nodes."""
    return trajectory_demand(TOPOLOGY, memory_bytes=gib, reserved=0)


def cores(node: int, *options: int) -> Demand:
    return Demand(
        "cores",
        fixed=(),
        elastic=2 * node,
        options=options,
        speedup=PowerLaw(1.0) if len(options) > 1 else None,
        relative=tuple(1 / u for u in options),
        dimensions=1 << 2 * node,
        duration_s=1.0,
    )


def anywhere(*options: int) -> Demand:
    return placed("cores", [cores(n, *options) for n in range(NODES)])


@pytest.fixture
def core() -> SchedulerCore:
    return SchedulerCore(TOPOLOGY, fixed(2), record=True)


def opened(core: SchedulerCore, *ids: int, gib: int = 2) -> list[int]:
    for trajectory in ids:
        core.open(PendingAction(trajectory, holding(gib), 0.0))
    return core.decide(0.0).opened


def test_trajectories_spread_over_the_nodes(core: SchedulerCore) -> None:
    assert opened(core, *range(9)) == list(range(9))
    assert Counter(core.node_of(t) for t in range(9)) == {0: 3, 1: 3, 2: 3}
    assert [core.used(2 * n + 1) for n in range(NODES)] == [6, 6, 6]
    held = [event.held for event in core.drain_events() if isinstance(event, TrajectoryOpened)]
    assert held[:3] == [((1, 2),), ((3, 2),), ((5, 2),)]


def test_one_goes_where_fewest_are_open_and_there_is_room(core: SchedulerCore) -> None:
    opened(core, 0, 1, 2, 3)
    core.close(1, 1.0)
    assert opened(core, 4) == [4]
    assert core.node_of(4) == 1
    assert opened(core, 5, gib=6) == [5]
    assert core.node_of(5) in {1, 2}
    assert opened(core, 6, gib=7) == [], "no node has so much left"
    assert opened(core, 7) == [], "and whoever comes later does not overtake it"
    core.close(4, 2.0)
    core.close(5, 2.0)
    assert core.decide(2.0).opened == [6, 7]


def test_all_is_given_back_where_it_was_taken(core: SchedulerCore) -> None:
    opened(core, *range(12))
    assert len([t for t in range(12) if core._trajectories[t].held]) == 12
    for trajectory in range(12):
        core.close(trajectory, 1.0)
    assert [core.used(d) for d in range(2 * NODES)] == [0] * (2 * NODES)
    assert core._candidates.placement._open == [0] * NODES


def test_an_action_goes_to_a_node_that_has_room(core: SchedulerCore) -> None:
    for i in range(6):
        core.submit(PendingAction(i, anywhere(1, 2), 0.0))
    started = core.decide(0.0).started
    assert Counter(r.pending.demand.elastic for r in started) == {0: 2, 2: 2, 4: 2}
    assert all(r.units == 2 for r in started)
    core.submit(PendingAction(6, anywhere(2), 1.0))
    assert core.decide(1.0).started == []
    (third,) = [r for r in started if r.pending.id == 3]
    core.finish(3, 2.0, 1.0)
    (last,) = core.decide(2.0).started
    assert last.pending.demand.elastic == third.pending.demand.elastic
    told = [event.action for event in core.drain_events() if isinstance(event, ActionStarted)]
    assert told == [*started, last]
    for running in [*started, last]:
        if running.pending.id != 3:
            core.finish(running.pending.id, 3.0, 1.0)
    assert [core.used(d) for d in range(2 * NODES)] == [0] * (2 * NODES)


def test_a_full_node_does_not_hold_up_who_can_go_to_another(core: SchedulerCore) -> None:
    core.submit(PendingAction(0, cores(0, 4), 0.0))
    core.submit(PendingAction(1, cores(0, 4), 0.0))  # waits for node 0, and blocks it
    core.submit(PendingAction(2, anywhere(1), 0.0))
    started = {r.pending.id: r for r in core.decide(0.0).started}
    assert set(started) == {0, 2}
    assert started[2].pending.demand.elastic in {2, 4}


def test_who_is_deferred_keeps_all_its_places() -> None:
    core = SchedulerCore(TOPOLOGY, fixed(4), record=True)
    running: list[RunningAction] = []
    for i in range(5):
        core.submit(PendingAction(i, anywhere(1, 2, 4), 0.0))
    running += core.decide(0.0).started
    assert [(r.pending.id, r.units) for r in running] == [(0, 4), (1, 4), (2, 4)]
    assert core.waiting == 2
    core.finish(1, 1.0, 1.0)
    (following,) = core.decide(1.0).started
    assert (following.pending.id, following.pending.demand.elastic) == (3, running[1].pending.demand.elastic)


def test_each_node_is_split_for_itself() -> None:
    core = SchedulerCore(TOPOLOGY, paper(best_prefix=True))
    core.submit(PendingAction(0, cores(0, 1, 2, 4), 0.0))
    for i in (1, 2):
        core.submit(PendingAction(i, cores(1, 1, 2, 4), 0.0))
    for i in (3, 4, 5, 6):
        core.submit(PendingAction(i, cores(2, 1, 2, 4), 0.0))
    decided = core.decide(0.0)
    by_node = Counter((r.pending.demand.elastic or 0) // 2 for r in decided.started)
    assert by_node[0] == 1
    assert core.free(0) == core.free(2) == core.free(4) == 0
