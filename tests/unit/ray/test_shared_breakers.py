"""Breakers of a shared runtime: what fails in one process stops calls of all."""

from __future__ import annotations

import asyncio

import pytest

import arl_tangram as tangram
from arl_tangram import BackendDownError, Breaker, Quota, current_quota
from arl_tangram.testing import FakePool
from shared_world import SharedWorld, settle
from virtual_time import virtual


class Api:
    """An API that works or not; counts what reaches it."""

    def __init__(self) -> None:
        self.works = True
        self.calls = 0
        self.in_flight = 0


API = Api()


@pytest.fixture(autouse=True)
def _anew() -> None:
    API.__init__()  # type: ignore[misc]


@tangram.action(quota={"api": 1})
async def call(for_s: float = 0.1) -> str:
    API.calls += 1
    API.in_flight += 1
    try:
        await asyncio.sleep(for_s)
        if not API.works:
            raise ConnectionError("it does not answer")
    finally:
        API.in_flight -= 1
    return "found"


@tangram.action(quota={"api": 1})
async def says_so() -> None:
    current_quota("api").failed()


@tangram.action(quota={"api": 1})
async def own_fault() -> None:
    raise tangram.UsageError("not the backend's")


@tangram.action(quota={"api": 1})
async def nested() -> str:
    return await call()


def world() -> SharedWorld:
    quota = Quota("api", concurrency=4, breaker=Breaker(failures=3, pause_s=10.0))
    return SharedWorld(quota, nodes={"a": [FakePool(cores=1)]}, lease_s=12.0)


def time() -> float:
    return asyncio.get_running_loop().time()


async def fail(*clients: object) -> None:
    """Let three calls fail, in turn."""
    for number in range(3):
        with pytest.raises(ConnectionError):
            await clients[number % len(clients)].run(call)  # type: ignore[attr-defined]
    await settle()


@virtual
async def test_failures_of_all_processes_count_and_after_a_pause_one_call_probes() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        API.works = False
        await fail(one, two)
        assert one.statistics().breakers == {"api": "open"}
        API.works, before_s, calls = True, time(), API.calls
        waiting = [asyncio.ensure_future(tg.run(call)) for tg in (one, two) for _ in range(4)]
        await asyncio.sleep(9.0)
        assert API.calls == calls, "nothing is sent"
        await asyncio.sleep(1.05)
        assert API.calls == calls + 1, "but one"
        assert await asyncio.gather(*waiting) == ["found"] * 8
        assert time() - before_s < 11
        assert two.statistics().breakers == {"api": "closed"}
        await shared.check_idle()


@virtual
async def test_who_waits_is_refused_when_the_probe_fails_and_so_is_who_comes() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        API.works = False
        await fail(one, two)
        waiting = [asyncio.ensure_future(tg.run(call)) for tg in (one, two) for _ in range(2)]
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert sorted(type(error).__name__ for error in told) == ["BackendDownError"] * 3 + ["ConnectionError"]
        before_s = time()
        with pytest.raises(BackendDownError, match="'api' is down"):
            await two.run(call)
        assert time() == before_s
        assert "api" in one.report()
        await shared.check_idle()


@virtual
async def test_a_body_says_so_and_faults_of_its_own_count_for_nothing() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        for _ in range(5):
            with pytest.raises(tangram.UsageError):
                await one.run(own_fault)
        await settle()
        assert one.statistics().breakers == {"api": "closed"}
        for tg in (one, two, one):
            await tg.run(says_so)
        await settle()
        assert one.statistics().breakers == {"api": "open"}


@virtual
async def test_a_probe_that_calls_another_does_not_wait_for_itself() -> None:
    async with world() as shared, shared.client() as one:
        API.works = False
        await fail(one)
        API.works = True
        assert await one.run(nested) == "found"
        await settle()
        assert one.statistics().breakers == {"api": "closed"}
        await shared.check_idle()


@virtual
async def test_a_probe_whose_process_is_gone_holds_nothing_up() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        API.works = False
        await fail(one)
        API.works = True
        gone = asyncio.ensure_future(one.run(call, 1000.0))
        await asyncio.sleep(10.1)
        assert API.in_flight == 1
        shared.line_of(one).is_cut = True
        before_s = time()
        assert await two.run(call) == "found"
        assert time() - before_s < 12 + 10 + 5
        with pytest.raises(tangram.LeaseLostError):
            await gone
        await shared.check_idle()
