"""Cases 106 to 120 in a whole runtime, in virtual time: actions, scheduler and manager together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram.testing import FakeGpuPool, FakeService
from cases.settled import now_s, opened
from virtual_time import turns, virtual


def use(service: str, seconds: float = 1.0) -> Callable[..., Any]:
    """Return an action that uses a service for so long, and returns when it began and what the service answers."""

    @tangram.action(service=service)
    async def used(*args: Any) -> tuple[float, Any]:
        begun_s = now_s()
        await asyncio.sleep(seconds)
        return begun_s, await tangram.current_service().call(*args)

    return used


@virtual
async def test_case_106_many_calls_to_an_evicted_service_cause_one_restore() -> None:
    services = FakeService("a", gib=80, max_concurrency=8, on_call=lambda n: n * n), FakeService("b", gib=80)
    async with opened(FakeGpuPool(*services)) as tg:
        await use("a")(0)
        await use("b")()
        assert tg.statistics().services["a"].evictions == 1
        answers = await asyncio.gather(*(use("a")(n) for n in range(32)))
        assert [answer for _, answer in answers] == [n * n for n in range(32)]
        assert tg.statistics().services["a"].restores == 2


@virtual
async def test_case_110_the_peak_of_a_restore_is_waited_for_by_the_action() -> None:
    services = (
        FakeService("model", gib=30, peak_gib=45),
        FakeService("held", gib=30),
        FakeService("idle", gib=10),
    )
    async with opened(FakeGpuPool(*services, gib=80)) as tg:
        await use("idle")()
        holder = asyncio.create_task(use("held", 20)())
        await asyncio.sleep(2)
        begun_s, _ = await use("model")()
        assert tg.statistics().services["idle"].evictions == 1, "40 GiB are free, and 45 are needed"
        await holder
        assert begun_s == 5.0, "its restore lasts a second, from 4 on"
    services = FakeService("model", gib=30, peak_gib=45), FakeService("held", gib=40)
    async with opened(FakeGpuPool(*services, gib=80)):
        began_s = now_s()
        holder = asyncio.create_task(use("held", 20)())
        await asyncio.sleep(2)
        begun_s, _ = await use("model")()
        await holder
        assert begun_s - began_s == 22.0, "nothing can go before 21 seconds have passed"


@pytest.mark.parametrize("after_s", [-0.005, -0.001, 0.0, 0.001, 0.005])
def test_case_116_a_request_just_as_its_service_goes_is_served(after_s: float) -> None:
    @virtual
    async def run() -> None:
        services = [FakeService(name, gib=60, restore_s=0.004) for name in "ab"]
        async with opened(FakeGpuPool(*services)):
            for _ in range(50):
                await use("a", 0.01)()

                async def other() -> None:
                    await asyncio.sleep(max(0.0, -after_s))
                    await use("b", 0.001)()  # for which `a` has to go

                async def same() -> None:
                    await asyncio.sleep(max(0.0, after_s))
                    await use("a", 0.001)()

                await asyncio.gather(other(), same())

    run()


@virtual
async def test_case_118_what_was_used_last_is_not_what_goes() -> None:
    services = [FakeService(name, gib=40) for name in "abc"]
    async with opened(FakeGpuPool(*services, policy="lru")) as tg:
        long = asyncio.create_task(use("a", 30)())
        await asyncio.sleep(2)
        await use("b")()
        await long
        await use("c")()
        evicted = {name: found.evictions for name, found in tg.statistics().services.items()}
        assert evicted == {"a": 0, "b": 1, "c": 0}, "`a` was begun before `b`, and used after it"


@virtual
async def test_case_120_a_call_in_progress_is_not_swapped_out() -> None:
    services = [FakeService(name, gib=80, restore_s=0.5, on_call=lambda: "whole") for name in "ab"]
    async with opened(FakeGpuPool(*services)):
        long = asyncio.create_task(use("a", 5)())
        await asyncio.sleep(1)
        late = asyncio.create_task(use("b")())
        await turns(5)
        assert (await long)[1] == "whole"
        assert (await late) == (6.0, "whole"), "0.5 + 5 until `a` may go, and 0.5 to restore `b`"
