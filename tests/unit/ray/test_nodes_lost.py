"""A node that is lost: nothing is granted there, what was there ends with a typed error, and the rest goes on."""

from __future__ import annotations

import asyncio

import pytest

import arl_tangram as tangram
from arl_tangram import InfeasibleError, NodeLostError, Quota, current_allocation, current_sandbox
from arl_tangram.testing import FakePool
from shared_world import SharedWorld, settle
from virtual_time import virtual


@tangram.action(cpu=1)
async def work(for_s: float) -> str | None:
    await current_sandbox().exec(["begin"])
    await asyncio.sleep(for_s)
    await current_sandbox().exec(["end"])
    return current_allocation().node


@tangram.action(quota={"api": 1})
async def search(for_s: float) -> str:
    await asyncio.sleep(for_s)
    return "found"


def world() -> SharedWorld:
    nodes = {"a": [FakePool(cores=2, memory_gib=16)], "b": [FakePool(cores=2, memory_gib=16)]}
    return SharedWorld(Quota("api", concurrency=2), nodes=nodes, lease_s=12.0)


def time() -> float:
    return asyncio.get_running_loop().time()


async def kill_agent(shared: SharedWorld, name: str) -> None:
    """Let an agent die as a process does: nothing of it says or does anything more."""
    host = shared.agents[name]
    assert host.agent is not None
    agent, host.agent = host.agent, None
    shared.lines[name].is_cut = True
    await agent.aclose()  # of the test's own process, where it would go on


async def rollout(tg: object, for_s: float, memory_gib: float = 16) -> str | None:
    async with tg.trajectory(memory_gib=memory_gib):  # type: ignore[attr-defined]
        return await tg.run(work, for_s)  # type: ignore[attr-defined,no-any-return]


@virtual
async def test_what_was_there_ends_and_the_other_node_goes_on() -> None:
    async with world() as shared, shared.client() as tg:
        there = [asyncio.ensure_future(rollout(tg, 100.0)) for _ in range(2)]
        await settle(200)
        await kill_agent(shared, "a")
        await asyncio.sleep(30.0)
        assert shared.decider.shape.lost == (0,)
        told = await asyncio.gather(*there, return_exceptions=True)
        assert sorted(str(type(one).__name__) for one in told) == ["NodeLostError", "str"]
        assert await rollout(tg, 1.0) == "b", "and not where nothing answers"
        await shared.check_idle()


@virtual
async def test_a_node_that_is_back_is_used_again() -> None:
    async with world() as shared, shared.client() as tg:
        there = [asyncio.ensure_future(rollout(tg, 100.0)) for _ in range(2)]
        await settle(200)
        await kill_agent(shared, "a")
        await shared.start_agent("a")
        await settle(200)
        assert shared.decider.shape.lost == ()
        assert await rollout(tg, 1.0) == "a"
        told = await asyncio.gather(*there, return_exceptions=True)
        assert [type(one) for one in told if isinstance(one, Exception)] == [NodeLostError]
        await shared.check_idle()


@virtual
async def test_who_waits_for_a_node_that_does_not_come_back_is_refused() -> None:
    async with (
        SharedWorld(nodes={"a": [FakePool(cores=2, memory_gib=16)]}, lease_s=12.0) as shared,
        shared.client() as tg,
    ):
        await settle(200)
        await kill_agent(shared, "a")
        await asyncio.sleep(30.0)
        before_s = time()
        with pytest.raises((InfeasibleError, NodeLostError)):
            await rollout(tg, 1.0)
        assert time() - before_s <= 60.1


@virtual
async def test_a_client_that_leaves_while_a_node_is_lost_holds_nothing_up() -> None:
    async with world() as shared, shared.client() as tg:
        two = await shared.client().start()
        there = [asyncio.ensure_future(rollout(two, 1000.0)) for _ in range(2)]
        await settle(200)
        await kill_agent(shared, "a")
        await two.aclose()
        await asyncio.gather(*there, return_exceptions=True)
        with pytest.raises(NodeLostError):
            await rollout(tg, 1.0)
        before_s = time()
        assert await rollout(tg, 1.0) == "b", "the first one has told that nothing answers there"
        assert time() - before_s < 1.1
        await asyncio.sleep(30.0)
        assert shared.statistics().dimensions["cpu@a"].used == 0
