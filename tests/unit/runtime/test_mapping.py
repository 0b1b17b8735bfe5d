"""`map`: results in order, failures as an exception or as values, and nothing that outlives the call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

import arl_tangram as tangram
from arl_tangram import Failure, Tangram, UsageError
from arl_tangram.testing import assert_idle
from counting_pools import CountingPool
from injection import Scene, at_every_step
from virtual_time import virtual


def now_s() -> float:
    return asyncio.get_running_loop().time()


@tangram.action(cpu=1)
async def double(number: float) -> float:
    await asyncio.sleep(abs(number))
    if number < 0:
        raise KeyError(number)  # the line of the tool
    return 2 * number


@tangram.action()
async def without_arguments() -> None: ...


async def slowly(numbers: list[float], every_s: float = 1.0, log: list[str] | None = None) -> AsyncIterator[float]:
    try:
        for number in numbers:
            await asyncio.sleep(every_s)
            yield number
    finally:
        if log is not None:
            log.append("generator closed")


@virtual
async def test_results_come_in_the_order_of_the_items() -> None:
    async with Tangram(CountingPool()) as tg:
        assert await tangram.map(double, [4, 3, 2, 1, 0]) == [8, 6, 4, 2, 0]
        assert await tangram.map(double, (number for number in (2, 1))) == [4, 2]
        assert await tangram.map(double, slowly([3, 1])) == [6, 2]
        assert await tangram.map(double, {5: "a", 1: "b"}) == [10, 2]
        assert_idle(tg)


@virtual
async def test_no_items_give_no_results() -> None:
    async with Tangram():
        assert await tangram.map(double, []) == []
        assert await tangram.map(double, slowly([])) == []
        assert await tangram.map(double, [], on_error="return") == []


@virtual
async def test_an_async_iterable_is_consumed_as_its_items_come() -> None:
    async with Tangram(CountingPool()):
        assert await tangram.map(double, slowly([2.5, 2.5, 2.5])) == [5, 5, 5]
        assert now_s() == 5.5


@virtual
async def test_the_first_error_is_raised_after_the_others_have_ended() -> None:
    ends: list[tuple[str, float]] = []

    @tangram.action(cpu=1)
    async def works(number: float) -> None:
        try:
            await double.body(number)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
            ends.append(("cancelled", now_s()))
            raise

    pool = CountingPool(cores=3)
    async with Tangram(pool) as tg:
        with pytest.raises(KeyError) as raised:
            await tangram.map(works, [5, -1, 5, -0.25, 5, 5])
        assert raised.value.args == (-1,), "the first in time, not the first item"
        assert now_s() == 1.5
        assert set(ends) == {("cancelled", 1.5)}
        assert len(ends) in (2, 3), "two that ran, and maybe one that got the cores of the one that failed"
        assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_failures_of_the_library_are_values_too() -> None:
    async with Tangram(CountingPool(cores=1)) as tg:
        limited = double.with_options(timeout=2, queue_timeout=1)
        one, two, three = await tangram.map(limited, [0.5, 3, 1], on_error="return")
        assert one == 1
        assert isinstance(two, Failure)
        assert isinstance(two.error, tangram.RunTimeout)
        assert isinstance(three, Failure)
        assert isinstance(three.error, tangram.QueueTimeout)
        assert_idle(tg)


@virtual
async def test_an_error_does_not_wait_for_the_next_item() -> None:
    """The items may come from a queue that never yields again."""
    log: list[str] = []

    async def endless() -> AsyncIterator[float]:
        try:
            yield -1
            yield 5
            await asyncio.get_running_loop().create_future()
        finally:
            log.append("closed")

    async with Tangram(CountingPool()) as tg:
        async with asyncio.timeout(100):
            with pytest.raises(KeyError):
                await tangram.map(double, endless())
        assert now_s() == 1
        assert log == ["closed"]
        assert_idle(tg)


@virtual
async def test_items_that_raise_end_the_calls_that_were_made() -> None:
    def broken() -> Iterator[float]:
        yield 1
        raise LookupError("no more")

    async def broken_later() -> AsyncIterator[float]:
        yield 100
        await asyncio.sleep(2)
        raise LookupError("no more")

    pool = CountingPool()
    async with Tangram(pool) as tg:
        with pytest.raises(LookupError, match="no more"):
            await tangram.map(double, broken())
        assert now_s() == 0
        with pytest.raises(LookupError, match="no more"):
            await tangram.map(double, broken_later(), on_error="return")
        assert now_s() == 2
        assert_idle(tg)
        assert pool.is_whole


@pytest.mark.parametrize("on_error", ["raise", "return"])
@virtual
async def test_cancelling_ends_all_calls_and_the_generator(on_error) -> None:
    log: list[str] = []
    async with Tangram(CountingPool()) as tg:
        mapping = asyncio.create_task(tangram.map(double, slowly([100, 100, 100], log=log), on_error=on_error))
        await asyncio.sleep(2.5)
        assert tg.statistics().running == 2
        mapping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await mapping
        assert now_s() == 2.5
        assert log == ["generator closed"]
        assert_idle(tg)


@pytest.mark.parametrize("again_after", [(), (1, 3)])
@pytest.mark.parametrize("bad", [True, False])
def test_cancelling_at_every_step_leaves_nothing(bad: bool, again_after: tuple[int, ...]) -> None:
    async def scenario(scene: Scene) -> None:
        log: list[str] = []
        numbers = [0.5, -0.25, 1.0] if bad else [0.5, 0.25, 1.0]
        task = scene.victim(tangram.map(double, slowly(numbers, 0.125, log)))
        await asyncio.wait([task])
        assert scene.tg.statistics().running == 0, "it has waited for the end of its calls"
        if log:
            assert log == ["generator closed"]

    at_every_step(scenario, pool=lambda: CountingPool(clean_s=0.25), again_after=again_after)


@virtual
async def test_another_on_error_is_refused() -> None:
    with pytest.raises(UsageError, match="'ignore'"):
        await tangram.map(double, [1], on_error="ignore")  # type: ignore[call-overload]


@virtual
async def test_any_coroutine_function_can_be_mapped() -> None:
    async def negate(number: int) -> int:
        return -number

    assert await tangram.map(negate, [1, 2]) == [-1, -2]


@virtual
async def test_what_is_no_action_and_items_that_are_none_are_errors() -> None:
    async with Tangram(CountingPool()) as tg:
        with pytest.raises(TypeError):
            await tangram.map(double, 3)  # type: ignore[call-overload]
        with pytest.raises(tangram.ArgumentsError):
            await tangram.map(without_arguments, [1])  # type: ignore[arg-type]
        assert_idle(tg)


async def test_what_returns_nothing_to_await_is_refused() -> None:
    with pytest.raises(UsageError, match=r"returned 1"):
        await tangram.map(lambda item: item, [1])  # type: ignore[arg-type, return-value]
