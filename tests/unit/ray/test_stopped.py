"""An owner, or an agent, that is stopped by SIGSTOP and goes on: what happens is bounded, and nothing is twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

import arl_tangram as tangram
from arl_tangram import (
    InfrastructureError,
    LeaseLostError,
    NodeLostError,
    OwnerLostError,
    Quota,
    current_sandbox,
)
from arl_tangram.integrations.ray.client.shared import Shared
from arl_tangram.testing import FakeGpuPool, FakeService
from lossy_lines import OWNER
from shared_world import SharedWorld, settle
from stopped import stoppable
from unit.ray.slow_pool import SlowPool

LEASE_S, GRACE_S, LIMIT = 12.0, 10.0, 2
SILENT_S = LEASE_S + GRACE_S


class Api:
    """An API that counts who is there."""

    def __init__(self) -> None:
        self.there = self.most = 0


API = Api()


@pytest.fixture(autouse=True)
def _anew() -> None:
    API.__init__()  # type: ignore[misc]


@tangram.action(quota={"api": 1})
async def search(for_s: float) -> str:
    API.there += 1
    API.most = max(API.most, API.there)
    try:
        await asyncio.sleep(for_s)
    finally:
        API.there -= 1
    return "found"


@tangram.action(cpu=2)
async def work(for_s: float) -> str:
    await current_sandbox().exec(["sleep", f"{for_s}"])
    return "done"


@tangram.action(service="judge")
async def judge() -> None:
    await tangram.current_service().call("x")


async def rollout(tg: Shared, *for_s: float) -> str:
    async with tg.trajectory(memory_gib=5):
        for each_s in for_s:
            await tg.run(work, each_s)
    return "done"


def world(*nodes: str) -> SharedWorld:
    pools = {node: [SlowPool(cores=2, memory_gib=8)] for node in nodes}
    return SharedWorld(Quota("api", concurrency=LIMIT), nodes=pools, lease_s=LEASE_S)


def time() -> float:
    return asyncio.get_running_loop().time()


async def ends(calls: Sequence[asyncio.Future[str]]) -> list[BaseException]:
    """Return the errors of calls that end with one."""
    return [told for told in await asyncio.gather(*calls, return_exceptions=True) if isinstance(told, BaseException)]


@stoppable
async def test_an_owner_that_is_stopped_for_less_than_a_lease_costs_time_only() -> None:
    async with world("a") as shared, shared.client() as one, shared.client() as two:
        calls = [asyncio.ensure_future(tg.run(search, 3.0)) for tg in (one, two) for _ in range(3)]
        calls.append(asyncio.ensure_future(rollout(one, 2.0, 2.0)))
        await asyncio.sleep(1.0)
        before_s = time()
        async with shared.stopped(OWNER):
            calls.append(asyncio.ensure_future(two.run(search, 3.0)))
            with pytest.raises(OwnerLostError, match="does not answer"):
                two.statistics()
            await asyncio.sleep(LEASE_S - 4.0)
        assert not await ends(calls)
        assert time() - before_s < LEASE_S + 15
        assert API.most == LIMIT
        await shared.check_idle()


@stoppable
async def test_one_that_is_stopped_for_longer_ends_what_is_held_within_the_lease_and_grants_it_once() -> None:
    async with world("a") as shared, shared.client() as one, shared.client() as two:
        running = [asyncio.ensure_future(tg.run(search, 500.0)) for tg in (one, two)]
        running.append(asyncio.ensure_future(rollout(one, 500.0)))
        await asyncio.sleep(5.0)
        before_s = time()
        async with shared.stopped(OWNER):
            errors = await ends(running)
            assert [type(error) for error in errors] == [LeaseLostError] * 3
            assert time() - before_s <= LEASE_S + 1
            later = [asyncio.ensure_future(tg.run(search, 1.0)) for tg in (one, two) for _ in range(3)]
            later.append(asyncio.ensure_future(rollout(two, 1.0)))
            await asyncio.sleep(30.0)
            assert API.there == 0, "nothing is granted by nobody"
        went_on_s = time()
        assert not await ends(later)
        assert time() - went_on_s < SILENT_S + 10, "when what was lost has ended for the owner, too"
        assert API.most == LIMIT
        await shared.check_idle()


@stoppable
async def test_one_that_never_goes_on_is_an_error_in_bounded_time() -> None:
    async with world("a") as shared:
        tg = await shared.client().start()
        async with shared.stopped(OWNER):
            before_s = time()
            with pytest.raises(LeaseLostError):
                await tg.run(search, 500.0)
            with pytest.raises(OwnerLostError):
                await tg.run(search, 1.0)
            with pytest.raises(OwnerLostError, match="has not let this client in within 60 s"):
                await shared.client("late").start()
            assert time() - before_s < LEASE_S + 60 + 60 + 5
            await tg.aclose()
        await asyncio.sleep(60.0)


@stoppable
async def test_an_agent_that_is_stopped_for_less_than_a_lease_costs_time_only() -> None:
    async with world("a", "b") as shared, shared.client() as tg:
        calls = [asyncio.ensure_future(rollout(tg, 3.0, 3.0)) for _ in range(2)]
        await asyncio.sleep(2.0)
        async with shared.stopped("a"):
            await asyncio.sleep(LEASE_S - 4.0)
        assert not await ends(calls)
        await shared.check_idle()


@stoppable
async def test_what_is_on_a_node_whose_agent_is_stopped_for_longer_is_told_and_cores_are_had_once() -> None:
    async with world("a", "b") as shared, shared.client() as tg:
        calls = [asyncio.ensure_future(rollout(tg, 500.0)) for _ in range(2)]
        await asyncio.sleep(5.0)
        before_s = time()
        manager = shared.pools["a"][0].made  # type: ignore[union-attr]
        async with shared.stopped("a"):
            (first,), rest = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            assert isinstance(first.exception(), NodeLostError)
            assert time() - before_s < SILENT_S + 5
            waiting = asyncio.ensure_future(rollout(tg, 1.0))
            await asyncio.sleep(20.0)
            assert not waiting.done(), "the cores of the other node are taken, and this one is lost"
            assert manager.sandboxes, "it could not end anything yet"
        went_on_s = time()
        assert await waiting == "done"
        assert time() - went_on_s < LEASE_S, "its agent has ended what was there, and offers it again"
        assert len(manager.sandboxes) <= 1
        for call in rest:
            assert not call.done(), "what is on the other node goes on"
            call.cancel()
        await asyncio.wait(rest)
        await shared.check_idle()


@stoppable
async def test_an_agent_that_was_given_up_and_goes_on_is_used_again() -> None:
    async with world("a") as shared, shared.client() as tg:
        lost = asyncio.ensure_future(rollout(tg, 500.0))
        await asyncio.sleep(5.0)
        async with shared.stopped("a"):
            before_s = time()
            assert len(await ends([lost])) == 1
            waits = asyncio.ensure_future(rollout(tg, 1.0))
            (error,) = await ends([waits])
            assert isinstance(error, InfrastructureError)
            assert time() - before_s < SILENT_S + 60 + 10
            await asyncio.sleep(60.0)
        await asyncio.sleep(10.0)
        await settle()
        assert await rollout(tg, 1.0) == "done"
        await shared.check_idle()


@stoppable
async def test_who_uses_a_service_on_a_node_whose_agent_is_stopped_is_told() -> None:
    async def slow(_: str) -> None:
        await asyncio.sleep(500.0)

    nodes = {"g": [FakeGpuPool(FakeService("judge", on_call=slow))]}
    async with SharedWorld(nodes=nodes, lease_s=LEASE_S) as shared, shared.client() as tg:
        calling = asyncio.ensure_future(tg.run(judge))
        await asyncio.sleep(5.0)
        before_s = time()
        async with shared.stopped("g"):
            with pytest.raises(NodeLostError, match="node 'g' is lost"):
                await calling
            assert time() - before_s < SILENT_S + 2
        await asyncio.sleep(60.0)
        await shared.check_idle()


@stoppable
async def test_both_stopped_and_gone_on_in_any_order_nothing_is_left() -> None:
    for first, second in ((OWNER, "a"), ("a", OWNER)):
        async with world("a") as shared, shared.client() as tg:
            calls = [asyncio.ensure_future(rollout(tg, 20.0)) for _ in range(2)]
            calls += [asyncio.ensure_future(tg.run(search, 20.0)) for _ in range(4)]
            await asyncio.sleep(5.0)
            async with shared.stopped(first):
                await asyncio.sleep(9.0)
                async with shared.stopped(second):
                    await asyncio.sleep(40.0)
                await asyncio.sleep(1.0)
            before_s = time()
            errors = await ends(calls)
            assert time() - before_s < 80
            for error in errors:
                assert isinstance(error, InfrastructureError), repr(error)
            assert errors, "both were stopped for longer than a lease"
            assert API.most <= LIMIT
            await asyncio.sleep(2 * SILENT_S)
            await shared.check_idle()
            assert await rollout(tg, 1.0) == "done"
