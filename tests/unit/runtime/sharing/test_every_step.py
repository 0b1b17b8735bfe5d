"""Running actions that share their cores, cancelled at every single step."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import Elastic
from counting_pools import CountingPool
from injection import Scene, at_every_step
from unit.runtime.sharing.scenes import EQUAL, begin, elsewhere, in_a_sandbox, steady, urgent, work


async def suspended_and_going_on(scene: Scene) -> None:
    scene.victim(in_a_sandbox(steady, 1.0))
    (other,) = begin(in_a_sandbox(urgent, 0.5, after_s=0.5))
    await asyncio.wait([*scene.victims, other])


async def suspended_while_calling(scene: Scene) -> None:
    @tangram.action(cpu=1, priority=-2)
    async def inner() -> None:
        await work(0.25)

    @tangram.action(cpu=2)
    async def outer() -> None:
        await asyncio.sleep(0.5)
        await inner()
        await elsewhere(0.25)
        await work(0.25)

    scene.victim(in_a_sandbox(outer))
    others = begin(in_a_sandbox(urgent, 0.25, after_s=0.375), in_a_sandbox(urgent, 0.5, after_s=0.75))
    await asyncio.wait([*scene.victims, *others])


async def grown_and_shrunk(scene: Scene) -> None:
    growing = tangram.action(cpu=Elastic(1, 4, resizable=True))(steady.body)
    calls = [in_a_sandbox(growing, 0.5, after_s=0.125 * number) for number in range(4)]
    for call in calls[::2]:
        scene.victim(call)
    await asyncio.wait([*scene.victims, *begin(*calls[1::2])])


@pytest.mark.parametrize("scenario", [suspended_and_going_on, suspended_while_calling, grown_and_shrunk])
@pytest.mark.parametrize("clean_s", [0.0, 0.125])
def test_cancelling_at_every_step_loses_nothing(scenario: Any, clean_s: float) -> None:
    def pool() -> CountingPool:
        return CountingPool(cores=2, share=EQUAL, clean_s=clean_s)

    assert at_every_step(scenario, pool=pool, again_after=(2,)) > 50
