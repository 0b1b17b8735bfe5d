"""A call that is told to end between the grant of its units and the first step of its body never runs."""

from __future__ import annotations

import asyncio

import arl_tangram as tangram
from arl_tangram import Tangram
from arl_tangram.testing import FakePool, assert_idle
from virtual_time import turns, virtual

ran: list[str] = []


@tangram.action(cpu=1)
def on_a_thread() -> None:
    ran.append("thread")


@tangram.action(cpu=1)
async def on_the_loop() -> None:
    ran.append("loop")


@virtual
async def test_a_call_that_is_cancelled_after_its_grant_and_before_its_body_never_runs() -> None:
    ran.clear()
    async with Tangram(FakePool(cores=1)) as tg:
        for action in (on_a_thread, on_the_loop):
            task = asyncio.ensure_future(action())
            await asyncio.sleep(0)
            assert tg.statistics().waiting == 1
            task.cancel()  # the decision is due before its caller hears of that
            await asyncio.wait([task])
            assert task.cancelled()
            await turns(3)
            assert_idle(tg)
    assert not ran
