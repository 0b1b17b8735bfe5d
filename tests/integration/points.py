"""Cancel a piece of asynchronous work at every point at which it waits, one real run for each point.

A point is a suspension, counted as the work goes, so no run depends on how long anything takes.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from arl_tangram.managers.host.hierarchy import read_hierarchies
from leftovers import children, descriptors

DoStruck = Callable[[Coroutine[Any, Any, Any]], Awaitable[asyncio.Task[Any]]]
SETTLE_LIMIT_S = 2.0
CGROUP_PARENTS = {folder for hierarchy in read_hierarchies().values() for folder in list(hierarchy.up())[:2]}


class When(StrEnum):
    """At which moment of a suspension the work is cancelled."""

    ASLEEP = "asleep"  # before that for which it waits has come
    AWAKE = "awake"  # after it has come, and before the work goes on


class Whom(StrEnum):
    """What is cancelled."""

    CALLER = "caller"  # the task that does the work
    ALL = "all"  # as `asyncio.run` does at its end: the tasks that the work has started, too


@dataclass(frozen=True, slots=True)
class Strike:
    """One way to cancel work.

    Attributes:
        at: the suspensions, from 0; a later one is in what the work does when it is cancelled.
        when: see `When`.
        whom: see `Whom`.
    """

    at: tuple[int, ...]
    when: When
    whom: Whom

    def __str__(self) -> str:
        return f"{self.whom} {self.when} at {', '.join(map(str, self.at))}"


@dataclass(eq=False)
class Struck:
    """Work that is cancelled as it goes.

    Attributes:
        work: what is done.
        strike: when it is cancelled.
        struck: how often it was.
        suspensions: how often it has waited.
    """

    work: Coroutine[Any, Any, Any]
    strike: Strike
    struck: int = 0
    suspensions: int = 0
    _others: Collection[asyncio.Task[Any]] = ()

    async def run(self) -> asyncio.Task[Any]:
        """Do the work to its end; return its task."""
        self._others = asyncio.all_tasks()
        task = asyncio.ensure_future(self._main())
        await asyncio.wait([task])
        return task

    async def _main(self) -> Any:
        return await self

    def __await__(self) -> Generator[Any, Any, Any]:
        step, argument = self.work.send, None
        while True:
            try:
                waits_for = step(argument)
            except StopIteration as end:
                return end.value
            if self.suspensions in self.strike.at:
                self._cancel(waits_for)
            self.suspensions += 1
            try:
                step, argument = self.work.send, (yield waits_for)
            except BaseException as error:  # noqa: BLE001 - handed on to the work
                step, argument = self.work.throw, error

    def _cancel(self, waits_for: Any) -> None:
        self.struck += 1
        task = asyncio.current_task()
        assert task is not None
        victims = (
            [task] if self.strike.whom is Whom.CALLER else [t for t in asyncio.all_tasks() if t not in self._others]
        )

        def cancel(_: object = None) -> None:
            for victim in victims:
                victim.cancel()

        if self.strike.when is When.ASLEEP:
            cancel()
        elif waits_for is None:  # a turn of the loop
            asyncio.get_running_loop().call_soon(cancel)
        else:  # called before the task hears of it, which asks to be told after this
            waits_for.add_done_callback(cancel)


@dataclass(eq=False)
class World:
    """What this process holds on the machine: equal before and after, if nothing was left.

    Attributes:
        folders: watched; all below them counts.
    """

    folders: Sequence[Path]
    held: Counter[str] = field(init=False)

    def __post_init__(self) -> None:
        gc.collect()
        self.held = self._look()

    async def leftovers(self) -> list[str]:
        """Return, in words, what is more than before, once what is on its way out is gone."""
        limit_s = time.monotonic() + SETTLE_LIMIT_S
        while (more := self._look() - self.held) and time.monotonic() < limit_s:  # noqa: ASYNC110 - nobody tells of all of it
            await asyncio.sleep(0.005)  # whose own timer is gone by the next look
        return [f"{count} {what}" for what, count in more.items()]

    def _look(self) -> Counter[str]:
        loop: Any = asyncio.get_running_loop()
        found = Counter(f"open {target}" for target in descriptors().elements())
        found.update(f"child {child.command} {child.state == 'Z'}" for child in children())
        found.update(f"task {task.get_coro()}" for task in asyncio.all_tasks() if task is not asyncio.current_task())
        found.update("timer" for timer in loop._scheduled if not timer.cancelled())
        found.update(f"thread {each.name}" for each in threading.enumerate() if each.name == "arl_tangram body")
        found.update("watched descriptor" for _ in loop._selector.get_map())
        found.update(f"file {path}" for folder in self.folders for path in folder.rglob("*"))
        found.update(f"cgroup {path}" for path in _cgroups())
        return found


@pytest.fixture
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers start without importing pytest, which is the main module here."""
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))


def _cgroups() -> list[Path]:
    """Return the cgroups that this process has made."""
    owned = [path for parent in CGROUP_PARENTS for path in parent.glob(f"arl_tangram-*-{os.getpid()}-*")]
    return [*owned, *(below for path in owned for below in path.iterdir() if below.is_dir())]


TRIES = 5

# Once, and again one or two suspensions later, in what the work does when it is cancelled.
LATER: dict[Whom, tuple[int | None, ...]] = {Whom.CALLER: (None, 1, 2), Whom.ALL: (None, 1)}
WAYS = [(when, whom, later) for whom, times in LATER.items() for when in When for later in times]


async def at_every_point(once: Callable[[DoStruck], Awaitable[None]], *, again: bool = True) -> int:
    """Do something unharmed, then once for each point and way of cancelling there; return the number of runs.

    On a busy machine, what is done may wait at a point that does not come again: then that one is left out.

    Args:
        once: prepares, has the work done by what it is given, and checks.
        again: whether it is cancelled twice, too.
    """
    points = await _run(once, Strike((), When.ASLEEP, Whom.CALLER))
    assert points is not None
    assert 0 < points < 500
    runs = 1
    missed = 0
    for when, whom, later in WAYS if again else [way for way in WAYS if way[2] is None]:
        for point in range(points):
            strike = Strike((point,) if later is None else (point, point + later), when, whom)
            for _ in range(TRIES):
                if await _run(once, strike) is not None:
                    runs += 1
                    break
            else:
                missed += 1
    assert missed <= runs / 4, f"the work did not come to {missed} points again"
    return runs


async def _run(once: Callable[[DoStruck], Awaitable[None]], strike: Strike) -> int | None:
    """Do it once; return at how many points the work has waited, or None if it did not come to where it is struck."""
    made: list[Struck] = []

    async def struck(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        made.append(Struck(work, strike))
        return await made[0].run()

    try:
        await once(struck)
    except BaseException as error:
        error.add_note(f"cancelled: {strike}")
        raise
    return made[0].suspensions if made[0].struck or not strike.at else None
