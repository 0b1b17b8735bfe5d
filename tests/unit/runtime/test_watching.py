"""Bodies that hold up the event loop are named."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time

import pytest

import arl_tangram as tangram
from arl_tangram import Tangram, watching
from arl_tangram.watching import LoopWatch
from counting_pools import CountingPool
from virtual_time import until


def wait(for_s: float) -> None:
    end_s = time.monotonic() + for_s
    while time.monotonic() < end_s:  # what tests forbid is to sleep on the loop
        pass


@tangram.action(cpu=1)
async def blocks(for_s: float) -> str:
    await asyncio.sleep(0)
    wait(for_s)
    await asyncio.sleep(0)
    return "blocked"


@tangram.action(cpu=1)
async def blocks_when_cancelled(for_s: float) -> None:
    try:
        await asyncio.sleep(10)
    finally:
        wait(for_s)


async def test_a_body_that_blocks_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async with Tangram(CountingPool()):
        assert await asyncio.gather(*(blocks(watching.LONG_S + 0.01) for _ in range(2))) == ["blocked"] * 2
        assert await blocks(0.001) == "blocked"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"{blocks.spec.name} held the event loop for " in record.getMessage()


async def test_blocking_in_the_clean_up_is_seen_too(caplog: pytest.LogCaptureFixture) -> None:
    async with Tangram(CountingPool()):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await blocks_when_cancelled(watching.LONG_S + 0.01)
    assert blocks_when_cancelled.spec.name in caplog.text


async def test_a_body_that_goes_on_holding_the_loop_is_named_with_its_line_while_it_does(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "STUCK_S", 0.05)
    async with Tangram(CountingPool()):
        await blocks(0.5)
    assert "still does" in caplog.text
    assert "wait(for_s)" in caplog.text
    assert len(caplog.records) == 1


async def test_an_ordinary_body_is_not_named_and_its_errors_pass(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LONG_S", 1.0)  # longer than a busy machine stops a process for

    @tangram.action()
    async def raises() -> None:
        await asyncio.sleep(0)
        raise StopAsyncIteration("mine")

    @tangram.action()
    async def awaits_much() -> int:
        end_s = time.monotonic() + watching.LONG_S + 0.05
        while time.monotonic() < end_s:  # noqa: ASYNC110 - many short steps are the point
            await asyncio.sleep(0)
        return 3

    async with Tangram():
        with pytest.raises(StopAsyncIteration, match="mine"):
            await raises()
        assert await awaits_much() == 3
    assert not caplog.records


def test_its_thread_ends_with_the_watch_also_if_nobody_closes_it() -> None:
    async def nothing() -> None:
        pass

    before = threading.active_count()
    watch = LoopWatch()
    assert watch.begin(nothing(), "nothing") == (None, None)
    assert threading.active_count() == before + 1
    del watch
    gc.collect()

    async def main() -> None:
        await until(lambda: threading.active_count() == before)

    asyncio.run(main())
