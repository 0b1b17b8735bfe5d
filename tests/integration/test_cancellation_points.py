"""Calls with real cores, threads, workers and sandboxes, cancelled at every point at which they wait: all comes back.

The same over virtual time, with fakes and many more scenarios, is in tests/unit/runtime/test_cancellation.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import BodyCancelledError, LocalPool, ShutdownError, Tangram
from arl_tangram.testing import assert_idle
from contract.sandbox_contract import shell
from integration import process_bodies as bodies
from integration.points import DoStruck, World, at_every_point, quick_workers
from virtual_time import until

__all__ = ["quick_workers"]  # a fixture
pytestmark = pytest.mark.usefixtures("quick_workers")


@tangram.action(cpu=2, memory_gib=0.1)
def on_thread(gate: threading.Event) -> int:
    gate.wait()
    return threading.get_ident()


@tangram.action()
def stuck(gate: threading.Event) -> None:
    gate.wait()


@tangram.action(cpu=1)
async def in_sandbox(script: str) -> int:
    return (await tangram.current_sandbox().exec(shell(script))).exit_code


def local_pool(tmp_path: Path) -> LocalPool:
    return LocalPool(cores=2, memory_gib=0.5, isolation="none", root=tmp_path / "root")


def check(task: asyncio.Task[Any]) -> None:
    """Check that a call ended well, or as cancelling it, or its body, makes it end."""
    if not task.cancelled() and task.exception() is not None and not isinstance(task.exception(), BodyCancelledError):
        raise AssertionError("a cancelled call failed") from task.exception()


async def call_on_thread() -> None:
    gate = threading.Event()
    asyncio.get_running_loop().call_later(0.001, gate.set)
    try:
        await on_thread(gate)
    finally:
        gate.set()


async def call_in_process() -> None:
    assert len((await bodies.look_wide())[1]) == 2


async def wait_for_another() -> None:
    """Wait in the queue first."""
    gate = threading.Event()
    first = asyncio.create_task(on_thread(gate))
    asyncio.get_running_loop().call_later(0.001, gate.set)
    try:
        await bodies.look()
    finally:
        gate.set()
        await asyncio.wait([first])
        check(first)


async def in_a_trajectory() -> None:
    async with tangram.trajectory(memory_gib=0.1):
        assert await in_sandbox("setsid sleep 600 & exit 3") == 3
        await asyncio.gather(in_sandbox("exit 0"), bodies.identify())


async def mapped() -> None:
    await tangram.map(bodies.give, range(3))


CALLS: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
    "on a thread": call_on_thread,
    "in a worker": call_in_process,
    "behind another": wait_for_another,
    "in a trajectory": in_a_trajectory,
    "mapped": mapped,
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call(name: str, tmp_path: Path) -> None:
    """After it, all units are free, and the next call takes all of them."""
    async with Tangram(local_pool(tmp_path), max_processes=2) as tg:

        async def whole() -> None:
            gate = threading.Event()
            gate.set()
            assert await on_thread(gate) != threading.get_ident()
            await bodies.look_wide()

        await asyncio.gather(whole(), *(bodies.litter() for _ in range(2)))  # the threads that kill are there
        await whole()
        await in_a_trajectory()
        await mapped()
        world = World([tmp_path / "root"])

        async def once(struck: DoStruck) -> None:
            check(await struck(CALLS[name]()))
            await until(lambda: tg.statistics().running == 0)  # a thread that nobody waits for any more
            assert_idle(tg)
            await whole()
            assert_idle(tg)
            assert await world.leftovers() == []

        assert await at_every_point(once) > 10


async def test_opening_the_runtime(tmp_path: Path) -> None:
    async with Tangram(local_pool(tmp_path)):
        pass
    world = World([tmp_path])

    async def once(struck: DoStruck) -> None:
        tg = Tangram(local_pool(tmp_path))
        task = await struck(tg.start())
        if not task.cancelled():
            task.result()
            await tg.aclose()
        assert not tg.is_open
        assert await world.leftovers() == []

    assert await at_every_point(once) > 10


async def test_closing_the_runtime(tmp_path: Path) -> None:
    """While a thread, a worker and a command are at work, and one call waits."""
    world: World | None = None

    async def once(struck: DoStruck) -> None:
        nonlocal world
        tg = Tangram(local_pool(tmp_path), kill_grace_s=0.2)
        await tg.__aenter__()
        gate = threading.Event()

        async def rollout() -> None:
            async with tangram.trajectory():
                await in_sandbox("setsid sleep 600 & sleep 600")

        calls = [asyncio.ensure_future(work) for work in (rollout(), bodies.hold(str(tmp_path)), bodies.nap(600))]
        calls.append(asyncio.ensure_future(stuck(gate)))
        await until(lambda: tg.statistics().running == 4)
        calls.append(asyncio.ensure_future(bodies.look()))
        await asyncio.sleep(0)
        task = await struck(tg.aclose())
        gate.set()
        if not task.cancelled():
            task.result()
        await tg.aclose()
        await asyncio.wait(calls)
        for call in calls:
            if not call.cancelled():
                assert isinstance(call.exception(), (ShutdownError, BodyCancelledError)), call.exception()
        world = world or World([tmp_path])
        assert await world.leftovers() == []

    assert await at_every_point(once) > 10
