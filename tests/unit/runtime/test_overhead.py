"""What one action costs, in steps of the loop and in objects; not in microseconds, which the bench measures."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextvars import ContextVar

import pytest

import arl_tangram as tangram
from arl_tangram import Quota, Tangram
from counting_pools import CountingPool
from virtual_time import turns, virtual, virtual_loop


class Big:
    """An argument or a result that should not stay in memory."""


@tangram.action(cpu=1, timeout=60)
async def noop(argument: object = None) -> object:
    return argument


@virtual
async def test_an_action_takes_a_handful_of_steps() -> None:
    loop = virtual_loop()
    async with Tangram(CountingPool(cores=1000)):
        before = loop.step
        for _ in range(100):
            await noop()
        alone = (loop.step - before) / 100
        before = loop.step
        await asyncio.gather(*(noop() for _ in range(1000)))
        together = (loop.step - before) / 1000
    assert alone <= 5, "a decision, the body's task, its end, the caller, and a decision on what it gave back"
    assert together <= 5.1, "the same without decisions of its own, but with the task that gather makes, and its end"


@virtual
async def test_one_decision_serves_all_who_came_in_one_turn() -> None:
    async with Tangram(CountingPool(cores=1000)) as tg:
        decide, decided = tg._core.decide, []
        tg._core.decide = lambda now_s: decided.append(now_s) or decide(now_s)  # type: ignore[method-assign,func-returns-value]
        calls = [asyncio.create_task(noop()) for _ in range(500)]
        await asyncio.gather(*calls)
        await turns(2)
    assert 1 <= len(decided) <= 20, "the walk stops at 64 elastic candidates, and ends are taken together"


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_a_successful_action_leaves_no_cycle(no_collector: None) -> None:
    """The argument and the result die with the last reference of the caller, without the collector's help."""
    async with Tangram(CountingPool(), Quota("api", concurrency=1)):
        for action in (noop, tangram.action(quota={"api": 1})(noop.body), tangram.action()(lambda argument: argument)):
            argument = Big()
            died = weakref.ref(argument)
            result = await action(argument)
            assert result is argument
            del argument, result
            await turns(3)
            if died() is not None:  # a thread lets go of its last job a moment after it has delivered the result
                gone = threading.Event()
                weakref.finalize(died(), gone.set)
                assert await asyncio.to_thread(gone.wait, 10)
            assert died() is None, f"{action.spec.name} is kept by {gc.get_referrers(died())}"


async def test_a_failed_action_does_not_keep_its_argument_for_ever() -> None:
    @tangram.action(cpu=1)
    async def fails(argument: object) -> None:
        raise KeyError("k")

    async with Tangram(CountingPool()):
        argument = Big()
        died = weakref.ref(argument)
        with pytest.raises(KeyError):
            await fails(argument)
        del argument
        await turns(3)
        gc.collect()
        assert died() is None


@virtual
async def test_a_withdrawn_call_is_not_kept() -> None:
    async with Tangram(CountingPool(cores=1)):
        first = asyncio.create_task(tangram.action(cpu=1)(hold)(5))
        await turns(3)
        argument = Big()
        died = weakref.ref(argument)
        call = asyncio.create_task(noop(argument))
        await turns(3)
        call.cancel()
        await asyncio.wait([call])
        del argument, call
        await turns(3)
        gc.collect()
        assert died() is None
        await first


async def hold(for_s: float) -> None:
    await asyncio.sleep(for_s)


@virtual
async def test_a_closed_runtime_is_not_kept() -> None:
    async with Tangram(CountingPool()) as tg:
        await noop()
    died = weakref.ref(tg)
    del tg
    await turns(3)
    gc.collect()
    assert died() is None


@virtual
async def test_a_long_deadline_keeps_nothing_of_whoever_waits_or_has_waited() -> None:
    """Neither the timer of the queue nor that of a body holds the context in which it was set."""
    held = tangram.action(cpu=1)(hold)
    variable: ContextVar[object] = ContextVar("variable")

    async def rollout(value: object) -> None:
        variable.set(value)
        with pytest.raises(tangram.QueueTimeout):
            await held.with_options(queue_timeout=1)(0)
        await noop()

    async with Tangram(CountingPool(cores=1)):
        first = asyncio.create_task(held(2))
        await turns(3)
        others = [asyncio.create_task(held.with_options(queue_timeout=3600)(0)) for _ in range(3)]
        await turns(3)
        value = Big()
        died = weakref.ref(value)
        task = asyncio.create_task(rollout(value))
        await first
        await asyncio.wait([task])
        long = asyncio.create_task(held(100))
        waits = asyncio.create_task(held.with_options(queue_timeout=3600)(0))
        await asyncio.sleep(1)
        del value, task
        gc.collect()
        assert died() is None
        await asyncio.gather(*others, long, waits)
