"""End what is suspended: by its timeout, by a clean-up, and with the trainer."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from arl_tangram.bench.faults.left import marked
from arl_tangram.bench.faults.where import Where
from arl_tangram.bench.resize.place import Bed, bed
from arl_tangram.bench.resize.plan import Plan
from arl_tangram.bench.resize.program import SPREAD
from arl_tangram.model.sandbox import ExecResult

TIMEOUT_S = 1.0
SUSPENDED_S = 1.5
"""Longer than the timeout, so that one that runs on while suspended shows."""

LEFT_S = 20.0
"""After so long, what is still there stays."""

_LOOK_S = 0.01
_START_S = 60.0
_TRAINER = (sys.executable, "-P", "-m", "arl_tangram.bench.resize.trainer")


@dataclass(frozen=True, slots=True)
class Timeout:
    """A command that was suspended for longer than its timeout.

    Attributes:
        running_s: until it was ended, without the time in which it was suspended.
        timed_out: whether it ended as one whose time is up.
    """

    running_s: float
    timed_out: bool


@dataclass(frozen=True, slots=True)
class Kill:
    """A clean-up of a suspended sandbox.

    Attributes:
        seconds: that it took.
        before: marked processes that ran.
        left: of these, how many there were afterwards.
    """

    seconds: float
    before: int
    left: int


@dataclass(frozen=True, slots=True)
class TrainerKill:
    """A trainer that was killed while a sandbox of it was suspended.

    Attributes:
        seconds: until nothing was left of what ran in the sandbox.
        before: marked processes that ran in it; 0 if they cannot be seen from here.
        left: of these, how many stayed.
        behind: folders, cgroups and containers that were there after the next start.
    """

    seconds: float
    before: int
    left: int
    behind: int


async def time_out(bed: Bed, plan: Plan, tell: Callable[[str], None]) -> list[Timeout]:
    """Suspend commands for longer than their timeout, and let them go on."""
    found: list[Timeout] = []
    for number in range(plan.timeouts):
        tell(f"timeouts: {number + 1} of {plan.timeouts}")
        async with bed.lease(1) as lease:
            began_s = time.monotonic()
            running = asyncio.ensure_future(bed.run("spin", timeout=TIMEOUT_S))
            await asyncio.sleep(TIMEOUT_S / 3)
            suspended_s = -time.monotonic()
            await bed.resize(lease, 0)
            await asyncio.wait([running], timeout=SUSPENDED_S)
            suspended_s += time.monotonic()
            await bed.resize(lease, 1)
            done = await running
            found.append(Timeout(time.monotonic() - began_s - suspended_s, done.timed_out and done.exit_code == 137))
    return found


async def kill(bed: Bed, plan: Plan, tell: Callable[[str], None]) -> list[Kill]:
    """Clean up sandboxes while they are suspended."""
    found: list[Kill] = []
    for number in range(plan.kills):
        tell(f"clean-ups: {number + 1} of {plan.kills}")
        async with bed.lease(1) as lease:
            running = await start(bed)
            before = await bed.alive()
            await bed.resize(lease, 0)
            began_s = time.monotonic()
            running.cancel()
            await asyncio.wait([running])
            await lease.clean()
            seconds = time.monotonic() - began_s
        async with bed.lease(1):
            found.append(Kill(seconds, before, await bed.alive()))
    return found


async def start(bed: Bed) -> asyncio.Future[ExecResult]:
    """Start busy processes: those of a command that has ended, and one that goes on. An action has cores now."""
    await bed.run("spread")
    running = asyncio.ensure_future(bed.run("spin"))
    while await bed.alive() <= SPREAD:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(_LOOK_S)
    return running


def kill_trainers(where: Where, plan: Plan, tell: Callable[[str], None]) -> list[TrainerKill]:
    """Kill trainers while a sandbox of theirs is suspended, and start another one after each; blocks.

    Raises:
        RuntimeError: a trainer does not start.
    """
    found: list[TrainerKill] = []
    for number in range(plan.trainers):
        tell(f"killed trainers: {number + 1} of {plan.trainers}")
        found.append(_kill_trainer(where))
    return found


def _kill_trainer(where: Where) -> TrainerKill:
    mark = secrets.token_hex(8)
    with subprocess.Popen([*_TRAINER, mark, *where.argv()], stdout=subprocess.PIPE, text=True) as trainer:
        try:
            assert trainer.stdout is not None
            told = trainer.stdout.readline()
            if not told or not json.loads(told)["suspended"]:
                raise RuntimeError(f"a trainer did not start: it said {told!r} and ended with {trainer.wait()}")
        finally:
            before = len(marked(mark))
            trainer.kill()
        trainer.wait()
    began_s = time.monotonic()
    while (left := marked(mark)) and time.monotonic() < began_s + LEFT_S:
        time.sleep(_LOOK_S)
    seconds = time.monotonic() - began_s
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    asyncio.run(_start_anew(where))
    return TrainerKill(seconds, before, len(left), where.behind(trainer.pid))


async def _start_anew(where: Where) -> None:
    async with asyncio.timeout(_START_S), bed(where, "nothing"):
        pass
