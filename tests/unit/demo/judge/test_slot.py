"""A slot of the static placement: whoever is let in, and when."""

from __future__ import annotations

import asyncio

import pytest

from arl_tangram.demo.judge.slot import Slot

pytestmark = pytest.mark.looptime


class Log:
    def __init__(self) -> None:
        self.slot = Slot()
        self.began: list[tuple[str, float]] = []

    async def use(self, name: str, seconds: float) -> None:
        async with self.slot.turn(name[0]):
            self.began.append((name, asyncio.get_running_loop().time()))
            await asyncio.sleep(seconds)


def names(log: Log) -> list[str]:
    return [name for name, _ in log.began]


async def test_who_uses_the_same_service_comes_in_beside_it_and_another_waits_until_the_queue_is_empty() -> None:
    log = Log()
    async with asyncio.TaskGroup() as group:
        for name, seconds in (("a1", 1.0), ("b1", 1.0), ("a2", 3.0)):
            group.create_task(log.use(name, seconds))
    assert log.began == [("a1", 0.0), ("a2", 0.0), ("b1", 3.0)]


async def test_the_slot_goes_to_who_has_waited_longest_and_all_who_want_the_same() -> None:
    log = Log()
    async with asyncio.TaskGroup() as group:
        for name in ("a1", "b1", "c1", "b2"):
            group.create_task(log.use(name, 1.0))
    assert log.began == [("a1", 0.0), ("b1", 1.0), ("b2", 1.0), ("c1", 2.0)]


async def test_an_idle_slot_keeps_its_service_and_goes_to_the_next() -> None:
    log = Log()
    await log.use("a1", 1.0)
    await log.use("a2", 1.0)
    await log.use("b1", 1.0)
    assert names(log) == ["a1", "a2", "b1"]


async def test_who_gives_up_waiting_is_passed_over() -> None:
    log = Log()
    async with asyncio.TaskGroup() as group:
        group.create_task(log.use("a1", 2.0))
        await asyncio.sleep(0)
        given_up = group.create_task(log.use("b1", 1.0))
        group.create_task(log.use("c1", 1.0))
        await asyncio.sleep(1.0)
        given_up.cancel()
    assert log.began == [("a1", 0.0), ("c1", 2.0)]


async def test_who_is_cancelled_in_the_moment_it_is_let_in_holds_nothing() -> None:
    log = Log()
    async with asyncio.TaskGroup() as group:
        async with log.slot.turn("a"):
            let_in = group.create_task(log.use("b1", 1.0))
            group.create_task(log.use("c1", 1.0))
            await asyncio.sleep(1.0)
        let_in.cancel()  # it has the turn, and does not know yet
    assert let_in.cancelled()
    assert log.began == [("c1", 1.0)]


async def test_what_a_user_raises_frees_the_slot() -> None:
    slot = Slot()
    with pytest.raises(ValueError, match="wrong"):
        async with slot.turn("a"):
            raise ValueError("wrong")
    async with asyncio.timeout(1), slot.turn("b"):
        pass
