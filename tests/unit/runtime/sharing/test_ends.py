"""Ends of running actions that share their cores, while they are suspended."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import pytest

import arl_tangram as tangram
from arl_tangram import (
    GroupCancelledError,
    InfrastructureError,
    NoTrajectoryError,
    SandboxLostError,
    ShutdownError,
    Tangram,
)
from arl_tangram.execution import resize
from arl_tangram.managers.manager import ManagedSandbox
from arl_tangram.model.lifecycle import Outcome
from arl_tangram.testing import FakeManager, FakeSandbox, assert_idle
from counting_pools import CountingPool
from unit.runtime.sharing.scenes import (
    EQUAL,
    begin,
    box,
    deaf,
    elsewhere,
    ended,
    in_a_sandbox,
    now_s,
    pool_of,
    sharing,
    steady,
    urgent,
    with_urgent,
)
from virtual_time import turns, virtual


async def suspended_call(**options: Any) -> list[asyncio.Task[Any]]:
    """Return a call that is suspended now, from 0.5 to 10.5, and the one for which it is."""
    calls = with_urgent(in_a_sandbox(steady, 1.0, **options), 10.0)
    await asyncio.sleep(1.0)
    return calls


@virtual
@pytest.mark.parametrize("clean_s", [0.0, 0.25])
async def test_its_caller_ends_one_that_is_suspended_at_once(clean_s: float) -> None:
    async with sharing(clean_s=clean_s) as (_, sink):
        first, second = await suspended_call()
        first.cancel()
        await asyncio.wait([first])
        assert now_s() == 1.0 + clean_s
        (action,) = ended(sink, "steady")
        assert (action.outcome, action.suspended_s, action.execution_s) == (Outcome.CANCELLED, 0.5 + clean_s, 0.5)
        await second


@virtual
async def test_its_group_ends_one_that_is_suspended() -> None:
    async with sharing() as (tg, _):
        first, second = await suspended_call(group="g")
        assert await tg.cancel_group("g") == 1
        with pytest.raises(GroupCancelledError):
            await first
        assert now_s() == 1.0
        await second


@virtual
async def test_its_trajectory_ends_one_that_is_suspended() -> None:
    async with sharing():
        async with tangram.trajectory():
            call = asyncio.ensure_future(steady(1.0))
            (second,) = begin(in_a_sandbox(urgent, 2.0, after_s=0.5))
            await asyncio.sleep(1.0)
        with pytest.raises(NoTrajectoryError):
            await call
        assert now_s() == 1.0
        await second


@virtual
async def test_closing_the_runtime_ends_one_that_is_suspended() -> None:
    pool = CountingPool(cores=2, share=EQUAL)
    async with Tangram(pool):
        first, second = await suspended_call()
    for call in (first, second):
        with pytest.raises(ShutdownError):
            await call
    assert now_s() == 1.0
    assert pool.is_whole


@virtual
async def test_a_body_that_does_not_listen_lingers_suspended() -> None:
    async with sharing(kill_grace_s=0.5) as (tg, sink):
        first, second = with_urgent(in_a_sandbox(deaf, 3.0))
        await asyncio.sleep(0.75)
        first.cancel()
        await asyncio.wait([first])
        (name,) = tg.statistics().lingering
        assert name.endswith("deaf")
        assert await second == 1.5
        await asyncio.sleep(2.0)
        (action,) = ended(sink, "deaf")
        assert (action.suspended_s, action.switches) == (0.75, 1)


@virtual
async def test_draining_waits_for_one_that_is_suspended() -> None:
    async with sharing() as (tg, _):
        first, second = with_urgent(in_a_sandbox(steady, 1.0))
        await asyncio.sleep(1.0)
        assert tg.statistics().running == 2
        await tg.drain()
        assert now_s() == 1.875
        tg.resume()
        assert (await first, await second) == (1.875, 1.5)


@virtual
async def test_cores_that_are_not_taken_end_the_body_with_that_error() -> None:
    async with sharing() as (_, sink):
        boxes: list[FakeSandbox] = []

        @tangram.action(cpu=2)
        async def losing() -> None:
            boxes.append(box())
            await asyncio.sleep(5.0)

        first, second = with_urgent(in_a_sandbox(losing))
        await asyncio.sleep(0.25)
        boxes[0].closed = True
        with pytest.raises(SandboxLostError, match="is closed"):
            await first
        assert now_s() == 0.5
        assert await second == 1.5
        assert ended(sink, "losing")[0].outcome is Outcome.INFRASTRUCTURE


@virtual
async def test_one_whose_cores_are_lost_while_it_waits_to_go_on_hears_of_it() -> None:
    @tangram.action(cpu=2)
    async def outer() -> None:
        await asyncio.sleep(0.75)
        lost.append(box())
        await elsewhere(0.5)

    class Manager(FakeManager):
        def lease(self, milli_cores: int, sandbox: ManagedSandbox | None, *, again: bool = False, most: int = 0) -> Any:
            if sandbox in lost:
                raise SandboxLostError("it is gone")
            return super().lease(milli_cores, sandbox, again=again, most=most)

    lost: list[object] = []
    async with Tangram(pool_of(Manager, cores=2, share=EQUAL)) as tg:
        first, second = with_urgent(in_a_sandbox(outer), 2.0)
        with pytest.raises(SandboxLostError, match="it is gone"):
            await first
        assert now_s() == 2.5
        await second
        await turns(3)
        assert_idle(tg)


@virtual
async def test_an_attempt_that_is_lost_while_suspended_is_tried_again() -> None:
    attempts: list[float] = []

    @tangram.action(cpu=2, idempotent=True, retries=1)
    async def flaky() -> float:
        attempts.append(now_s())
        await asyncio.sleep(0.75)
        if box().suspended:
            raise InfrastructureError("lost")
        return now_s()

    async with sharing() as (tg, sink):
        tg._workshop.retrying._chance = Random(0)
        first, second = with_urgent(in_a_sandbox(flaky))
        await first
        await second
        assert [action.suspended_s for action in ended(sink, "flaky")] == [0.25, 0.0]
        assert attempts[1] >= 1.5


@virtual
async def test_one_that_has_ended_in_the_same_turn_is_left_alone() -> None:
    async with sharing() as (tg, _):
        call = asyncio.ensure_future(in_a_sandbox(steady, 0.5))
        await asyncio.sleep(0.25)
        (live,) = tg._workshop.live.values()
        run = cast(Any, live).run
        assert await call == 0.5
        resize(tg._workshop, run.running._replace(units=0))
        run.resize(run.running._replace(units=0))
        assert run.switching is None


@virtual
@pytest.mark.parametrize("clean_s", [0.0, 0.25])
async def test_what_an_interrupted_body_cleans_up_does_not_wait_for_cores(clean_s: float) -> None:
    boxes: list[FakeSandbox] = []

    @tangram.action(cpu=2)
    async def careful() -> None:
        boxes.append(box())
        try:
            await asyncio.sleep(0.75)
            await box().exec(["never"])
        finally:
            await box().write_file("log", b"x")
            await box().exec(["clean"])
            await asyncio.sleep(0.25)
            await box().exec(["clean more"])

    async with sharing(clean_s=clean_s) as (_, sink):
        (first,) = begin(in_a_sandbox(careful))
        others = begin(in_a_sandbox(urgent, 0.625, after_s=0.5), in_a_sandbox(urgent, 5.0, after_s=1.125))
        await asyncio.sleep(1.0)  # from 1.125 to 1.2, it has cores and loses them again
        first.cancel()
        await asyncio.wait([first])
        assert now_s() == 1.25 + clean_s
        assert boxes[0].files == {"log": b"x"}
        assert boxes[0].commands == [("clean",), ("clean more",)]
        assert ended(sink, "careful")[0].outcome is Outcome.CANCELLED
        await asyncio.gather(*others)
