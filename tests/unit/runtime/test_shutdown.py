"""Leaving the runtime: who waits or runs gets `ShutdownError`, and it takes bounded time whatever bodies do."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

import arl_tangram as tangram
from arl_tangram import InfrastructureError, RuntimeClosedError, ShutdownError, Tangram
from arl_tangram.testing import assert_idle
from arl_tangram.trace.sink import MemorySink
from counting_pools import CountingPool
from virtual_time import turns, until, virtual


def now_s() -> float:
    return asyncio.get_running_loop().time()


@tangram.action(cpu=2)
async def sleep(for_s: float) -> str:
    await asyncio.sleep(for_s)
    return "done"


@tangram.action(cpu=1)
async def deaf(for_s: float) -> str:
    end_s = now_s() + for_s
    while now_s() < end_s:
        try:
            await asyncio.sleep(end_s - now_s())
        except asyncio.CancelledError:
            continue
    return "late"


class Sink(MemorySink):
    """Say whether it was closed."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


@virtual
async def test_callers_that_wait_or_run_are_told() -> None:
    pool = CountingPool(cores=4, clean_s=0.5)
    sink = Sink()
    async with Tangram(pool, trace=sink) as tg:
        calls = [asyncio.create_task(sleep(100)) for _ in range(5)]
        await asyncio.sleep(1)
    assert now_s() == 1.5
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [ShutdownError] * 5
    assert isinstance(results[0], InfrastructureError)
    assert sorted(str(result).rsplit(" ", 1)[1] for result in results) == ["running"] * 2 + ["waiting"] * 3
    assert pool.is_whole
    assert pool.made.closed
    assert sink.closed == 1
    assert not tg.is_open
    assert (tg.statistics().running, tg.statistics().waiting) == (0, 0)
    with pytest.raises(RuntimeClosedError):
        await tg.run(sleep, 1)


@virtual
async def test_leaving_by_an_exception_passes_it_on() -> None:
    calls: list[asyncio.Task[str]] = []

    async def fails() -> None:
        async with Tangram(CountingPool()):
            calls.append(asyncio.create_task(sleep(10)))
            await asyncio.sleep(1)
            raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        await fails()
    with pytest.raises(ShutdownError):
        await calls[0]


@virtual
async def test_deaf_bodies_are_left_in_bounded_time_and_named(caplog: pytest.LogCaptureFixture) -> None:
    pool = CountingPool(cores=4)
    with caplog.at_level(logging.WARNING):
        async with Tangram(pool, kill_grace_s=2) as tg:
            calls = [asyncio.create_task(deaf(60)) for _ in range(3)]
            await asyncio.sleep(1)
        closed_s = now_s()
    assert closed_s <= 1 + 2 + 5 + 1
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [ShutdownError] * 3
    assert caplog.messages == [f"{deaf.spec.name} outlives the runtime; what it runs was not ended"] * 3
    assert tg.statistics().lingering == (deaf.spec.name,) * 3
    await asyncio.sleep(70)
    assert tg.statistics().running == 0, "their late end does no harm"
    assert pool.is_whole


@virtual
async def test_a_body_that_needs_a_while_is_waited_for() -> None:
    ended: list[float] = []

    @tangram.action(cpu=1)
    async def tidies_up() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1.5)
            ended.append(now_s())

    async with Tangram(CountingPool(), kill_grace_s=2):
        call = asyncio.create_task(tidies_up())
        await asyncio.sleep(1)
    assert now_s() == 2.5
    assert ended == [2.5]
    with pytest.raises(ShutdownError):
        await call


@virtual
async def test_closing_twice_or_at_once_closes_once() -> None:
    pool = CountingPool(clean_s=1)
    sink = Sink()
    tg = await Tangram(pool, trace=sink).__aenter__()
    call = asyncio.create_task(sleep(100))
    await asyncio.sleep(1)
    closers = [asyncio.create_task(tg.aclose()) for _ in range(3)]
    await turns(2)
    with pytest.raises(RuntimeClosedError, match="closing"):
        await tg.run(sleep, 1)
    await asyncio.gather(*closers)
    assert now_s() == 2
    await tg.aclose()
    await tg.__aexit__(None, None, None)
    assert sink.closed == 1
    with pytest.raises(ShutdownError):
        await call


@virtual
async def test_cancelling_whoever_closes_takes_effect_when_all_is_closed() -> None:
    pool = CountingPool(clean_s=2, close_s=1)
    tg = await Tangram(pool).__aenter__()

    async def rollout() -> None:
        async with tangram.trajectory():
            await sleep(100)

    call = asyncio.create_task(rollout())
    await asyncio.sleep(1)
    closer = asyncio.create_task(tg.aclose())
    for _ in range(3):
        await asyncio.sleep(0.25)
        closer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closer
    assert now_s() == 4
    assert pool.made.closed
    assert pool.is_whole
    with pytest.raises(ShutdownError):
        await call


@virtual
async def test_a_cancelled_block_closes_and_is_cancelled() -> None:
    pool = CountingPool(clean_s=1)

    async def main() -> None:
        async with Tangram(pool):
            await sleep(100)

    task = asyncio.create_task(main())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert now_s() == 2
    assert pool.made.closed
    assert pool.is_whole


@virtual
async def test_what_follows_a_shutdown_error_finds_a_closed_runtime() -> None:
    """A rollout that goes on after the error of its call cannot start anything new."""
    seen: list[type] = []

    async def stubborn_rollout() -> None:
        for _ in range(3):
            try:
                async with tangram.trajectory():
                    await sleep(100)
            except tangram.TangramError as error:
                seen.append(type(error))

    pool = CountingPool(create_s=0.5, close_s=0.5)
    async with Tangram(pool):
        rollout = asyncio.create_task(stubborn_rollout())
        await asyncio.sleep(1)
    await rollout
    assert seen == [ShutdownError, tangram.NoRuntimeError, tangram.NoRuntimeError]
    assert pool.is_whole


@virtual
async def test_a_runtime_can_be_closed_from_a_body() -> None:
    """An odd thing to do, and no dead lock: the body is one of those that must end."""
    pool = CountingPool()

    @tangram.action(cpu=1)
    async def closes(tg: Tangram) -> None:
        await tg.aclose()

    tg = await Tangram(pool, kill_grace_s=1).__aenter__()
    with pytest.raises(ShutdownError):
        await closes(tg)
    await tg.aclose()
    assert now_s() < 10
    await turns(5)
    assert pool.is_whole


async def test_stuck_threads_do_not_hold_up_the_end(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()

    @tangram.action(cpu=1)
    def stuck() -> None:
        release.wait()

    pool = CountingPool()
    with caplog.at_level(logging.WARNING):
        async with Tangram(pool) as tg:
            calls = [asyncio.create_task(stuck()) for _ in range(3)]
            await until(lambda: pool.made.milli_free == 1000)
            await asyncio.sleep(0.05)
            begun_s = now_s()
        assert now_s() - begun_s < 2, "there is nothing to wait for"
    assert caplog.messages == [f"{stuck.spec.name} outlives the runtime; what it runs was not ended"] * 3
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [ShutdownError] * 3
    assert tg.statistics().lingering == (stuck.spec.name,) * 3
    assert pool.made.milli_free == 1000, "they still run"
    release.set()
    await until(lambda: tg.statistics().running == 0)
    assert pool.is_whole


async def test_idle_threads_end_with_the_runtime() -> None:
    before = set(threading.enumerate())

    @tangram.action()
    def brief() -> None: ...

    async with Tangram() as tg:
        await asyncio.gather(*(brief() for _ in range(5)))
        mine = [thread for thread in threading.enumerate() if thread not in before]
        assert mine
        assert {thread.name for thread in mine} == {"arl_tangram body", "arl_tangram watch"}
        assert_idle(tg)
    for thread in mine:
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()
