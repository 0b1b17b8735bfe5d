"""A command that computes, on one core and on two: in a container, and on the bare host."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import arl_tangram as tangram
from arl_tangram.bench.aoe.place import Place, cores_of, runtime
from arl_tangram.bench.aoe.plan import Mode

TURNS = 300_000
_HALVES = (
    'half() { i=0; while [ $i -lt "$1" ]; do i=$((i+1)); done; }; half "$1" & first=$!; half "$1"; wait $first; nproc'
)


@dataclass(frozen=True, slots=True)
class CorePair:
    """One pair of runs, in seconds.

    Attributes:
        inside_s: in a container, on one core and on two.
        outside_s: on the host, on one core and on two.
    """

    inside_s: tuple[float, float]
    outside_s: tuple[float, float]


@tangram.action(cpu=1, timeout=300)
async def on_one() -> float:
    """Compute on one core; return the seconds."""
    return await _inside(1)


@tangram.action(cpu=2, timeout=300)
async def on_two() -> float:
    """Compute on two cores; return the seconds."""
    return await _inside(2)


async def measure_cores(place: Place, mode: Mode, pairs: int, tell: Callable[[str], None]) -> list[CorePair]:
    """Run the pairs, inside and outside in turn; none where the pool or this process has fewer than two cores."""
    tell("one core and two")
    usable = sorted(os.sched_getaffinity(0))
    found: list[CorePair] = []
    async with runtime(place.pool(mode)) as tg:
        if cores_of(tg) < 2 or len(usable) < 2:
            return []
        async with tg.trajectory():
            for number in range(pairs):
                tell(f"one core and two: pair {number + 1} of {pairs}")
                inside = (await tg.run(on_one), await tg.run(on_two))
                outside = (await _outside(usable[:1]), await _outside(usable[:2]))
                found.append(CorePair(inside, outside))
    return found


async def _inside(cores: int) -> float:
    done = await tangram.current_sandbox().exec(["sh", "-c", _HALVES, "halves", str(TURNS)])
    _check(done.stdout, cores)
    return done.duration_s


async def _outside(core_ids: list[int]) -> float:
    def compute() -> float:
        os.sched_setaffinity(threading.get_native_id(), core_ids)  # of this thread, and of what it starts
        began_s = time.perf_counter()
        done = subprocess.run(["sh", "-c", _HALVES, "halves", str(TURNS)], stdout=subprocess.PIPE, check=True)
        took_s = time.perf_counter() - began_s
        _check(done.stdout, len(core_ids))
        return took_s

    answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    def work() -> None:  # in a thread that ends with it: its affinity is of no use for anything else
        try:
            loop.call_soon_threadsafe(answer.set_result, compute())
        except BaseException as error:  # noqa: BLE001 - whoever waits hears it
            loop.call_soon_threadsafe(answer.set_exception, error)

    threading.Thread(target=work).start()
    return await answer


def _check(told: bytes, cores: int) -> None:
    if told.strip() != b"%d" % cores:
        raise RuntimeError(f"on {cores} cores, nproc says {told.decode(errors='replace').strip()}")
