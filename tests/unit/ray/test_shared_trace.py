"""What an owner takes down of the calls of all processes: one trace and one report, in its own ids and its own time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import arl_tangram as tangram
from arl_tangram import Quota, current_sandbox
from arl_tangram.model.events import ActionEnded, ActionStarted, ActionSubmitted, UnitsReturned
from arl_tangram.testing import FakePool
from arl_tangram.trace.sink import MemorySink
from shared_world import SharedWorld, settle
from virtual_time import virtual

FAILED: Counter[str] = Counter()
ORDER: list[str] = []


@tangram.action(cpu=1)
async def work() -> None:
    await current_sandbox().exec(["work"])
    await asyncio.sleep(1.0)


@tangram.action(quota={"api": 1})
async def note(name: str, for_s: float = 1.0) -> None:
    ORDER.append(name)
    await asyncio.sleep(for_s)


@tangram.action(quota={"api": 1}, idempotent=True, retries=2)
async def fails_at_first(name: str) -> None:
    ORDER.append(name)
    FAILED[name] += 1
    if FAILED[name] == 1:
        raise tangram.InfrastructureError("once")


def world(sink: MemorySink) -> SharedWorld:
    nodes = {name: [FakePool(cores=2, memory_gib=16)] for name in ("a", "b")}
    return SharedWorld(Quota("api", concurrency=1), nodes=nodes, trace=sink)


@pytest.fixture(autouse=True)
def _anew() -> None:
    FAILED.clear()
    ORDER.clear()


@virtual
async def test_calls_of_all_processes_are_in_one_trace() -> None:
    async def rollout(tg: object) -> None:
        async with tg.trajectory(memory_gib=8):  # type: ignore[attr-defined]
            await tg.run(work)  # type: ignore[attr-defined]
            await tg.run(note, "n")  # type: ignore[attr-defined]

    sink = MemorySink()
    async with world(sink) as shared, shared.client() as one, shared.client() as two:
        await asyncio.gather(rollout(one), rollout(two), rollout(one))
        await shared.check_idle()
        shared.decider.dispatcher.tell()
        submitted = {event.action.id for event in sink.events if isinstance(event, ActionSubmitted)}
        ended = [event for event in sink.events if isinstance(event, ActionEnded)]
        returned = [event.id for event in sink.events if isinstance(event, UnitsReturned)]
        assert len(submitted) == 6
        assert {event.action.id for event in ended} == submitted == set(returned)
        assert len({event.action.trajectory for event in ended}) == 3
        for event in ended:
            taken = event.action
            assert taken.act_s == pytest.approx(event.at_s - taken.submitted_at_s, abs=1e-6)
            assert taken.execution_s == pytest.approx(1.0, abs=1e-6)
        assert sum(event.action.queueing_s for event in ended) == pytest.approx(0 + 1 + 2, abs=0.01), (
            "one api call at once"
        )
        report = one.report()
        assert "work" in report
        assert "note" in report


@virtual
async def test_calls_start_in_the_order_of_their_submission_whoever_makes_them() -> None:
    async with world(MemorySink()) as shared, shared.client() as one, shared.client() as two:
        tasks = []
        for number in range(8):
            tasks.append(asyncio.ensure_future((one, two)[number % 2].run(note, str(number))))
            await settle()
        await asyncio.gather(*tasks)
        assert [str(number) for number in range(8)] == ORDER


@virtual
async def test_one_that_is_tried_again_has_the_place_that_it_had() -> None:
    sink = MemorySink()
    async with world(sink) as shared, shared.client() as one, shared.client() as two:
        first = asyncio.ensure_future(one.run(fails_at_first, "first"))
        await settle()
        others = [asyncio.ensure_future(two.run(note, f"other {n}", 1.0)) for n in range(4)]
        await asyncio.gather(first, *others)
        assert ORDER[:2] == ["first", "other 0"], "whoever was there meanwhile"
        assert ORDER[2] == "first", "but no more"
        shared.decider.dispatcher.tell()
        tries = [event.action.pending.id for event in sink.events if isinstance(event, ActionStarted)]
        assert Counter(tries).most_common(1)[0][1] == 2, "and its id"
