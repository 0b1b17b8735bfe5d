"""Running actions that share their cores: they are suspended and go on, grow and shrink, and see what they have."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import Elastic, Tangram, current_allocation
from arl_tangram.managers.manager import ManagedSandbox
from arl_tangram.testing import FakeManager, FakePool
from unit.runtime.sharing.scenes import EQUAL, box, ended, in_a_sandbox, pool_of, sharing, steady, urgent, with_urgent
from virtual_time import virtual


@virtual
async def test_one_that_is_suspended_goes_on_where_it_was() -> None:
    async with sharing() as (_, sink):
        first, second = with_urgent(in_a_sandbox(steady, 1.0))
        assert await second == 1.5
        assert await first == 1.875
        (action,) = ended(sink, "steady")
        assert (action.suspended_s, action.switches, action.cores) == (1.0, 2, 2.0)
        assert (action.queueing_s, action.execution_s, action.act_s) == (0.0, 0.875, 1.875)
        (other,) = ended(sink, "urgent")
        assert (other.suspended_s, other.switches, other.act_s) == (0.0, 0, 1.0)


@virtual
async def test_the_body_sees_what_it_has_and_what_it_may_have() -> None:
    seen: list[Any] = []

    @tangram.action(cpu=Elastic(1, 8, resizable=True))
    async def growing() -> list[float]:
        for _ in range(3):
            seen.append((current_allocation().cores, current_allocation().max_units))
            await asyncio.sleep(0.5)
        return box().sizes

    async with sharing(cores=4) as (_, sink):
        first, second = with_urgent(in_a_sandbox(growing), 0.5, after_s=0.375)
        assert await first == [4.0, 2.0, 4.0]
        await second
        assert seen == [(4, 4), (2, 4), (4, 4)]
        (action,) = ended(sink, "growing")
        assert (action.suspended_s, action.switches, action.cores) == (0.0, 2, 4.0)


@virtual
async def test_what_is_suspended_shows_the_cores_that_it_had() -> None:
    @tangram.action(cpu=2)
    async def looking() -> tuple[float, bool]:
        await asyncio.sleep(1.0)
        return current_allocation().cores, box().suspended

    async with sharing():
        first, second = with_urgent(in_a_sandbox(looking))
        assert await first == (2, True)
        await second


@virtual
@pytest.mark.parametrize("share", [None, EQUAL])
async def test_who_may_not_be_resized_has_at_most_what_it_has(share: Any) -> None:
    @tangram.action(cpu=Elastic(1, 3, resizable=share is None))
    async def looking() -> int:
        return current_allocation().max_units

    async with Tangram(FakePool(cores=4, share=share)):
        assert await in_a_sandbox(looking) == 3
        assert await looking() == 3  # outside of a sandbox, on cores that nobody changes


@virtual
async def test_the_most_that_it_may_have_is_told_with_the_lease() -> None:
    told: list[int] = []

    class Manager(FakeManager):
        def lease(self, milli_cores: int, sandbox: ManagedSandbox | None, *, again: bool = False, most: int = 0) -> Any:
            told.append(most)
            return super().lease(milli_cores, sandbox, again=again, most=most)

    growing = tangram.action(cpu=Elastic(1, 8, resizable=True))(urgent.body)
    async with Tangram(pool_of(Manager, cores=4, share="resize")):
        await in_a_sandbox(growing, 0.0)
        await in_a_sandbox(urgent, 0.0)
        await growing(0.0)
    async with Tangram(pool_of(Manager, cores=4)):
        await in_a_sandbox(growing, 0.0)
    assert told == [4000, 0, 0, 0]


@virtual
async def test_one_that_is_not_preemptible_keeps_its_cores() -> None:
    async with sharing() as (_, sink):
        kept = steady.with_options(preemptible=False)
        first, second = with_urgent(in_a_sandbox(kept, 1.0))
        assert await first == 1.0
        assert await second == 2.0
        assert ended(sink, "steady")[0].switches == 0
