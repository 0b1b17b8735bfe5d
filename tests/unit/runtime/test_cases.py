"""Faults of others, as scenarios: each test is named after the case that it re-tells; more are in `cases`."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import QueueTimeout, Quota, RunTimeout, Tangram
from arl_tangram.testing import assert_idle
from counting_pools import CountingPool
from virtual_time import turns, until, virtual, virtual_loop


def now_s() -> float:
    return asyncio.get_running_loop().time()


@tangram.action(cpu=1)
async def hold(for_s: float = 1.0) -> float:
    begun_s = now_s()
    await asyncio.sleep(for_s)
    return begun_s


@tangram.action(cpu=4)
async def whole(for_s: float = 1.0) -> float:
    begun_s = now_s()
    await asyncio.sleep(for_s)
    return begun_s


def scheduled_timers(loop: Any) -> int:
    return len(loop._scheduled)


@pytest.mark.parametrize("options", [{"timeout": 3600.0}, {"queue_timeout": 3600.0}], ids=repr)
async def test_case_11_long_deadlines_of_short_calls_leave_no_timers(options: dict[str, float]) -> None:
    @tangram.action(cpu=1)
    async def noop() -> None: ...

    brief = noop.with_options(**options)
    most = 0
    async with Tangram(CountingPool(cores=100)) as tg:
        for _ in range(5):
            await asyncio.gather(*(brief() for _ in range(1000)))
            most = max(most, scheduled_timers(asyncio.get_running_loop()))
        for _ in range(1500):
            await brief()
        most = max(most, scheduled_timers(asyncio.get_running_loop()))
        assert most < 1000
        assert_idle(tg)
        assert len(tg._core._deadlines) < 1000, "nor does the scheduler remember them"
        gc.collect()
        # By type: what isinstance asks of objects of others (torch) may warn.
        assert sum(type(thing) is asyncio.TimerHandle for thing in gc.get_objects()) < 1000


async def test_case_16_a_thread_that_is_stuck_keeps_its_units_visibly() -> None:
    release = threading.Event()

    @tangram.action(cpu=2, timeout=0.1)
    def stuck() -> str:
        release.wait()
        return "late"

    pool = CountingPool(cores=4)
    async with Tangram(pool) as tg:
        try:
            begun_s = now_s()
            with pytest.raises(RunTimeout, match=r"0\.1 s"):
                await stuck()
            assert 0.1 <= now_s() - begun_s < 2, "the caller is answered on time, not after the grace time"
            state = tg.statistics()
            assert state.lingering == (stuck.spec.name,)
            assert state.dimensions["cpu"].used == 2
            assert state.dimensions["threads"].used == 1
            assert pool.made.milli_free == 2000
            assert await hold(0), "the rest is usable"
            cancelled = asyncio.create_task(stuck.with_options(timeout=None)())
            await asyncio.sleep(0.05)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert len(tg.statistics().lingering) == 2
            waits = asyncio.create_task(whole(0))
            await asyncio.sleep(0.05)
            assert tg.statistics().waiting == 1, "what is stuck is not given to others"
        finally:
            release.set()
        await waits
        assert_idle(tg)
        assert pool.is_whole


async def test_case_16_stuck_threads_are_bounded() -> None:
    release = threading.Event()

    @tangram.action(timeout=0.05)
    def stuck() -> None:
        release.wait()

    @tangram.action(queue_timeout=0.1)
    def other() -> str:
        return "done"

    async with Tangram(max_threads=2) as tg:
        try:
            await asyncio.gather(stuck(), stuck(), return_exceptions=True)
            assert tg.statistics().dimensions["threads"].free == 0
            with pytest.raises(QueueTimeout):
                await other()
        finally:
            release.set()
        assert await other.with_options(queue_timeout=10)() == "done"
        await until(lambda: tg.statistics().running == 0)  # the second one that was released may be a moment late
        assert_idle(tg)


@virtual
async def test_case_22_waiting_for_a_quota_is_a_real_await() -> None:
    """A ticker ticks all the time while ten calls wait for three per three seconds."""

    @tangram.action(quota={"api": 1})
    async def call() -> float:
        return now_s()

    ticks: list[float] = []

    async def ticker() -> None:
        while now_s() < 9:
            ticks.append(now_s())
            await asyncio.sleep(0.125)

    async with Tangram(Quota("api", calls=3, period_s=3)):
        ticking = asyncio.create_task(ticker())
        assert await asyncio.gather(*(call() for _ in range(10))) == [0] * 3 + [3] * 3 + [6] * 3 + [9]
        await ticking
    assert ticks == [0.125 * tick for tick in range(72)]


async def test_case_36_nothing_that_runs_is_collected() -> None:
    """Fire and forget, with a collection in every turn; only the caller's own task is the caller's to keep."""
    finished: list[int] = []

    @tangram.action(cpu=1, timeout=60, queue_timeout=60)
    async def work(number: int) -> None:
        await asyncio.sleep(0)
        finished.append(number)

    gc.collect()
    gc.freeze()  # the collections below look at what this test makes, not at what earlier ones have imported
    async with Tangram(CountingPool(cores=64)) as tg:
        calls = {asyncio.create_task(work(number)) for number in range(1000)}
        while not all(call.done() for call in calls):
            gc.collect()
            await asyncio.sleep(0)
        assert sorted(finished) == list(range(1000))
        assert_idle(tg)


@virtual
async def test_case_36_a_body_whose_caller_is_gone_is_kept_to_its_end() -> None:
    """A deaf body is referenced by the runtime alone while it lingers."""
    ended: list[float] = []

    @tangram.action(timeout=1)
    async def deaf() -> None:
        while now_s() < 30:
            try:
                await asyncio.sleep(30 - now_s())
            except asyncio.CancelledError:
                continue
        ended.append(now_s())

    async with Tangram(CountingPool(clean_s=1)) as tg:
        with pytest.raises(RunTimeout):
            await deaf()
        for _ in range(10):
            gc.collect()
            await asyncio.sleep(1)
        await asyncio.sleep(20)
        assert ended == [30]
        assert_idle(tg)


@virtual
async def test_case_47_the_same_call_can_be_made_twice_at_once() -> None:
    async with Tangram(CountingPool(cores=2)) as tg:
        assert await asyncio.gather(hold(1), hold(1)) == [0, 0]

        async def in_one_task() -> list[float]:
            return [await hold(1), await hold(1)]

        assert await in_one_task() == [1, 2]
        keyed = tangram.action(cpu=1, key=lambda: "same")(noop_body)
        await asyncio.gather(*(keyed() for _ in range(5)))
        assert_idle(tg)


async def noop_body() -> None: ...


@virtual
async def test_case_58_each_grant_wakes_one_waiter() -> None:
    """A waiter that is woken in vain would cost steps: with 500 or with 1,500 waiting, a grant costs the same."""

    @tangram.action(quota={"api": 1})
    async def call() -> None: ...

    steps: list[float] = []
    for waiting in (500, 1500):
        async with Tangram(Quota("api", calls=100, period_s=1)) as tg:
            calls = [asyncio.create_task(call()) for _ in range(waiting)]
            await turns(5)
            assert tg.statistics().waiting == waiting - 100
            before, at_s = virtual_loop().step, now_s()
            await asyncio.gather(*calls)
            assert now_s() - at_s == pytest.approx(waiting / 100 - 1)
            steps.append((virtual_loop().step - before) / (waiting - 100))
            await asyncio.sleep(2)
    assert steps[1] <= steps[0] * 1.05
    assert steps[1] < 8, "a step each for the body, its end, its caller, and what the caller's gather does"


@virtual
async def test_case_68_concurrency_is_bounded_before_the_client_is_entered() -> None:
    inside = most = 0

    @tangram.action(quota={"judge": 1})
    async def judge() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(1)
        inside -= 1

    async with Tangram(Quota("judge", concurrency=256)) as tg:
        await asyncio.gather(*(judge() for _ in range(4096)))
        assert most == 256
        assert now_s() == 16
        assert_idle(tg)


def test_case_49_a_thread_that_ends_after_the_loop_does_no_harm() -> None:
    release = threading.Event()
    ended = threading.Event()

    @tangram.action()
    def late() -> None:
        release.wait()
        ended.set()

    async def main() -> None:
        async with Tangram() as tg:
            call = asyncio.create_task(late())
            await until(lambda: tg.statistics().running == 1)
        with pytest.raises(tangram.ShutdownError):
            await call

    begun_s = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - begun_s < 5
    assert not ended.is_set()
    release.set()
    assert ended.wait(10)
