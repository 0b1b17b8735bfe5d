"""What a waiting action costs in memory, measured in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from arl_tangram.action import action
from arl_tangram.managers.quota import Quota
from arl_tangram.mapping import map as map_action
from arl_tangram.runtime import Tangram

_QUOTA = "api"
_WARM_UP = 200


class Waiting(StrEnum):
    """Who waits."""

    TASK = "an asyncio task that awaits a future"
    MAP = "an action, in tangram.map"
    GATHER = "an action, in asyncio.gather"
    DEADLINE = "the same with a queue_timeout"


class Meter(StrEnum):
    """How memory is counted."""

    RESIDENT = "resident"
    """Growth of the resident memory of the process: all there is, the slack of the allocator included."""
    ALLOCATED = "allocated"
    """What the interpreter has allocated, by tracemalloc."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What was measured.

    Attributes:
        who: waits.
        meter: how it was counted.
        in_flight: how many.
        bytes_each: growth for each of them.
        collect_s: how long a full collection takes while they wait.
    """

    who: Waiting
    meter: Meter
    in_flight: int
    bytes_each: float
    collect_s: float


@action(quota={_QUOTA: 1})
async def call(_number: int) -> None:
    """Be a call that holds the only slot, if it ever gets it."""
    await asyncio.get_running_loop().create_future()


limited_call = call.with_options(queue_timeout=3600)


def measure_memory(who: Waiting, meter: Meter, in_flight: int) -> Memory:
    """Let so many wait in this process, which should be fresh, and return what each of them takes."""
    return asyncio.run(_measure(who, meter, in_flight))


async def _measure(who: Waiting, meter: Meter, in_flight: int) -> Memory:
    async with Tangram(Quota(_QUOTA, concurrency=1)) as tg:
        async with _waiting(tg, who, _WARM_UP):
            pass
        gc.collect()
        if meter is Meter.ALLOCATED:
            tracemalloc.start()
        read = _allocated if meter is Meter.ALLOCATED else _resident
        before = read()
        async with _waiting(tg, who, in_flight):
            gc.collect()
            grown = read() - before
            tracemalloc.stop()
            began_s = asyncio.get_running_loop().time()
            gc.collect()
            return Memory(who, meter, in_flight, grown / in_flight, asyncio.get_running_loop().time() - began_s)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _allocated() -> int:
    return tracemalloc.get_traced_memory()[0]


@contextlib.asynccontextmanager
async def _waiting(tg: Tangram, who: Waiting, count: int) -> AsyncGenerator[None]:
    """Let `count` wait inside."""
    starts: dict[Waiting, Callable[[int], asyncio.Future[Any]]] = {
        Waiting.TASK: _tasks,
        Waiting.MAP: lambda count: asyncio.create_task(map_action(call, range(count))),
        Waiting.GATHER: lambda count: asyncio.gather(*[call(number) for number in range(count)]),
        Waiting.DEADLINE: lambda count: asyncio.gather(*[limited_call(number) for number in range(count)]),
    }
    waiting = starts[who](count)
    await asyncio.sleep(0)
    while who is not Waiting.TASK and tg.statistics().waiting < count - 1:  # noqa: ASYNC110 - one runs; no event tells
        await asyncio.sleep(0)
    yield
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting


def _tasks(count: int) -> asyncio.Future[Any]:
    """Start tasks that wait for one future: what any caller has that waits, and no library in it."""
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait() -> None:
        await gate

    return asyncio.gather(*[wait() for _ in range(count)])
