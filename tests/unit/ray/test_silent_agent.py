"""An agent that is stopped, which nobody is told: what waits for it ends in bounded time all the same."""

from __future__ import annotations

import asyncio

import pytest

import arl_tangram as tangram
from arl_tangram import NodeLostError, Quota, ServiceLostError
from arl_tangram.testing import FakeGpuPool, FakePool, FakeService
from shared_world import HERE, SharedWorld, settle
from virtual_time import virtual

LEASE_S = 12.0
GRACE_S = 10.0


@tangram.action(cpu=1, quota={"api": 1})
def on_a_thread() -> None:
    raise AssertionError("its cores never come")


@tangram.action(cpu=1, quota={"api": 1}, isolate="process", timeout=1)
def in_a_process() -> None:
    raise AssertionError("its cores never come")


@tangram.action(service="judge")
async def judge() -> None:
    await tangram.current_service().call("x")


@virtual
@pytest.mark.parametrize("is_given_up", [True, False])
async def test_bodies_that_wait_for_cores_of_a_machine_that_is_silent_are_told(is_given_up: bool) -> None:
    shared = SharedWorld(Quota("api", concurrency=2), nodes={"": [FakePool(cores=4)]}, lease_s=LEASE_S)
    async with shared, shared.client(node_id=HERE) as tg:
        await settle()
        shared.agents[""].is_cut = True
        shared.lines[""].is_cut = is_given_up
        async with asyncio.timeout(LEASE_S + GRACE_S + 15):
            for ended in await asyncio.gather(tg.run(on_a_thread), tg.run(in_a_process), return_exceptions=True):
                assert isinstance(ended, NodeLostError), repr(ended)
        shared.agents[""].is_cut = shared.lines[""].is_cut = False
        await asyncio.sleep(30)
        await shared.check_idle()


@virtual
async def test_a_node_with_services_that_does_not_answer_is_told_to_the_owner() -> None:
    nodes = {"g": [FakeGpuPool(FakeService("judge"))]}
    async with SharedWorld(nodes=nodes, lease_s=LEASE_S) as shared, shared.client() as tg:
        shared.agents["g"].breaks = lambda what: what == "seat"
        with pytest.raises(ServiceLostError):
            await tg.run(judge)
        assert list(tg._suspected) == [0]
        shared.agents["g"].breaks = lambda _: False
        await asyncio.sleep(10)
        await shared.check_idle()
