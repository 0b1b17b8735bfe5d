"""A policy that fails or plans nonsense is refused: from then on whoever fits starts in order with its least units."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.events import PolicyRefused
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.policies import Group, fixed, paper
from arl_tangram.scheduling.policies.own import policy_of
from property.worlds import World, make_demand, make_topology

TOPOLOGY = make_topology(cores=8)
ELASTIC = Elastic.of(1, 2, 4)

PLANS: dict[str, tuple[object, str]] = {
    "not among the options": ([3], "planned 3 units for an action that admits (1, 2, 4)"),
    "none at all": ([0], "planned 0 units"),
    "negative": ([-1], "planned -1 units"),
    "not a number": ([float("nan")], "planned nan units"),
    "more than is free": ([4, 4, 4], "planned 12 units, 8 are free"),
    "more actions than there are": ([1, 1, 1, 1], "planned for more actions than the 3 candidates"),
    "nobody": ([], "starts nobody, though nothing else holds cpu"),
    "not a sequence": (None, "planned None, which is no sequence of units"),
    "a text": ("4", "planned '4', which is no sequence of units"),
}


def waiting_world(function: Any) -> World:
    world = World(TOPOLOGY, policy_of(function))
    for demand in (
        make_demand(TOPOLOGY, "a", cpu=ELASTIC),
        make_demand(TOPOLOGY, "b", cpu=ELASTIC, search=1),
        make_demand(TOPOLOGY, "c", cpu=ELASTIC, memory_gib=1, search=1),
    ):
        world.submit(demand)
    return world


@pytest.mark.parametrize(("plan", "reason"), PLANS.values(), ids=PLANS.keys())
def test_nonsense_is_refused_and_the_run_goes_on_with_least_units(plan: object, reason: str) -> None:
    asked: list[Group] = []

    def nonsense(group: Group) -> Any:
        asked.append(group)
        return plan

    world = waiting_world(nonsense)
    world.settle()
    assert {i: running.units for i, running in world.running.items()} == {1: 1000, 2: 1000, 3: 1000}
    (refused,) = world.refusals
    assert refused.policy.endswith("nonsense")
    assert reason in refused.reason
    assert len(asked) == 1
    world.submit(make_demand(TOPOLOGY, "d", cpu=ELASTIC))
    world.settle()
    assert world.running[4].units == 1000
    assert len(asked) == 1, "a policy that was refused is not asked again"
    assert len(world.refusals) == 1


def test_what_a_policy_raises_is_told_in_the_refusal() -> None:
    def broken(_group: Group) -> Sequence[int]:
        raise KeyError("mine")

    world = waiting_world(broken)
    world.settle()
    assert len(world.running) == 3
    assert world.refusals[0].reason == "KeyError: 'mine'"


def test_an_interruption_in_the_middle_of_a_plan_changes_nothing() -> None:
    """Ctrl-C is not a defect of the policy."""

    def interrupted(_group: Group) -> Sequence[int]:
        raise KeyboardInterrupt

    world = waiting_world(interrupted)
    free = [world.core.free(i) for i in range(len(TOPOLOGY.dimensions))]
    with pytest.raises(KeyboardInterrupt):
        world.core.decide(0.0)
    assert [world.core.free(i) for i in range(len(TOPOLOGY.dimensions))] == free
    assert world.core.waiting == 3
    assert world.core.drain_events() == []


def test_a_function_is_a_policy() -> None:
    def most(group: Group) -> list[int]:
        """Give the first as much as it takes, and nothing to the others."""
        return [max(units for units in group.candidates[0].units if units <= group.free)]

    world = waiting_world(most)
    assert world.policy.name.endswith("most")
    world.settle()
    assert [running.units for running in world.running.values()] == [4000, 4000]
    assert world.refusals == []


def test_a_policy_sees_what_waits_runs_and_came() -> None:
    seen: list[tuple[Any, ...]] = []

    def curious(group: Group) -> list[int]:
        seen.append((
            group.now_s, group.free, group.capacity, len(group.candidates), len(group.waiting), group.backlog,
            list(group.running), [at_s for at_s, _ in group.arrivals], group.arrived,
        ))  # fmt: skip
        return [group.candidates[0].units[-1]]

    world = World(make_topology(cores=5), policy_of(curious))
    for _ in range(7):
        world.submit(make_demand(world.topology, "a", cpu=ELASTIC, duration_s=2.0))
    world.decide()
    assert seen[0] == (0.0, 5, 5, 5, 2, 2, [], [0.0] * 7, 7)
    assert seen[1] == (0.0, 1, 5, 1, 5, 5, [(pytest.approx(2 / 4**0.8), 4)], [0.0] * 7, 7)


@pytest.mark.parametrize("wrong", [4, "a name", None, fixed, paper, World, SchedulerCore])
def test_what_is_no_policy_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="policy= takes"):
        policy_of(wrong)


def test_a_refusal_is_an_event_of_its_time() -> None:
    world = waiting_world(lambda group: None)
    world.advance(3.0)
    world.settle()
    assert world.refusals == [PolicyRefused(3.0, world.policy.name, world.refusals[0].reason)]


def test_what_a_policy_is_shown_cannot_be_used_to_take_more() -> None:
    """Sorting the candidates is a likely mistake, and not one that may cost a core."""

    def sorting(group: Any) -> list[int]:
        group.candidates.sort(key=lambda candidate: candidate.durations_s)
        return [1]

    def greedy(group: Any) -> list[int]:
        group.free = 100
        return [4, 4, 4]

    def everything(group: Any) -> list[Any]:
        return [mock.ANY] * len(group.candidates)

    for function in (sorting, greedy, everything):
        world = waiting_world(function)
        world.settle()
        assert len(world.refusals) == 1
        assert {running.units for running in world.running.values()} == {1000}


def test_any_sequence_of_units_will_do() -> None:
    for plan in (np.array([4, 4]), (units for units in (4, 4)), [4.0, 4.0]):
        world = waiting_world(lambda group, plan=plan: plan if len(group.candidates) == 3 else [4])
        world.settle()
        assert world.refusals == []
        assert [running.units for running in world.running.values()][:2] == [4000, 4000]


def test_cancellation_and_errors_without_a_text_are_refused_too() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError

    for error in (asyncio.CancelledError(), MuteError(), GeneratorExit()):

        def failing(group: Group, error: BaseException = error) -> Sequence[int]:
            raise error

        world = waiting_world(failing)
        world.settle()
        assert type(error).__name__ in world.refusals[0].reason


def test_what_was_decided_before_an_interruption_is_told_by_the_next_call() -> None:
    interrupts = iter([True, False])

    def interrupted(group: Group) -> Sequence[int]:
        if next(interrupts, False):
            raise KeyboardInterrupt
        return [candidate.units[0] for candidate in group.candidates]

    world = World(TOPOLOGY, policy_of(interrupted))
    calm = world.submit(make_demand(TOPOLOGY, "hasty", cpu=8, queue_timeout=1))
    holder = world.submit(make_demand(TOPOLOGY, "a", cpu=ELASTIC))
    world.advance(1)
    with pytest.raises(KeyboardInterrupt):
        world.core.decide(world.now)
    decisions = world.decide()
    assert decisions.expired == [calm]
    assert [running.pending.id for running in decisions.started] == [holder]
