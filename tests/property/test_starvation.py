"""Nobody waits for ever: adversaries that never stop submitting do not keep a victim of their priority from starting.

A play goes on in virtual time: what runs ends after its duration, after each end the adversary submits again, so
that there is always somebody who would gladly take what the victim waits for. The victim must start within a bounded
number of ends.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.lifecycle import Demand, RunningAction
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies import Policy, elastic, fixed, paper, reserved
from property.worlds import World, make_demand, make_nodes, make_topology

POLICIES: list[Policy] = [
    elastic(),
    paper(),
    paper(best_prefix=True),
    fixed(1),
    fixed(2),
    fixed(4),
    reserved(1),
    reserved(2),
]
ORDERS: list[Order] = ["fcfs", "fcfs", "shortest", "trajectory"]
ENDS = 500
"""Ends of other actions within which a victim must have started. A few dozen are usual."""


@dataclass
class Play:
    """One victim in a world full of others."""

    world: World
    duration_s: Callable[[RunningAction], float]
    feed: Callable[[Play], None]
    ended: Callable[[Play, int], None] = lambda play, action_id: None
    ends: list[tuple[float, int]] = field(default_factory=list)

    def until_started(self, victim: int) -> int:
        """Return how many actions ended before the victim started."""
        world, finished = self.world, 0
        while victim in world.waiting or victim in world.opening:
            assert finished < ENDS, f"starved: {world.waiting.get(victim) or world.opening[victim]}"
            self.feed(self)
            opened = set(world.open_trajectories)
            self.decide()
            if victim not in world.waiting and victim not in world.opening:
                break
            times = [self.ends[0][0]] if self.ends else []
            wakeup_s = world.core.next_wakeup_s()
            times += [] if wakeup_s is None else [wakeup_s]
            if not times and opened != world.open_trajectories.keys():
                continue  # those that have just been admitted go on
            assert times, "nothing runs, nothing will happen, and the victim waits"
            world.advance(max(0.0, min(times) - world.now))
            while self.ends and self.ends[0][0] <= world.now:
                _, action_id = heapq.heappop(self.ends)
                world.finish(action_id)
                self.ended(self, action_id)
                finished += 1
        return finished

    def decide(self) -> None:
        """Decide until nothing more starts, and note when what started will end."""
        known = {action_id for _, action_id in self.ends}
        self.world.settle()
        for action_id, running in self.world.running.items():
            if action_id not in known:
                heapq.heappush(self.ends, (self.world.now + self.duration_s(running), action_id))


def keep_waiting(*demands: Demand, each: int = 3) -> Callable[[Play], None]:
    """Keep `each` actions of every demand waiting."""

    def feed(play: Play) -> None:
        for demand in demands:
            for _ in range(each - sum(a.demand is demand for a in play.world.waiting.values())):
                play.world.submit(demand)

    return feed


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
@pytest.mark.parametrize(
    ("wanted", "others"),
    [
        ({"cpu": 4}, [{"cpu": 1}]),
        ({"cpu": 4}, [{"cpu": 0.5}, {"cpu": 1}]),
        ({"cpu": Elastic(4, 4)}, [{"cpu": Elastic(1, 4)}, {"cpu": 0.25}]),
        ({"cpu": Elastic(1, 4)}, [{"cpu": 0.5}]),
        ({"cpu": Elastic(1, 4)}, [{"cpu": 0.5, "memory_gib": 1}, {"cpu": 0.25}]),
        ({"cpu": Elastic(2, 4)}, [{"cpu": Elastic(1, 4)}]),
        ({"memory_gib": 16}, [{"memory_gib": 1}, {"memory_gib": 5, "cpu": 1}]),
        ({"search": 2}, [{"search": 1}]),
        ({"search": 2, "thread": True}, [{"search": 1}, {"thread": True}]),
        ({"cpu": 4, "memory_gib": 16}, [{"cpu": 1}, {"memory_gib": 1}]),
        ({"cpu": 4, "memory_gib": 16, "search": 2}, [{"cpu": 1}, {"memory_gib": 1}, {"search": 1}]),
        ({"cpu": 1, "search": 2}, [{"search": 1}, {"cpu": Elastic(1, 4)}]),
        ({"cpu": Elastic(1, 2), "search": 2}, [{"search": 1}, {"cpu": Elastic(1, 4)}, {"cpu": Elastic(2, 3)}]),
        ({"cpu": 0.5, "memory_gib": 12}, [{"memory_gib": 3}, {"cpu": Elastic(1, 4)}, {"cpu": Elastic(3, 4)}]),
    ],
    ids=str,
)
def test_a_big_action_starts_though_small_ones_keep_coming(
    policy: Policy, wanted: dict[str, object], others: list[dict[str, object]]
) -> None:
    topology = make_topology(calls=40, period_s=1)
    world = World(topology, policy)
    demands = [make_demand(topology, f"other{i}", **other) for i, other in enumerate(others)]  # type: ignore[arg-type]
    chance = random.Random(5)
    play = Play(world, lambda _: chance.uniform(0.5, 1.5), keep_waiting(*demands))
    play.feed(play)
    play.decide()
    victim = world.submit(make_demand(topology, "victim", **wanted))  # type: ignore[arg-type]
    assert play.until_started(victim) <= ENDS


def test_a_deferred_action_of_another_resource_does_not_undo_a_block() -> None:
    """The victim waits for both calls of the quota. Whenever one is free, somebody is deferred on the cores."""
    topology = make_topology(calls=1000, period_s=1)
    world = World(topology, paper(best_prefix=True))
    call = make_demand(topology, "call", search=1)
    # Three cores are so much better than two that who comes second is deferred; the fourth core is always free.
    tests = make_demand(topology, "tests", cpu=Elastic.of(2, 3, speedup=lambda units: units**3))
    lasts_s = {"call": 1.0, "tests": 0.5, "victim": 1.0}
    play = Play(world, lambda action: lasts_s[action.pending.demand.name], keep_waiting(call, tests))
    for demand in (tests, tests, tests, call):
        world.submit(demand)
    play.decide()
    world.advance(0.5)
    _, first = heapq.heappop(play.ends)
    world.finish(first)
    world.submit(call)
    play.decide()  # from now on, at every half second a call ends, and the tests that held three cores
    victim = world.submit(make_demand(topology, "victim", cpu=1, search=2))
    assert play.until_started(victim) <= ENDS


class Rollouts:
    """Trajectories that hold memory, run actions one after another, and end after some; each end opens another."""

    def __init__(self, world: World, step: list[Demand], *, held_gib: int, steps: int, at_once: int) -> None:
        self.world, self.step, self.held_gib, self.steps, self.at_once = world, step, held_gib, steps, at_once
        self.done: dict[int, int] = {}
        self.of: dict[int, int] = {}

    def feed(self, play: Play) -> None:
        world = self.world
        for _ in range(self.at_once - len(world.opening) - len(world.open_trajectories)):
            world.open(memory_gib=self.held_gib)
        for trajectory in list(world.open_trajectories):
            if trajectory in self.of.values():
                continue
            done = self.done.get(trajectory, 0)
            if done == self.steps:
                world.close(trajectory)
                continue
            self.done[trajectory] = done + 1
            step = self.steps_of(trajectory)
            demand = step[done % len(step)]
            self.of[world.submit(demand, trajectory=trajectory, turn=True)] = trajectory

    def steps_of(self, trajectory: int) -> list[Demand]:
        """The actions of a trajectory."""
        return self.step

    def ended(self, play: Play, action_id: int) -> None:
        self.of.pop(action_id, None)


class RolloutsOnNodes(Rollouts):
    """The same on several nodes: each action takes the cores of the node where its trajectory is."""

    def steps_of(self, trajectory: int) -> list[Demand]:
        return [self.step[self.world.core.node_of(trajectory)]]


@pytest.mark.parametrize("policy", [elastic(), paper(), paper(best_prefix=True), fixed(2)], ids=lambda p: p.name)
@pytest.mark.parametrize(
    "wanted", [{"cpu": 1, "memory_gib": 12}, {"cpu": 4, "memory_gib": 9}, {"cpu": 4, "memory_gib": 1}], ids=str
)
def test_who_waits_for_memory_that_trajectories_hold_does_not_keep_them_from_ending(
    policy: Policy, wanted: dict[str, float]
) -> None:
    """The victim needs memory that returns only when trajectories end, and those need cores to get there."""
    topology = make_topology()
    world = World(topology, policy)
    step = [make_demand(topology, "step", cpu=Elastic(1, 4)), make_demand(topology, "half", cpu=0.5, memory_gib=0.5)]
    rollouts = Rollouts(world, step, held_gib=3, steps=12, at_once=8)
    chance = random.Random(2)
    play = Play(world, lambda _: chance.uniform(0.5, 1.5), rollouts.feed, rollouts.ended)
    for _ in range(3):
        play.feed(play)
        play.decide()
    victim = world.submit(make_demand(topology, "victim", **wanted))
    assert play.until_started(victim) <= ENDS


@pytest.mark.parametrize("policy", [elastic(), paper(best_prefix=True), reserved(1)], ids=lambda p: p.name)
@pytest.mark.parametrize("sandboxes", [None, 3])
@pytest.mark.parametrize("busy_host", [False, True])
def test_a_big_trajectory_is_admitted_though_small_ones_keep_coming_on_all_nodes(
    policy: Policy, sandboxes: int | None, busy_host: bool
) -> None:
    topology = make_nodes(nodes=[(2, 6, sandboxes), (4, 6, sandboxes), (1, 4, sandboxes)])
    world = World(topology, policy)
    held = policy.reserved_cores * 1000
    step = [make_demand(topology, "step", cpu=1, node=node, reserved=held) for node in range(3)]
    rollouts = RolloutsOnNodes(world, step, held_gib=1, steps=3, at_once=20)
    on_host = make_demand(topology, "host", cpu=0.5, memory_gib=1)
    feed_host = keep_waiting(on_host, each=2 if busy_host else 0)
    chance = random.Random(3)

    def feed(play: Play) -> None:
        rollouts.feed(play)
        feed_host(play)

    play = Play(world, lambda _: chance.uniform(0.5, 1.5), feed, rollouts.ended)
    for _ in range(3):
        play.feed(play)
        play.decide()
    victim = world.open(memory_gib=5)
    assert play.until_started(victim) <= ENDS
    assert world.core.node_of(victim) in {0, 1}


@pytest.mark.parametrize("wanted", [{"cpu": 2, "memory_gib": 1}, {"memory_gib": 6}, {"cpu": 0.5}], ids=str)
def test_a_host_body_starts_though_trajectories_fill_its_node(wanted: dict[str, float]) -> None:
    topology = make_nodes(nodes=[(2, 6, 4), (2, 6, 4)])
    world = World(topology, elastic())
    step = [make_demand(topology, "step", cpu=Elastic(1, 2), node=node) for node in range(2)]
    rollouts = RolloutsOnNodes(world, step, held_gib=2, steps=5, at_once=12)
    chance = random.Random(4)
    play = Play(world, lambda _: chance.uniform(0.5, 1.5), rollouts.feed, rollouts.ended)
    for _ in range(3):
        play.feed(play)
        play.decide()
    victim = world.submit(make_demand(topology, "victim", **wanted))
    assert play.until_started(victim) <= ENDS


def test_a_trajectory_that_waits_does_not_hold_up_the_memory_of_those_that_are_open() -> None:
    """1 GiB is free, the next trajectory wants 4, and an action of an open one needs 1 to let it end."""
    topology = make_topology(memory_gib=8)
    world = World(topology, paper())
    first = world.open(memory_gib=7)
    world.settle()
    following = world.open(memory_gib=4)
    world.settle()
    action = world.submit(make_demand(topology, cpu=1, memory_gib=1), trajectory=first, turn=True)
    world.settle()
    assert action in world.running
    world.finish(action)
    world.close(first)
    world.settle()
    assert following in world.open_trajectories


_amounts = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from([0.5, 1, 2, 4, Elastic(1, 4), Elastic(2, 4), Elastic.of(1, 3), Elastic(1, 2)]),
        "memory_gib": st.sampled_from([1, 4, 9, 16]),
        "search": st.sampled_from([0.5, 1, 2]),
        "thread": st.just(True),
    },
)


@given(
    policy=st.sampled_from(POLICIES),
    wanted=_amounts,
    others=st.lists(_amounts.filter(bool), min_size=1, max_size=4),
    held_gib=st.sampled_from([0, 0, 3, 5]),
    seed=st.integers(0, 1 << 16),
    equal=st.booleans(),
    order=st.sampled_from(ORDERS),
)
def test_any_action_starts_whatever_arrives_behind_it(
    policy: Policy,
    wanted: dict[str, object],
    others: list[dict[str, object]],
    held_gib: int,
    seed: int,
    equal: bool,
    order: Order,
) -> None:
    topology = make_topology(calls=6, period_s=1)
    world = World(topology, policy, order)
    chance = random.Random(seed)
    demands = [make_demand(topology, f"other{i}", **other) for i, other in enumerate(others)]  # type: ignore[arg-type]
    feed_others = keep_waiting(*demands, each=2)
    cores = make_demand(topology, "step", cpu=Elastic(1, 4), reserved=policy.reserved_cores * 1000)
    rollouts = Rollouts(world, [cores], held_gib=held_gib, steps=4, at_once=4 if held_gib else 0)

    def feed(play: Play) -> None:
        rollouts.feed(play)
        feed_others(play)

    play = Play(world, lambda _: 1.0 if equal else chance.uniform(0.01, 2), feed, rollouts.ended)
    play.feed(play)
    play.decide()
    victim = world.submit(make_demand(topology, "victim", **wanted))  # type: ignore[arg-type]
    assert play.until_started(victim) <= ENDS
