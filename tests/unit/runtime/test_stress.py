"""Thousands of actions with random ends, in virtual time: units are conserved, nothing is left, runs repeat exactly."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arl_tangram as tangram
from arl_tangram import Elastic, Quota, Tangram, policies
from arl_tangram.model.events import ActionStarted, TrajectoryOpened
from arl_tangram.scheduling.policies import Policy
from arl_tangram.testing import FakeNode, assert_idle
from arl_tangram.trace.sink import MemorySink
from counting_pools import CountingPool
from virtual_time import VirtualLoop, run_virtually, turns

POLICIES = [policies.paper(best_prefix=True), policies.paper(), policies.fixed(2), policies.reserved(2)]


class OwnError(Exception):
    """What a body raises."""


@dataclass(frozen=True)
class Plan:
    """What one call does.

    Attributes:
        kind: which action.
        after_s: when it is made.
        for_s: how long its body works.
        end: how the body ends.
        cancel_after_s: when its caller is cancelled, from the call on.
        trajectory: whether it is made in the rollout's trajectory.
    """

    kind: int
    after_s: float
    for_s: float
    end: str
    cancel_after_s: float | None
    trajectory: bool


async def body(number: int, for_s: float, end: str) -> int:
    loop = asyncio.get_running_loop()
    end_s = loop.time() + for_s
    while (left_s := end_s - loop.time()) > 0:
        try:
            await asyncio.sleep(left_s)
        except asyncio.CancelledError:
            if end != "deaf":
                if end == "slow":
                    await asyncio.sleep(0.5)
                raise
    if end == "error":
        raise OwnError(number)
    return number


def declared(**options: Any) -> Any:
    async def work(number: int, for_s: float, end: str) -> int:
        return await body(number, for_s, end)

    work.__qualname__ = f"work({sorted(options)})"
    return tangram.action(**options)(work)


ACTIONS = [
    declared(cpu=1),
    declared(cpu=3),
    declared(cpu=0.25),
    declared(cpu=Elastic(1, 4)),
    declared(cpu=Elastic.of(2, 4), timeout=1.5),
    declared(cpu=1, quota={"api": 1}, queue_timeout=2),
    declared(cpu=Elastic(1, 4), memory_gib=0.25, quota={"rate": 1}),
    declared(quota={"api": 2}, timeout=0.75),
    declared(quota={"rate": 1}, priority=-1),
    declared(),
]
QUOTAS = (Quota("api", concurrency=3), Quota("rate", calls=5, period_s=1))


def random_plan(draw: random.Random) -> Plan:
    return Plan(
        kind=draw.randrange(len(ACTIONS)),
        after_s=draw.choice([0, 0, 0.25, 0.5, draw.random() * 2]),
        for_s=draw.choice([0, 0.25, 0.5, 1, 3, draw.random()]),
        end=draw.choice(["ok", "ok", "ok", "ok", "error", "slow", "deaf"]),
        cancel_after_s=draw.choice([None, None, None, 0, 0.25, draw.random() * 3]),
        trajectory=draw.random() < 0.7,
    )


def check(plan: Plan, number: int, result: Any) -> str:
    """See that a call ended in a way that its plan allows; return how."""
    spec = ACTIONS[plan.kind].spec
    if isinstance(result, asyncio.CancelledError):
        assert plan.cancel_after_s is not None
    elif isinstance(result, OwnError):
        assert plan.end == "error"
        assert result.args == (number,)
    elif isinstance(result, tangram.RunTimeout):
        assert spec.timeout is not None
        assert plan.for_s >= spec.timeout
    elif isinstance(result, tangram.QueueTimeout):
        assert spec.queue_timeout is not None
    else:
        assert result == number, repr(result)
        assert plan.end != "error"
    return type(result).__name__


def run(
    rollouts: list[list[Plan]], policy: Policy, *, clean_s: float = 0.0, nodes: Sequence[FakeNode] = ()
) -> tuple[list[Any], Counter[str]]:
    """Run all rollouts at once; return what happened and how calls ended."""
    loop = VirtualLoop()
    pool = CountingPool(cores=4, memory_gib=8, create_s=0.125, close_s=0.125, clean_s=clean_s, nodes=nodes)
    cores = [f"cpu@{node.name}" for node in nodes] or ["cpu"]
    sink = MemorySink()
    ends: Counter[str] = Counter()

    async def call(plan: Plan, number: int) -> None:
        task = asyncio.create_task(ACTIONS[plan.kind](number, plan.for_s, plan.end))
        if plan.cancel_after_s is not None:
            await asyncio.wait([task], timeout=plan.cancel_after_s)
            task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        ends[check(plan, number, result)] += 1

    async def rollout(plans: list[Plan], base: int) -> None:
        outside = [(number, plan) for number, plan in enumerate(plans, base) if not plan.trajectory]
        beside = [asyncio.create_task(after(plan, number)) for number, plan in outside]
        if len(outside) < len(plans):
            async with tangram.trajectory(memory_gib=1.5):
                await asyncio.gather(*(after(p, n) for n, p in enumerate(plans, base) if p.trajectory))
        if beside:
            await asyncio.gather(*beside)

    async def after(plan: Plan, number: int) -> None:
        await asyncio.sleep(plan.after_s)
        await call(plan, number)

    async def main() -> None:
        async with Tangram(pool, *QUOTAS, policy=policy, trace=sink, kill_grace_s=1) as tg:

            def quiet() -> None:
                state = tg.statistics()
                for dimension in state.dimensions.values():
                    assert dimension.free >= 0
                    assert dimension.free + dimension.used == pytest.approx(dimension.capacity)
                for node, name in enumerate(cores):
                    assert state.dimensions[name].free * 1000 <= pool.made.milli_free_on(node)

            loop.when_quiet = quiet
            await asyncio.gather(*(rollout(plans, 1000 * index) for index, plans in enumerate(rollouts)))
            loop.when_quiet = lambda: None
            await asyncio.sleep(10)  # until the last deaf body has ended
            await turns(3)
            assert_idle(tg)
            assert pool.is_whole
            assert tg.statistics().dimensions["quota:rate/calls"].capacity == 5

    run_virtually(main(), loop)
    assert sum(ends.values()) == sum(map(len, rollouts))
    return sink.events, ends


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_thousands_of_actions_end_as_planned_and_leave_nothing(policy: Policy) -> None:
    draw = random.Random(policy.name)
    rollouts = [[random_plan(draw) for _ in range(30)] for _ in range(40)]
    events, ends = run(rollouts, policy, clean_s=0.03125)
    assert {"int", "OwnError", "CancelledError", "RunTimeout", "QueueTimeout"} <= ends.keys(), "all ends were seen"
    assert len(events) > 3000


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("sandboxes", [None, 2])
def test_thousands_of_actions_on_several_nodes_end_as_planned(policy: Policy, sandboxes: int | None) -> None:
    draw = random.Random(f"{policy.name} on nodes")
    rollouts = [[random_plan(draw) for _ in range(20)] for _ in range(30)]
    nodes = [FakeNode("a", 4, 8, sandboxes), FakeNode("b", 3, 8, sandboxes), FakeNode("c", 8, 4, sandboxes)]
    events, ends = run(rollouts, policy, clean_s=0.03125, nodes=nodes)
    assert {"int", "OwnError", "CancelledError", "RunTimeout"} <= ends.keys()
    at: dict[int, int | None] = {event.id: event.node for event in events if isinstance(event, TrajectoryOpened)}
    assert set(at.values()) == {0, 1, 2}
    for event in events:
        if isinstance(event, ActionStarted):
            pending = event.action.pending
            takes_cores = event.action.units or pending.demand.milli_cores
            if takes_cores:
                assert pending.demand.node == (0 if pending.trajectory is None else at[pending.trajectory])


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_the_same_calls_give_the_same_trace(policy: Policy) -> None:
    rollouts = [[random_plan(draw) for _ in range(20)] for draw in map(random.Random, range(8))]
    first, _ = run(rollouts, policy)
    second, _ = run(rollouts, policy)
    assert [repr(event) for event in first] == [repr(event) for event in second]
    other, _ = run(rollouts[::-1], policy)
    assert [repr(event) for event in other] != [repr(event) for event in first], "the comparison can fail"


TIMES_S = st.sampled_from([0, 0.25, 0.5, 1, 2])
PLANS = st.builds(
    Plan,
    kind=st.integers(0, len(ACTIONS) - 1),
    after_s=TIMES_S,
    for_s=TIMES_S,
    end=st.sampled_from(["ok", "error", "slow", "deaf"]),
    cancel_after_s=st.none() | TIMES_S,
    trajectory=st.booleans(),
)


@settings(max_examples=60)
@given(
    rollouts=st.lists(st.lists(PLANS, min_size=1, max_size=6), min_size=1, max_size=5),
    policy=st.sampled_from(POLICIES),
    clean_s=st.sampled_from([0.0, 0.25]),
)
def test_any_small_set_of_rollouts_ends_as_planned(rollouts: list[list[Plan]], policy: Policy, clean_s: float) -> None:
    run(rollouts, policy, clean_s=clean_s)
