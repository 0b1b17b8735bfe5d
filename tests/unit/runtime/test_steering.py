"""Pausing, draining, cancelling groups, and changing what there is while things run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import (
    ConfigurationError,
    GroupCancelledError,
    InfeasibleError,
    InfrastructureError,
    QueueTimeout,
    Quota,
    RuntimeClosedError,
    ShutdownError,
    Tangram,
    UsageError,
    current_sandbox,
)
from arl_tangram.testing import assert_idle
from counting_pools import CountingPool
from virtual_time import turns, virtual


def now_s() -> float:
    return asyncio.get_running_loop().time()


@tangram.action(cpu=1)
async def single(for_s: float = 1.0) -> str:
    await asyncio.sleep(for_s)
    return "single"


@tangram.action(cpu=3)
async def three(for_s: float = 1.0) -> str:
    await asyncio.sleep(for_s)
    return "three"


@tangram.action(cpu=1)
async def calling(for_s: float = 1.0) -> str:
    await asyncio.sleep(for_s)
    return await single(for_s)


# Pausing.


@virtual
async def test_while_paused_nothing_new_starts_and_what_runs_goes_on_with_what_it_calls() -> None:
    async with Tangram(CountingPool(cores=4)) as tg:
        running = asyncio.create_task(calling())
        await turns(6)
        tg.pause()
        waiting = asyncio.create_task(single())
        opening = asyncio.create_task(_open())
        assert await running == "single"
        assert now_s() == 2
        await asyncio.sleep(5)
        assert not waiting.done()
        assert not opening.done()
        assert tg.statistics().waiting == 2
        tg.resume()
        assert await waiting == "single"
        assert now_s() == 8
        await opening
        assert_idle(tg)


async def _open() -> None:
    async with tangram.trajectory():
        pass


@virtual
async def test_draining_waits_for_what_runs() -> None:
    async with Tangram(CountingPool(cores=1)) as tg:
        calls = [asyncio.create_task(single()) for _ in range(3)]
        await turns(6)
        await asyncio.gather(tg.drain(), tg.drain())
        assert now_s() == 1
        assert tg.statistics().running == 0
        assert tg.statistics().waiting == 2
        await tg.drain()  # nothing runs: at once
        tg.resume()
        tg.resume()
        assert await asyncio.gather(*calls) == ["single"] * 3
        assert now_s() == 3
        assert_idle(tg)


@virtual
async def test_giving_up_a_drain_leaves_the_pause() -> None:
    async with Tangram(CountingPool(cores=1)) as tg:
        calls = [asyncio.create_task(single(3)) for _ in range(2)]
        await turns(6)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await tg.drain()
        await calls[0]
        await asyncio.sleep(1)
        assert not calls[1].done()
        tg.resume()
        await calls[1]
        assert_idle(tg)


@virtual
async def test_what_would_wait_for_itself_is_refused() -> None:
    async with Tangram(CountingPool()) as tg:

        @tangram.action(cpu=1)
        async def drains() -> None:
            await tg.drain()

        @tangram.action(cpu=1)
        async def cancels_its_group() -> None:
            await tg.cancel_group("a")

        with pytest.raises(UsageError, match="wait for itself"):
            await drains()
        async with tangram.trajectory(group="a"):
            with pytest.raises(UsageError, match="end itself"):
                await cancels_its_group()
        assert_idle(tg)


@virtual
async def test_resuming_ends_a_drain_that_waits() -> None:
    async with Tangram(CountingPool(cores=1)) as tg:
        call = asyncio.create_task(single(3))
        await turns(6)
        drain = asyncio.create_task(tg.drain())
        await turns(3)
        tg.resume()
        with pytest.raises(UsageError, match="resume"):
            await drain
        assert await call == "single"
        assert_idle(tg)


@virtual
async def test_deadlines_for_waiting_go_on_in_a_pause() -> None:
    async with Tangram(CountingPool(cores=1)) as tg:
        tg.pause()
        with pytest.raises(QueueTimeout):
            await single.with_options(queue_timeout=2)()
        assert now_s() == 2
        assert_idle(tg)


@virtual
async def test_a_runtime_that_closes_ends_a_drain() -> None:
    async with Tangram(CountingPool(cores=1), kill_grace_s=1) as tg:
        calls = asyncio.create_task(_deaf())
        await turns(6)
        drain = asyncio.create_task(tg.drain())
        await turns(2)
    with pytest.raises(ShutdownError):
        await drain
    await asyncio.wait([calls])
    assert isinstance(calls.exception(), ShutdownError)
    await asyncio.sleep(10)
    for call in (tg.pause, tg.resume):
        with pytest.raises(RuntimeClosedError):
            call()
    with pytest.raises(RuntimeClosedError):
        await tg.drain()


@tangram.action(cpu=1)
async def _deaf() -> None:
    end_s = now_s() + 8
    while (left_s := end_s - now_s()) > 0:
        try:
            await asyncio.sleep(left_s)
        except asyncio.CancelledError:
            continue


# Groups.


@virtual
async def test_cancelling_a_group_ends_all_its_actions_and_no_others() -> None:
    pool = CountingPool(cores=2, memory_gib=8)
    async with Tangram(pool) as tg:
        outcomes: dict[str, Any] = {}

        async def rollout(name: str, group: str | None, memory_gib: float = 1) -> None:
            try:
                async with tangram.trajectory(group=group, memory_gib=memory_gib):
                    try:
                        await asyncio.gather(single(5), single(5))
                    except GroupCancelledError:
                        with pytest.raises(GroupCancelledError, match="cancelled group"):
                            await single()
                        raise
                outcomes[name] = now_s()
            except InfrastructureError as error:
                outcomes[name] = type(error)

        tasks = [
            asyncio.create_task(rollout("a1", "a")),
            asyncio.create_task(rollout("a2", "a")),
            asyncio.create_task(rollout("b", "b")),
            asyncio.create_task(rollout("none", None)),
            asyncio.create_task(rollout("a waits", "a", memory_gib=6)),
        ]
        await asyncio.sleep(1)
        assert await tg.cancel_group("a") == 4
        assert now_s() == 1
        await asyncio.gather(*tasks)
        assert outcomes["a1"] == outcomes["a2"] == outcomes["a waits"] == GroupCancelledError
        assert outcomes["b"] == outcomes["none"] == 11
        assert await tg.cancel_group("a") == 0
        await rollout("again", "a")
        assert outcomes["again"] > 11
        assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_a_group_can_be_cancelled_while_its_sandboxes_are_made() -> None:
    pool = CountingPool(create_s=2.0, close_s=0.5)
    async with Tangram(pool) as tg:
        opening = [asyncio.create_task(_enter("a")) for _ in range(3)]
        await asyncio.sleep(1)
        assert await tg.cancel_group("a") == 0
        for task in opening:
            with pytest.raises(GroupCancelledError):
                await task
        assert_idle(tg)
        assert pool.is_whole


async def _enter(group: str) -> None:
    async with tangram.trajectory(group=group):
        await single()


@virtual
async def test_cancelling_a_group_waits_for_bodies_that_listen_and_not_for_others() -> None:
    async with Tangram(CountingPool(cores=2), kill_grace_s=1) as tg:

        async def rollout() -> None:
            async with tangram.trajectory(group="a"):
                await _deaf()

        task = asyncio.create_task(rollout())
        await turns(8)
        assert await tg.cancel_group("a") == 1
        assert now_s() == 1
        with pytest.raises(GroupCancelledError):
            await task
        assert tg.statistics().lingering == (_deaf.spec.name,)
        await asyncio.sleep(10)
        assert_idle(tg)


@pytest.mark.parametrize("group", [None, "", 5, ["a"]])
@virtual
async def test_what_is_no_name_of_a_group_is_refused(group: Any) -> None:
    async with Tangram(CountingPool()) as tg:
        async with tangram.trajectory():
            with pytest.raises(UsageError, match="cancel_group"):
                await tg.cancel_group(group)
            assert await single() == "single"
        if group is not None:
            with pytest.raises(ConfigurationError, match="group="):
                tangram.trajectory(group=group)
        assert_idle(tg)


# Changing what there is.


@virtual
async def test_more_cores_are_used_at_once_and_fewer_as_they_return() -> None:
    pool = CountingPool(cores=2)
    async with Tangram(pool) as tg:
        calls = [asyncio.create_task(single(4)) for _ in range(8)]
        await turns(6)
        assert tg.statistics().running == 2
        tg.set_capacity("cpu", 4)
        await turns(3)
        assert tg.statistics().running == 4
        await asyncio.sleep(1)
        tg.set_capacity("cpu", 1)
        cpu = tg.statistics().dimensions["cpu"]
        assert (cpu.capacity, cpu.used, cpu.free) == (4, 4, 0)  # what is in use stays until it returns
        await asyncio.gather(*calls[:4])
        await turns(6)
        assert tg.statistics().running == 1
        assert tg.statistics().dimensions["cpu"].capacity == 1
        tg.set_capacity("cpu", 3)
        await asyncio.gather(*calls)
        assert_idle(tg)
        assert pool.made.milli_free == 3000


@virtual
async def test_cores_that_go_and_come_back_by_themselves_count_at_once() -> None:
    """What a manager tells of itself: running calls go on, and waiting ones start as there are cores."""
    pool = CountingPool(cores=3)
    async with Tangram(pool) as tg:
        calls = [asyncio.create_task(single()) for _ in range(9)]
        await turns(6)
        pool.made.resize("cpu", 2000)
        pool.made.tell_capacity("cpu", 2000)
        await turns(3)
        assert tg.statistics().running == 3
        await asyncio.sleep(1.5)
        assert (tg.statistics().running, tg.statistics().dimensions["cpu"].capacity) == (2, 2)
        pool.made.resize("cpu", 3000)
        pool.made.tell_capacity("cpu", 3000)
        await turns(3)
        assert tg.statistics().running == 3
        assert await asyncio.gather(*calls) == ["single"] * 9
        assert_idle(tg)
    pool.made.tell_capacity("cpu", 1000)  # which nobody hears any more


@virtual
async def test_who_waits_for_more_than_there_will_be_is_told() -> None:
    async with Tangram(CountingPool(cores=4)) as tg:
        running = asyncio.create_task(three(5))
        await turns(6)
        waiting = asyncio.create_task(three())
        elastic = asyncio.create_task(_elastic())
        await turns(3)
        tg.set_capacity("cpu", 2)
        with pytest.raises(InfeasibleError, match=r"three.*3.*cpu.*2"):
            await waiting
        assert now_s() == 0
        assert await running == "three"
        assert await elastic <= 2
        with pytest.raises(InfeasibleError):
            await three()
        tg.set_capacity("cpu", 3)
        assert await three() == "three"
        assert_idle(tg)


@tangram.action(cpu=tangram.Elastic(2, 4))
async def _elastic() -> float:
    await asyncio.sleep(1)
    return tangram.current_allocation().cores


@virtual
async def test_quotas_threads_and_memory_change_too() -> None:
    @tangram.action(quota={"api": 1})
    async def call_api() -> float:
        return now_s()

    async with Tangram(CountingPool(memory_gib=4), Quota("api", calls=1, period_s=10)) as tg:
        assert await asyncio.gather(call_api(), call_api()) == [0, 10]
        tg.set_capacity("quota:api/calls", 3)
        assert await asyncio.gather(*(call_api() for _ in range(4))) == [10, 10, 20, 20]
        with pytest.raises(InfeasibleError):
            tangram.trajectory(memory_gib=6)
        tg.set_capacity("memory", 8)
        async with tangram.trajectory(memory_gib=6):
            pass
        tg.set_capacity("threads", 1)
        assert tg.statistics().dimensions["threads"].capacity == 1


@virtual
async def test_a_call_goes_to_a_key_that_still_has_enough() -> None:
    @tangram.action(quota={"api": 2})
    async def call_api() -> str | None:
        return tangram.current_quota("api").key

    async with Tangram(CountingPool(), Quota("api", calls=4, period_s=1, keys=("a", "b"))) as tg:
        assert {await call_api() for _ in range(4)} == {"a", "b"}
        tg.set_capacity("quota:api#1/calls", 1)
        assert [await call_api() for _ in range(3)] == ["b"] * 3
        tg.set_capacity("quota:api#2/calls", 1)
        with pytest.raises(InfeasibleError, match="api"):
            await call_api()
        tg.set_capacity("quota:api#1/calls", 2)
        assert await call_api() == "a"
        assert_idle(tg)


@pytest.mark.parametrize(
    ("name", "capacity", "says"),
    [
        ("gpu", 1, "no resource 'gpu'"),
        (["cpu"], 1, "no resource"),
        ("cpu", 0, "cpu"),
        ("cpu", -1, "cpu"),
        ("cpu", 1.5, "whole"),
        ("cpu", float("nan"), "cpu"),
        ("cpu", "many", "cpu"),
        ("threads", 0, "threads"),
        ("threads", 1.5, "threads"),
        ("quota:api/calls", 0, "calls"),
        ("memory", True, "memory"),
    ],
)
@virtual
async def test_a_capacity_that_cannot_be_is_refused(name: Any, capacity: Any, says: str) -> None:
    async with Tangram(CountingPool(cores=2), Quota("api", calls=1, period_s=10)) as tg:
        before = tg.statistics()
        with pytest.raises(ConfigurationError, match=says):
            tg.set_capacity(name, capacity)
        assert tg.statistics() == before


@virtual
async def test_resizing_while_actions_are_being_granted_keeps_the_manager_in_step() -> None:
    pool = CountingPool(cores=8)
    async with Tangram(pool) as tg:

        async def rollout(n: int) -> None:
            async with tangram.trajectory():
                for _ in range(4):
                    await _in_sandbox(0.1 * (1 + n % 3))

        tasks = [asyncio.create_task(rollout(n)) for n in range(12)]
        for cores in (3, 8, 1, 5, 2, 7) * 4:
            await asyncio.sleep(0.05)
            tg.set_capacity("cpu", cores)
            await turns(1)
            tg.set_capacity("cpu", cores + 1)
        await asyncio.gather(*tasks)
        assert_idle(tg)
        assert pool.made.milli_free == 8000


@virtual
async def test_a_trajectory_that_waits_for_more_than_there_will_be_is_told() -> None:
    async with Tangram(CountingPool(memory_gib=64)) as tg:
        async with tangram.trajectory(memory_gib=30):
            opening = asyncio.create_task(_enter_with_memory(40))
            await turns(4)
            tg.set_capacity("memory", 32)
            with pytest.raises(InfeasibleError, match="trajectory asks for 40"):
                await opening
        assert_idle(tg)


async def _enter_with_memory(memory_gib: float) -> None:
    async with tangram.trajectory(memory_gib=memory_gib):
        pass


@virtual
async def test_reserved_cores_stay_with_their_trajectory_though_the_pool_becomes_smaller() -> None:
    pool = CountingPool(cores=4)
    async with Tangram(pool, policy=tangram.policies.reserved(2)) as tg:
        async with tangram.trajectory():
            tg.set_capacity("cpu", 1)
            assert [await single() for _ in range(3)] == ["single"] * 3
        assert_idle(tg)


@virtual
async def test_a_body_has_its_cores_back_though_the_pool_was_made_smaller_meanwhile() -> None:
    @tangram.action(cpu=4)
    async def lends() -> tuple[float, float]:
        await single(2)
        return tangram.current_allocation().cores, tg.statistics().dimensions["cpu"].used

    pool = CountingPool(cores=4)
    async with Tangram(pool) as tg:
        lending = asyncio.create_task(lends())
        await asyncio.sleep(1)
        tg.set_capacity("cpu", 2)
        assert await lending == (4, 4)
        assert_idle(tg)
        assert tg.statistics().dimensions["cpu"].capacity == 2
        assert pool.made.milli_free == 2000


@tangram.action(cpu=1)
async def _in_sandbox(for_s: float) -> None:
    await current_sandbox().exec(["x"])
    await asyncio.sleep(for_s)
