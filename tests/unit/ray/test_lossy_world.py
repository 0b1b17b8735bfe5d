"""Frames that are lost, late, doubled and overtaken, clients cut off, owners that die: nothing is granted twice.

The pools of the nodes fail a test in which more is leased than there is; here nothing may be left over, either.
"""

from __future__ import annotations

import asyncio
import random

import pytest

import arl_tangram as tangram
from arl_tangram import InfrastructureError, Quota, current_sandbox
from arl_tangram.integrations.ray.client.shared import Shared
from arl_tangram.testing import FakePool
from lossy_lines import random_ways
from shared_world import SharedWorld
from virtual_time import virtual

_in_flight = 0


@tangram.action(cpu=tangram.Elastic(1, 2))
async def work(for_s: float) -> None:
    await current_sandbox().exec(["begin"])
    await asyncio.sleep(for_s)
    await current_sandbox().exec(["end"])


@tangram.action(quota={"api": 1})
async def search(for_s: float) -> None:
    global _in_flight  # noqa: PLW0603 - what a server would see
    _in_flight += 1
    try:
        assert _in_flight <= 2, "more calls in flight than there may be"
        await asyncio.sleep(for_s)
    finally:
        _in_flight -= 1


@tangram.action(cpu=1)
async def nests(for_s: float) -> None:
    await search(for_s)
    await current_sandbox().exec(["after"])


async def rollout(tg: Shared, chance: random.Random) -> None:
    async with tg.trajectory(memory_gib=4):
        for _ in range(3):
            body = chance.choice((work, search, nests))
            call = tg.run(body, chance.uniform(0, 2))
            if chance.random() < 0.2:
                try:
                    async with asyncio.timeout(chance.uniform(0, 2)):
                        await call
                except TimeoutError:
                    pass
            else:
                await call


async def until_done(tg: Shared, chance: random.Random) -> None:
    """Do a rollout, again if the lines have let a session go."""
    for _ in range(5):
        try:
            return await rollout(tg, chance)
        except InfrastructureError:
            await asyncio.sleep(30)
    raise AssertionError("nothing works any more")


def world(chance: random.Random) -> SharedWorld:
    nodes = {"a": [FakePool(cores=3, memory_gib=16)], "b": [FakePool(cores=2, memory_gib=16)]}
    return SharedWorld(
        Quota("api", concurrency=2), nodes=nodes, lease_s=30.0, way=random_ways(chance, loss=0.03, longest_s=0.5)
    )


@pytest.mark.parametrize("seed", range(12))
def test_over_lossy_lines_all_calls_end_well(seed: int) -> None:
    @virtual
    async def run() -> None:
        chance = random.Random(seed)
        async with world(chance) as shared, shared.client() as one, shared.client() as two:
            told = await asyncio.gather(
                *(rollout(tg, chance) for tg in (one, two) for _ in range(4)), return_exceptions=True
            )
            assert told == [None] * 8
            await asyncio.sleep(30)
            await shared.check_idle()

    run()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_dies_everybody_gets_a_result_or_a_typed_error(seed: int) -> None:
    @virtual
    async def run() -> None:
        chance = random.Random(1000 + seed)
        async with world(chance) as shared, shared.client() as one, shared.client() as two:
            tasks = [asyncio.ensure_future(rollout(tg, chance)) for tg in (one, two) for _ in range(4)]
            for _ in range(3):
                await asyncio.sleep(chance.uniform(0, 3))
                match chance.choice(("owner", "client", "nothing")):
                    case "owner":
                        shared.kill_owner()
                        await asyncio.sleep(chance.uniform(0, 2))
                        shared.start_owner()
                    case "client":
                        line = shared.line_of(chance.choice((one, two)))
                        line.is_cut = True
                        await asyncio.sleep(chance.choice((1.0, 20.0, 60.0)))
                        line.is_cut = False
            for error in await asyncio.gather(*tasks, return_exceptions=True):
                assert error is None or isinstance(error, InfrastructureError), error
            await asyncio.sleep(60)
            await shared.check_idle()
            await asyncio.gather(until_done(one, chance), until_done(two, chance))
            await asyncio.sleep(30)
            await shared.check_idle()

    run()
