"""Deadlines of actions that share their cores: a timeout stands still while they are suspended, a moment comes."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

import arl_tangram as tangram
from arl_tangram import RunTimeout
from arl_tangram.integrations.rollouts.rollout import Rollout
from arl_tangram.model.lifecycle import Outcome
from unit.runtime.sharing.scenes import elsewhere, ended, in_a_sandbox, now_s, sharing, timed, with_urgent, work
from virtual_time import virtual


@virtual
async def test_the_timeout_stands_still_while_it_is_suspended() -> None:
    async with sharing() as (_, sink):
        first, second = with_urgent(in_a_sandbox(timed, 1.5))
        assert await first == 2.375
        await second
        late, again = with_urgent(in_a_sandbox(timed, 2.0))
        begun_s = now_s()
        with pytest.raises(RunTimeout):
            await late
        assert now_s() - begun_s == 2.5
        await again
        (_, action) = ended(sink, "timed")
        assert (action.outcome, action.suspended_s, action.execution_s) == (Outcome.RUN_TIMEOUT, 1.0, 1.5)


@virtual
async def test_a_timeout_that_is_over_while_it_is_suspended_does_not_end_it() -> None:
    async with sharing():
        first, second = with_urgent(in_a_sandbox(timed, 1.0), 10.0)
        assert await first == 10.875
        await second


@virtual
async def test_the_deadline_of_a_rollout_is_a_moment_that_comes_while_it_is_suspended() -> None:
    async with sharing() as (tg, _):
        async with Rollout(tg, deadline_s=1.0) as rollout:
            first, second = with_urgent(rollout.call(timed, 1.5), 3.0)
            with pytest.raises(RunTimeout, match="still ran when the time of its rollout was over"):
                await first
            assert now_s() == 1.0
        await second


@virtual
async def test_the_deadline_of_a_rollout_comes_while_a_body_waits_for_what_it_called() -> None:
    @tangram.action(cpu=2, timeout=0.5)
    async def outer() -> None:
        await elsewhere(2.0)

    async with sharing() as (tg, _), Rollout(tg, deadline_s=1.0) as rollout:
        with pytest.raises(RunTimeout, match="still ran when the time of its rollout was over"):
            await rollout.call(outer)
        assert now_s() == 1.0


@virtual
async def test_a_timeout_is_not_blamed_on_a_rollout_that_is_over_as_well() -> None:
    async with sharing(kill_grace_s=2.0) as (tg, _), Rollout(tg, deadline_s=1.0) as rollout:

        @tangram.action(cpu=2, timeout=0.75)
        async def late() -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(5.0)
            await asyncio.sleep(0.5)

        with pytest.raises(RunTimeout, match=r"longer than its timeout of 0\.75 s"):
            await rollout.call(late)
        assert now_s() == 1.25


@virtual
async def test_the_timeout_stands_still_while_both_suspended_and_waiting_for_others() -> None:
    @tangram.action(cpu=2, timeout=1.5)
    async def outer() -> float:
        await work(0.5)
        await elsewhere(2.0)  # from 0.5 to 2.5, and suspended from 0.75 to 1.75
        return await work(0.875)

    async with sharing() as (_, sink):
        first, second = with_urgent(in_a_sandbox(outer), after_s=0.75)
        assert await first == 3.375
        await second
        assert ended(sink, "outer")[0].act_s == 3.375
