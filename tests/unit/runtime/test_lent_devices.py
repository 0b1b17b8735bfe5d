"""Devices that are lent: what holds when they cannot be given back, when the runtime closes, and on cancelling."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import Tangram
from arl_tangram.errors import ConfigurationError, RestoreError
from arl_tangram.managers.gpu.fake_pool import FakeBackend
from arl_tangram.testing import FakeGpuPool, FakeService, assert_idle
from virtual_time import turns, virtual, virtual_loop


class Clinging(FakeBackend):
    """A service that lets go of nothing while somebody has a view of its memory."""

    leaked = False

    async def evict(self, dop: int) -> None:
        if self.leaked:
            raise RuntimeError("somebody has a view of a weight")
        await super().evict(dop)


class Hosted(FakeService):
    """A service of which the test has the backend."""

    def backend(self) -> Any:
        backend = Clinging(self)
        made[self.name] = backend
        return backend


made: dict[str, Clinging] = {}
where: list[tuple[str, ...]] = []


def use(service: str, seconds: float = 1.0) -> Any:
    @tangram.action(service=service)
    async def used() -> None:
        where.append(tangram.current_service().devices)
        await asyncio.sleep(seconds)

    return used


@pytest.fixture(autouse=True)
def _forget() -> None:
    made.clear()
    where.clear()


def pool(*, gib: float = 60) -> FakeGpuPool:
    return FakeGpuPool(Hosted("a", gib=gib), Hosted("b", gib=gib), Hosted("c", gib=gib / 3))


async def occupy_own(tg: Tangram) -> asyncio.Task[None]:
    """Have `b` on the pool's own device for 50 s, so that what comes next is elsewhere."""
    task = asyncio.create_task(use("b", seconds=50)())
    await asyncio.sleep(2)
    assert where == [("fake:0",)]
    return task


@virtual
async def test_nothing_is_placed_on_devices_that_could_not_be_given_back() -> None:
    async with Tangram(pool()) as tg:
        busy = await occupy_own(tg)
        lent = tg.lend(["mine:0"])
        await lent.__aenter__()
        await use("a")()
        assert where.pop() == ("mine:0",)
        made["a"].leaked = True
        with pytest.raises(RestoreError, match=r"cannot be given back: mine:0 has a/1"):
            await lent.__aexit__(None, None, None)
        waiting = asyncio.create_task(use("c")())
        await asyncio.sleep(5)
        made["a"].leaked = False
        await asyncio.sleep(70)  # it is tried again, and lets go: all of the device is there
        await asyncio.gather(busy, waiting)
        await asyncio.gather(use("a")(), use("b")(), use("c")())
        assert set(where) == {("fake:0",)}
        await lent.give_back()
        async with tg.lend(["mine:0"]):
            pass
        assert_idle(tg)


@virtual
async def test_nothing_is_placed_where_something_lets_go_while_devices_are_given_back() -> None:
    async with Tangram(pool()) as tg:
        busy = await occupy_own(tg)
        lent = tg.lend(["mine:0"])
        await lent.__aenter__()
        await use("a")()
        made["a"].leaked = True
        user = asyncio.create_task(use("c", seconds=30)())
        await asyncio.sleep(2)
        assert where[-1] == ("mine:0",)
        leaving = asyncio.create_task(lent.__aexit__(None, None, None))
        await asyncio.sleep(1)  # `a` was idle, and is stuck by now; `c` is used for long
        assert any("does not let go" in note for note in tg._workshop.gpu.notes())  # type: ignore[union-attr]
        made["a"].leaked = False
        await asyncio.sleep(20)
        assert not any("does not let go" in note for note in tg._workshop.gpu.notes())  # type: ignore[union-attr]
        assert not leaving.done()
        where.clear()
        waiting = asyncio.create_task(use("a")())
        await asyncio.sleep(5)
        assert where == [], "nothing new comes to devices that are given back"
        await leaving
        await asyncio.gather(user, busy, waiting)
        assert where == [("fake:0",)]
        assert_idle(tg)


@virtual
async def test_devices_that_could_not_be_given_back_can_be_asked_for_again() -> None:
    async with Tangram(pool()) as tg:
        busy = await occupy_own(tg)
        lent = tg.lend(["mine:0"])
        await lent.__aenter__()
        await use("a")()
        made["a"].leaked = True
        for _ in range(2):
            with pytest.raises(RestoreError):
                await lent.give_back()
        with pytest.raises(ConfigurationError, match="has it already"):
            await tg.lend(["mine:0"]).__aenter__()
        made["a"].leaked = False
        asked_s = virtual_loop().time()
        await asyncio.gather(lent.give_back(), lent.give_back())
        assert virtual_loop().time() == asked_s, "it is tried again at once"
        await lent.give_back()
        async with tg.lend(["mine:0"]):
            await use("a")()
            assert where[-1] == ("mine:0",)
        await busy
        assert_idle(tg)


@virtual
async def test_giving_back_twice_leaves_a_later_loan_of_the_same_devices_alone() -> None:
    async with Tangram(pool()) as tg:
        busy = await occupy_own(tg)
        lent = tg.lend(["mine:0"])
        await lent.__aenter__()
        await use("a")()
        made["a"].leaked = True
        with pytest.raises(RestoreError):
            await lent.give_back()
        made["a"].leaked = False
        await asyncio.sleep(10)  # it is tried again, lets go, and the device is closed
        async with tg.lend(["mine:0"]):
            user = asyncio.create_task(use("a", seconds=20)())
            await asyncio.sleep(1)
            asked_s = virtual_loop().time()
            await lent.give_back()
            assert virtual_loop().time() == asked_s, "nothing of it is there any more"
            await user
            assert tg.statistics().dimensions["gpu"].capacity == 2, "it is still lent"
        await busy
        assert_idle(tg)


@virtual
async def test_leaving_that_was_cancelled_can_be_gone_on_with() -> None:
    async with Tangram(pool()) as tg:
        busy = await occupy_own(tg)
        lent = tg.lend(["mine:0"])
        await lent.__aenter__()
        user = asyncio.create_task(use("a", seconds=20)())
        await asyncio.sleep(2)
        leaving = asyncio.create_task(lent.__aexit__(None, None, None))
        await asyncio.sleep(1)
        leaving.cancel()
        await asyncio.wait([leaving])
        await lent.give_back()
        assert user.done()
        async with tg.lend(["mine:0"]):
            pass
        await asyncio.gather(user, busy)
        assert_idle(tg)


@virtual
async def test_leaving_after_the_runtime_was_closed_does_nothing() -> None:
    tg = await Tangram(pool()).start()
    async with asyncio.timeout(10), tg.lend(["mine:0"]):
        await use("a")()
        await tg.aclose()


@virtual
async def test_leaving_while_the_runtime_closes_says_so() -> None:
    tg = await Tangram(pool(), kill_grace_s=1).start()
    lent = tg.lend(["mine:0"])
    await lent.__aenter__()
    slow = asyncio.Event()

    async def wait(*_: Any) -> None:
        await slow.wait()

    made["a"].aclose = wait  # type: ignore[method-assign]
    closing = asyncio.create_task(tg.aclose())
    while not tg._dispatcher.is_stopped:
        await turns(1)
    with pytest.raises(tangram.ShutdownError):
        await lent.give_back()
    slow.set()
    await closing
    await lent.give_back()


def test_entering_from_another_loop_lends_nothing_if_it_is_cancelled() -> None:
    """Whenever the cancellation comes: before the devices are lent, or after that, on the way back."""
    with Tangram(pool()) as tg:

        async def enter() -> None:
            lent = tg.lend(["mine:0"])
            visit = lent._doorway.visit

            async def cancelled_on_the_way_back(work: Any) -> None:
                await visit(work)
                if lent._lent is not None:
                    lent._doorway.visit = visit  # type: ignore[method-assign]
                    raise asyncio.CancelledError

            lent._doorway.visit = cancelled_on_the_way_back  # type: ignore[method-assign,assignment]
            with pytest.raises(asyncio.CancelledError):
                await lent.__aenter__()
            assert tg.statistics().dimensions["gpu"].capacity == 1

        asyncio.run(enter())


def test_leaving_from_another_loop_after_the_runtime_was_closed_does_nothing() -> None:
    with Tangram(pool()) as tg:
        lent = tg.lend(["mine:0"])
        asyncio.run(lent.__aenter__())
        assert tg.statistics().dimensions["gpu"].capacity == 2
    asyncio.run(lent.give_back())
