"""Cancelling calls in worker processes and on threads at every point at which they wait leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from arl_tangram.context import Invocable
from arl_tangram.errors import BodyExitedError
from arl_tangram.managers.processes import BodyProcesses, Grant, pack
from arl_tangram.managers.threads import BodyThreads, Returned
from arl_tangram.model.allocation import Allocation
from integration import process_bodies as bodies
from integration.points import DoStruck, World, at_every_point, quick_workers

__all__ = ["quick_workers"]  # a fixture
pytestmark = pytest.mark.usefixtures("quick_workers")
LARGE = 4 << 20


def call(processes: BodyProcesses, action: Any, *args: Any) -> Coroutine[Any, Any, Returned]:
    invocable: Invocable = action
    grant = Grant(invocable.spec.name, Allocation(0), 0, 0)
    return processes.run(pack(invocable, args, {}), grant, lambda: None)


async def value(processes: BodyProcesses, action: Any, *args: Any) -> Any:
    return (await call(processes, action, *args)).result()


async def deadly(processes: BodyProcesses) -> None:
    with pytest.raises(BodyExitedError):
        await call(processes, bodies.leave, 3)


async def dead(processes: BodyProcesses) -> None:
    """Hand a call over before the death of the idle worker was heard of."""
    os.kill(await value(processes, bodies.identify), signal.SIGKILL)
    await call(processes, bodies.identify)


def check(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is not None:
        raise AssertionError("a cancelled call failed") from task.exception()


WORKS: dict[str, Callable[[BodyProcesses], Coroutine[Any, Any, Any]]] = {
    "large arguments and a large result": lambda processes: call(processes, bodies.give, b"x" * LARGE),
    "a body that leaves a process": lambda processes: call(processes, bodies.litter),
    "a body that exits": deadly,
    "a worker that has just died": dead,
}


@pytest.mark.parametrize("name", WORKS)
async def test_a_call_in_a_worker_that_is_there(name: str) -> None:
    """After it, there is a worker for the next call as if nothing had happened."""
    before = World([])
    processes = BodyProcesses(most_idle=1)
    await value(processes, bodies.litter)  # so that the thread that kills is there
    await value(processes, bodies.identify)
    world = World([])

    async def once(struck: DoStruck) -> None:
        check(await struck(WORKS[name](processes)))
        assert await value(processes, bodies.give, "next") == "next"
        assert await world.leftovers() == []

    try:
        assert await at_every_point(once, again=name.startswith("large")) >= 5
    finally:
        await processes.aclose()
    assert await before.leftovers() == []


async def test_a_call_in_a_new_worker() -> None:
    world = World([])

    async def once(struck: DoStruck) -> None:
        processes = BodyProcesses(most_idle=1)
        check(await struck(WORKS["large arguments and a large result"](processes)))
        await processes.aclose()
        assert await world.leftovers() == []

    assert await at_every_point(once) >= 11


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
async def test_ending_all_workers(is_busy: bool) -> None:
    world = World([])

    async def once(struck: DoStruck) -> None:
        processes = BodyProcesses(most_idle=2)
        running = asyncio.ensure_future(call(processes, bodies.nap, 600 if is_busy else 0))
        if is_busy:
            await asyncio.sleep(0)
        else:
            await running
        check(await struck(processes.aclose()))
        await asyncio.wait([running])
        assert is_busy == (not running.cancelled() and running.exception() is not None)
        await processes.aclose()
        assert await world.leftovers() == []

    assert await at_every_point(once) >= 11


async def test_a_call_on_a_thread() -> None:
    world = World([])

    async def once(struck: DoStruck) -> None:
        threads, gate = BodyThreads(), threading.Event()

        async def work() -> bool:
            asyncio.get_running_loop().call_soon(gate.set)
            return bool((await threads.run(gate.wait, ())).result())

        check(await struck(work()))
        gate.set()
        assert (await threads.run(lambda: "next", ())).result() == "next"
        threads.close()
        assert await world.leftovers() == []

    assert await at_every_point(once) >= 11
