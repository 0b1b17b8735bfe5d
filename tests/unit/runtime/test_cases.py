"""Faults of others, as scenarios: each test is named after the case that it re-tells.

Cases 1, 3 and 5 are in test_cancellation.py, 9 in test_timeouts.py, 26 in test_mapping.py, 50 in
test_active_action.py, 30 and 49 in tests/integration.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import Elastic, QueueTimeout, Quota, RunTimeout, Tangram, policies
from arl_tangram.testing import assert_idle
from unit.runtime.pools import CountingPool
from unit.runtime.virtual import turns, until, virtual, virtual_loop


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


@virtual
async def test_case_7_callers_that_give_up_leave_nothing_in_the_queue() -> None:
    pool = CountingPool()
    impatient = whole.with_options(queue_timeout=0.01)
    async with Tangram(pool) as tg:
        first = asyncio.create_task(whole(5))
        await asyncio.sleep(0.5)
        calls = [asyncio.create_task(impatient()) for _ in range(1000)]
        await turns(2)
        assert tg.statistics().waiting == 1000
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, QueueTimeout) for result in results)
        assert now_s() == pytest.approx(0.51)
        assert tg.statistics().waiting == 0
        await first
        assert await whole(1) == 5, "a fresh call is served at once"
        assert_idle(tg)
        assert pool.is_whole


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
        assert sum(isinstance(thing, asyncio.TimerHandle) for thing in gc.get_objects()) < 1000


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


async def test_case_18_a_plain_body_never_runs_on_the_loop() -> None:
    """The loop turns a thousand times while eight bodies block, each until it is told to go on."""
    release = threading.Event()
    threads: set[int] = set()

    @tangram.action(cpu=1)
    def slow() -> None:
        threads.add(threading.get_ident())
        assert release.wait(60)

    async with Tangram(CountingPool(cores=8)) as tg:
        calls = [asyncio.create_task(slow()) for _ in range(8)]
        await turns(1000)
        release.set()
        await asyncio.gather(*calls)
        assert len(threads) == 8
        assert threading.get_ident() not in threads
        assert_idle(tg)


async def test_case_20_a_full_default_executor_is_no_obstacle() -> None:
    release = threading.Event()
    loop = asyncio.get_running_loop()

    @tangram.action(timeout=30)
    def tool() -> str:
        return threading.current_thread().name

    async with Tangram() as tg:
        try:
            blocked = [loop.run_in_executor(None, release.wait) for _ in range(64)]
            assert await tool() == "arl_tangram body"
            assert "tool" in tg.report()
        finally:
            release.set()
            await asyncio.gather(*blocked)
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
    gc.freeze()  # the collections below look at what this test makes, not at the whole test run
    try:
        async with Tangram(CountingPool(cores=64)) as tg:
            calls = {asyncio.create_task(work(number)) for number in range(1000)}
            while not all(call.done() for call in calls):
                gc.collect()
                await asyncio.sleep(0)
            assert sorted(finished) == list(range(1000))
            assert_idle(tg)
    finally:
        gc.unfreeze()


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
async def test_case_52_small_ones_pass_a_big_one_and_do_not_starve_it() -> None:
    """Six of eight cores run for 5 s; a big call for all eight waits; small ones keep coming."""

    @tangram.action(cpu=6)
    async def long() -> None:
        await asyncio.sleep(5)

    @tangram.action(cpu=8)
    async def big() -> float:
        return now_s()

    async with Tangram(CountingPool(cores=8), Quota("api", concurrency=1)) as tg:
        first = asyncio.create_task(long())
        await turns(5)
        waits = asyncio.create_task(big())
        small: list[asyncio.Task[float]] = []
        for _ in range(100):
            small.append(asyncio.create_task(hold(0.1)))
            small.append(asyncio.create_task(call_api()))
            await asyncio.sleep(0.1)
        begun_s = await asyncio.gather(*small)
        assert await waits <= 5 + 0.1, "one small duration after it first could fit"
        assert begun_s[1] == 0, "who wants nothing that it waits for passes it"
        await first
        assert_idle(tg)


@tangram.action(quota={"api": 1})
async def call_api() -> float:
    return now_s()


@virtual
async def test_case_56_who_is_deferred_keeps_its_place() -> None:
    """A stream of newcomers, each of which would gain more; the wait of the deferred one stays bounded."""

    @tangram.action(cpu=Elastic(1, 4, speedup=tangram.Linear()), duration_s=100)
    async def patient() -> float:
        return now_s()

    @tangram.action(cpu=Elastic(1, 4, speedup=tangram.Linear()), duration_s=1)
    async def quick() -> None:
        await asyncio.sleep(1 / tangram.current_allocation().cores)

    for policy in (policies.paper(), policies.paper(best_prefix=True)):
        async with Tangram(CountingPool(cores=4), policy=policy) as tg:
            base_s = now_s()
            quicks = [asyncio.create_task(quick()) for _ in range(4)]
            await turns(5)
            waits = asyncio.create_task(patient())
            for _ in range(50):
                quicks += [asyncio.create_task(quick()) for _ in range(3)]
                await asyncio.sleep(0.25)
            assert await waits - base_s <= 2
            await asyncio.gather(*quicks)
            assert_idle(tg)


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
async def test_case_64_fractions_are_exact() -> None:
    @tangram.action(cpu=0.1)
    async def tenth() -> float:
        return await hold.body(1)

    @tangram.action(cpu=0.2)
    async def fifth() -> float:
        return await hold.body(1)

    pool = CountingPool(cores=1)
    async with Tangram(pool) as tg:
        filler = asyncio.create_task(tangram.action(cpu=0.7)(hold.body)(1))
        assert await asyncio.gather(tenth(), fifth()) == [0, 0], "0.1 + 0.2 + 0.7 fits 1"
        await filler
        for _ in range(300):
            await asyncio.gather(*(tangram.run(tenth) for _ in range(3)))
        assert tg.statistics().dimensions["cpu"].free == 1
        assert pool.made.milli_free == 1000
        assert_idle(tg)


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
