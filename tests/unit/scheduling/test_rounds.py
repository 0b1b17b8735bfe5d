"""Rounds of bounded calls, and that a decision looks at what changed only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.model.elasticity import PowerLaw
from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.policies import Group, paper
from arl_tangram.scheduling.policies.own import policy_of

OPTIONS = (1, 2, 4)


def elastic(dimension: int, *, fixed: tuple[tuple[int, int], ...] = ()) -> Demand:
    return Demand(
        f"node-{dimension}",
        fixed=fixed,
        elastic=dimension,
        options=OPTIONS,
        speedup=PowerLaw(0.8),
        relative=tuple(units**-0.8 for units in OPTIONS),
        dimensions=1 << dimension | sum(1 << d for d, _ in fixed),
        duration_s=1.0,
    )


class Asked:
    """Starts everybody on least units, and counts how often it is asked about each free number of units."""

    def __init__(self) -> None:
        self.groups: list[tuple[int, int]] = []

    def __call__(self, group: Group) -> Sequence[int]:
        self.groups.append((group.capacity, len(group.candidates)))
        return [candidate.units[0] for candidate in group.candidates]


def test_one_call_plans_a_bounded_number_of_dimensions_and_says_that_there_is_more() -> None:
    nodes = 15
    asked = Asked()
    core = SchedulerCore(Topology([Dimension(f"cpu@{n}", 100 + n) for n in range(nodes)]), policy_of(asked))
    demands = [elastic(n) for n in range(nodes)]
    for i in range(nodes * 100):
        core.submit(PendingAction(i, demands[i % nodes], 0.0))
    started: list[int] = []
    calls = 0
    while True:
        calls += 1
        asked.groups.clear()
        decisions = core.decide(0.0)
        assert len({capacity for capacity, _ in asked.groups}) <= 4
        assert all(members <= 64 for _, members in asked.groups)
        started += [running.pending.demand.elastic or 0 for running in decisions.started]
        assert calls <= 12, "the round has no end"
        if not decisions.more:
            break
    assert Counter(started) == dict.fromkeys(range(nodes), 100)
    assert core.waiting == 0


def test_who_joins_in_the_middle_of_a_round_is_not_forgotten() -> None:
    core = SchedulerCore(Topology([Dimension(f"cpu@{n}", 4) for n in range(6)]), policy_of(Asked()))
    for n in range(6):
        core.submit(PendingAction(n, elastic(n), 0.0))
    assert core.decide(0.0).more
    core.submit(PendingAction(6, elastic(0), 0.0))  # its dimension was planned by the first call
    started: list[int] = []
    while True:
        decisions = core.decide(0.0)
        started += [running.pending.id for running in decisions.started]
        if not decisions.more:
            break
    assert set(started) == {4, 5, 6}


def test_a_dimension_where_nothing_changed_is_not_planned_again() -> None:
    """A completion on one node does not make the scheduler think about the others."""
    nodes = 4
    asked: list[int] = []

    def waits_for_all(group: Group) -> list[int]:
        asked.append(group.capacity)
        return [4] if group.free >= 4 else []

    core = SchedulerCore(Topology([Dimension(f"cpu@{n}", 4 + n) for n in range(nodes)]), policy_of(waits_for_all))
    demands = [elastic(n) for n in range(nodes)]
    for i in range(nodes * 3):
        core.submit(PendingAction(i, demands[i % nodes], 0.0))
    first = core.decide(0.0)
    assert len(first.started) == nodes
    asked.clear()
    assert core.decide(0.0).started == []
    assert asked == [], "nothing has happened"
    core.finish(0, 0.25, 1.0)
    assert [running.pending.id for running in core.decide(0.25).started] == [nodes]
    assert set(asked) == {4}
    asked.clear()
    core.submit(PendingAction(99, demands[2], 0.25))
    core.decide(0.25)
    assert set(asked) == {6}


def test_what_a_change_reaches_by_way_of_others_is_looked_at_too() -> None:
    """Who is before the others in order may block what they wait for, though nothing of its own has changed."""
    topology = Topology([Dimension("memory", 4), Dimension("cpu", 2)])
    core = SchedulerCore(topology, paper())
    large = Demand("large", fixed=((0, 4),), dimensions=0b01)
    small = Demand("small", fixed=((0, 1), (1, 1)), dimensions=0b11)
    cores = Demand("cores", fixed=((1, 2),), dimensions=0b10)
    core.submit(PendingAction(1, Demand("held", fixed=((0, 1),), dimensions=0b01), 0.0))
    core.submit(PendingAction(2, cores, 0.0))
    assert [r.pending.id for r in core.decide(0.0).started] == [1, 2]
    core.submit(PendingAction(3, large, 0.0))
    core.submit(PendingAction(4, small, 0.0))
    assert core.decide(0.0).started == []
    core.finish(
        2, 1.0, 1.0
    )  # cores are there, and memory for the small one; but the large one waits for memory before it
    assert core.decide(1.0).started == []
    core.finish(1, 2.0, 1.0)
    assert [r.pending.id for r in core.decide(2.0).started] == [3]


def test_a_policy_that_waits_for_an_end_is_asked_again_when_that_is_due() -> None:
    asked: list[float] = []

    def waits_until_overdue(group: Group) -> list[int]:
        asked.append(group.now_s)
        overdue = any(end_s - group.now_s > 5 for end_s, _ in group.running)
        return [1] if overdue or not group.running else []

    core = SchedulerCore(Topology([Dimension("cpu", 4)]), policy_of(waits_until_overdue))
    for i in range(2):
        core.submit(PendingAction(i, elastic(0), 0.0))
    assert [r.pending.id for r in core.decide(0.0).started] == [0]
    now_s, wakeups = 0.0, 0
    while core.waiting:
        wakeup_s = core.next_wakeup_s()
        assert wakeup_s is not None, "it would wait for ever beside free units"
        assert wakeup_s > now_s
        now_s, wakeups = wakeup_s, wakeups + 1
        core.decide(now_s)
    assert asked[2] == 1.0, "at the expected end"
    assert 6 < now_s < 12, "then after as long again as it is overdue"
    assert wakeups < 15
    assert core.next_wakeup_s() is None


@given(
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from([None, 8, 9])), min_size=1, max_size=80), st.integers(1, 30)
)
def test_rounds_of_small_calls_start_all_that_one_large_call_would(
    calls: list[tuple[int, int | None]], capacity: int
) -> None:
    """After each round nobody is left who could start, and nothing is held twice."""
    topology = Topology([*(Dimension(f"cpu@{n}", capacity) for n in range(8)), Dimension("a", 7), Dimension("b", 9)])
    core = SchedulerCore(topology, policy_of(Asked()))
    for i, (node, shared) in enumerate(calls):
        core.submit(PendingAction(i, elastic(node, fixed=() if shared is None else ((shared, 1),)), 0.0))
    for now_s in range(len(calls)):
        running: list[int] = []
        while True:
            decisions = core.decide(float(now_s))
            running += [r.pending.id for r in decisions.started]
            if not decisions.more:
                break
        blocked: set[int] = set()
        for action in sorted(core._queue, key=lambda a: a.id):
            needs = {action.demand.elastic or 0, *(d for d, _ in action.demand.fixed)}
            lacking = {d for d in needs if core.free(d) < 1}
            assert lacking or needs & blocked, f"{action.id} could start"
            blocked |= lacking
        if core.running == 0:
            break
        for action_id in list(core._running):
            core.finish(action_id, float(now_s), 1.0)
    assert core.waiting == 0


def test_what_is_planned_anew_goes_on_in_the_next_call_of_the_round() -> None:
    """The policy starts one at a time; the bound of one call comes in between, and no core may be left idle."""

    def one_at_a_time(group: Group) -> list[int]:
        return [group.candidates[0].units[0]]

    core = SchedulerCore(Topology([Dimension("cpu", 256)]), policy_of(one_at_a_time))
    for i in range(200):
        core.submit(PendingAction(i, elastic(0), 0.0))
    started = 0
    while True:
        decisions = core.decide(0.0)
        started += len(decisions.started)
        if not decisions.more:
            break
    assert started == 200


def test_what_a_lane_tied_together_is_not_forgotten_when_it_becomes_empty() -> None:
    topology = Topology([Dimension("memory", 16), Dimension("search", 2), Dimension("cpu", 10_000)])
    core = SchedulerCore(topology, paper())
    search = Demand("search", fixed=((1, 1),), dimensions=0b010)
    core.submit(PendingAction(1, search, 0.0))
    core.submit(PendingAction(2, Demand("large", fixed=((0, 1), (1, 2)), dimensions=0b011), 0.0))
    core.submit(PendingAction(3, search, 0.0))  # behind the large one, which waits for both
    assert [r.pending.id for r in core.decide(0.0).started] == [1]
    core.withdraw(2)
    small = Demand("small", fixed=((2, 1),), dimensions=0b100, priority=-1)
    for i in range(4, 604):  # more than one call takes
        core.submit(PendingAction(i, small, 0.0))
    started: list[int] = []
    while True:
        decisions = core.decide(0.0)
        started += [running.pending.id for running in decisions.started]
        if not decisions.more:
            break
    assert 3 in started
    assert len(started) == 601


def test_many_priorities_cost_no_more_than_one() -> None:
    """A training step as the priority, say: what is walked is candidates, not priorities."""
    core = SchedulerCore(Topology([Dimension("cpu", 4)]), policy_of(Asked()))
    for i in range(3000):
        core.submit(PendingAction(i, replace(elastic(0), priority=i * 7919 % 3000), 0.0))
    assert core._queue.lanes == 1
    order = [running.pending.demand.priority for running in core.decide(0.0).started]
    for _ in range(100):
        core.finish(next(iter(core._running)), 1.0, None)
        order += [running.pending.demand.priority for running in core.decide(1.0).started]
    assert order == list(range(104))
