"""An owner that is started again: what is held stays held, what waits waits on, and nothing is granted twice."""

from __future__ import annotations

import asyncio

import pytest

import arl_tangram as tangram
from arl_tangram import (
    InfrastructureError,
    LeaseLostError,
    OwnerLostError,
    Quota,
    current_allocation,
    current_sandbox,
)
from arl_tangram.integrations.ray.client import Shared
from arl_tangram.testing import FakePool
from shared_world import SharedWorld, settle
from virtual_time import virtual


@tangram.action(cpu=1)
async def work(for_s: float) -> float:
    box = current_sandbox()
    await box.exec(["begin"])
    await asyncio.sleep(for_s)
    await box.exec(["end"])
    return current_allocation().cores


@tangram.action(quota={"api": 1})
async def search(for_s: float) -> str:
    await asyncio.sleep(for_s)
    return "found"


@tangram.action(cpu=1)
async def outer(for_s: float) -> str:
    return await search(for_s)


def world() -> SharedWorld:
    nodes = {"a": [FakePool(cores=2, memory_gib=16)], "b": [FakePool(cores=2, memory_gib=16)]}
    return SharedWorld(Quota("api", concurrency=2), nodes=nodes, lease_s=30.0)


def time() -> float:
    return asyncio.get_running_loop().time()


@virtual
async def test_running_bodies_go_on_and_who_waits_starts_when_they_end() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        running = [asyncio.ensure_future(tg.run(search, 10.0)) for tg in (one, two)]
        await settle()
        waiting = asyncio.ensure_future(two.run(search, 1.0))
        await settle()
        before_s = time()
        shared.kill_owner()
        await asyncio.sleep(2.0)
        shared.start_owner()
        await asyncio.sleep(5.0)
        state = shared.statistics()
        assert (state.running, state.waiting) == (2, 1), "both that run are counted, and nothing more started"
        assert await asyncio.gather(*running) == ["found"] * 2
        assert time() - before_s == pytest.approx(10.0, abs=0.01)
        assert await waiting == "found"
        assert time() - before_s == pytest.approx(11.0, abs=0.01)
        await shared.check_idle()


@virtual
async def test_trajectories_keep_their_sandboxes() -> None:
    async with world() as shared, shared.client() as tg, tg.trajectory(memory_gib=4):
        task = asyncio.ensure_future(tg.run(work, 10.0))
        await settle(200)
        shared.kill_owner()
        await asyncio.sleep(1.0)
        shared.start_owner()
        assert await task == 1
        assert await tg.run(work, 1.0) == 1
        assert shared.statistics().trajectories == 1


@virtual
async def test_what_ended_while_there_was_no_owner_is_free() -> None:
    async with world() as shared, shared.client() as tg:
        short = [asyncio.ensure_future(tg.run(search, 1.0)) for _ in range(2)]
        await settle()
        shared.kill_owner()
        assert await asyncio.gather(*short) == ["found"] * 2
        shared.start_owner()
        assert await tg.run(search, 1.0) == "found"
        await shared.check_idle()


@virtual
async def test_a_client_that_died_with_the_owner_is_ended_before_anything_is_granted() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        gone = [asyncio.ensure_future(one.run(search, 1000.0)) for _ in range(2)]
        await settle()
        shared.line_of(one).is_cut = True
        shared.kill_owner()
        shared.start_owner()
        before_s = time()
        waiting = asyncio.ensure_future(two.run(search, 1.0))
        assert await waiting == "found"
        assert 30.0 < time() - before_s < 60.0, "after the lease of the one that is cut off"
        for error in await asyncio.gather(*gone, return_exceptions=True):
            assert isinstance(error, LeaseLostError)


@virtual
async def test_a_call_that_has_lent_gets_back_what_it_lent() -> None:
    async with world() as shared, shared.client() as tg, tg.trajectory():
        task = asyncio.ensure_future(tg.run(outer, 10.0))
        await settle(200)
        assert shared.statistics().running == 2
        shared.kill_owner()
        await asyncio.sleep(1.0)
        shared.start_owner()
        assert await task == "found"
        await settle(200)
        assert shared.statistics().running == 0


@virtual
async def test_an_owner_that_does_not_come_back_is_an_error_in_bounded_time() -> None:
    async with world() as shared:
        tg = await shared.client().start()
        task = asyncio.ensure_future(tg.run(search, 1000.0))
        await settle()
        shared.kill_owner()
        before_s = time()
        with pytest.raises(InfrastructureError):
            await task
        assert time() - before_s < 45
        with pytest.raises(InfrastructureError):
            await tg.run(search, 1.0)
        assert time() - before_s < 120
        shared.start_owner()


@virtual
async def test_killed_at_any_moment_everybody_gets_a_result_or_a_typed_error() -> None:
    async def rollout(tg: tangram.Tangram, number: int) -> None:
        async with tg.trajectory(memory_gib=4):
            for turn in range(3):
                await tg.run(work, 0.3 + 0.1 * number)
                await tg.run(search, 0.2 * turn)

    for step in range(40):
        async with world() as shared, shared.client() as one, shared.client() as two:
            tasks = [asyncio.ensure_future(rollout(tg, n)) for n, tg in enumerate([one, two] * 3)]  # type: ignore[arg-type]
            await settle(step * 7)
            await asyncio.sleep(0.1 * (step % 7))
            shared.kill_owner()
            await asyncio.sleep(0.05 * (step % 5))
            shared.start_owner()
            told = await asyncio.gather(*tasks, return_exceptions=True)
            for error in told:
                assert error is None or isinstance(error, InfrastructureError), (step, error)
            assert told == [None] * 6, (step, told)
            await shared.check_idle()


@virtual
async def test_a_node_that_is_cut_off_when_its_owner_dies_is_one_of_the_next_owner() -> None:
    async with world() as shared:
        tg = await shared.client().start()
        await settle(200)
        shared.line_of(tg).is_cut = shared.lines["b"].is_cut = True
        shared.kill_owner()
        shared.start_owner()
        async with shared.client() as other:  # when all that might be held is over
            assert [offer.name for offer in other._dispatcher().shape.nodes] == ["a", "b"]
            assert other._dispatcher().shape.lost == (1,)
            shared.line_of(tg).is_cut = shared.lines["b"].is_cut = False
            await asyncio.sleep(60.0)
            assert other._dispatcher().shape.lost == ()

            async def rollout(by: Shared) -> float:
                async with by.trajectory(memory_gib=10):
                    return await by.run(work, 1.0)

            assert await asyncio.gather(rollout(tg), rollout(other)) == [1, 1]
        await tg.aclose()


@virtual
async def test_who_comes_while_it_recovers_is_let_in_after_that_whatever_its_own_patience() -> None:
    async with world() as shared, shared.client() as one:
        gone = asyncio.ensure_future(one.run(search, 1000.0))
        await settle()
        shared.line_of(one).is_cut = True
        shared.kill_owner()
        shared.start_owner()
        before_s = time()
        async with shared.client("late", timeout_s=5.0) as late:
            assert 30.0 < time() - before_s < 60.0, "after the lease of the one that is cut off"
            assert await late.run(search, 1.0) == "found"
        with pytest.raises(LeaseLostError):
            await gone
        shared.line_of(one).is_cut = False


@virtual
async def test_a_recovery_that_does_not_end_is_not_waited_for_without_bound() -> None:
    async with world() as shared:
        one = await shared.client().start()
        await settle()
        shared.kill_owner()
        shared.start_owner()
        assert shared.owner._recovering is not None
        shared.owner._recovering._look = lambda: None  # type: ignore[method-assign]
        before_s = time()
        with pytest.raises(OwnerLostError, match=r"has not let this client in.*it was started again"):
            await shared.client("late", timeout_s=5.0).start()
        assert time() - before_s < 5 + 5 + 2 * 40
        shared.kill_owner()
        shared.start_owner()
        await one.aclose()


@virtual
async def test_a_node_that_is_away_while_all_others_begin_anew_is_one_of_the_next_owner() -> None:
    async with world() as shared, shared.client() as tg:
        await settle(200)
        lines = [shared.line_of(tg), shared.lines["a"]]
        await shared.kill_agent("b")
        for line in lines:
            line.is_cut = True
        shared.kill_owner()
        shared.start_owner()
        await asyncio.sleep(100.0)  # nobody who knew the owner before is there in time
        for line in lines:
            line.is_cut = False
        await asyncio.sleep(10.0)
        assert await tg.run(search, 1.0) == "found"
        shape = tg._dispatcher().shape
        assert ([offer.name for offer in shape.nodes], shape.lost) == (["a", "b"], (1,))
        await shared.start_agent("b")
        await settle(200)
        assert tg._dispatcher().shape.lost == ()
