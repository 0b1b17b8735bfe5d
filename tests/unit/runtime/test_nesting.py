"""Bodies that call actions: what they lend meanwhile, what they keep, and that they have it back before they go on."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import (
    BodyCancelledError,
    NestedActionError,
    Quota,
    RunTimeout,
    Tangram,
    UsageError,
    current_allocation,
    current_sandbox,
)
from arl_tangram.model.events import ActionEnded
from arl_tangram.model.lifecycle import FinishedAction
from arl_tangram.testing import assert_idle
from arl_tangram.trace.sink import MemorySink
from counting_pools import CountingPool
from injection import Scene, at_every_step
from virtual_time import turns, virtual

Calls = Callable[[], Coroutine[Any, Any, Any]]


def now_s() -> float:
    return asyncio.get_running_loop().time()


@tangram.action(cpu=4)
async def whole(for_s: float = 1.0) -> str:
    await asyncio.sleep(for_s)
    return "whole"


@tangram.action(cpu=1)
async def single(for_s: float = 1.0) -> str:
    await asyncio.sleep(for_s)
    return "single"


@tangram.action(cpu=4)
async def calling(calls: Calls, then_s: float = 0.0) -> Any:
    try:
        return await calls()
    finally:
        await asyncio.sleep(then_s)


@tangram.action(cpu=4, timeout=2)
async def calling_with_a_timeout(calls: Calls, then_s: float = 0.0) -> Any:
    result = await calls()
    await asyncio.sleep(then_s)
    return result


@tangram.action(memory_gib=40)
async def with_memory(calls: Calls | None = None) -> str:
    await asyncio.sleep(1)
    if calls is not None:
        await calls()
    return "memory"


@virtual
async def test_a_body_lends_its_cores_to_what_it_calls_and_has_them_back() -> None:
    pool = CountingPool(cores=4)
    async with Tangram(pool) as tg:

        async def calls() -> str:
            result = await whole()
            assert tg.statistics().dimensions["cpu"].used == 4
            assert pool.made.milli_free == 0
            assert current_allocation().cores == 4
            return result

        assert await calling(calls) == "whole"
        assert now_s() == 1
        assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_while_others_use_what_it_has_lent_it_waits_at_the_head_of_the_queue() -> None:
    async with Tangram(CountingPool(cores=4)) as tg:
        order: list[str] = []

        async def noted(name: str, call: Coroutine[Any, Any, Any]) -> None:
            await call
            order.append(name)

        first = asyncio.create_task(noted("caller", calling(lambda: single(1.0))))
        await turns(6)
        others = [asyncio.create_task(noted(f"other {n}", whole(2.0))) for n in range(3)]
        await asyncio.gather(first, *others)
        # The child takes one core at once, so that the first other one, which wants all, starts after it and before
        # nobody else: the caller stands at the head as soon as its child has ended.
        assert order == ["caller", "other 0", "other 1", "other 2"]
        assert_idle(tg)


@virtual
async def test_a_caller_waits_for_who_took_its_cores_and_that_is_queueing() -> None:
    sink = MemorySink()
    async with Tangram(CountingPool(cores=4), trace=sink) as tg:
        caller = asyncio.create_task(calling(with_memory, 0.5))
        await turns(6)
        other = asyncio.create_task(whole(3.0))
        await asyncio.gather(caller, other)
        assert now_s() == 3.5
        assert_idle(tg)
    ended = {event.action.name: event.action for event in sink.events if isinstance(event, ActionEnded)}
    found: FinishedAction = ended[calling.spec.name]
    assert (found.queueing_s, found.execution_s, found.overhead_s) == (2.0, 1.5, 0.0)


@virtual
async def test_what_is_learned_of_a_caller_is_its_own_time() -> None:
    @tangram.action(cpu=tangram.Elastic(1, 2, speedup=tangram.Linear()))
    async def learning() -> None:
        await asyncio.sleep(1)
        await with_memory()
        await asyncio.sleep(1)

    async with Tangram(CountingPool(cores=1)) as tg:
        await learning()
        assert now_s() == 3
        assert "2.0" in tg.report() or "2.00" in tg.report()
        assert_idle(tg)


@virtual
async def test_many_callers_and_all_that_they_call_end() -> None:
    async def tree(depth: int) -> int:
        if depth == 0:
            return 1
        found = await asyncio.gather(*(node(depth - 1) for _ in range(3)))
        return sum(found)

    @tangram.action(cpu=2)
    async def node(depth: int) -> int:
        await asyncio.sleep(0.1)
        found = await tree(depth)
        await asyncio.sleep(0.1)
        return found

    pool = CountingPool(cores=4)
    async with Tangram(pool) as tg:
        assert await asyncio.gather(*(node(3) for _ in range(4))) == [27] * 4
        assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_a_call_that_does_not_fit_beside_what_the_caller_keeps_is_refused_with_the_chain() -> None:
    async with Tangram(CountingPool(cores=4, memory_gib=64)) as tg:
        with pytest.raises(NestedActionError) as refused:
            await with_memory(lambda: calling(with_memory))
        names = [with_memory.spec.name, calling.spec.name, with_memory.spec.name]
        assert " → ".join(names) in str(refused.value)
        assert now_s() == 1
        assert_idle(tg)


@virtual
async def test_callers_that_wait_for_each_others_memory_are_told() -> None:
    @tangram.action(memory_gib=24)
    async def parent() -> str:
        await asyncio.sleep(1)
        return await child()

    @tangram.action(memory_gib=24)
    async def child() -> str:
        await asyncio.sleep(1)
        return "done"

    async with Tangram(CountingPool(cores=4, memory_gib=64)) as tg:
        results = await asyncio.gather(parent(), parent(), return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["NestedActionError", "str"]
        assert_idle(tg)


@virtual
async def test_its_timeout_stands_still_while_a_body_waits_for_an_action() -> None:
    async with Tangram(CountingPool()) as tg:
        assert await calling_with_a_timeout(lambda: single(10), 1.5) == "single"
        with pytest.raises(RunTimeout):
            await calling_with_a_timeout(lambda: single(10), 2.5)
        assert now_s() == 23.5
        assert_idle(tg)


@virtual
async def test_the_turn_in_the_sandbox_passes_to_what_is_called_and_comes_back() -> None:
    log: list[str] = []

    @tangram.action(cpu=1)
    async def inner(name: str) -> None:
        await current_sandbox().exec([name])
        await asyncio.sleep(1)
        log.append(name)

    @tangram.action(cpu=1)
    async def outer() -> None:
        await current_sandbox().exec(["before"])
        await asyncio.gather(inner("a"), inner("b"))
        await current_sandbox().exec(["after"])
        log.append("outer")

    async with Tangram(CountingPool()) as tg, tangram.trajectory():
        await asyncio.gather(outer(), inner("later"))
        assert log == ["a", "b", "outer", "later"]
        assert now_s() == 3
    assert_idle(tg)


@virtual
async def test_what_is_alive_in_the_sandbox_keeps_its_cores() -> None:
    @tangram.action(cpu=1)
    async def in_sandbox() -> None:
        current_sandbox()

    @tangram.action(cpu=1)
    async def leaves_something_behind(call: Calls) -> Any:
        return await call()

    pool = CountingPool(cores=2, clean_s=1.0)
    async with Tangram(pool) as tg:
        async with tangram.trajectory():
            with pytest.raises(NestedActionError, match="alive"):
                await leaves_something_behind(in_sandbox)

            async def used() -> float:
                await with_memory()
                return tg.statistics().dimensions["cpu"].used

            assert await leaves_something_behind(used) == 1
        assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_a_call_that_the_body_did_not_wait_for_outlives_it() -> None:
    left: list[asyncio.Task[str]] = []

    @tangram.action(cpu=4)
    async def leaves_a_call() -> None:
        left.append(asyncio.create_task(single(2.0)))
        await turns(3)

    async with Tangram(CountingPool(cores=4)) as tg:
        await leaves_a_call()
        assert now_s() == 0
        assert tg.statistics().running == 1
        assert await left[0] == "single"
        assert_idle(tg)


@virtual
async def test_an_error_of_what_it_calls_arrives_when_it_has_its_cores_back() -> None:
    @tangram.action(cpu=4)
    async def fails() -> None:
        raise KeyError("why")

    async def calls() -> str:
        with pytest.raises(KeyError):
            await fails()
        return f"{current_allocation().cores} cores"

    async with Tangram(CountingPool(cores=4)) as tg:
        assert await calling(calls) == "4 cores"
        assert_idle(tg)


@virtual
async def test_a_timeout_of_the_bodys_own_ends_the_call_and_the_body_goes_on_with_its_cores() -> None:
    async def calls() -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await whole(10)
        return int(current_allocation().cores)

    pool = CountingPool(cores=4)
    async with Tangram(pool) as tg:

        async def used() -> tuple[int, float]:
            return await calls(), tg.statistics().dimensions["cpu"].used

        assert await calling(used) == (4, 4)
        assert now_s() == 1
        assert_idle(tg)


@virtual
async def test_whoever_was_ended_calls_nothing_any_more() -> None:
    seen: list[BaseException] = []

    @tangram.action(cpu=1, timeout=1)
    async def deaf() -> None:
        end_s = now_s() + 10
        while (left_s := end_s - now_s()) > 0:
            try:
                await asyncio.sleep(left_s)
            except asyncio.CancelledError:
                continue
        try:
            await single()
        except UsageError as error:
            seen.append(error)

    async with Tangram(CountingPool(), kill_grace_s=1) as tg:
        with pytest.raises(RunTimeout):
            await deaf()
        await asyncio.sleep(20)
        assert "answered already" in str(seen[0])
        assert_idle(tg)


@virtual
async def test_what_a_deaf_body_has_called_ends_with_it() -> None:
    seen: list[BaseException] = []

    async def shielded() -> None:
        call = asyncio.ensure_future(single(100))
        while not call.done():
            try:
                await asyncio.shield(asyncio.wait([call]))
            except asyncio.CancelledError:
                continue
        try:
            call.result()
        except BodyCancelledError as error:
            seen.append(error)

    async with Tangram(CountingPool(), kill_grace_s=1) as tg:
        call = asyncio.ensure_future(calling(shielded))
        await turns(8)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert now_s() == 1
        await turns(8)
        assert len(seen) == 1
        assert_idle(tg)


async def cancelled_caller(scene: Scene) -> None:
    """A caller with two levels of calls is struck; others wait for the same cores."""
    other = asyncio.ensure_future(whole(0.5))
    scene.victim(calling(lambda: asyncio.gather(calling(lambda: single(0.5)), single(0.2)), 0.3))
    await asyncio.wait([*scene.victims, asyncio.ensure_future(whole(0.5)), other])


async def cancelled_caller_in_a_sandbox(scene: Scene) -> None:
    @tangram.action(cpu=2)
    async def inner() -> None:
        await current_sandbox().exec(["x"])
        await asyncio.sleep(0.3)

    @tangram.action(cpu=4)
    async def outer() -> None:
        await inner()
        await current_sandbox().exec(["y"])

    async with tangram.trajectory():
        scene.victim(outer())
        await asyncio.wait([*scene.victims, asyncio.ensure_future(inner()), asyncio.ensure_future(whole(0.5))])


@pytest.mark.parametrize("scenario", [cancelled_caller, cancelled_caller_in_a_sandbox])
@pytest.mark.parametrize("clean_s", [0.0, 0.1])
def test_cancelling_a_caller_at_every_step_loses_nothing(scenario: Any, clean_s: float) -> None:
    assert at_every_step(scenario, pool=lambda: CountingPool(clean_s=clean_s), again_after=(1, 3)) > 50


@virtual
async def test_a_quota_that_the_caller_holds_is_not_lent() -> None:
    @tangram.action(quota={"api": 1})
    async def outer() -> str:
        return await inner()

    @tangram.action(quota={"api": 1})
    async def inner() -> str:
        return "inner"

    async with Tangram(CountingPool(), Quota("api", concurrency=1)) as tg:
        with pytest.raises(NestedActionError, match=r"outer → .*inner"):
            await outer()
        assert_idle(tg)
    async with Tangram(CountingPool(), Quota("api", calls=1, period_s=5)) as tg:
        assert await outer() == "inner"
        assert now_s() == 5


async def test_a_body_on_a_thread_calls_actions_too() -> None:
    @tangram.action(cpu=4)
    def with_run_sync() -> str:
        return tangram.run_sync(single, 0.0)

    @tangram.action(cpu=4)
    def with_a_loop_of_its_own() -> str:
        return asyncio.run(whole(0.0))

    pool = CountingPool(cores=4)
    async with Tangram(pool) as tg:
        assert await with_run_sync() == "single"
        assert await with_a_loop_of_its_own() == "whole"
        assert await asyncio.gather(*(with_run_sync() for _ in range(8))) == ["single"] * 8
        assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_a_call_that_was_left_behind_ends_though_its_caller_does_not_take_its_cores_back() -> None:
    """The call has ended, and its caller waits for cores that somebody else has, when its body returns by itself."""
    left: list[asyncio.Task[str]] = []

    @tangram.action(cpu=4)
    async def leaves_a_call() -> None:
        left.append(asyncio.create_task(with_memory()))
        await asyncio.sleep(2)

    async with Tangram(CountingPool(cores=4)) as tg:
        caller = asyncio.create_task(leaves_a_call())
        await turns(8)
        other = asyncio.create_task(whole(5.0))
        await caller
        assert now_s() == 2
        assert await left[0] == "memory"
        assert now_s() == 2
        await other
        assert_idle(tg)


@virtual
async def test_cores_that_cannot_be_taken_again_are_an_error_in_the_body() -> None:
    class Failing(CountingPool):
        def manager(self) -> Any:
            made = super().manager()
            lease = made.lease

            def failing(milli_cores: int, sandbox: Any, *, again: bool = False, most: int = 0) -> Any:
                if again:
                    raise OSError(16, "busy")
                return lease(milli_cores, sandbox)

            made.lease = failing  # type: ignore[method-assign]
            return made

    for others in (0, 1):
        pool = Failing(cores=4)
        async with Tangram(pool) as tg:
            caller = asyncio.create_task(calling(with_memory))
            await turns(8)
            waiting = [asyncio.create_task(whole(3.0)) for _ in range(others)]
            with pytest.raises(OSError, match="busy"):
                await caller
            await asyncio.gather(*waiting)
            assert_idle(tg)
            assert pool.is_whole


@virtual
async def test_a_trajectory_is_not_entered_inside_an_action_either() -> None:
    async with Tangram(CountingPool()) as tg:
        trajectory = tangram.trajectory()

        async def enter() -> None:
            async with trajectory:
                pass

        with pytest.raises(NestedActionError, match="→ trajectory"):
            await calling(enter)
        assert_idle(tg)


async def test_nothing_of_a_call_is_kept_for_the_collector() -> None:
    class Argument:
        pass

    @tangram.action(cpu=1)
    async def parent(argument: Argument) -> None:
        await single(0.0)

    @tangram.action(cpu=1)
    async def raises(argument: Argument) -> None:
        raise KeyError("why")

    async with Tangram(CountingPool()):
        gc.collect()
        gc.disable()
        try:
            for action in (parent, raises):
                argument = Argument()
                kept = weakref.ref(argument)
                with suppress(KeyError):
                    await action(argument)
                del argument
                await turns(3)
                assert kept() is None, action
        finally:
            gc.enable()
