"""Cases 18 and 20: what blocks a thread must not hold up the event loop, nor anything of the library."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import threading
import time
from pathlib import Path
from typing import Any, Self

import pytest

import arl_tangram as tangram
from arl_tangram import LocalPool
from cases import bodies
from cases.settled import opened
from counting_pools import CountingPool
from virtual_time import turns

# A loop that is free turns within a millisecond. One on a busy machine may be late; one that a body blocks is later by
# as much as the body takes.
LATE_S = 0.25
BLOCKED_S = 1.0


class Ticker:
    """Measures how late the loop is; the worst of it."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self.ticks = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(0.005)
            self.worst_s = max(self.worst_s, time.monotonic() - before_s - 0.005)
            self.ticks += 1


def sleeps() -> None:
    time.sleep(BLOCKED_S)


def computes_in_c() -> None:
    """Without the GIL, for a second; how fast the machine is does not matter."""
    end_s = time.monotonic() + BLOCKED_S
    data = bytes(1 << 20)
    while time.monotonic() < end_s:
        hashlib.sha256(data).digest()


def waits_for_a_lock() -> None:
    lock = threading.Lock()
    with lock:
        lock.acquire(timeout=BLOCKED_S)


@pytest.mark.parametrize("body", [sleeps, computes_in_c, waits_for_a_lock])
async def test_case_18_a_plain_body_does_not_hold_up_the_loop(body: Any) -> None:
    act = tangram.action(cpu=1)(body)
    async with opened(CountingPool(cores=4)), Ticker() as ticker:
        began_s = time.monotonic()
        await asyncio.gather(*(act() for _ in range(4)))
        assert time.monotonic() - began_s < 3 * BLOCKED_S, "side by side"
    assert ticker.ticks > 20
    assert ticker.worst_s < LATE_S


async def test_case_18_a_plain_body_never_runs_on_the_loop() -> None:
    """The loop turns a thousand times while eight bodies block, each until it is told to go on."""
    release = threading.Event()
    threads: set[int] = set()

    @tangram.action(cpu=1)
    def slow() -> None:
        threads.add(threading.get_ident())
        assert release.wait(60)

    async with opened(CountingPool(cores=8)):
        calls = [asyncio.create_task(slow()) for _ in range(8)]
        await turns(1000)
        release.set()
        await asyncio.gather(*calls)
        assert len(threads) == 8
        assert threading.get_ident() not in threads


async def test_case_18_a_tool_of_one_trajectory_does_not_hold_up_the_others() -> None:
    """The others wait for their own timers and tools, and get on, while one blocks until they are done."""
    others_done = threading.Event()

    @tangram.action()
    def blocks() -> bool:
        return others_done.wait(60)

    @tangram.action(cpu=1)
    async def quick() -> None:
        await asyncio.sleep(0.001)

    async def rollout() -> None:
        async with tangram.trajectory():
            for _ in range(10):
                await quick()
                await asyncio.sleep(0.001)

    async with opened(CountingPool()):
        blocked = asyncio.create_task(blocks())
        await asyncio.gather(*(rollout() for _ in range(20)))
        others_done.set()
        assert await blocked


@pytest.mark.parametrize("times", [1, 3])
async def test_case_18_an_async_body_that_blocks_is_named_once(times: int, caplog: pytest.LogCaptureFixture) -> None:
    @tangram.action(cpu=1)
    async def bad() -> None:
        _hold_the_loop(0.3)

    @tangram.action(cpu=1)
    async def worse() -> None:
        await asyncio.sleep(0)
        _hold_the_loop(0.3)
        await asyncio.sleep(0)

    @tangram.action(cpu=1)
    async def good() -> None:
        for _ in range(5):
            _hold_the_loop(0.01)
            await asyncio.sleep(0)

    @tangram.action(cpu=1)
    async def waits() -> None:
        await asyncio.sleep(0.3)

    with caplog.at_level(logging.WARNING, "arl_tangram"):
        async with opened(CountingPool()):
            for _ in range(times):
                await bad()
                await worse()
                await asyncio.gather(good(), waits())
    told = [record.getMessage() for record in caplog.records if record.name.startswith("arl_tangram")]
    for act, count in ((bad, 1), (worse, 1), (good, 0), (waits, 0)):
        assert sum(act.spec.name in text for text in told) == count, (act.spec.name, told)


def _hold_the_loop(for_s: float) -> None:
    end_s = time.monotonic() + for_s
    while time.monotonic() < end_s:
        pass


@pytest.mark.usefixtures("bwrap")
async def test_case_20_a_full_default_executor_is_no_obstacle(tmp_path: Path) -> None:
    """Everything of the library that needs a thread finds one: bodies, workers, sandboxes, their files, the trace."""
    release = threading.Event()
    loop = asyncio.get_running_loop()

    @tangram.action(timeout=30)
    def tool() -> str:
        return threading.current_thread().name

    @tangram.action(cpu=1, timeout=30)
    async def command() -> bytes:
        box = tangram.current_sandbox()
        await box.write_file("in.txt", b"text")
        done = await box.exec(["cat", "in.txt"])
        return done.stdout + await box.read_file("in.txt")

    async def all_of_it() -> tuple[str, int, bytes]:
        pool = LocalPool(cores=1, root=tmp_path / "boxes")
        async with opened(pool, trace=tmp_path / "run.jsonl") as tg:
            async with tg.trajectory():
                result = await tool(), await bodies.name_of_process(), await command()
            assert "tool" in tg.report()
            return result

    blocked = [loop.run_in_executor(None, release.wait) for _ in range(64)]
    try:
        async with asyncio.timeout(60):
            thread, pid, text = await all_of_it()
    finally:
        release.set()
        await asyncio.gather(*blocked)
    assert thread == "arl_tangram body"
    assert pid
    assert text == b"texttext"
    events = [json.loads(line).get("type") for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert events.count("ended") == 3
    assert events[-1] == "footer"
    await loop.shutdown_default_executor()


async def test_case_20_bodies_that_block_do_not_take_the_threads_of_others() -> None:
    """The other way round: as many stuck bodies as there may be leave the loop's own executor alone."""
    release = threading.Event()

    @tangram.action()
    def stuck() -> None:
        release.wait()

    @tangram.action(cpu=1)
    async def not_on_a_thread() -> str:
        return "done"

    async with opened(CountingPool(), max_threads=4) as tg:
        calls = [asyncio.create_task(stuck()) for _ in range(6)]
        await turns(20)
        assert tg.statistics().dimensions["threads"].free == 0
        assert tg.statistics().waiting == 2
        try:
            assert await asyncio.to_thread(lambda: "served") == "served"
            assert await not_on_a_thread() == "done"
        finally:
            release.set()
            await asyncio.gather(*calls)
    await asyncio.get_running_loop().shutdown_default_executor()
