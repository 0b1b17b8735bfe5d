"""Bounded work goes to its end, whoever cancels whom."""

from __future__ import annotations

import asyncio
import gc

import pytest

from arl_tangram.uninterrupted import finish_anyway, sure_to_begin, unstoppable
from virtual_time import turns, virtual


@virtual
async def test_a_caller_that_is_cancelled_again_and_again_hears_of_it_at_the_end() -> None:
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(1)
        done.append("work")

    caller = asyncio.create_task(finish_anyway(work()))
    await turns(3)
    for _ in range(3):
        caller.cancel()
        await turns(3)
        assert not caller.done()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == ["work"]


@virtual
async def test_who_cancels_all_tasks_does_not_stop_it() -> None:
    """As `asyncio.run` does at its end, before the first step too."""
    task = unstoppable(asyncio.sleep(1, "done"))
    for _ in range(2):
        assert not task.cancel()
        await turns(2)
    assert await task == "done"


@virtual
async def test_an_error_of_the_work_is_heard() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise LookupError("own")

    with pytest.raises(LookupError, match="own"):
        await finish_anyway(fail())
    caller = asyncio.create_task(finish_anyway(fail()))
    await turns(3)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


@virtual
async def test_what_fails_after_its_caller_was_cancelled_twice_is_heard() -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    async def work() -> None:
        await asyncio.sleep(1)
        raise OSError("it failed")

    caller = asyncio.create_task(finish_anyway(work()))
    for _ in range(2):
        await turns(3)
        caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    del caller
    gc.collect()
    assert told == []


@virtual
async def test_what_is_sure_to_begin_does_what_must_be_done_though_it_is_cancelled() -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            done.append("begun")
            await asyncio.sleep(1)
            done.append("not reached")
        finally:
            done.append("ended")

    task = sure_to_begin(work())
    assert not task.cancel()
    await turns(2)
    assert done == ["begun"]
    assert task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["begun", "ended"]


def test_the_end_of_the_loop_waits_for_it() -> None:
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.01)
        done.append("work")

    async def main() -> None:
        tasks.append(unstoppable(work()))

    tasks: list[asyncio.Task[None]] = []
    asyncio.run(main())
    assert done == ["work"]
    assert not tasks[0].cancelled()
