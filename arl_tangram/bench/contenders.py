"""Who is measured: each starts the same number of no-op actions at once, in the way its own documentation shows.

What is compared is not the same amount of work. A semaphore and a limiter only bound how many bodies
run at once. The runtime also checks the arguments of the call, decides by cost vectors, runs the body
in a task that can be timed out, and measures each call for its statistics. A Ray task goes to another
process and back. So the semaphore says what the least is, the limiter what structured concurrency
costs, and Ray what a general scheduler of remote work costs.

The clock runs from the first submission to the last answer. Opening an event loop, a runtime or a
cluster does not count. The runtime is as `Tangram(...)` opens it: statistics on, no trace.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio

from arl_tangram.action import action
from arl_tangram.managers.local import LocalPool
from arl_tangram.managers.quota import Quota
from arl_tangram.runtime import Tangram
from arl_tangram.trace.reader import open_trace

SLOTS = 64
"""How many bodies may run at once: few enough that nearly all of 1,000 wait, many enough that nobody starves.

It is the limit of the semaphore, the limiter and the quota. Cores cannot be made up: an action with
`cpu=1` has as many slots as this machine has cores. Fewer slots cost more turns of the event loop, so a
limiter with that many stands beside it."""

QUOTA = "api"


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to run many no-op actions.

    Attributes:
        name: how tables and files call it.
        sizes: with how many actions in flight it is measured.
        run: runs that many and returns the seconds from the first submission to the last answer.
    """

    name: str
    sizes: tuple[int, ...]
    run: Callable[[int], float]


async def nothing() -> None:
    """Be the body of every action here."""


@action(quota={QUOTA: 1})
async def quota_call() -> None:
    """Be a call of an API with a limit."""


@action(cpu=1)
async def cpu_call() -> None:
    """Be a body on one core of this machine."""


SEMAPHORE = "asyncio.Semaphore"
LIMITER = "anyio.CapacityLimiter"
CORES_LIMITER = "limiter, a slot per core"
QUOTA_ACTION = "action, quota={...: 1}"
CPU_ACTION = "action, cpu=1"
TRACED_ACTION = "the quota action, traced"
RAY = "Ray task"

OURS = (QUOTA_ACTION, CPU_ACTION)
BASES = ((QUOTA_ACTION, (SEMAPHORE, LIMITER, RAY)), (CPU_ACTION, (CORES_LIMITER, RAY)))
"""Ours, and what each is compared with: those that run as many bodies at once, and Ray."""


def in_process(sizes: tuple[int, ...]) -> list[Contender]:
    """Return the contenders that run on an event loop of this process."""
    return [
        Contender(SEMAPHORE, sizes, lambda n: asyncio.run(_semaphore(n))),
        Contender(LIMITER, sizes, lambda n: asyncio.run(_limiter(n, SLOTS))),
        Contender(CORES_LIMITER, sizes, lambda n: asyncio.run(_limiter(n, len(os.sched_getaffinity(0))))),
        Contender(QUOTA_ACTION, sizes, lambda n: asyncio.run(_quota(n))),
        Contender(CPU_ACTION, sizes, lambda n: asyncio.run(_cpu(n))),
    ]


class Traced:
    """The action with a quota, with its trace written to a file; the clock stops when the file is complete.

    Attributes:
        events: events of all runs so far.
        dropped: those among them that the bounded queue to the writer did not take.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.events = 0
        self.dropped = 0
        self.contender = Contender(TRACED_ACTION, sizes, self._run)

    def _run(self, in_flight: int) -> float:
        with tempfile.TemporaryDirectory(prefix="arl-tangram-bench-") as folder:
            path = Path(folder) / "trace.jsonl"
            elapsed_s = asyncio.run(_traced(in_flight, path))
            with open_trace(path) as reader:
                for _ in reader.events():
                    pass
            footer = reader.ending.footer
        if footer is not None:
            self.events += footer.written + footer.dropped + footer.lost
            self.dropped += footer.dropped
        return elapsed_s


async def _semaphore(in_flight: int) -> float:
    semaphore = asyncio.Semaphore(SLOTS)

    async def limited() -> None:
        async with semaphore:
            await nothing()

    return await _gathered(limited, in_flight)


async def _limiter(in_flight: int, slots: int) -> float:
    limiter = anyio.CapacityLimiter(slots)

    async def limited() -> None:
        async with limiter:
            await nothing()

    began_s = time.perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(in_flight):
            group.start_soon(limited)
    return time.perf_counter() - began_s


async def _quota(in_flight: int) -> float:
    async with Tangram(Quota(QUOTA, concurrency=SLOTS)):
        return await _gathered(quota_call, in_flight)


async def _cpu(in_flight: int) -> float:
    async with Tangram(LocalPool()):
        return await _gathered(cpu_call, in_flight)


async def _traced(in_flight: int, path: Path) -> float:
    async with Tangram(Quota(QUOTA, concurrency=SLOTS), trace=path) as runtime:
        began_s = time.perf_counter()
        await _gathered(quota_call, in_flight)
        await runtime.aclose()
        return time.perf_counter() - began_s


async def _gathered(start: Callable[[], Awaitable[None]], in_flight: int) -> float:
    began_s = time.perf_counter()
    await asyncio.gather(*[start() for _ in range(in_flight)])
    return time.perf_counter() - began_s
