"""What a body sees: its allocation, its quotas, and nothing once it has ended."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import (
    Allocation,
    ConfigurationError,
    InfeasibleError,
    NoActionError,
    Quota,
    Tangram,
    current_allocation,
    current_quota,
)
from arl_tangram.managers.quota import QuotaHandle, parse_retry_after
from arl_tangram.testing import assert_idle
from counting_pools import CountingPool
from virtual_time import virtual


def now_s() -> float:
    return asyncio.get_running_loop().time()


@tangram.action(cpu=tangram.Elastic(1, 4), memory_gib=1.5, quota={"api": 2})
async def everything() -> Allocation:
    return current_allocation()


@tangram.action(cpu=0.5)
async def half() -> Allocation:
    return current_allocation()


@tangram.action()
async def nothing() -> Allocation:
    return current_allocation()


@tangram.action(quota={"api": 1})
async def call_api(retry_after: Any = None) -> float:
    if retry_after is not None:
        current_quota("api").retry_after(retry_after)
    return now_s()


@virtual
async def test_the_allocation_is_what_was_granted() -> None:
    async with Tangram(CountingPool(cores=3), Quota("api", concurrency=4)) as tg:
        assert await everything() == Allocation(cores=3, memory_gib=1.5, quota={"api": 2}, max_units=3)
        assert await half() == Allocation(cores=0.5, max_units=1)
        assert await nothing() == Allocation()
        assert_idle(tg)


@virtual
async def test_outside_of_a_body_there_is_none() -> None:
    async with Tangram(CountingPool()):
        for look in (current_allocation, tangram.current_sandbox, lambda: current_quota("api")):
            with pytest.raises(NoActionError, match="outside the body of an action"):
                look()


@virtual
async def test_what_a_body_leaves_behind_sees_no_allocation() -> None:
    ended = asyncio.Event()
    seen: list[str] = []

    async def left_behind() -> None:
        assert current_allocation().cores == 1
        await ended.wait()
        for look in (current_allocation, tangram.current_sandbox, lambda: current_quota("api")):
            with pytest.raises(NoActionError, match="leaves left behind"):
                look()
        seen.append("ended")
        await nothing()  # it may call actions: it is no part of one any more

    @tangram.action(cpu=1)
    async def leaves() -> None:
        tasks.append(asyncio.create_task(left_behind()))
        await asyncio.sleep(1)

    tasks: list[asyncio.Task[None]] = []
    async with Tangram(CountingPool()) as tg:
        await leaves()
        ended.set()
        await tasks[0]
        assert seen == ["ended"]
        assert_idle(tg)


async def test_threads_of_a_body_see_it_with_its_context_only() -> None:
    @tangram.action(cpu=2)
    async def spreads() -> tuple[float, float]:
        direct = await asyncio.to_thread(current_allocation)
        executor = ThreadPoolExecutor(1)
        with pytest.raises(NoActionError):
            await asyncio.get_running_loop().run_in_executor(executor, current_allocation)
        executor.shutdown(wait=False)
        inner = await asyncio.gather(asyncio.to_thread(current_allocation))
        return direct.cores, inner[0].cores

    @tangram.action(cpu=3)
    def on_a_thread() -> float:
        return current_allocation().cores

    async with Tangram(CountingPool()) as tg:
        assert await spreads() == (2, 2)
        assert await on_a_thread() == 3
        assert_idle(tg)


@virtual
async def test_what_a_body_sets_in_its_context_stays_there() -> None:
    from contextvars import ContextVar

    var = ContextVar("var", default="outer")

    @tangram.action()
    async def sets() -> str:
        before = var.get()
        var.set("inner")
        return before

    async with Tangram():
        var.set("caller")
        assert await sets() == "caller"
        assert var.get() == "caller"


@virtual
async def test_a_quota_that_is_not_held_has_no_handle() -> None:
    @tangram.action(quota={"api": 1})
    async def asks() -> None:
        current_quota("other")

    async with Tangram(Quota("api", concurrency=1), Quota("other", concurrency=1)) as tg:
        with pytest.raises(InfeasibleError, match=r"asks holds no quota 'other'"):
            await asks()
        assert_idle(tg)


@virtual
async def test_a_rate_is_a_sliding_window() -> None:
    async with Tangram(Quota("api", calls=3, period_s=10)) as tg:
        times = await asyncio.gather(*(call_api() for _ in range(7)))
        assert times == [0, 0, 0, 10, 10, 10, 20]
        await asyncio.sleep(5)
        assert await call_api() == 25
        assert tg.statistics().dimensions["quota:api/calls"].used == 2


@virtual
async def test_calls_and_concurrency_are_granted_together() -> None:
    most = running = 0

    @tangram.action(quota={"api": 1})
    async def slow() -> float:
        nonlocal most, running
        running += 1
        most = max(most, running)
        begun_s = now_s()
        await asyncio.sleep(4)
        running -= 1
        return begun_s

    async with Tangram(Quota("api", calls=3, period_s=10, concurrency=2)) as tg:
        assert await asyncio.gather(*(slow() for _ in range(6))) == [0, 0, 4, 10, 10, 14]
        assert most == 2
        assert tg.statistics().dimensions["quota:api/concurrency"].used == 0


@pytest.mark.parametrize("value", [5, 5.5, "5", " 5.25 "], ids=repr)
@virtual
async def test_after_retry_after_nothing_is_granted_until_then(value: Any) -> None:
    async with Tangram(Quota("api", concurrency=2)) as tg:
        await asyncio.sleep(1)
        assert await call_api(value) == 1
        assert await asyncio.gather(call_api(), call_api(), call_api()) == [1 + float(value)] * 3
        assert_idle(tg)


@virtual
async def test_the_latest_retry_after_counts_and_zero_means_now() -> None:
    async with Tangram(Quota("api", concurrency=4)) as tg:
        await asyncio.gather(call_api(8), call_api(3), call_api("0"))
        assert await call_api() == 8
        assert await call_api(0) == 8
        assert await call_api() == 8
        assert_idle(tg)


@virtual
async def test_retry_after_holds_at_once_for_those_who_are_granted_in_the_same_turn() -> None:
    """One call ends while another is told to wait: the end must not let a third through."""
    told = asyncio.Event()

    @tangram.action(quota={"api": 1})
    async def ends() -> None:
        await told.wait()

    @tangram.action(quota={"api": 1})
    async def is_told() -> None:
        await told.wait()
        current_quota("api").retry_after(5)

    async with Tangram(Quota("api", concurrency=2)) as tg:
        first, second = asyncio.create_task(ends()), asyncio.create_task(is_told())
        await asyncio.sleep(1)
        third = asyncio.create_task(call_api())
        await asyncio.sleep(1)
        told.set()
        await asyncio.gather(first, second)
        assert await third == 7
        assert_idle(tg)


@virtual
async def test_more_than_an_hour_counts_as_an_hour() -> None:
    async with Tangram(Quota("api", concurrency=1)):
        await call_api(1e9)
        assert await call_api() == 3600


@pytest.mark.parametrize(
    "value",
    [-1, "-5", "nan", math.nan, "inf", math.inf, "soon", "", None, [], b"\xff", 10**400, "1" * 400],
    ids=lambda value: repr(value)[:9],
)
def test_what_is_no_number_of_seconds_is_refused(value: Any) -> None:
    paused: list[float] = []
    with pytest.raises(ValueError, match="finite seconds"):
        QuotaHandle(paused.append).retry_after(value)
    assert not paused
    with pytest.raises(ValueError, match="finite seconds"):
        parse_retry_after(value)


async def test_retry_after_works_from_threads() -> None:
    """Of a plain body, and of a thread that an async body uses; a real fifth of a second."""

    @tangram.action(quota={"api": 1})
    def on_a_thread() -> None:
        current_quota("api").retry_after(0.2)

    @tangram.action(quota={"api": 1})
    async def from_a_thread() -> None:
        await asyncio.to_thread(lambda: current_quota("api").retry_after("0.2"))

    async with Tangram(Quota("api", concurrency=1)) as tg:
        for action in (on_a_thread, from_a_thread):
            begun_s = now_s()
            await action()
            assert await call_api() - begun_s >= 0.2
        assert_idle(tg)


def test_a_handle_that_outlives_the_loop_does_no_harm() -> None:
    @tangram.action(quota={"api": 1})
    async def leaks() -> Any:
        return current_quota("api")

    async def main() -> Any:
        async with Tangram(Quota("api", concurrency=1)):
            return await leaks()

    handle = asyncio.run(main())
    handle.retry_after(3)


@virtual
async def test_a_handle_that_outlives_the_runtime_does_no_harm() -> None:
    @tangram.action(quota={"api": 1})
    async def leaks() -> Any:
        return current_quota("api")

    async with Tangram(Quota("api", concurrency=1)):
        handle = await leaks()
    handle.retry_after(3)
    await asyncio.sleep(1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"calls": 3},
        {"period_s": 3},
        {"calls": 0, "period_s": 1},
        {"calls": -1, "period_s": 1},
        {"calls": 1.5, "period_s": 1},
        {"calls": 1, "period_s": 0},
        {"calls": 1, "period_s": math.nan},
        {"calls": 1, "period_s": math.inf},
        {"concurrency": 0},
        {"concurrency": True},
    ],
    ids=repr,
)
def test_a_wrong_quota_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="Quota"):
        Quota("api", **options)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a:b"])
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="has letters"):
        Quota(name, concurrency=1)
