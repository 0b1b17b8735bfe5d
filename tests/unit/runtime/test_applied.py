"""Cores whose numbers are known later: bodies on threads wait for them, and those on the loop do not."""

from __future__ import annotations

import asyncio

import pytest

import arl_tangram as tangram
from arl_tangram import NodeLostError, RunTimeout, Tangram
from arl_tangram.managers.manager import CpuLease, ManagedSandbox
from arl_tangram.testing import FakeLease, FakeManager, FakePool, assert_idle


class LateLease(FakeLease):
    """Cores whose numbers come when the test says so."""

    manager: LateManager

    async def applied(self) -> None:
        self.manager.asked.set()
        await self.manager.known.wait()
        if self.manager.error is not None:
            raise self.manager.error


class LateManager(FakeManager):
    def __init__(self, pool: FakePool) -> None:
        super().__init__(pool)
        self.asked = asyncio.Event()
        self.known = asyncio.Event()
        self.error: Exception | None = None

    def lease(
        self, milli_cores: int, sandbox: ManagedSandbox | None, *, again: bool = False, most: int = 0
    ) -> CpuLease:
        super().lease(milli_cores, sandbox, again=again)
        lease = LateLease(self, milli_cores)
        lease.manager = self
        return lease


class LatePool(FakePool):
    def manager(self) -> LateManager:
        made = LateManager(self)
        object.__setattr__(self, "made", made)
        return made


BEGUN: list[str] = []


@tangram.action(cpu=1)
def on_a_thread() -> str:
    BEGUN.append("thread")
    return "done"


@tangram.action(cpu=1, timeout=0.05)
def hurried() -> None:
    BEGUN.append("hurried")


@tangram.action(cpu=1)
async def on_the_loop() -> str:
    return "done"


@pytest.fixture(autouse=True)
def _nothing_begun() -> None:
    BEGUN.clear()


async def test_a_body_on_a_thread_begins_when_the_cores_are_known() -> None:
    pool = LatePool(cores=2)
    async with Tangram(pool) as tg:
        task = asyncio.ensure_future(tg.run(on_a_thread))
        await pool.made.asked.wait()
        assert not BEGUN
        pool.made.known.set()
        assert await task == "done"
        assert_idle(tg)


async def test_a_body_on_the_loop_does_not_wait() -> None:
    pool = LatePool(cores=2)
    async with Tangram(pool) as tg:
        assert await tg.run(on_the_loop) == "done"
        assert not pool.made.asked.is_set()


async def test_a_caller_that_is_cancelled_meanwhile_ends_at_once_and_the_body_never_begins() -> None:
    pool = LatePool(cores=2)
    async with Tangram(pool) as tg:
        task = asyncio.ensure_future(tg.run(on_a_thread))
        await pool.made.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_idle(tg)
        pool.made.known.set()
        await asyncio.sleep(0)
        assert not BEGUN


async def test_a_timeout_meanwhile_ends_it_and_nothing_lingers() -> None:
    pool = LatePool(cores=2)
    async with Tangram(pool) as tg:
        with pytest.raises(RunTimeout):
            await tg.run(hurried)
        assert_idle(tg)
        assert not BEGUN


async def test_cores_that_are_lost_are_an_error_of_the_infrastructure() -> None:
    pool = LatePool(cores=2)
    async with Tangram(pool) as tg:
        pool.made.error = NodeLostError("its node is gone")
        pool.made.known.set()
        with pytest.raises(NodeLostError):
            await tg.run(on_a_thread)
        assert_idle(tg)
        assert not BEGUN
