"""Cancelling at every single step of submission, hand-over, running, clean-up and trajectories loses nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

import arl_tangram as tangram
from arl_tangram import Quota, ShutdownError, Tangram
from arl_tangram.testing import assert_idle
from counting_pools import CountingPool
from injection import Scene, at_every_step, cancel
from virtual_time import turns, virtual, virtual_loop


@tangram.action(cpu=4)
async def whole(for_s: float = 1.0) -> str:
    await asyncio.sleep(for_s)
    return "done"


@tangram.action(cpu=1)
async def single(for_s: float = 1.0) -> str:
    await asyncio.sleep(for_s)
    return "done"


@tangram.action(cpu=tangram.Elastic(1, 4), quota={"api": 1}, memory_gib=1)
async def everything(for_s: float = 1.0) -> str:
    await asyncio.sleep(for_s)
    return "done"


@tangram.action(cpu=tangram.Elastic(1, 4), quota={"api": 1})
async def elastic(for_s: float = 1.0) -> str:
    await asyncio.sleep(for_s)
    return "done"


@tangram.action(cpu=2, timeout=1.5)
async def slow_to_end() -> None:
    try:
        await asyncio.sleep(10)
    finally:
        await asyncio.sleep(1)


@tangram.action(cpu=4)
async def deaf(for_s: float = 12.0) -> str:
    end_s = asyncio.get_running_loop().time() + for_s
    while (left_s := end_s - asyncio.get_running_loop().time()) > 0:
        try:
            await asyncio.sleep(left_s)
        except asyncio.CancelledError:
            continue
    return "late"


AGAIN = (1, 2, 5)


async def finish(scene: Scene, *bystanders: asyncio.Task[str]) -> None:
    """Wait for all, and see that nobody but the victims was harmed."""
    await asyncio.wait([*scene.victims, *bystanders])
    for task in bystanders:
        assert task.result() == "done"


async def hand_over(scene: Scene) -> None:
    """Case 1: the end of the first grants the second, which is cancelled; the third must start."""
    first = asyncio.create_task(whole(0.05))
    scene.victim(whole(0.05))
    third = asyncio.create_task(whole(0.05))
    await finish(scene, first, third)
    assert asyncio.get_running_loop().time() <= 0.15 + 1e-9


async def dead_head(scene: Scene) -> None:
    """Case 3: the head of the queue is cancelled in the turn of the release."""
    first = asyncio.create_task(whole(0.05))
    for _ in range(3):
        scene.victim(whole(0.05))
    last = asyncio.create_task(whole(0.05))
    await finish(scene, first, last)


async def fast_path(scene: Scene) -> None:
    """Case 5: a newcomer must not take what is promised to who waits."""
    first = asyncio.create_task(whole(0.05))
    scene.victim(whole(0.05))
    await first
    await finish(scene, asyncio.create_task(whole(0.05)))


async def all_kinds_of_units(scene: Scene) -> None:
    scene.victim(everything())
    await finish(scene, *(asyncio.create_task(everything()) for _ in range(3)))


async def called_by_the_victim(scene: Scene) -> None:
    async def rollout() -> None:
        for _ in range(2):
            await single(0.5)
            await asyncio.sleep(0)
            await everything(0.5)

    for _ in range(2):
        scene.victim(rollout())
    await finish(scene, asyncio.create_task(single()))


async def slow_body(scene: Scene) -> None:
    scene.victim(slow_to_end())
    scene.victim(slow_to_end())
    await finish(scene, asyncio.create_task(single()))


async def deaf_body(scene: Scene) -> None:
    scene.victim(deaf())
    await finish(scene, asyncio.create_task(whole()))


async def mapped(scene: Scene) -> None:
    scene.victim(tangram.map(single, [0.5, 0.1, 0.2, 0.5, 0.1, 0.2]))
    await finish(scene, asyncio.create_task(single()))


SCENARIOS = [
    hand_over, dead_head, fast_path, all_kinds_of_units, called_by_the_victim, slow_body, deaf_body, mapped
]  # fmt: skip
POOLS = {
    "nothing to clean": CountingPool,
    "clean-up takes time": lambda: CountingPool(clean_s=0.25),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_cancelling_an_action_at_every_step(scenario) -> None:
    runs = at_every_step(scenario, quotas=[Quota("api", concurrency=2)], again_after=AGAIN)
    assert runs > 50


@pytest.mark.parametrize("scenario", [called_by_the_victim, slow_body, deaf_body, mapped])
def test_cancelling_an_action_at_every_step_where_cleaning_up_takes_time(scenario) -> None:
    at_every_step(
        scenario,
        pool=lambda: CountingPool(clean_s=0.25),
        quotas=[Quota("api", concurrency=2)],
        again_after=AGAIN,
    )


async def trajectories(scene: Scene) -> None:
    """Memory for one at a time: admission waits, the sandbox takes time to come and to go."""

    async def rollout() -> str:
        async with tangram.trajectory(memory_gib=40):
            await single(0.5)
            await asyncio.gather(single(0.25), single(0.25), elastic(0.25))
        return "done"

    bystander = asyncio.create_task(rollout())
    scene.victim(rollout())
    await finish(scene, bystander, asyncio.create_task(rollout()))


@pytest.mark.parametrize("again_after", [(), (3,)])
def test_cancelling_a_trajectory_at_every_step(again_after) -> None:
    at_every_step(
        trajectories,
        pool=lambda: CountingPool(create_s=0.25, close_s=0.25, clean_s=0.125),
        quotas=[Quota("api", concurrency=2)],
        again_after=again_after,
    )


@pytest.mark.parametrize("policy", [tangram.policies.reserved(2), tangram.policies.fixed(2)])
def test_cancelling_a_trajectory_at_every_step_under_other_policies(policy) -> None:
    at_every_step(
        trajectories,
        pool=lambda: CountingPool(create_s=0.25, close_s=0.25),
        quotas=[Quota("api", concurrency=2)],
        policy=policy,
    )


def test_a_cancelled_caller_sees_it_whatever_it_was_doing() -> None:
    """A cancellation that arrives during a clean-up is not lost: the task ends as cancelled."""
    seen: list[bool] = []

    def strike(scene: Scene) -> None:
        seen.extend(task.cancel() for task in scene.victims if not task.done())

    async def scenario(scene: Scene) -> None:
        async def rollout() -> str:
            async with tangram.trajectory(memory_gib=40):
                await single(0.5)
            await asyncio.sleep(1000)
            return "not cancelled"

        victim = scene.victim(rollout())
        before = len(seen)
        await asyncio.wait([victim], timeout=100)
        if len(seen) > before:
            await turns(20)
            assert victim.done(), "the cancellation was swallowed"
            assert victim.cancelled()
        else:
            victim.cancel()
            await asyncio.wait([victim])

    at_every_step(scenario, pool=lambda: CountingPool(create_s=0.25, close_s=0.25, clean_s=0.125), strike=strike)
    assert len(seen) > 10


@pytest.mark.parametrize("with_cancel", [False, True])
@pytest.mark.parametrize("scenario", [trajectories, called_by_the_victim, deaf_body, mapped])
def test_closing_the_runtime_at_every_step(scenario, with_cancel: bool) -> None:
    """Whoever waited or ran gets `ShutdownError`; in the other variant it is cancelled in the same step."""
    closers: list[asyncio.Task[None]] = []

    def strike(scene: Scene) -> None:
        closers.append(asyncio.get_running_loop().create_task(scene.tg.aclose()))
        if with_cancel:
            cancel(scene)

    async def tolerant(scene: Scene) -> None:
        with suppress(tangram.UsageError, ShutdownError):
            await scenario(scene)
        for task in scene.victims:
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is not None:
                assert isinstance(task.exception(), (tangram.UsageError, ShutdownError)), task.exception()
        for closer in closers:
            await closer
        closers.clear()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)
            for other in others:
                if not other.cancelled():
                    other.exception()
        await turns(6)

    at_every_step(
        tolerant,
        pool=lambda: CountingPool(create_s=0.25, close_s=0.25, clean_s=0.125),
        quotas=[Quota("api", concurrency=2)],
        strike=strike,
    )


@virtual
async def test_whoever_was_held_up_by_a_cancelled_call_starts_at_once() -> None:
    """Nothing else happens that could make the scheduler look again."""
    pool = CountingPool(cores=4)
    async with Tangram(pool) as tg:
        first = asyncio.create_task(single(100))
        await turns(5)
        big = asyncio.create_task(whole.with_options(queue_timeout=50)())
        await turns(5)
        small = asyncio.create_task(single(1))
        await asyncio.sleep(1)
        assert tg.statistics().waiting == 2
        big.cancel()
        assert await small == "done"
        assert asyncio.get_running_loop().time() == 2
        assert not [timer for timer in virtual_loop().timers() if timer.when() == 50], "its deadline is forgotten"
        await first
        assert_idle(tg)


@virtual
async def test_whoever_was_held_up_by_a_cancelled_trajectory_starts_at_once() -> None:
    async with Tangram(CountingPool(cores=4, memory_gib=4)) as tg:
        first = asyncio.create_task(hold_memory(2))
        await turns(5)
        big = asyncio.create_task(tangram.trajectory(memory_gib=3).__aenter__())
        await turns(5)
        small = asyncio.create_task(hold_memory(1))
        await asyncio.sleep(1)
        assert tg.statistics().waiting == 2
        big.cancel()
        await small
        assert asyncio.get_running_loop().time() == 11
        await first
        assert_idle(tg)


async def hold_memory(memory_gib: float) -> None:
    async with tangram.trajectory(memory_gib=memory_gib):
        await asyncio.sleep(10 if memory_gib == 1 else 100)
