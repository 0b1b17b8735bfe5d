"""A client of a shared runtime that has ended, or is silent: whatever it asks for ends with an error soon."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

import arl_tangram as tangram
from arl_tangram import LeaseLostError, OwnerLostError, Quota, ShutdownError, Tangram, TangramError
from arl_tangram.integrations.ray.client.shared import Shared
from arl_tangram.testing import FakePool
from shared_world import SharedWorld, settle
from virtual_time import virtual


@tangram.action(quota={"api": 1})
async def search(for_s: float = 1.0) -> None:
    await asyncio.sleep(for_s)


@tangram.action(quota={"api": 1}, retries=3, idempotent=True)
async def again() -> None:
    await asyncio.sleep(1)


@tangram.action(cpu=1)
async def work() -> None:
    await asyncio.sleep(1000)


async def rollout(tg: Shared) -> None:
    async with tg.trajectory():
        await tg.run(work)


@virtual
@pytest.mark.parametrize("is_closed", [True, False])
async def test_what_is_called_after_the_end_of_the_runtime_fails_at_once(is_closed: bool) -> None:
    error: type[TangramError] = ShutdownError if is_closed else OwnerLostError
    shared = SharedWorld(Quota("api", concurrency=1), nodes={"a": [FakePool(cores=4, memory_gib=16)]})
    async with shared, shared.client() as tg:
        begun = [asyncio.ensure_future(some) for some in (tg.run(search, 1000.0), tg.run(search), rollout(tg))]
        await settle()
        assert not tg.is_over
        if is_closed:
            await shared.owner.aclose()
            shared.host.kill(for_good=True)
        else:
            shared.host.kill(for_good=True)
        async with asyncio.timeout(10):
            for one in await asyncio.gather(*begun, return_exceptions=True):
                assert isinstance(one, error), repr(one)
        assert tg.is_over
        for _ in range(2):
            for call in (tg.run(search), rollout(tg)):
                async with asyncio.timeout(0.001):
                    with pytest.raises(error):
                        await call
            for asked in (tg.drain(), tg.cancel_group("g")):
                async with asyncio.timeout(0.001):
                    with pytest.raises(OwnerLostError):
                        await asked
            async with asyncio.timeout(60):  # of pauses
                with pytest.raises(error):
                    await tg.run(again)
        await settle()
        assert tg._pump._sender.last == 0, "nothing is kept that goes nowhere"


@virtual
async def test_what_asks_an_owner_that_is_silent_ends_with_the_session() -> None:
    shared = SharedWorld(Quota("api", concurrency=1), nodes={}, lease_s=12.0)
    async with shared, shared.client() as tg:
        await settle()
        shared.line_of(tg).is_cut = True
        for error in (LeaseLostError, OwnerLostError):  # at the end of its lease, and then of its patience
            asked = [asyncio.ensure_future(some) for some in (tg.drain(), tg.cancel_group("g"), tg.run(search))]
            async with asyncio.timeout(61):
                for one in await asyncio.gather(*asked, return_exceptions=True):
                    assert type(one) is error, repr(one)
        shared.line_of(tg).is_cut = False
        asking = asyncio.ensure_future(tg.drain())
        await settle()
        asking.cancel()
        await asyncio.wait([asking])
        assert not tg._questions._going


@virtual
async def test_where_the_pools_are_others_nothing_that_was_resolved_before_is_asked_for() -> None:
    shared = SharedWorld(Quota("api", concurrency=1), nodes={"a": [FakePool(cores=4, memory_gib=16)]}, lease_s=12.0)
    async with shared, shared.client() as tg:
        await settle()
        before = tg.trajectory(memory_gib=1)
        shared.kill_owner()
        await asyncio.sleep(13)
        trying = asyncio.ensure_future(tg.run(again))
        waiting = asyncio.ensure_future(tg.run(search))
        shared.settings = replace(shared.settings, setup=Tangram(Quota("aaa", concurrency=1)).setup)
        shared.start_owner()
        for call in (waiting, trying, before.__aenter__(), tg.run(search)):
            async with asyncio.timeout(60):
                with pytest.raises(OwnerLostError, match="its pools are others"):
                    await call
        state = shared.statistics()
        assert (state.waiting, state.running, state.trajectories) == (0, 0, 0)
