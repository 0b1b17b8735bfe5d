from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arl_tangram.managers.running_time import RunningTime
from virtual_time import turns, virtual


def now_s() -> float:
    return asyncio.get_running_loop().time()


@virtual
async def test_without_a_stop_it_is_an_ordinary_deadline() -> None:
    clock, future = RunningTime(), asyncio.get_running_loop().create_future()
    assert not await clock.wait(future, 2.0)
    assert now_s() == pytest.approx(2.0)
    asyncio.get_running_loop().call_later(1.0, future.set_result, None)
    assert await clock.wait(future, 2.0)
    assert now_s() == pytest.approx(3.0)
    assert await clock.wait(future, 0.0), "what is done is done, however late"
    await clock.until_running()


@virtual
async def test_a_deadline_stands_still_and_goes_on_with_what_was_left() -> None:
    clock, future = RunningTime(), asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(clock.wait(future, 2.0))
    await asyncio.sleep(1.5)
    clock.stop()
    await asyncio.sleep(100)
    clock.go_on()
    await asyncio.sleep(0.25)
    clock.stop()
    await asyncio.sleep(1000)
    assert not waiting.done()
    clock.go_on()
    assert not await waiting
    assert now_s() == pytest.approx(1.5 + 100 + 0.25 + 1000 + 0.25)


@virtual
async def test_a_stop_that_is_over_before_the_deadline_puts_it_off_as_well() -> None:
    clock, future = RunningTime(), asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(clock.wait(future, 2.0))
    await asyncio.sleep(0.5)
    clock.stop()
    await asyncio.sleep(1)
    clock.go_on()
    assert not await waiting
    assert (now_s(), clock.stood_s()) == (pytest.approx(3.0), 1.0)


@virtual
async def test_it_tells_for_how_long_it_has_stood_still() -> None:
    clock = RunningTime()
    await asyncio.sleep(0.5)
    assert clock.stood_s() == 0
    clock.stop()
    await asyncio.sleep(0.5)
    assert clock.stood_s() == 0.5
    clock.go_on()
    await asyncio.sleep(1)
    assert clock.stood_s() == 0.5


@virtual
async def test_what_begins_to_wait_while_it_stands_still_has_all_of_its_time_later() -> None:
    clock, future = RunningTime(), asyncio.get_running_loop().create_future()
    clock.stop()
    waiting = asyncio.create_task(clock.wait(future, 1.0))
    await asyncio.sleep(5)
    clock.go_on()
    assert not await waiting
    assert now_s() == pytest.approx(6.0)


@virtual
async def test_what_ends_while_it_stands_still_is_heard_at_once() -> None:
    clock, future = RunningTime(), asyncio.get_running_loop().create_future()
    clock.stop()
    asyncio.get_running_loop().call_later(3.0, future.set_result, None)
    assert await clock.wait(future, 1.0)
    assert now_s() == pytest.approx(3.0)


@virtual
async def test_without_a_limit_only_the_end_counts() -> None:
    clock, future = RunningTime(), asyncio.get_running_loop().create_future()
    clock.stop()
    asyncio.get_running_loop().call_later(30.0, future.set_result, None)
    assert await clock.wait(future, None)
    assert now_s() == pytest.approx(30.0)


@virtual
async def test_stopping_twice_and_going_on_twice_change_nothing() -> None:
    clock, future = RunningTime(), asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(clock.wait(future, 2.0))
    clock.go_on()
    for _ in range(2):
        await asyncio.sleep(1)
        clock.stop()
    clock.go_on()
    clock.go_on()
    assert not await waiting
    assert now_s() == pytest.approx(3.0), "it stood still from the first to the second second"


@virtual
async def test_who_waits_for_it_to_run_goes_on_with_it_unless_it_stops_again_at_once() -> None:
    clock = RunningTime()
    clock.stop()
    waiting = asyncio.create_task(clock.until_running())
    await asyncio.sleep(1)
    clock.go_on()
    clock.stop()
    await turns(5)
    assert not waiting.done()
    clock.go_on()
    await waiting
    assert now_s() == pytest.approx(1.0)


@virtual
async def test_a_call_counts_from_the_beginning_of_its_wait_to_its_end() -> None:
    clock = RunningTime()

    async def call() -> None:
        async with clock.call():
            assert clock.is_busy
            await asyncio.sleep(1)

    clock.stop()
    waiting, given_up = (asyncio.create_task(call()) for _ in range(2))
    await turns(2)
    assert clock.is_busy
    given_up.cancel()
    await asyncio.wait([given_up])
    assert clock.is_busy
    clock.go_on()
    assert clock.is_busy, "it has not noticed yet"
    await waiting
    assert (clock.is_busy, now_s()) == (False, 1.0)


@pytest.mark.parametrize("stopped", [False, True])
def test_cancelling_ends_a_wait_and_not_what_it_waits_for(stopped: bool) -> None:
    @virtual
    async def run() -> None:
        clock, future = RunningTime(), asyncio.get_running_loop().create_future()
        if stopped:
            clock.stop()
        waiting: list[asyncio.Task[Any]] = [asyncio.create_task(clock.wait(future, 9.0))]
        if stopped:
            waiting.append(asyncio.create_task(clock.until_running()))
        await asyncio.sleep(1)
        for task in waiting:
            task.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)
        assert not future.done()
        clock.go_on()
        await clock.until_running()

    run()


@virtual
async def test_something_else_can_end_a_wait() -> None:
    clock, future, end = RunningTime(), *(asyncio.get_running_loop().create_future() for _ in range(2))
    asyncio.get_running_loop().call_later(1.0, end.set_result, None)
    clock.stop()
    assert not await clock.wait(future, 0.5, end)
    assert now_s() == pytest.approx(1.0)
    future.set_result(None)
    assert await clock.wait(future, None, end)
