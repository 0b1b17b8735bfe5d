"""Trajectories that stay, each with its sandbox, and workers that run one action after another in them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import arl_tangram as tangram

Job = Callable[[], Awaitable[float]]


class Timed(NamedTuple):
    """One action.

    Attributes:
        own_s: seconds that its command took, as it was told.
        wall_s: seconds until its caller had the answer, by the clock of the bench.
    """

    own_s: float
    wall_s: float


class Resident:
    """One trajectory in a task of its own, which runs what it is given inside of it."""

    def __init__(self, tg: tangram.Tangram) -> None:
        self._tg = tg
        self._jobs: asyncio.Queue[tuple[Job, asyncio.Future[Timed]] | None] = asyncio.Queue()
        self._is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._live())

    async def opened(self) -> None:
        """Wait until it has its sandbox.

        Raises:
            SandboxStartError: it gets none.
        """
        await self._is_open

    async def run(self, job: Job) -> Timed:
        """Run a job in the trajectory."""
        answer: asyncio.Future[Timed] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait((job, answer))
        return await answer

    async def leave(self) -> None:
        """Close the trajectory, and wait until its sandbox is gone."""
        self._jobs.put_nowait(None)
        await asyncio.wait([self._task])

    async def _live(self) -> None:
        try:
            async with self._tg.trajectory():
                self._is_open.set_result(None)
                while (given := await self._jobs.get()) is not None:
                    await _do(*given)
        except tangram.TangramError as error:
            if self._is_open.done():
                raise
            self._is_open.set_exception(error)


class Residents:
    """The trajectories of one runtime: as many as wanted at a time.

    Args:
        tg: the runtime.
    """

    def __init__(self, tg: tangram.Tangram) -> None:
        self._tg = tg
        self._all: list[Resident] = []

    async def become(self, number: int) -> None:
        """Open trajectories, or close the last ones, until there are so many."""
        while len(self._all) > number:
            leaving = [self._all.pop() for _ in range(len(self._all) - number)]
            await asyncio.gather(*(resident.leave() for resident in leaving))
        coming = [Resident(self._tg) for _ in range(number - len(self._all))]
        self._all += coming
        await asyncio.gather(*(resident.opened() for resident in coming))

    async def work(self, job: Job, *, workers: int, each: int) -> list[Timed]:
        """Run a job so many times in each worker, one after another; each in the next one of the worker's sandboxes."""
        workers = min(workers, len(self._all))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_work(self._all[first::workers], job, each)) for first in range(workers)]
        return [timed for task in tasks for timed in task.result()]


async def _work(residents: Sequence[Resident], job: Job, times: int) -> list[Timed]:
    return [await residents[turn % len(residents)].run(job) for turn in range(times)]


async def _do(job: Job, answer: asyncio.Future[Timed]) -> None:
    began_s = time.perf_counter()
    try:
        own_s = await job()
    except Exception as error:  # noqa: BLE001 - whoever asked hears it
        answer.set_exception(error)
    else:
        answer.set_result(Timed(own_s, time.perf_counter() - began_s))
