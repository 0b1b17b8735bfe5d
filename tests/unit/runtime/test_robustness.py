"""What may go wrong around a runtime: opening that is cancelled or fails, sinks that raise, looks at a quiet one."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import arl_tangram as tangram
from arl_tangram import ConfigurationError, LocalPool, Quota, RuntimeClosedError, Tangram
from arl_tangram.model.events import ActionEnded, Event
from arl_tangram.testing import FakePool
from arl_tangram.trace.sink import MemorySink
from unit.runtime.virtual import virtual


@tangram.action(quota={"api": 1})
async def call() -> str:
    return "done"


@tangram.action(cpu=1)
def nothing() -> None:
    pass


async def test_opening_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    for turns in range(12):
        opening = asyncio.create_task(Tangram(LocalPool(root=tmp_path)).__aenter__())
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


async def test_a_runtime_that_failed_to_open_says_that_it_is_closed(tmp_path: Path) -> None:
    tg = Tangram(FakePool(), trace=tmp_path / "missing" / "trace.jsonl")
    with pytest.raises(ConfigurationError):
        await tg.__aenter__()
    with pytest.raises(RuntimeClosedError, match="closed"):
        await tg.__aenter__()


@virtual
async def test_a_sink_that_raises_keeps_nobody_waiting() -> None:
    class Broken(MemorySink):
        def write(self, event: Event) -> None:
            raise OSError("no room")

    async with Tangram(Quota("api", concurrency=1), trace=Broken()):
        assert await asyncio.gather(call(), call()) == ["done", "done"]


@virtual
async def test_a_rate_returns_by_itself_where_nobody_waits() -> None:
    async with Tangram(Quota("api", calls=5, period_s=10)) as tg:
        await call()
        assert tg.statistics().dimensions["quota:api/calls"].used == 1
        await asyncio.sleep(11)
        assert tg.statistics().dimensions["quota:api/calls"].used == 0


@virtual
async def test_the_report_of_a_closed_runtime_stands_still() -> None:
    async with Tangram(Quota("api", concurrency=1)) as tg:
        await call()
        await asyncio.sleep(1)
    report = tg.report()
    await asyncio.sleep(100)
    assert tg.report() == report


async def test_the_way_to_a_thread_and_back_is_overhead() -> None:
    sink = MemorySink()
    async with Tangram(FakePool(), trace=sink):
        waiting = asyncio.create_task(nothing())
        while not any(event for event in sink.events):
            await asyncio.sleep(0)
        time.sleep(0.05)  # the loop is busy while the thread has long ended
        await waiting
    (ended,) = [event.action for event in sink.events if isinstance(event, ActionEnded)]
    assert ended.execution_s < 0.02
    assert ended.overhead_s > 0.03
