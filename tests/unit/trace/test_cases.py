"""Faults of others with metrics and tracing, as scenarios: each test is named after the case that it re-tells."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import Quota, Tangram, opening
from arl_tangram.model.events import ActionEnded, ActionStarted, ActionSubmitted, Event, UnitsReturned
from arl_tangram.model.lifecycle import Demand, FinishedAction, Outcome, PendingAction, RunningAction
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.scheduling.durations import Durations
from arl_tangram.testing import FakePool, assert_idle
from arl_tangram.trace import jsonl
from arl_tangram.trace.jsonl import JsonlSink
from arl_tangram.trace.reader import read_trace
from arl_tangram.trace.report import render
from arl_tangram.trace.sink import MemorySink
from arl_tangram.trace.summary import OTHER, Summary

MOST_SERIES = 200


@tangram.action(quota={"api": 1})
async def noop() -> None: ...


def one_call(number: int) -> list[Event]:
    """Return the events of a call that is like no other: its name, its key and its trajectory are its own."""
    at_s = float(number)
    pending = PendingAction(number, Demand(f"m:call_{number}", ((0, 1000),), dimensions=1), at_s, f"user-{number}")
    ended = FinishedAction(
        number, pending.demand.name, pending.key, number, Outcome.OK, None, at_s, 0.1, 0.2 + number % 7, 0.01, 0, 1
    )
    return [
        ActionSubmitted(at_s, pending),
        ActionStarted(at_s, RunningAction(pending, at_s, 0, 1.0)),
        UnitsReturned(at_s + 0.5, number),
        ActionEnded(at_s + 0.5, ended),
    ]


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def play(summary: Summary, durations: Durations, numbers: range) -> None:
    for number in numbers:
        events = one_call(number)
        summary.add_all(events)
        pending = events[0].action  # type: ignore[union-attr]
        durations.observe(pending.demand, pending.key, 0, 1.0)


def test_case_122_names_and_keys_without_end_make_few_series() -> None:
    summary, durations = Summary(Topology([Dimension("cpu", 4000, 1000)])), Durations()
    play(summary, durations, range(1, 30_001))
    before = resident_bytes()
    play(summary, durations, range(30_001, 100_001))
    assert resident_bytes() - before < 15 << 20, "memory stays flat: less than 225 bytes for each that has come since"
    figures = summary.figures()
    assert figures.total.calls == 100_000
    assert len(figures.actions) < MOST_SERIES
    rest = next(action for action in figures.actions if action.name == OTHER)
    assert rest.calls == 100_000 - (len(figures.actions) - 1), "what has no series of its own is counted together"
    learned = durations.learned()
    assert len(learned.estimates) < MOST_SERIES
    assert learned.more <= 10_000, "nor does the scheduler remember each"
    assert len(render(summary, learned=learned).splitlines()) < MOST_SERIES


async def test_case_122_actions_made_on_the_fly_make_few_series() -> None:
    async with Tangram(FakePool(cores=8)) as tg:
        for number in range(1000):

            async def body() -> None: ...

            body.__qualname__ = f"made_for_request_{number}"
            await tangram.action(cpu=1, key=lambda number=number: f"user-{number}")(body)()
        figures = tg._opened.summary.figures()
        assert figures.total.calls == 1000
        assert len(figures.actions) < MOST_SERIES
        assert len(tg.report().splitlines()) < MOST_SERIES
        assert_idle(tg)


class Gate:
    """A disk that takes nothing until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def __call__(self, fd: int, data: bytes) -> None:
        assert self.open.wait(60)
        os.write(fd, data)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(jsonl, "_write_all", gate)
    yield gate
    gate.open.set()


async def test_case_124_a_disk_that_takes_nothing_delays_no_action(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All actions end while the disk is blocked: however long that lasts, nobody waits for it."""
    monkeypatch.setattr(JsonlSink.__init__, "__kwdefaults__", JsonlSink.__init__.__kwdefaults__ | {"queue_size": 100})
    made: list[JsonlSink] = []

    def make(*args: Any, **kwargs: Any) -> JsonlSink:
        made.append(JsonlSink(*args, **kwargs))
        return made[0]

    monkeypatch.setattr(opening, "JsonlSink", make)
    path = tmp_path / "run.jsonl"
    async with Tangram(Quota("api", concurrency=8), trace=path) as tg:
        with caplog.at_level(logging.WARNING):
            await tangram.map(lambda _: noop(), range(1000))
        (sink,) = made
        state = sink.statistics()
        assert (state.written, state.queued) == (0, 100), "bounded"
        assert state.dropped >= 4000 - 100 - jsonl._LARGE_BATCH
        assert caplog.text.count("events are being dropped") == 1, "told, once"
        assert tg.statistics().running == 0
        gate.open.set()
    trace = read_trace(path)
    assert trace.ending.footer is not None
    assert trace.ending.footer.dropped == state.dropped, "counted"
    assert trace.ending.footer.written == len(trace.events) == 4000 - state.dropped


async def test_case_124_without_a_trace_nothing_is_done_for_it() -> None:
    """No event is made that only a trace would read, and none is kept."""
    seen: list[Event] = []

    class Watched(Summary):
        def add_all(self, events) -> None:
            events = list(events)
            seen.extend(events)
            super().add_all(events)

    async with Tangram(Quota("api", concurrency=8)) as tg:
        tg._opened.summary.__class__ = Watched
        await tangram.map(lambda _: noop(), range(100))
        assert not tg._core.drain_events()
    assert len(seen) == 300
    assert not any(isinstance(event, ActionSubmitted) for event in seen)


async def cpu_s(calls: int, trace: Path | MemorySink | None) -> float:
    """Return processor seconds of this process for so many calls, those of the writing thread included."""
    gc.collect()
    began_s = time.process_time()
    async with Tangram(Quota("api", concurrency=64), trace=trace) as tg:
        await asyncio.gather(*(noop() for _ in range(calls)))
        await tg.aclose()
        return time.process_time() - began_s


async def test_case_124_a_trace_costs_little(tmp_path: Path) -> None:
    """Measured in processor time, so that other processes do not count, and with the work of the writing thread.

    The promise is below 20 us per action of scheduling; `bench overhead --trace` measures it. Here the bound is wider,
    as everything until the file is complete counts, and a machine that runs tests is slow.
    """
    calls = 2000
    off_s, on_s = [], []
    for round_ in range(3):
        off_s.append(await cpu_s(calls, None))
        on_s.append(await cpu_s(calls, tmp_path / f"run{round_}.jsonl"))
    added_us = (min(on_s) - min(off_s)) / calls * 1e6
    assert added_us < 40
