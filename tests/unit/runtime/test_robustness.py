"""What may go wrong around a runtime: opening that is cancelled or fails, sinks that raise, looks at a quiet one."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
import time
from pathlib import Path

import pytest

import arl_tangram as tangram
from arl_tangram import (
    ConfigurationError,
    LocalPool,
    NestedActionError,
    Quota,
    RuntimeClosedError,
    Tangram,
)
from arl_tangram.managers.quota import parse_retry_after
from arl_tangram.model.events import ActionEnded, Event
from arl_tangram.testing import FakePool, assert_idle
from arl_tangram.trace.sink import MemorySink
from virtual_time import until, virtual


@tangram.action(quota={"api": 1})
async def call() -> str:
    return "done"


@tangram.action(cpu=1)
def wait_for(started: threading.Event, release: threading.Event) -> None:
    started.set()
    release.wait()


def folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()]


async def test_opening_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    for count in range(12):
        opening = asyncio.create_task(Tangram(LocalPool(root=tmp_path)).__aenter__())
        for _ in range(count):
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert folders(tmp_path) == []


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
        started, release = threading.Event(), threading.Event()
        waiting = asyncio.create_task(wait_for(started, release))
        await until(started.is_set)
        release.set()
        time.sleep(0.1)  # noqa: ASYNC251 - the loop is busy while the body has long returned
        await waiting
    (ended,) = [event.action for event in sink.events if isinstance(event, ActionEnded)]
    assert ended.execution_s < 0.09
    assert ended.overhead_s > 0.05


@virtual
async def test_an_action_cannot_open_a_trajectory() -> None:
    @tangram.action(cpu=1)
    async def opens() -> None:
        async with tangram.trajectory(memory_gib=1):
            pass

    async with Tangram(FakePool()):
        with pytest.raises(NestedActionError, match="→ trajectory"):
            await opens()


async def test_a_trajectory_can_be_entered_on_another_loop_than_it_was_made_on() -> None:
    async with Tangram(FakePool()) as tg:
        trajectory = tg.trajectory()

        async def enter() -> None:
            async with trajectory:
                assert trajectory.is_open

        await asyncio.to_thread(asyncio.run, enter())
        assert not trajectory.is_open
        assert_idle(tg)


@pytest.mark.parametrize("resource", [LocalPool, 5, "pool"], ids=repr)
def test_what_is_no_pool_is_refused(resource: object) -> None:
    with pytest.raises(ConfigurationError, match="pools and quotas"):
        Tangram(resource)  # type: ignore[arg-type]


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="policies"):
        Tangram(policy=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("root", ["", "~/boxes", "a\0b", 5], ids=repr)
def test_what_is_no_folder_is_refused(root: object) -> None:
    with pytest.raises(ConfigurationError, match="root="):
        LocalPool(root=root)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a b", "a/b", 5], ids=repr)
def test_what_is_no_name_of_a_quota_is_refused(name: object) -> None:
    with pytest.raises(ConfigurationError, match="name of a quota"):
        Quota(name, concurrency=1)  # type: ignore[arg-type]
    with pytest.raises(tangram.DefinitionError, match="quota"):
        tangram.action(quota={name: 1})(call.body)  # type: ignore[dict-item]


@pytest.mark.parametrize("value", [True, b"3", None, "soon", -1])
def test_what_is_no_retry_after_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="Retry-After"):
        parse_retry_after(value)


@pytest.mark.parametrize("cpu", [0, 1])
def test_what_runs_when_a_loop_is_closed_ends_without_a_word(cpu: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that somebody runs by hand, and closes while an action runs; the collector ends it some time later."""
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)

    @tangram.action(cpu=cpu)
    async def long() -> None:
        await asyncio.sleep(3600)

    async def begin() -> Tangram:
        tg = await Tangram(FakePool()).start()
        running.append(asyncio.ensure_future(tg.run(long)))
        await asyncio.sleep(0.01)
        return tg

    running: list[asyncio.Future[None]] = []
    loop = asyncio.new_event_loop()
    tg = contextvars.copy_context().run(loop.run_until_complete, begin())
    assert tg.statistics().running
    loop.close()
    running.clear()
    del loop
    asyncio.run(tg.aclose())
    del tg
    gc.collect()
    assert said == []
