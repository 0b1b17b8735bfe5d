"""Change the cores of programs that check their own work, at random, and look whether all of it is right."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from arl_tangram.bench.resize import program
from arl_tangram.bench.resize.place import Bed
from arl_tangram.bench.resize.plan import Plan
from arl_tangram.managers.manager import CpuLease
from arl_tangram.model.sandbox import ExecResult

_SUSPENDED = 1 / 3
"""Share of the changes to none at all."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of the programs.

    Attributes:
        programs: that ran, one after the other.
        resizes: changes of their cores, suspensions included.
        suspensions: changes to no cores.
        broken: what was wrong, one line for each program that went wrong.
    """

    programs: int
    resizes: int
    suspensions: int
    broken: tuple[str, ...]


async def change_at_random(bed: Bed, plan: Plan, tell: Callable[[str], None]) -> Changed:
    """Run programs, one after the other, until their cores have been changed so often as is planned."""
    wanted = b"".join(program.work_lines(plan.seed, plan.items, plan.turns))
    chance = random.Random(plan.seed)
    pauses_s = iter(partial(chance.uniform, *plan.pause_s), None)
    sizes = _sizes(bed.cores, plan.resizes, chance)
    programs = resizes = suspensions = 0
    broken: list[str] = []
    while resizes < plan.resizes:
        tell(f"random changes: {resizes:,} of {plan.resizes:,}")
        async with bed.lease(1) as lease:
            running = asyncio.ensure_future(bed.run("work", plan.seed, plan.items, plan.turns, bed.cores))
            had = await _change(bed, lease, running, sizes, pauses_s)
            await bed.resize(lease, bed.cores)
            wrong = _wrong(await running, wanted)
        programs, resizes, suspensions = programs + 1, resizes + len(had), suspensions + had.count(0)
        if wrong:
            broken.append(f"program {programs}, after {len(had)} changes: {wrong}")
    return Changed(programs, resizes, suspensions, tuple(broken))


async def _change(
    bed: Bed, lease: CpuLease, running: asyncio.Future[ExecResult], sizes: Iterator[int], pauses_s: Iterator[float]
) -> list[int]:
    """Change the cores of a program until it ends or there are no more sizes; return the numbers of cores."""
    had: list[int] = []
    while not running.done() and (cores := next(sizes, None)) is not None:
        await bed.resize(lease, cores)
        had.append(cores)
        await asyncio.wait([running], timeout=next(pauses_s))
    return had


def _sizes(most: int, number: int, chance: random.Random) -> Iterator[int]:
    """Yield so many numbers of cores, each other than the one before."""
    cores = 1
    for _ in range(number):
        others = [size for size in range(1, most + 1) if size != cores]
        suspend = cores > 0 and (not others or chance.random() < _SUSPENDED)
        cores = 0 if suspend else chance.choice(others)
        yield cores


def _wrong(done: ExecResult, wanted: bytes) -> str:
    """Say what is not as it should be, if anything."""
    found: list[str] = []
    if done.exit_code != program.DONE:
        found.append(f"exit code {done.exit_code}, not {program.DONE}")
    if done.timed_out:
        found.append("timed out without a timeout")
    if done.stdout != wanted:
        lines, expected = done.stdout.splitlines(), wanted.splitlines()
        same = sum(one == other for one, other in zip(lines, expected, strict=False))
        found.append(f"{same} of {len(expected)} lines as they should be, {len(lines)} in all")
    if done.stderr != program.ERRORS:
        found.append(f"standard error: {done.stderr[-200:]!r}")
    return "; ".join(found)
