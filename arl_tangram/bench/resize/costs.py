"""What changes of cores cost: the change itself, how soon it is felt, and many workers on one core."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arl_tangram.bench.resize.place import Bed
from arl_tangram.bench.resize.plan import MANY_WORKERS, Plan
from arl_tangram.bench.resize.program import DONE
from arl_tangram.managers.manager import CpuLease

_STANDS_S = 0.5
"""How long each timed suspension is, in which a suspended program has five turns of a millisecond."""

_RUNS_S = 0.1
_SLACK_S = 2.0


@dataclass(frozen=True, slots=True)
class Switches:
    """Changes of cores that were timed.

    Attributes:
        planned_s: what the scheduler counts for one.
        seconds: of each, until it was in effect.
        standing_share: cores that a busy program took while it was suspended; None if its clock is another one.
        delays_s: from the end of each suspension until the program went on; none if its clock is another one.
    """

    planned_s: float
    seconds: tuple[float, ...]
    standing_share: float | None
    delays_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Workers:
    """The same work on one core, in CPU seconds, to which other programs of the machine do not count.

    Attributes:
        one_s: by one worker, in each pair.
        many_s: by many.
    """

    one_s: tuple[float, ...]
    many_s: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """How many times as much many workers take, in the best of the runs of each."""
        return min(self.many_s) / min(self.one_s)


async def time_switches(bed: Bed, plan: Plan, tell: Callable[[str], None]) -> Switches:
    """Time changes of the cores of a busy program, and what it feels of its suspensions."""
    tell("changes by themselves")
    async with bed.lease(1) as lease:
        seconds = await _switch(bed, lease, plan.switches)
        begins_s = time.monotonic()
        lasts_s = plan.suspensions * (_STANDS_S + _RUNS_S) + _SLACK_S
        running = asyncio.ensure_future(bed.run("tick", lasts_s))
        suspended = [await _suspend(bed, lease) for _ in range(plan.suspensions)]
        told = json.loads((await running).stdout)
    if not begins_s <= told["began_s"] <= told["ended_s"] <= time.monotonic():
        return Switches(bed.manager.switch_s, seconds, None, ())
    inside = [(since_s, until_s) for since_s, until_s in suspended if told["began_s"] < since_s < until_s]
    return Switches(bed.manager.switch_s, seconds, *felt(told["gaps"], inside))


async def _switch(bed: Bed, lease: CpuLease, number: int) -> tuple[float, ...]:
    sizes = (0, 1, bed.cores) if bed.cores > 1 else (0, 1)
    running = asyncio.ensure_future(bed.run("spin"))
    seconds: list[float] = []
    for turn in range(number):
        began_s = time.perf_counter()
        await bed.resize(lease, sizes[turn % len(sizes)])
        seconds.append(time.perf_counter() - began_s)
        await asyncio.sleep(_RUNS_S / 10)
    await bed.resize(lease, 1)
    running.cancel()
    await asyncio.wait([running])
    return tuple(seconds)


async def _suspend(bed: Bed, lease: CpuLease) -> tuple[float, float]:
    """Suspend a program for a while; return from when to when."""
    await asyncio.sleep(_RUNS_S)
    await bed.resize(lease, 0)
    since_s = time.monotonic()
    await asyncio.sleep(_STANDS_S)
    until_s = time.monotonic()
    await bed.resize(lease, 1)
    return since_s, until_s


def felt(
    gaps: Sequence[tuple[float, float]], suspended: Sequence[tuple[float, float]]
) -> tuple[float | None, tuple[float, ...]]:
    """Return what share of the suspended time a program ran, and how long after each suspension it went on.

    Args:
        gaps: between which times it did not run, ascending.
        suspended: from when to when it was suspended.
    """
    if not suspended:
        return None, ()
    stood_s = sum(max(0.0, min(end, until) - max(begin, since)) for begin, end in gaps for since, until in suspended)
    whole_s = sum(until - since for since, until in suspended)
    delays_s = [next((end - until for begin, end in gaps if begin <= until < end), 0.0) for _, until in suspended]
    return (whole_s - stood_s) / whole_s, tuple(delays_s)


async def compare_workers(bed: Bed, plan: Plan, tell: Callable[[str], None]) -> Workers:
    """Do the same work on one core with one worker and with many, in turn.

    Raises:
        RuntimeError: the work is not right.
    """
    seconds: dict[int, list[float]] = {1: [], MANY_WORKERS: []}
    for number in range(plan.pairs):
        tell(f"{MANY_WORKERS} workers on one core: pair {number + 1} of {plan.pairs}")
        for workers, taken in seconds.items():
            async with bed.lease(1):
                done = await bed.run("work", plan.seed, plan.long_items, plan.turns, workers)
            if done.exit_code != DONE:
                raise RuntimeError(f"{workers} workers ended with {done.exit_code}: {done.stderr.decode()[-500:]}")
            taken.append(done.cpu_s)
    return Workers(tuple(seconds[1]), tuple(seconds[MANY_WORKERS]))
