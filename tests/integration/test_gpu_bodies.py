"""Plain functions with GPUs of their own: what their workers see, and that nothing of them stays on a GPU."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import anyio.to_thread
import pytest
import pytest_asyncio

from arl_tangram import Allocation, GpuPool, InfeasibleError, LocalPool, RunTimeout, Tangram
from arl_tangram.managers.processes import BodyProcesses, Grant, pack
from arl_tangram.testing import assert_idle
from integration import gpu_bodies as bodies
from integration.gpu_bodies import VARIABLE, Seen
from integration.process_bodies import is_gone


@pytest_asyncio.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Tangram]:
    pool = LocalPool(cores=2, isolation="none", root=str(tmp_path / "root"))
    async with Tangram(pool, GpuPool(devices=["cpu:0:16MiB", "cpu:1:16MiB"]), max_processes=4) as tg:
        yield tg
        assert_idle(tg)


@pytest_asyncio.fixture
async def processes() -> AsyncIterator[BodyProcesses]:
    pool = BodyProcesses(most_idle=2)
    yield pool
    await pool.aclose()


async def on(processes: BodyProcesses, *devices: str) -> Seen:
    """Run a body on devices of these names, which need not be there."""
    grant = Grant("see", Allocation(devices=devices), 0, 0)
    returned = await processes.run(pack(bodies.without, (), {}), grant, lambda: None)
    seen: Seen = returned.result()
    return seen


async def gone(pid: int) -> bool:
    return await anyio.to_thread.run_sync(is_gone, pid)


async def test_a_body_sees_just_its_gpus_from_the_start(
    processes: BodyProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "0,1,2,3")
    seen = await on(processes, "GPU-2e4f", "GPU-1a2b")
    assert seen.devices == ("GPU-2e4f", "GPU-1a2b")
    assert (seen.now, seen.at_start, seen.order) == ("GPU-2e4f,GPU-1a2b", "GPU-2e4f,GPU-1a2b", "PCI_BUS_ID")
    assert (await on(processes, "MIG-5a")).at_start == "MIG-5a"


async def test_a_worker_that_had_gpus_serves_nobody_else(processes: BodyProcesses) -> None:
    """CUDA looks once in a process which GPUs there are, and keeps memory on them until the process ends."""
    before = await on(processes)
    first = await on(processes, "GPU-1")
    assert first.pid != before.pid
    assert await gone(first.pid)
    again = await on(processes, "GPU-1")
    assert again.pid != first.pid
    assert await gone(again.pid)
    assert (await on(processes)).pid == before.pid  # one without GPUs is kept, as before


async def test_gpus_are_granted_by_the_pool(runtime: Tangram) -> None:
    two = await runtime.run(bodies.on_two)
    assert two.devices == ("cpu:0", "cpu:1")
    assert (two.now, two.at_start) == ("", "")  # these are no GPUs: it sees none
    ones = await asyncio.gather(*(runtime.run(bodies.on_one) for _ in range(3)))
    assert {one.devices for one in ones} == {("cpu:0",), ("cpu:1",)}
    assert len({one.pid for one in ones}) == 3


async def test_a_body_gets_as_many_of_a_range_as_are_free_and_worth_it(runtime: Tangram) -> None:
    assert (await runtime.run(bodies.on_one_or_two)).devices == ("cpu:0", "cpu:1")
    ones = await asyncio.gather(*(runtime.run(bodies.on_one_or_two) for _ in range(2)))
    assert {one.devices for one in ones} == {("cpu:0",), ("cpu:1",)}


async def test_what_a_body_without_gpus_sees_is_left_as_it_is(
    runtime: Tangram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    seen = await runtime.run(bodies.without)
    assert (seen.devices, seen.now, seen.order) == ((), "3", None)


async def test_a_body_that_is_ended_gives_its_gpus_back(runtime: Tangram, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(RunTimeout):
        await runtime.run(bodies.too_long, str(pid_file))
    async with asyncio.timeout(30):
        assert (await runtime.run(bodies.on_two)).devices == ("cpu:0", "cpu:1")
    assert await gone(int(pid_file.read_text()))


async def test_more_gpus_than_there_are_is_an_error(runtime: Tangram) -> None:
    with pytest.raises(InfeasibleError, match="4 GPUs"):
        await runtime.run(bodies.on_four)
