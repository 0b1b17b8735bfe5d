"""Two cores that are shared, and the actions that share them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import arl_tangram as tangram
from arl_tangram import Tangram, current_sandbox, policies
from arl_tangram.model.events import ActionEnded
from arl_tangram.model.lifecycle import FinishedAction
from arl_tangram.testing import FakeManager, FakePool, FakeSandbox, assert_idle
from arl_tangram.trace.sink import MemorySink
from counting_pools import CountingPool
from virtual_time import turns

STEP_S = 0.125
EQUAL = policies.equal_shares()


def now_s() -> float:
    return asyncio.get_running_loop().time()


def box() -> FakeSandbox:
    return cast(FakeSandbox, current_sandbox())


async def work(for_s: float) -> float:
    """Run one command after the other; when it is suspended, the one that has begun goes on, and the next one waits."""
    for _ in range(round(for_s / STEP_S)):
        await box().exec(["step"])
        await asyncio.sleep(STEP_S)
    return now_s()


@tangram.action(cpu=2)
async def steady(for_s: float = 1.0) -> float:
    return await work(for_s)


@tangram.action(cpu=2, priority=-1)
async def urgent(for_s: float = 1.0) -> float:
    await asyncio.sleep(for_s)
    return now_s()


@tangram.action(cpu=2, timeout=1.5)
async def timed(for_s: float) -> float:
    return await work(for_s)


@tangram.action(cpu=2)
async def deaf(for_s: float) -> None:
    end_s = now_s() + for_s
    while now_s() < end_s:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(end_s - now_s())


@tangram.action()
async def elsewhere(for_s: float) -> None:
    await asyncio.sleep(for_s)


async def in_a_sandbox(action: Any, *args: Any, after_s: float = 0.0, group: str | None = None) -> Any:
    """Call an action in a trajectory of its own."""
    await asyncio.sleep(after_s)
    async with tangram.trajectory(group=group):
        return await action(*args)


@asynccontextmanager
async def sharing(**options: Any) -> AsyncIterator[tuple[Tangram, MemorySink]]:
    """Open two cores that are shared; at the end, all is back."""
    sink = MemorySink()
    pool = CountingPool(cores=options.pop("cores", 2), share=EQUAL, clean_s=options.pop("clean_s", 0.0))
    async with Tangram(pool, trace=sink, **options) as tg:
        yield tg, sink
        await turns(6)
        assert_idle(tg)
        assert pool.is_whole
    for event in sink.events:
        if isinstance(event, ActionEnded):
            assert_adds_up(event)


def ended(sink: MemorySink, name: str = "") -> list[FinishedAction]:
    found = [event.action for event in sink.events if isinstance(event, ActionEnded)]
    return [action for action in found if action.name.endswith(name)]


def assert_adds_up(event: ActionEnded) -> None:
    """See that the parts of a call's time are all of it."""
    action = event.action
    parts = action.queueing_s + action.execution_s + action.overhead_s + action.suspended_s
    assert parts == action.act_s == event.at_s - action.submitted_at_s
    assert min(action.queueing_s, action.execution_s, action.overhead_s, action.suspended_s) >= 0


def begin(*calls: Any) -> list[asyncio.Task[Any]]:
    return [asyncio.ensure_future(call) for call in calls]


def with_urgent(call: Any, for_s: float = 1.0, *, after_s: float = 0.5) -> list[asyncio.Task[Any]]:
    """Begin a call, and after a while one that takes its cores from it for so long."""
    return begin(call, in_a_sandbox(urgent, for_s, after_s=after_s))


def pool_of(manager: type[FakeManager], **options: Any) -> FakePool:
    """Return a pool with a manager that does something else."""

    class Pool(FakePool):
        def manager(self) -> FakeManager:
            return manager(self)

    return Pool(**options)
