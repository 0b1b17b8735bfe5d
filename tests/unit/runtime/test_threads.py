"""The threads of plain bodies: reused, pinned while they run, and harmless when the loop is gone."""

from __future__ import annotations

import asyncio
import os
import threading
from contextvars import ContextVar

import pytest

import arl_tangram as tangram
from arl_tangram import Tangram
from arl_tangram.managers.threads import BodyThreads
from arl_tangram.testing import assert_idle
from counting_pools import CountingPool
from virtual_time import until


@tangram.action()
def who() -> int:
    return threading.get_ident()


async def test_an_idle_thread_is_used_again() -> None:
    async with Tangram() as tg:
        assert len({await who() for _ in range(20)}) == 1
        assert_idle(tg)


async def test_there_are_no_more_threads_than_allowed() -> None:
    most = running = 0
    lock = threading.Lock()
    all_in = threading.Barrier(3)

    @tangram.action()
    def meets() -> None:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        all_in.wait(60)
        with lock:
            running -= 1

    async with Tangram(max_threads=3) as tg:
        await asyncio.gather(*(meets() for _ in range(9)))
        assert most == 3
        assert tg.statistics().dimensions["threads"].capacity == 3
        assert_idle(tg)


async def test_a_body_sees_the_context_of_its_caller() -> None:
    variable = ContextVar("variable", default="default")

    @tangram.action()
    def look() -> str:
        before = variable.get()
        variable.set("body")
        return before

    async with Tangram():
        variable.set("caller")
        assert await look() == "caller"
        assert variable.get() == "caller"


async def test_a_thread_is_pinned_while_its_body_runs() -> None:
    everywhere = os.sched_getaffinity(0)
    one = min(everywhere)
    threads = BodyThreads()

    def where() -> tuple[int, set[int]]:
        return threading.get_native_id(), os.sched_getaffinity(0)

    try:
        identity, cores = (await threads.run(where, (one,))).result()
        assert cores == {one}
        assert (await threads.run(where, ())).result() == (identity, everywhere)
        _, cores = (await threads.run(where, (1_000_000,))).result()
        assert cores == everywhere, "a core that is not there does not keep the body from running"
    finally:
        threads.close()


async def test_a_result_that_nobody_waits_for_is_dropped_and_the_thread_is_used_again() -> None:
    release = threading.Event()
    threads = BodyThreads()

    def late() -> int:
        release.wait()
        return threading.get_ident()

    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    unwanted = threads.run(late, ())
    unwanted.cancel()
    other = (await threads.run(threading.get_ident, ())).result()
    release.set()
    seen = {other}
    while len(seen) < 2:
        both = [threads.run(threading.get_ident, ()) for _ in range(2)]
        seen |= {returned.result() for returned in await asyncio.gather(*both)}
        await asyncio.sleep(0.001)
    threads.close()
    assert len(seen) == 2
    assert not errors


def test_a_body_may_end_after_the_loop_was_closed() -> None:
    release = threading.Event()
    threads = BodyThreads()
    seen: list[threading.Thread] = []

    def late() -> None:
        seen.append(threading.current_thread())
        release.wait()

    async def main() -> None:
        threads.run(late, ())
        await until(lambda: bool(seen))
        threads.close()

    asyncio.run(main())
    release.set()
    seen[0].join(10)
    assert not seen[0].is_alive()
    assert seen[0].daemon


@pytest.mark.parametrize("error", [ValueError("own"), SystemExit(3), KeyboardInterrupt()], ids=repr)
async def test_a_thread_survives_what_its_body_raises(error: BaseException) -> None:
    threads = BodyThreads()

    def raises() -> None:
        raise error

    identity = (await threads.run(threading.get_ident, ())).result()
    future = threads.run(raises, ())
    await asyncio.wait([future])
    assert future.result().error is error
    assert (await threads.run(threading.get_ident, ())).result() == identity
    threads.close()


async def test_a_thread_keeps_its_units_though_somebody_cancels_all_tasks() -> None:
    """As `asyncio.run` does at its end; here the loop goes on."""
    release = threading.Event()

    @tangram.action(cpu=3)
    def stuck() -> None:
        release.wait()

    pool = CountingPool(cores=4)
    async with Tangram(pool) as tg:
        call = asyncio.create_task(stuck())
        await until(lambda: pool.made.milli_free == 1000)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        (result,) = await asyncio.gather(call, return_exceptions=True)
        assert isinstance(result, (asyncio.CancelledError, tangram.BodyCancelledError))
        state = tg.statistics()
        assert state.lingering == (stuck.spec.name,)
        assert state.dimensions["cpu"].used == 3
        assert pool.made.milli_free == 1000
        release.set()
        await until(lambda: tg.statistics().running == 0)
        assert_idle(tg)
        assert pool.is_whole
