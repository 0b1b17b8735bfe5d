"""Which runtime a call finds, and the errors where it finds none."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import pytest_asyncio

import arl_tangram as tangram
from arl_tangram import NoRuntimeError, RuntimeClosedError, Tangram, UsageError, WrongLoopError
from arl_tangram.context import current_runtime, runtime_var
from arl_tangram.testing import assert_idle
from counting_pools import CountingPool
from virtual_time import virtual


@tangram.action()
async def ping() -> str:
    return "pong"


async def without_context(call: Coroutine[Any, Any, str]) -> str:
    """Await a call where no runtime is current."""
    return await asyncio.get_running_loop().create_task(call, context=contextvars.Context())


@virtual
async def test_outside_of_any_runtime_the_error_counts_none() -> None:
    with pytest.raises(NoRuntimeError, match=r"^no runtime is open"):
        await ping()
    with pytest.raises(NoRuntimeError):
        tangram.trajectory()


@virtual
async def test_the_only_open_runtime_is_found_without_a_context() -> None:
    async with Tangram() as tg:
        assert await without_context(ping()) == "pong"
        assert await without_context(tangram.run(ping)) == "pong"
        assert await without_context(tg.run(ping)) == "pong"


@virtual
async def test_of_two_runtimes_the_current_one_is_used() -> None:
    async with Tangram(CountingPool()) as outer:
        async with Tangram(CountingPool()) as inner:
            assert current_runtime() is inner
            with pytest.raises(NoRuntimeError, match=r"^2 runtimes are open"):
                await without_context(ping())
            assert await without_context(outer.run(ping)) == "pong"
        assert current_runtime() is outer
        assert await ping() == "pong"
    with pytest.raises(NoRuntimeError, match=r"^no runtime"):
        await ping()
    assert runtime_var.get() is None


@virtual
async def test_a_context_whose_runtime_is_closed_finds_the_only_open_one() -> None:
    async with Tangram():
        stale = contextvars.copy_context()
    async with Tangram():
        assert await asyncio.get_running_loop().create_task(ping(), context=stale) == "pong"


@virtual
async def test_a_runtime_that_is_not_open_refuses() -> None:
    tg = Tangram()
    for look in (tg.statistics, tg.report, tg.describe, tg.trajectory):
        with pytest.raises(RuntimeClosedError, match=r"new, not open: open it first, with `async with tg:`"):
            look()
    with pytest.raises(RuntimeClosedError, match="new"):
        await tg.run(ping)
    async with tg:
        with pytest.raises(UsageError, match="is open"):
            await tg.__aenter__()
        assert await ping() == "pong"
    with pytest.raises(RuntimeClosedError, match="closed"):
        await tg.run(ping)
    with pytest.raises(RuntimeClosedError, match="closed"):
        tg.trajectory()
    with pytest.raises(RuntimeClosedError, match="closed"):
        await tg.__aenter__()
    assert tg.statistics().running == 0
    assert "ping" in tg.report()


def test_closing_a_runtime_that_was_never_opened_does_nothing() -> None:
    asyncio.run(Tangram().aclose())


async def test_a_call_from_another_loop_goes_to_that_of_the_runtime() -> None:
    async with Tangram() as tg:

        def elsewhere() -> None:
            async def call() -> None:
                assert await ping() == "pong"
                assert await tg.run(ping) == "pong"
                async with tg.trajectory() as trajectory:
                    assert trajectory.is_open

            asyncio.run(call())

        await asyncio.to_thread(elsewhere)
        assert_idle(tg)
        assert await ping() == "pong"


def test_a_call_to_a_loop_that_does_not_run_is_refused() -> None:
    with asyncio.Runner() as runner:
        tg = runner.run(Tangram().start())

        async def call() -> None:
            with pytest.raises(WrongLoopError, match="does not run"):
                await ping()
            with pytest.raises(WrongLoopError, match="does not run"):
                tg.trajectory()

        asyncio.run(call())
        with pytest.raises(WrongLoopError, match="does not run"):
            tangram.run_sync(ping)
        assert tg.statistics().running == 0
        runner.run(tg.aclose())


def test_a_runtime_whose_loop_is_closed_is_not_open_any_more() -> None:
    """A script that forgot to close it is not punished in its next `asyncio.run`."""

    async def forget() -> Tangram:
        return await Tangram().__aenter__()

    forgotten = asyncio.run(forget())

    async def again() -> None:
        with pytest.raises(NoRuntimeError, match=r"^no runtime"):
            await ping()
        async with Tangram():
            assert await without_context(ping()) == "pong"
        with pytest.raises(RuntimeClosedError):
            await forgotten.run(ping)
        await forgotten.aclose()

    asyncio.run(again())


async def test_a_thread_without_a_loop_is_told_to_block() -> None:
    async with Tangram() as tg:

        def elsewhere() -> None:
            call = tg.run(ping)
            with pytest.raises(UsageError, match=r"no event loop .* use run_sync\(\)"):
                call.send(None)
            assert tangram.run_sync(ping) == "pong"

        await asyncio.to_thread(elsewhere)


def test_without_a_loop_the_runtime_has_one_of_its_own() -> None:
    with Tangram(CountingPool()) as tg:
        assert current_runtime() is tg
        assert tangram.run_sync(ping) == "pong"
        assert asyncio.run(tangram.run(ping)) == "pong"
        with tangram.trajectory() as trajectory:
            assert tangram.run_sync(ping) == "pong"
        assert not trajectory.is_open
        with pytest.raises(UsageError, match="is open"):
            tg.__enter__()
        assert tg.is_open
    assert not tg.is_open
    assert runtime_var.get() is None
    with pytest.raises(NoRuntimeError):
        tangram.run_sync(ping)
    with pytest.raises(RuntimeClosedError, match="closed"):
        tg.run_sync(ping)
    with pytest.raises(RuntimeClosedError, match="closed"):
        tg.wait(tg.drain())


def test_what_fails_at_the_opening_leaves_no_thread() -> None:
    class Broken(CountingPool):
        def manager(self):
            raise OSError("no cores today")

    with pytest.raises(OSError, match="no cores today"), Tangram(Broken()):
        pass


def test_an_error_leaves_a_with_block_as_it_is() -> None:
    with pytest.raises(KeyError, match="own"), Tangram() as tg:
        raise KeyError("own")
    assert not tg.is_open


@pytest_asyncio.fixture
async def runtime() -> AsyncIterator[Tangram]:
    """Set up and torn down in different tasks, as pytest-asyncio does it."""
    async with Tangram(CountingPool()) as tg:
        yield tg
    assert not tg.is_open


async def test_a_fixture_can_hold_the_runtime(runtime: Tangram) -> None:
    assert current_runtime() is runtime
    async with tangram.trajectory():
        assert await ping() == "pong"


async def test_a_fixture_is_closed_while_things_run(runtime: Tangram) -> None:
    @tangram.action(cpu=4)
    async def long() -> None:
        await asyncio.sleep(1000)

    calls = [asyncio.create_task(long()) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert runtime.statistics().running == 1
    await runtime.aclose()
    assert [type(error).__name__ for error in await asyncio.gather(*calls, return_exceptions=True)] == [
        "ShutdownError"
    ] * 3


async def test_setup_and_teardown_in_different_tasks_and_contexts() -> None:
    tg = Tangram(CountingPool())
    loop = asyncio.get_running_loop()
    context = contextvars.Context()
    await loop.create_task(tg.__aenter__(), context=context)
    assert runtime_var.get() is None
    assert await ping() == "pong"
    await loop.create_task(tg.__aexit__(None, None, None), context=contextvars.Context())
    assert not tg.is_open
    assert await asyncio.to_thread(lambda: None) is None


async def test_context_is_kept_by_to_thread_and_lost_by_executors() -> None:
    def what() -> object:
        return runtime_var.get()

    async with Tangram() as tg:
        assert await asyncio.to_thread(what) is tg
        with ThreadPoolExecutor(1) as executor:
            assert await asyncio.get_running_loop().run_in_executor(executor, what) is None


@pytest.mark.parametrize("wrong", [[3], [CountingPool(), CountingPool()], ["pool"], [None]])
def test_wrong_pools_are_refused(wrong: list[Any]) -> None:
    with pytest.raises(tangram.ConfigurationError):
        Tangram(*wrong)


@pytest.mark.parametrize(
    "options",
    [{"kill_grace_s": 0}, {"kill_grace_s": float("nan")}, {"max_threads": 0}, {"max_threads": 1.5}],
    ids=repr,
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(tangram.ConfigurationError):
        Tangram(**options)


def test_two_quotas_of_one_name_are_refused() -> None:
    with pytest.raises(tangram.ConfigurationError, match="same name"):
        Tangram(tangram.Quota("a", concurrency=1), tangram.Quota("a", concurrency=2))


@virtual
async def test_a_manager_that_does_not_start_leaves_the_runtime_closed() -> None:
    class Broken(CountingPool):
        def manager(self):
            manager = super().manager()

            async def start() -> None:
                raise OSError("no cores today")

            manager.start = start  # type: ignore[method-assign]
            return manager

    tg = Tangram(Broken())
    with pytest.raises(OSError, match="no cores today"):
        await tg.__aenter__()
    assert not tg.is_open
    with pytest.raises(NoRuntimeError, match=r"^no runtime"):
        await ping()
    with pytest.raises(RuntimeClosedError, match="closed"):
        await tg.__aenter__()


async def test_opening_an_open_runtime_or_waiting_for_what_is_no_coroutine_is_refused() -> None:
    async with Tangram() as tg:
        with pytest.raises(UsageError, match="open already"):
            await tg.start()
        for nothing in (5, None, tg.drain):
            with pytest.raises(UsageError, match="takes a coroutine"):
                await asyncio.to_thread(tg.wait, nothing)  # type: ignore[arg-type]
        assert repr(tg) == "<Tangram, open, no pool>"
