"""Programs of the tests of shared runtimes: each function is one, `python ray_programs.py NAME ARGUMENT…`.

A program prints what it found as lines of JSON, and where it says so, waits for a line on its standard input.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
import types
from contextlib import suppress
from functools import partial
from typing import Any

import ray

import arl_tangram as tangram
from arl_tangram.integrations.ray import Node, connect, share
from arl_tangram.integrations.ray.installed import connected
from arl_tangram.integrations.ray.lines import LineError
from arl_tangram.integrations.ray.naming import SharedName


def pools() -> tangram.Tangram:
    return tangram.Tangram(tangram.LocalPool(cores=2, memory_gib=2), tangram.Quota("search", concurrency=2))


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


# Several nodes, many clients.

STAMPED = "date +%s.%N; {}; date +%s.%N; pwd"


def quotas() -> tangram.Tangram:
    return tangram.Tangram(tangram.Quota("search", concurrency=2), kill_grace_s=1)


def one_core(folder: str) -> list[tangram.LocalPool]:
    return [tangram.LocalPool(cores=1, memory_gib=1, root=folder)]


async def share_nodes(name: str, lease_s: str, *roots: str) -> None:
    """Share one node of one core for each folder, on the machines of the cluster in turn, until an empty line comes.

    For a line with the name of an actor, tell the number of its process; for `used`, what is in use.
    """
    join()
    ids = [node["NodeID"] for node in ray.nodes()]
    nodes = [
        Node(f"n{number}", partial(one_core, root), node_id=ids[number % len(ids)]) for number, root in enumerate(roots)
    ]
    async with share(quotas, name=name, nodes=nodes, lease_s=float(lease_s)) as tg:
        tell(dimensions=sorted(tg.statistics().dimensions))
        library = connected(start=False)
        shared = SharedName(name, library.job)
        while said := (await line()).strip():
            if said == "used":
                tell(used={name: found.used for name, found in tg.statistics().dimensions.items() if found.used})
                continue
            actor = library.find(shared.owner if said == "owner" else shared.agent(said))
            try:
                tell(pid=await library.answer(actor.pid.remote))
            except LineError as error:
                tell(pid=None, text=str(error))
        statistics = tg.statistics()
        tell(running=statistics.running, waiting=statistics.waiting, trajectories=statistics.trajectories,
             used={name: found.used for name, found in statistics.dimensions.items() if found.used})  # fmt: skip


async def work(name: str, rollouts: str) -> None:
    """Run rollouts, all at once, and tell when each command ran, and where, and when each search did."""
    join()
    commands: list[tuple[str, float, float]] = []
    searches: list[tuple[float, float]] = []
    kept: list[bool] = []

    async def rollout(number: int) -> None:
        async with tangram.trajectory(memory_gib=0.05):
            for turn in range(3):
                said = (await shell(STAMPED.format(f"echo {number} {turn} >> notes; sleep 0.05"))).split()
                commands.append((said[2], float(said[0]), float(said[1])))
                searches.append(await search(0.02))
            kept.append((await shell("cat notes")).splitlines() == [f"{number} {turn}" for turn in range(3)])

    async with connect(name):
        await asyncio.gather(*(rollout(number) for number in range(int(rollouts))))
    tell(commands=commands, searches=searches, kept=kept)


@tangram.action(cpu=1, timeout=60)
async def seen(port: int, command: str) -> None:
    """Run a command that somebody can see: for as long as it lives it is connected to a port, and says where it is."""
    await tangram.current_sandbox().exec(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port} && pwd >&3 && {command}"])


async def until_told(name: str, port: str) -> None:
    """Hold cores, memory and a sandbox again and again, until a line comes or this is killed; tell how that ended."""
    join()
    ended = asyncio.create_task(line())
    async with connect(name):
        tell(pid=os.getpid())
        while not ended.done():
            began_s = time.monotonic()
            try:
                async with asyncio.timeout(90), tangram.trajectory(memory_gib=0.05):
                    await seen(int(port), f"sleep {random.choice([0.1, 0.3, 1])}")
                    await search(0.05)
                tell(error=None, took_s=time.monotonic() - began_s)
            except tangram.InfrastructureError as error:
                tell(error=type(error).__name__, text=str(error)[:300], took_s=time.monotonic() - began_s)


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
