"""A node that is lost: nothing is granted there, what was there ends with a typed error, and the rest goes on."""

from __future__ import annotations

import asyncio

import pytest

import arl_tangram as tangram
from arl_tangram import InfeasibleError, NodeLostError, Quota, current_allocation, current_sandbox
from arl_tangram.integrations.ray.wire import Declare, Open, Submit
from arl_tangram.model.lifecycle import Demand
from arl_tangram.testing import FakePool
from lossy_lines import Way
from shared_world import SharedWorld, settle
from virtual_time import VirtualLoop, virtual


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


@virtual
async def test_nor_does_it_give_up_one_that_may_have_come_back_meanwhile() -> None:
    async with world() as shared, shared.client() as tg:
        await settle(200)
        await kill_agent(shared, "b")
        await tg._suspect(1)
        assert shared.decider.shape.lost == (1,)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop._now_s += 70.0
        await settle()
        assert shared.statistics().dimensions["cpu@b"].capacity > 0
        await asyncio.sleep(61.0)
        assert shared.statistics().dimensions["cpu@b"].capacity == 0


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
        with pytest.raises(NodeLostError, match="lost"):
            await rollout(tg, 1.0)
        assert time() - before_s <= 60.1
        with pytest.raises(NodeLostError):
            await rollout(tg, 1.0)
        with pytest.raises(InfeasibleError, match="memory"):
            await rollout(tg, 1.0, memory_gib=17)
        await shared.start_agent("a")
        await settle(200)
        assert await rollout(tg, 1.0) is None
        await shared.check_idle()


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


@virtual
async def test_trajectories_that_hold_nothing_keep_off_a_lost_node_too() -> None:
    async with world() as shared, shared.client() as tg:
        there: list[asyncio.Future[str | None]] = []
        for _ in range(2):
            there.append(asyncio.ensure_future(rollout(tg, 100.0, 0)))
            await settle(200)
        await kill_agent(shared, "a")
        await asyncio.sleep(30.0)
        assert [await rollout(tg, 1.0, 0) for _ in range(3)] == ["b"] * 3
        told = await asyncio.gather(*there, return_exceptions=True)
        assert sorted(str(type(one).__name__) for one in told) == ["NodeLostError", "str"]
        await asyncio.sleep(200.0)  # it was given up long ago
        assert [await rollout(tg, 1.0, 0) for _ in range(3)] == ["b"] * 3
        await shared.start_agent("a")
        await settle(200)
        assert "a" in await asyncio.gather(*(rollout(tg, 1.0, 0) for _ in range(2)))
        await shared.check_idle()


@virtual
async def test_where_the_only_node_is_lost_a_trajectory_that_holds_nothing_is_refused() -> None:
    async with SharedWorld(nodes={"a": [FakePool(cores=2)]}, lease_s=12.0) as shared, shared.client() as tg:
        await settle(200)
        tg.pause()
        waits = asyncio.ensure_future(rollout(tg, 1.0, 0))
        await settle(200)
        shared.lines["a"].is_cut = shared.agents["a"].is_cut = True  # as a machine that stands still
        await asyncio.sleep(30.0)
        tg.resume()
        with pytest.raises(NodeLostError):
            await asyncio.wait_for(waits, 1.0)
        with pytest.raises(NodeLostError):
            await asyncio.wait_for(rollout(tg, 1.0, 0), 1.0)
        shared.lines["a"].is_cut = shared.agents["a"].is_cut = False
        await asyncio.sleep(30.0)
        assert await rollout(tg, 1.0, 0) is None
        await shared.check_idle()


@virtual
async def test_a_node_that_was_lost_before_the_first_client_is_no_place_either() -> None:
    async with world() as shared:
        await settle(200)
        await kill_agent(shared, "a")
        await asyncio.sleep(30.0)
        async with shared.client() as tg:
            assert tg._dispatcher().shape.lost == (0,)
            assert [await rollout(tg, 1.0) for _ in range(2)] == ["b"] * 2
            await asyncio.sleep(61.0)
            assert shared.statistics().dimensions["cpu@a"].capacity == 0
            await shared.check_idle()


@virtual
async def test_a_demand_that_knows_other_dimensions_fails_for_its_own_client_only() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        strange = Demand("strange", ((99, 1),), dimensions=1 << 99)
        for number, demand in enumerate([strange, Demand("places", (), places=(strange,))], 7001):
            one._pump.post(Declare(number, demand))
            one._pump.post(Submit(number, number, "", None, False, None, 0.0))
            one._pump.post(Open(number + 10, number, None, 0.0))
        await settle(50)
        assert await two.run(search, 1.0) == "found"
        assert await one.run(search, 1.0) == "found"
        await shared.check_idle()


@virtual
async def test_an_owner_that_stood_still_takes_no_node_for_lost() -> None:
    async with world() as shared, shared.client() as tg:
        await settle(200)
        shared.lines["a"].way = lambda: Way((1.0,), 0.0)
        asked = asyncio.ensure_future(tg._suspect(0))
        await settle(20)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop._now_s += 5.0
        await asked
        await settle(200)
        assert shared.decider.shape.lost == ()
        shared.lines["a"].is_cut = True
        await tg._suspect(0)
        await settle(200)
        assert shared.decider.shape.lost == (0,)
        shared.lines["a"].is_cut = False
