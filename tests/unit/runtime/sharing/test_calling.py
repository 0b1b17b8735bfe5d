"""Actions that share their cores and call others: what they lend, what they have back, and what waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import arl_tangram as tangram
from unit.runtime.sharing.scenes import (
    begin,
    box,
    elsewhere,
    ended,
    in_a_sandbox,
    now_s,
    sharing,
    urgent,
    with_urgent,
    work,
)
from virtual_time import virtual


@virtual
async def test_one_that_is_suspended_when_its_calls_have_ended_goes_on_with_its_cores() -> None:
    @tangram.action(cpu=2, timeout=1.5)
    async def outer() -> tuple[float, float]:
        await asyncio.sleep(0.75)
        await elsewhere(0.5)  # from 0.75 to 1.25; suspended from 0.5 to 2.5
        back_s = now_s()
        await work(0.5)
        return back_s, now_s()

    async with sharing() as (_, sink):
        first, second = with_urgent(in_a_sandbox(outer), 2.0)
        assert await first == (2.5, 3.0)
        await second
        (action,) = ended(sink, "outer")
        # What it waited for its call counts as such, the rest of the time without cores as suspended.
        assert (action.suspended_s, action.execution_s, action.switches) == (1.5, 1.5, 2)


@virtual
async def test_one_that_is_suspended_calls_in_its_own_sandbox() -> None:
    @tangram.action(cpu=1, priority=-2)
    async def inner() -> float:
        await box().exec(["inner"])
        return await work(0.5)

    @tangram.action(cpu=2)
    async def outer() -> tuple[float, float, list[float]]:
        await asyncio.sleep(0.75)
        inner_s = await inner()
        await box().exec(["outer"])
        return inner_s, now_s(), box().sizes

    async with sharing():
        first, second = with_urgent(in_a_sandbox(outer), 2.0)
        inner_s, back_s, sizes = await first
        await second
        assert inner_s == 1.25  # it took the cores of `urgent`
        assert back_s >= 2.5
        assert sizes == [2.0, 0.0, 1.0, 2.0]


@virtual
@pytest.mark.parametrize("files", [False, True])
async def test_a_command_that_waits_keeps_what_is_lent_from_ending_it(files: bool) -> None:
    """As it would keep the cores if it ran; file operations need none, and go on meanwhile."""

    @tangram.action(cpu=2)
    async def outer() -> tuple[float, Any]:
        await asyncio.sleep(0.75)  # suspended from 0.5 to 2.5

        async def call() -> float:
            await elsewhere(0.25)
            return now_s()

        waiting = box().write_file("file", b"x") if files else box().exec(["waits"])
        _, called_s = await asyncio.gather(waiting, call())
        return now_s(), called_s

    async with sharing():
        first, second = with_urgent(in_a_sandbox(outer), 2.0)
        back_s, called_s = await first
        assert (back_s, called_s) == (2.5, 2.5 if files else 1.0)
        await second


@virtual
async def test_a_command_that_waits_goes_on_with_the_next_cores_though_its_body_waits_for_others() -> None:
    """Those may be waiting for what that command does."""

    @tangram.action(cpu=2)
    async def outer() -> tuple[float, float]:
        await asyncio.sleep(0.75)  # suspended from 0.5 to 1.5, and from 2.0 to 3.0

        async def command() -> float:
            await box().exec(["waits"])
            return now_s()

        command_s, _ = await asyncio.gather(command(), elsewhere(4.0))
        return command_s, await work(0.25)

    async with sharing() as (_, sink):
        (first,) = begin(in_a_sandbox(outer))
        others = begin(*(in_a_sandbox(urgent, 1.0, after_s=after_s) for after_s in (0.5, 2.0, 4.5)))
        assert await first == (1.5, 5.5 + 0.25)
        await asyncio.gather(*others)
        (action,) = ended(sink, "outer")
        assert (action.switches, action.suspended_s) == (6, 0.25 + 0.75)  # what it waited for its call counts as such
