"""A policy that plans nonsense is told so, nothing starts, and the core is as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.elasticity import Elastic
from arl_tangram.scheduling.policies import Group, Policy, paper
from property.worlds import World, make_demand, make_topology

TOPOLOGY = make_topology(cores=8)


@dataclass
class Nonsense:
    """Plans what it is given; sane again when that is None."""

    plan_to_give: Sequence[int] | Exception | None
    name: str = "paper of nonsense"
    reserved_cores: int = 0

    def plan(self, group: Group) -> Sequence[int]:
        if self.plan_to_give is None:
            return paper().plan(group)
        if isinstance(self.plan_to_give, Exception):
            raise self.plan_to_give
        return self.plan_to_give


PLANS = {
    "not among the options": [3],
    "none at all": [0],
    "negative": [-1],
    "too many units together": [4, 4, 4],
    "longer than the group": [1, 1, 1, 1],
}


def state(world: World) -> object:
    core = world.core
    queue = [a.id for a in core._queue.behind(0, 100)]
    windows = [list(w) for w in core._ledger._returning.values()]
    return core._ledger.free[:], queue, windows, sorted(core._running), core.waiting, core.next_wakeup_s()


def waiting_world(plan: Sequence[int] | Exception | None) -> World:
    policy: Policy = Nonsense(plan)
    world = World(TOPOLOGY, policy)
    elastic = Elastic.of(1, 2, 4)
    for demand in (
        make_demand(TOPOLOGY, "a", cpu=elastic),
        make_demand(TOPOLOGY, "b", cpu=elastic, search=1),
        make_demand(TOPOLOGY, "c", cpu=elastic, memory_gib=1, search=1),
    ):
        world.submit(demand)
    return world


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_nonsense_is_a_configuration_error_and_changes_nothing(plan: list[int]) -> None:
    world = waiting_world(plan)
    before = state(world)
    for _ in range(3):
        with pytest.raises(ConfigurationError, match=r"the policy paper of nonsense planned \[.*\] for Group"):
            world.core.decide(0.0)
        assert state(world) == before
        world.check()
        assert world.core.drain_events() == []
    world.policy.plan_to_give = None  # type: ignore[attr-defined]
    world.settle()
    assert set(world.running) == {1, 2, 3}


def test_what_a_policy_raises_passes_and_changes_nothing() -> None:
    world = waiting_world(KeyError("mine"))
    before = state(world)
    with pytest.raises(KeyError, match="mine"):
        world.core.decide(0.0)
    assert state(world) == before


@pytest.mark.parametrize("other_kind", ["an action of another resource", "a trajectory", "an expiry"])
def test_what_was_decided_before_is_not_lost(other_kind: str) -> None:
    """Whoever drives the core must hear of everything that holds units or was taken out of the queue."""
    world = waiting_world([9])
    fraction = make_demand(TOPOLOGY, "memory", memory_gib=1)
    match other_kind:
        case "an action of another resource":
            other = world.submit(fraction)
        case "a trajectory":
            other = world.open(memory_gib=1)
        case _:
            other = world.submit(make_demand(TOPOLOGY, "hasty", cpu=8, queue_timeout=1))
            world.advance(1)
    heard: list[int] = []
    for _ in range(5):
        try:
            decisions = world.decide()
        except ConfigurationError:
            break
        heard += [*(r.pending.id for r in decisions.started), *decisions.opened, *decisions.expired]
        assert decisions.more
    else:
        raise AssertionError("the failure is not told")
    assert heard == ([other] if other_kind == "an expiry" else [])
    world.check()
    for action_id in [*world.waiting, *world.opening]:
        world.withdraw(action_id)
    assert world.core.waiting == 0
