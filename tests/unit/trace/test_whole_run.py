"""A run with calls within calls, attempts, settling, a pause and another capacity: live and from its file alike."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import arl_tangram as tangram
from arl_tangram import Quota, Tangram
from arl_tangram.model.events import ActionStarted, Event
from arl_tangram.testing import FakePool, assert_idle
from arl_tangram.trace.reader import open_trace, read_trace
from arl_tangram.trace.summary import Summary


@tangram.action(cpu=2)
async def child() -> None:
    await asyncio.sleep(0.02)


@tangram.action(cpu=2)
async def parent() -> None:
    await asyncio.sleep(0.01)
    await child()
    await asyncio.sleep(0.01)


async def traced_run(path: Path) -> Summary:
    tries: list[str] = []

    @tangram.action(quota={"api": 1}, idempotent=True, retries=1, retry_on=(LookupError,))
    async def ask() -> None:
        tries.append("one")
        tangram.current_quota("api").settle(calls=0.5)
        if len(tries) == 1:
            raise LookupError

    async with Tangram(FakePool(cores=2), Quota("api", calls=5, period_s=60), trace=path) as tg:
        await asyncio.gather(parent(), parent(), ask())
        tg.pause()
        waiting = asyncio.create_task(child())
        await asyncio.sleep(0.01)
        tg.resume()
        tg.set_capacity("cpu", 4)
        await waiting
        assert_idle(tg)
        return tg._opened.summary


async def test_the_file_tells_what_the_run_told(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    live = (await traced_run(path)).figures()
    trace = read_trace(path)
    assert {type(event) for event in trace.events} >= set(Event.__args__[-5:]), "lent, resumed, settled and so on"
    with open_trace(path) as reader:
        summary = Summary(reader.header.topology)
        summary.add_all(reader.events())
    read = summary.figures()
    assert {action.name: action.calls for action in read.actions} == {
        action.name: action.calls for action in live.actions
    }
    assert read.total.retries == live.total.retries == 1
    assert read.total.core_s == pytest.approx(live.total.core_s, abs=1e-4)
    assert (read.pauses, read.holding) == (live.pauses, live.holding) == (1, 0)
    assert read.paused_s == pytest.approx(live.paused_s, abs=1e-4)
    for of_file, of_run in zip(read.dimensions, live.dimensions, strict=True):
        assert (of_file.name, of_file.capacity) == (of_run.name, of_run.capacity)
        assert of_file.held_unit_s == pytest.approx(of_run.held_unit_s, abs=1e-4)


async def test_a_child_names_its_parent_and_no_core_is_held_twice(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    figures = (await traced_run(path)).figures()
    cpu = next(dimension for dimension in figures.dimensions if dimension.name == "cpu")
    assert cpu.held_unit_s == pytest.approx(figures.total.core_s)
    assert cpu.held_share is not None
    assert cpu.held_share <= 1
    started = [event.action.pending for event in read_trace(path).events if isinstance(event, ActionStarted)]
    names = {pending.id: pending.demand.name for pending in started}
    called = [names[pending.parent] for pending in started if pending.parent is not None]
    assert called == [parent.spec.name] * 2
