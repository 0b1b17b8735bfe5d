"""What quotas have when their owner was started again: what runs is counted, however much there is of them by then."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import Breaker, Quota
from arl_tangram.integrations.ray.owner.rebuilding import Rebuilt, rebuild
from arl_tangram.integrations.ray.sessions.greeting import greeting
from arl_tangram.testing import FakePool
from shared_world import SharedWorld, settle
from virtual_time import virtual


class Api:
    """An API that counts who is there."""

    def __init__(self) -> None:
        self.there = 0
        self.most = 0
        self.works = True


API = Api()


@pytest.fixture(autouse=True)
def _anew() -> None:
    API.__init__()  # type: ignore[misc]


@tangram.action(quota={"api": 1})
async def search(for_s: float) -> str:
    API.there += 1
    API.most = max(API.most, API.there)
    try:
        await asyncio.sleep(for_s)
        if not API.works:
            raise ConnectionError("it does not answer")
    finally:
        API.there -= 1
    return "found"


def time() -> float:
    return asyncio.get_running_loop().time()


async def restart(shared: SharedWorld) -> None:
    shared.kill_owner()
    await asyncio.sleep(1.0)
    shared.start_owner()


@virtual
async def test_where_there_are_no_nodes_what_runs_is_counted_and_who_waits_goes_on_to_wait() -> None:
    async with (
        SharedWorld(Quota("api", concurrency=2), nodes={}) as shared,
        shared.client() as one,
        shared.client() as two,
    ):
        running = [asyncio.ensure_future(one.run(search, 100.0)) for _ in range(2)]
        await settle()
        waiting = asyncio.ensure_future(two.run(search, 1.0))
        await settle()
        await restart(shared)
        later = await shared.client().start()
        came = asyncio.ensure_future(later.run(search, 1.0))
        assert await asyncio.gather(*running, waiting, came) == ["found"] * 4
        assert API.most == 2
        await shared.check_idle()
        await later.aclose()
        await shared.check_idle()


@virtual
async def test_what_runs_beyond_a_capacity_that_was_lowered_goes_on() -> None:
    nodes = {"a": [FakePool(cores=1)]}
    async with SharedWorld(Quota("api", concurrency=4), nodes=nodes) as shared, shared.client() as tg:
        running = [asyncio.ensure_future(tg.run(search, 10.0 + n)) for n in range(4)]
        await settle()
        tg.set_capacity("quota:api/concurrency", 1)
        waiting = asyncio.ensure_future(tg.run(search, 1.0))
        await settle()
        before_s = time()
        await restart(shared)
        await asyncio.sleep(1.0)
        there = shared.statistics().dimensions["quota:api/concurrency"]
        assert (there.used, there.free) == (4, 0)
        assert await asyncio.gather(*running) == ["found"] * 4
        assert await waiting == "found"
        assert time() - before_s == pytest.approx(14.0, abs=0.01), "it has begun when the last of them had ended"
        assert shared.statistics().dimensions["quota:api/concurrency"].capacity == 1
        await shared.check_idle()


@virtual
async def test_what_runs_beyond_what_there_ever_was_at_the_beginning_goes_on() -> None:
    nodes = {"a": [FakePool(cores=1)]}
    async with SharedWorld(Quota("api", concurrency=1), nodes=nodes) as shared, shared.client() as tg:
        tg.set_capacity("quota:api/concurrency", 3)
        running = [asyncio.ensure_future(tg.run(search, 10.0)) for _ in range(3)]
        await settle()
        tg.set_capacity("quota:api/concurrency", 2)
        await settle()
        await restart(shared)
        assert await asyncio.gather(*running) == ["found"] * 3
        await asyncio.gather(*(tg.run(search, 1.0) for _ in range(4)))
        assert shared.statistics().dimensions["quota:api/concurrency"].capacity == 2
        await shared.check_idle()


@virtual
async def test_a_breaker_that_let_one_call_through_lets_all_through_again() -> None:
    quota = Quota("api", concurrency=4, breaker=Breaker(failures=3, pause_s=10.0))
    async with SharedWorld(quota, nodes={"a": [FakePool(cores=1)]}, lease_s=12.0) as shared, shared.client() as tg:
        API.works = False
        for _ in range(3):
            with pytest.raises(ConnectionError):
                await tg.run(search, 0.1)
        await settle()
        API.works = True
        tg.set_capacity("threads", 7)  # so that all are told what there is, also of the breaker
        probing = asyncio.ensure_future(tg.run(search, 5.0))
        await asyncio.sleep(12.0)
        assert API.there == 1
        tg.set_capacity("threads", 8)
        await settle()
        await restart(shared)
        assert await probing == "found"
        API.most = 0
        await asyncio.gather(*(tg.run(search, 1.0) for _ in range(8)))
        assert API.most == 4
        await shared.check_idle()


@virtual
async def test_what_was_set_last_counts_whoever_comes_first() -> None:
    nodes = {"a": [FakePool(cores=1)]}
    async with SharedWorld(Quota("api", concurrency=4), nodes=nodes, lease_s=12.0) as shared:
        one, two = [await shared.client(name).start() for name in ("one", "two")]
        await settle()
        shared.line_of(one).is_cut = shared.lines["a"].is_cut = True  # so that these do not hear of it
        two.set_capacity("quota:api/concurrency", 2)
        await settle()
        shared.kill_owner()
        shared.start_owner()
        shared.line_of(two).is_cut = True
        shared.line_of(one).is_cut = shared.lines["a"].is_cut = False
        await asyncio.sleep(2.0)
        shared.line_of(two).is_cut = False
        await asyncio.sleep(5.0)
        assert shared.statistics().dimensions["quota:api/concurrency"].capacity == 2
        await one.aclose()
        await two.aclose()


@virtual
async def test_a_beginning_that_fails_ends_what_was_held_and_lets_others_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {"a": [FakePool(cores=1)]}
    async with SharedWorld(Quota("api", concurrency=2), nodes=nodes, lease_s=12.0) as shared, shared.client() as tg:
        running = asyncio.ensure_future(tg.run(search, 1000.0))
        await settle()
        monkeypatch.setattr("arl_tangram.integrations.ray.owner.recovering.rebuild", _fails)
        before_s = time()
        await restart(shared)
        with pytest.raises(tangram.InfrastructureError):
            await running
        assert time() - before_s < 5
        assert await tg.run(search, 1.0) == "found"
        assert time() - before_s < 12 + 10 + 10
        await shared.check_idle()


@virtual
async def test_and_what_was_spent_and_paused_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SharedWorld(Quota("api", total_calls=9), nodes={}, lease_s=12.0) as shared, shared.client() as tg:
        await tg.run(search, 1.0)
        running = asyncio.ensure_future(tg.run(search, 1000.0))
        await settle()
        tg.pause()
        await settle()
        failures = iter([True])

        def fails_once(*arguments: Any) -> Rebuilt:
            if next(failures, False):
                _fails()
            return rebuild(*arguments)

        monkeypatch.setattr("arl_tangram.integrations.ray.owner.recovering.rebuild", fails_once)
        await restart(shared)
        with pytest.raises(tangram.InfrastructureError):
            await running
        waiting = asyncio.ensure_future(tg.run(search, 1.0))
        await asyncio.sleep(60.0)
        assert shared.statistics().dimensions["quota:api/calls/total"].used == 2
        assert not waiting.done()
        tg.resume()
        assert await waiting == "found"


@virtual
async def test_of_what_those_know_who_come_to_a_new_owner_the_last_counts() -> None:
    async with SharedWorld(Quota("api", concurrency=4), nodes={}, lease_s=12.0) as shared:
        one = await shared.client().start()
        shape = shared.decider.shape
        shared.line_of(one).is_cut = True
        await restart(shared)
        about = {"kind": "client", "name": "test", "host": "here"}
        for number, capacity in ((7, 2), (3, 9)):
            dimensions = tuple(replace(one, capacity=capacity * one.scale) for one in shape.dimensions)
            known = replace(shape, version=number, dimensions=dimensions)
            answer = await shared.owner.hello(greeting(about, f"token {number}", known=known))
            assert "not_yet" in answer
        async with shared.client():
            assert shared.statistics().dimensions["quota:api/concurrency"].capacity == 2
            assert shared.decider.shape.version > 7


def _fails(*_: object) -> None:
    raise RuntimeError("a defect")


@virtual
async def test_a_trace_that_cannot_be_written_any_more_ends_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    shared = SharedWorld(Quota("api", concurrency=2), nodes={"a": [FakePool(cores=1)]}, trace=str(folder / "x.jsonl"))
    async with shared, shared.client() as tg:
        running = asyncio.ensure_future(tg.run(search, 10.0))
        await settle()
        shutil.rmtree(folder)
        before = shared.decider
        await restart(shared)
        await before.aclose()
        assert await running == "found"
        assert await tg.run(search, 1.0) == "found"
