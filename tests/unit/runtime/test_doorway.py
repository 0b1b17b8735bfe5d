"""Calls from other loops and threads: what comes back, and that nobody waits for a loop that is gone."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import RuntimeClosedError, ShutdownError, Tangram, UsageError, WrongLoopError
from arl_tangram.doorway import Doorway
from arl_tangram.testing import assert_idle
from counting_pools import CountingPool
from virtual_time import turns, until

LIMIT_S = 10.0
var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="unset")


def in_thread(work: Callable[[], Any]) -> Future[Any]:
    """Do something on a thread of its own."""
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - told to the test
            outcome.set_exception(error)

    threading.Thread(target=run, name="sender", daemon=True).start()
    return outcome


def on_another_loop(call: Callable[[], Coroutine[Any, Any, Any]]) -> Future[Any]:
    return in_thread(lambda: asyncio.run(call()))


async def outcome(future: Future[Any]) -> Any:
    """Wait for a thread from a loop; an error is raised."""
    return await asyncio.wait_for(asyncio.wrap_future(future), LIMIT_S)


@contextmanager
def bare_loop() -> Iterator[Doorway]:
    """A loop that somebody made by hand, running on a thread of its own, and is stopped and closed."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(_door(), loop).result()
    finally:
        if loop.is_running():
            loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _door() -> Doorway:
    return Doorway(asyncio.get_running_loop())


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()


def waiting(door: Doorway) -> list[Future[Any]]:
    """Let a thread and another loop wait for something that never happens, and return when both have begun."""
    arrived: SimpleQueue[None] = SimpleQueue()

    async def stay() -> None:
        arrived.put(None)
        await _forever()

    sent = [in_thread(lambda: door.wait(stay)), on_another_loop(lambda: door.visit(stay))]
    for _ in sent:
        arrived.get(timeout=LIMIT_S)
    return sent


# What comes back.


async def test_the_result_and_the_error_come_back_with_the_context_kept() -> None:
    @tangram.action()
    async def tell(fails: bool) -> tuple[str, int]:
        if fails:
            raise KeyError("own")
        return var.get(), threading.get_ident()

    async def call() -> None:
        var.set("sender's")
        assert await tell(False) == ("sender's", here)
        with pytest.raises(KeyError, match="own"):
            await tell(True)
        assert await tangram.run(tell, False) == ("sender's", here)
        assert await tangram.map(tell, [False] * 5) == [("sender's", here)] * 5

    here = threading.get_ident()
    async with Tangram() as tg:
        await outcome(on_another_loop(call))
        assert_idle(tg)


async def test_a_thread_blocks_for_its_call() -> None:
    @tangram.action(cpu=1)
    def tell() -> str:
        return var.get()

    class Tool:
        @tangram.action()
        async def double(self, x: int) -> int:
            return 2 * x

    def work() -> None:
        var.set("thread's")
        assert tangram.run_sync(tell) == "thread's"
        assert tg.run_sync(tell) == "thread's"
        assert tangram.run_sync(Tool().double, 4) == 8
        assert tg.run_sync(Tool().double, x=5) == 10
        assert tg.wait(tangram.map(Tool().double, [1, 2])) == [2, 4]
        with pytest.raises(tangram.ArgumentsError):
            tangram.run_sync(tell, 1)  # type: ignore[call-arg]
        with pytest.raises(UsageError, match="not an action"):
            tangram.run_sync(print)  # type: ignore[arg-type]

    async with Tangram(CountingPool()) as tg:
        await outcome(in_thread(work))
        assert_idle(tg)


async def test_where_a_loop_runs_blocking_is_refused() -> None:
    @tangram.action()
    async def ping() -> str:
        with pytest.raises(UsageError, match="await it instead"):
            tangram.run_sync(ping)
        return "pong"

    async with Tangram() as tg:
        assert await ping() == "pong"
        for refused in (
            lambda: tangram.run_sync(ping),
            lambda: tg.run_sync(ping),
            lambda: tg.wait(ping()),
            lambda: tg.trajectory().__enter__(),
            lambda: Tangram().__enter__(),
        ):
            with pytest.raises(UsageError, match="await it instead"):
                refused()


async def test_cancelling_the_sender_cancels_the_call_and_waits_for_its_end() -> None:
    seen: list[str] = []

    @tangram.action(cpu=1)
    async def tidies_up() -> None:
        begun.set()
        try:
            await _forever()
        finally:
            await asyncio.sleep(0.05)
            seen.append("ended")

    async def call() -> None:
        task = asyncio.create_task(tidies_up())
        await asyncio.to_thread(begun.wait)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert seen == ["ended"]

    begun = threading.Event()
    async with Tangram(CountingPool()) as tg:
        await outcome(on_another_loop(call))
        assert_idle(tg)


async def test_cancelling_a_sender_whose_call_waits_takes_it_out_of_the_queue() -> None:
    @tangram.action(cpu=4)
    async def whole() -> None:
        await asyncio.sleep(0.05)

    async def call() -> None:
        tasks = [asyncio.create_task(whole()) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[1:]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [task.cancelled() for task in tasks] == [False] + [True] * 19

    async with Tangram(CountingPool(cores=4)) as tg:
        await outcome(on_another_loop(call))
        assert_idle(tg)


async def test_what_is_no_cancelling_of_ours_passes_as_it_is() -> None:
    async def gives_up() -> None:
        raise asyncio.CancelledError

    async with Tangram() as tg:
        with pytest.raises(asyncio.CancelledError):
            await outcome(in_thread(lambda: tg.wait(gives_up())))
        assert_idle(tg)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, StopIteration])
async def test_odd_errors_reach_the_sender_and_not_the_loop(kind: type[BaseException]) -> None:
    async def odd() -> None:
        raise kind

    async with Tangram() as tg:
        with pytest.raises(RuntimeError if kind is StopIteration else kind):
            await asyncio.to_thread(_told, in_thread(lambda: tg.wait(odd())))
        assert tg.is_open


def _told(future: Future[Any]) -> Any:
    return future.result(timeout=LIMIT_S)


async def test_looking_in_and_steering_work_from_anywhere() -> None:
    @tangram.action(cpu=1)
    async def work() -> None:
        await asyncio.sleep(0)

    def look() -> None:
        assert tg.statistics().dimensions["cpu"].capacity == 4
        assert "cpu" in tg.report()
        assert tg.describe()
        tg.pause()
        tg.resume()
        tg.set_capacity("cpu", 3)
        assert tg.statistics().dimensions["cpu"].capacity == 3
        with pytest.raises(tangram.ConfigurationError):
            tg.set_capacity("nothing", 1)

    async def look_on_a_loop() -> None:
        await work()
        await tg.drain()
        tg.resume()
        assert await tg.cancel_group("nobody") == 0
        assert tg.statistics().running == 0

    async with Tangram(CountingPool(cores=4)) as tg:
        await outcome(in_thread(look))
        await outcome(on_another_loop(look_on_a_loop))
        assert_idle(tg)
    await outcome(in_thread(lambda: (tg.statistics(), tg.report(), tg.describe())))


# Trajectories.


async def test_a_trajectory_is_opened_from_another_loop_and_current_there() -> None:
    @tangram.action(cpu=1)
    async def box() -> str:
        return tangram.current_sandbox().id

    async def rollout() -> None:
        async with tangram.trajectory(memory_gib=1, group="g") as outer:
            first = await box()
            async with tangram.trajectory():
                assert await box() != first
            assert await box() == first
            assert outer.is_open
        assert not outer.is_open
        with pytest.raises(UsageError):
            await outer.__aenter__()

    def synchronous() -> None:
        with tangram.trajectory(memory_gib=1), tg.trajectory() as inner:
            assert tangram.run_sync(box) == tangram.run_sync(box)
            assert inner.is_open
        assert not inner.is_open

    pool = CountingPool()
    async with Tangram(pool) as tg:
        await outcome(on_another_loop(rollout))
        await outcome(in_thread(synchronous))
        assert_idle(tg)
        assert pool.is_whole


@pytest.mark.parametrize("create_s", [0.0, 0.02])
@pytest.mark.parametrize("turns", range(6))
async def test_a_sender_that_is_cancelled_while_it_opens_a_trajectory_leaves_none(create_s: float, turns: int) -> None:
    async def rollout() -> None:
        async with tangram.trajectory(memory_gib=1):
            await _forever()

    async def call() -> None:
        task = asyncio.create_task(rollout())
        for _ in range(turns):
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    pool = CountingPool(create_s=create_s)
    async with Tangram(pool) as tg:
        await outcome(on_another_loop(call))
        assert_idle(tg)
        assert pool.is_whole


# The end of the runtime.


async def test_senders_that_wait_are_told_when_the_runtime_is_closed() -> None:
    @tangram.action(cpu=1)
    async def long() -> None:
        begun.release()
        await _forever()

    begun = threading.Semaphore(0)
    async with Tangram(CountingPool(cores=1)) as tg:
        called = [on_another_loop(long) for _ in range(2)] + [in_thread(lambda: tangram.run_sync(long))]
        await asyncio.to_thread(begun.acquire)
        called.append(in_thread(lambda: tg.wait(_forever())))
        await until(lambda: sum(errand.task is not None for errand in tg._doorway._errands) == 4)
        await turns(2)  # so that they have made their first step
    for future in called:
        with pytest.raises(ShutdownError):
            await outcome(future)
    assert_idle(tg)


async def test_a_runtime_can_be_closed_from_elsewhere() -> None:
    tg = await Tangram(CountingPool()).start()
    await outcome(on_another_loop(tg.aclose))
    assert not tg.is_open
    tg = await Tangram(CountingPool()).start()
    await outcome(in_thread(lambda: tg.wait(tg.aclose())))
    assert not tg.is_open
    with pytest.raises(RuntimeClosedError):
        await outcome(in_thread(lambda: tg.wait(tg.drain())))
    await outcome(on_another_loop(tg.aclose))


# The end of the loop.


def test_a_loop_that_is_closed_with_calls_under_way_tells_their_senders() -> None:
    with bare_loop() as door:
        sent = waiting(door)
    for future in sent:
        with pytest.raises(ShutdownError):
            future.result(timeout=LIMIT_S)


def test_a_loop_that_has_stopped_goes_on_with_its_calls_when_it_runs_again() -> None:
    loop = asyncio.new_event_loop()
    door = loop.run_until_complete(_door())
    release = loop.create_future()

    async def work() -> str:
        arrived.set_result(None)
        await release
        return "done"

    arrived: Future[None] = Future()
    running = loop.create_task(_forever())
    sent = in_thread(lambda: (_until(loop.is_running), door.wait(work))[1])
    loop.run_until_complete(asyncio.wrap_future(arrived, loop=loop))
    assert not sent.done()
    with pytest.raises(WrongLoopError, match="does not run"):
        _told(in_thread(lambda: door.wait(work)))
    with pytest.raises(WrongLoopError, match="does not run"):
        _told(on_another_loop(lambda: door.visit(work)))
    assert _told(in_thread(lambda: door.do(lambda: "looked"))) == "looked"
    release.set_result(None)
    loop.run_until_complete(asyncio.wrap_future(sent, loop=loop))
    assert sent.result() == "done"
    running.cancel()
    loop.run_until_complete(asyncio.gather(running, return_exceptions=True))
    loop.close()
    for call in (lambda: door.wait(work), lambda: asyncio.run(door.visit(work))):
        with pytest.raises(RuntimeClosedError, match="event loop"):
            _told(in_thread(call))


def _until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.001)


def test_a_loop_whose_thread_has_ended_tells_the_senders() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    door = asyncio.run_coroutine_threadsafe(_door(), loop).result()
    sent = waiting(door)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    for future in sent:
        with pytest.raises(ShutdownError):
            future.result(timeout=LIMIT_S)
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()


def test_what_asyncio_run_cancels_at_its_end_is_told_as_that() -> None:
    """A program that forgets to close its runtime."""

    @tangram.action()
    async def long() -> None:
        begun.set()
        await _forever()

    begun = threading.Event()
    sent: list[Future[Any]] = []
    tg = Tangram()

    async def main() -> None:
        await tg.start()
        sent.extend([in_thread(lambda: tangram.run_sync(long)), on_another_loop(lambda: tangram.run(long))])
        await asyncio.to_thread(begun.wait)

    asyncio.run(main())
    for future in sent:
        with pytest.raises((ShutdownError, RuntimeClosedError, tangram.NoRuntimeError)):
            future.result(timeout=LIMIT_S)
    asyncio.run(tg.aclose())


@pytest.mark.parametrize("ending", ["asyncio.run", "stop and close"])
def test_no_sender_waits_for_ever_whenever_the_loop_ends(ending: str) -> None:
    """Many senders, a loop that ends at another moment each time."""

    async def work() -> str:
        await asyncio.sleep(0.0005)
        return "done"

    def send(door: Doorway) -> str:
        try:
            while True:
                door.wait(work)
        except tangram.TangramError as error:
            return type(error).__name__

    async def visits(door: Doorway) -> str:
        try:
            while True:
                await asyncio.gather(*(door.visit(work) for _ in range(3)))
        except tangram.TangramError as error:
            return type(error).__name__

    seen: set[str] = set()
    with ThreadPoolExecutor(4) as senders:
        for number in range(40):
            loop = asyncio.new_event_loop()
            door = loop.run_until_complete(_door())
            sent: list[Future[str]] = []

            async def main(door: Doorway, sent: list[Future[str]], for_s: float) -> None:
                sent.extend(senders.submit(send, door) for _ in range(2))
                sent.extend(senders.submit(lambda: asyncio.run(visits(door))) for _ in range(2))
                await asyncio.sleep(for_s)

            if ending == "asyncio.run":
                loop.close()

                async def whole(sent: list[Future[str]], for_s: float) -> None:
                    await main(await _door(), sent, for_s)

                asyncio.run(whole(sent, 0.002 + 0.0005 * (number % 10)))
            else:
                loop.run_until_complete(main(door, sent, 0.002 + 0.0005 * (number % 10)))
                loop.close()
            seen |= {future.result(timeout=LIMIT_S) for future in sent}
    assert seen <= {"ShutdownError", "RuntimeClosedError", "WrongLoopError"}
    assert "ShutdownError" in seen
