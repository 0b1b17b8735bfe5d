"""Programs of the tests of shared runtimes: each function is one, `python ray_programs.py NAME ARGUMENT…`.

A program prints what it found as lines of JSON, and where it says so, waits for a line on its standard input.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import types
from contextlib import suppress
from typing import Any

import ray

import arl_tangram as tangram
from arl_tangram.integrations.ray import Node, connect, share
from arl_tangram.integrations.ray.installed import connected


def pools() -> tangram.Tangram:
    return tangram.Tangram(tangram.LocalPool(cores=2, memory_gib=2), tangram.Quota("search", concurrency=2))


def quotas() -> tangram.Tangram:
    return tangram.Tangram(tangram.Quota("search", concurrency=2), kill_grace_s=1)


def other_pools() -> tangram.Tangram:
    return tangram.Tangram(tangram.LocalPool(cores=1, memory_gib=2), tangram.Quota("search", concurrency=3))


@tangram.action(cpu=1, timeout=60)
async def shell(command: str) -> str:
    done = await tangram.current_sandbox().exec(["sh", "-c", command])
    return done.stdout.decode().strip()


@tangram.action(quota={"search": 1})
async def search(seconds: float) -> tuple[float, float]:
    began_s = time.monotonic()
    await asyncio.sleep(seconds)
    return began_s, time.monotonic()


@tangram.action(cpu=1)
def cores() -> int:
    return len(os.sched_getaffinity(0))


def tell(**found: Any) -> None:
    print(json.dumps(found), flush=True)


async def line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


def join() -> None:
    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")


async def hold(name: str, lease_s: str) -> None:
    """Share until a line comes."""
    join()
    async with share(pools, name=name, lease_s=float(lease_s)) as tg:
        tell(job=ray.get_runtime_context().get_job_id(), describe=tg.describe())
        await line()
        statistics = tg.statistics()
        tell(running=statistics.running, waiting=statistics.waiting, trajectories=statistics.trajectories,
             used={name: found.used for name, found in statistics.dimensions.items() if found.used})  # fmt: skip


async def use(name: str, times: str) -> None:
    """Connect, and make calls of every kind."""
    join()
    async with connect(name):
        async with tangram.trajectory(memory_gib=0.2):
            for number in range(int(times)):
                await shell(f"echo {number} >> notes")
            kept = await shell("wc -l < notes")
        spans = await asyncio.gather(*(search(0.1) for _ in range(6)))
        tell(kept=int(kept), spans=spans, cores=await cores())


async def expect(name: str, what: str, timeout: str) -> None:
    """Say which error opening ends with."""
    join()
    factory = {"same": pools, "other": other_pools, "": None}[what]
    began_s = time.monotonic()
    try:
        async with connect(name, expect=factory, timeout=float(timeout)):
            tell(error=None)
    except tangram.TangramError as error:
        tell(error=type(error).__name__, text=str(error), took_s=time.monotonic() - began_s)


async def share_other(name: str) -> None:
    """Share with another configuration, in a job of its own, and twice in it."""
    join()
    async with share(pools, name=name):
        async with share(pools, name=name):
            spans = await search(0)
        try:
            async with share(other_pools, name=name):
                tell(error=None)
        except tangram.TangramError as error:
            tell(error=type(error).__name__, text=str(error), spans=spans)


async def old(name: str) -> None:
    """Connect with another version of the library."""
    join()
    tangram.__version__ = "0.0.1"
    await expect_error(name)


async def expect_error(name: str) -> None:
    try:
        async with connect(name):
            tell(error=None)
    except tangram.TangramError as error:
        tell(error=type(error).__name__, text=str(error))


class OddError(Exception):
    """It cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("odd")
        self.lock = threading.Lock()


def odd_pool() -> list[tangram.LocalPool]:
    raise OddError


def too_large_pool() -> list[tangram.LocalPool]:
    return [tangram.LocalPool(cores=4096)]


async def share_wrong(name: str, kind: str) -> None:
    """Share what cannot be opened: tell the error, and whether anything of it is left."""
    join()
    factory, nodes = quotas, None
    if kind == "missing":  # a module that only this process can import
        sys.modules["only_here"] = module = types.ModuleType("only_here")
        exec("import arl_tangram as t\ndef pools(): return t.Tangram(t.Quota('q', concurrency=1))", module.__dict__)  # noqa: S102 - a module that is no file
        factory = module.pools
    else:
        nodes = [Node("a", {"odd": odd_pool, "large": too_large_pool}[kind])]
    try:
        async with share(factory, name=name, nodes=nodes):
            tell(error=None)
    except tangram.TangramError as error:
        tell(error=type(error).__name__, text=str(error), left=connected(start=False).actor_names())


async def pause(name: str) -> None:
    """Hold a sandbox with a command, say so, and say what came of it when a line comes."""
    join()
    async with connect(name):
        try:
            async with tangram.trajectory():
                tell(pid=os.getpid(), there=await shell("pwd"))
                try:
                    await shell("sleep 60")
                    tell(error=None)
                except tangram.TangramError as error:
                    tell(
                        error=type(error).__name__, text=str(error), mro=[kind.__name__ for kind in type(error).__mro__]
                    )
        except tangram.TangramError as error:
            tell(left=type(error).__name__)
        tell(again=await search(0))


async def outlive(name: str) -> None:
    """Make calls until the runtime is over, and two more then; tell how these ended, and how long they took."""
    join()
    async with connect(name):
        await search(0)
        tell(open=True)
        with suppress(tangram.InfrastructureError):
            while True:
                await search(0.1)
        await asyncio.sleep(1)
        errors, began_s = [], time.monotonic()
        for call in (lambda: search(0), tangram.trajectory().__aenter__):
            try:
                await call()
            except tangram.InfrastructureError as error:
                errors.append(type(error).__name__)
        tell(errors=errors, took_s=time.monotonic() - began_s)


async def share_again(name: str) -> None:
    """Share under one name, twice in a row."""
    join()
    spans = []
    for _ in range(2):
        async with share(quotas, name=name):
            spans.append(await search(0))
    tell(spans=spans)


@tangram.action(cpu=2)
def both_cores() -> int:
    return len(os.sched_getaffinity(0))


async def both(name: str) -> None:
    """Take all cores, however long that takes."""
    join()
    async with connect(name):
        tell(cores=await both_cores())


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
