"""What an engine gives up of its devices, measured from outside, and turns of those that share one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arl_tangram.services.servers.memory import Meter, enough, turn

GIB = 1 << 30


class Cards:
    """The free memory of devices, which changes as it is looked at."""

    def __init__(self, **readings: list[int]) -> None:
        self.readings = readings

    def __call__(self, name: str) -> int:
        left = self.readings[name]
        return left.pop(0) if len(left) > 1 else left[0]


async def test_the_least_and_the_most_of_all_devices_count() -> None:
    meter = Meter(["a", "b"], Cards(a=[10, 80], b=[20, 60]))
    before = await meter.free()
    assert before == (10, 20)
    assert await meter.freed(before, 40, 1.0) == (40, 70)


async def test_it_waits_until_all_have_given_enough() -> None:
    meter = Meter(["a", "b"], Cards(a=[0, 100, 100], b=[0, 0, 95]))
    assert await meter.freed(await meter.free(), 100, 10.0) == (95, 100)


@pytest.mark.looptime
async def test_it_says_what_there_is_when_the_time_is_up() -> None:
    class Still(Meter):
        async def free(self) -> tuple[int, ...]:  # without a thread, whose time would not be virtual
            return (30,)

    meter = Still(["a"], None)
    begin = asyncio.get_running_loop().time()
    assert await meter.freed((0,), 100, 5.0) == (30, 30)
    assert asyncio.get_running_loop().time() - begin == pytest.approx(5.0, abs=0.1)


async def test_what_cannot_be_measured_is_no_number() -> None:
    def fails(name: str) -> int:
        raise OSError(name)

    for meter in (Meter(["a"], None), Meter(["a"], fails)):
        assert await meter.free() is None
        assert await meter.freed(None, 100, 5.0) is None
    assert await Meter(["a"], fails).freed((0,), 100, 5.0) is None


@pytest.mark.parametrize("told", [KeyError("a"), None, "12 GiB"])
async def test_what_measures_and_is_wrong_is_told_of_once(told: Any, caplog: pytest.LogCaptureFixture) -> None:
    def measure(name: str) -> Any:
        if isinstance(told, Exception):
            raise told
        return told

    meter = Meter(["a", "b"], measure)
    for _ in range(3):
        assert await meter.free() is None
    assert [record.getMessage() for record in caplog.records] == ["the memory of a, b cannot be measured"]


@pytest.mark.parametrize(("expected", "least"), [(0, 0), (10, 9), (100, 90), (7 * GIB, 7 * GIB - int(0.7 * GIB))])
def test_a_tenth_may_be_missing(expected: int, least: int) -> None:
    assert enough(expected) == least


async def test_those_who_share_a_device_take_turns_and_others_do_not_wait() -> None:
    at_work: list[str] = []
    go = asyncio.Event()

    async def work(name: str, *devices: str) -> None:
        async with turn(devices):
            at_work.append(name)
            await go.wait()
            at_work.remove(name)

    tasks = [
        asyncio.ensure_future(each)
        for each in (work("first", "a", "b"), work("second", "b", "c"), work("third", "d"), work("fourth", "c", "a"))
    ]
    await asyncio.sleep(0.01)
    assert at_work == ["first", "third"]
    go.set()
    await asyncio.gather(*tasks)


async def test_who_is_cancelled_while_it_waits_for_its_turn_holds_nothing() -> None:
    async with turn(["a"]):
        waiting = asyncio.ensure_future(turn(["b", "a"]).__aenter__())
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(1), turn(["a", "b"]):
        pass
