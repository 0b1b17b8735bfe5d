"""Suspend and resume what runs in a container: the cost, and whether output, exit code and timeout survive it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from arl_tangram.bench.aoe.place import Place
from arl_tangram.bench.aoe.plan import GrantKind
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.model.quantities import MILLI

LINES = 100
PAUSE_S = 0.05
TIMEOUT_S = 1.0
_COUNT = 'i=0; while [ $i -lt "$1" ]; do i=$((i+1)); echo $i; sleep 0.01; done; exit 7'
_BUSY = "while :; do :; done"


@dataclass(frozen=True, slots=True)
class Suspension:
    """What suspending did.

    Attributes:
        grants: how: `direct` freezes, `api` leaves a hundredth of a core.
        suspend_s: seconds of each suspension, until it was in effect.
        resume_s: the same for going on.
        idle_share: CPU time of a busy command while it was suspended, in cores; None where nobody can read it.
        intact: whether a command had its whole output and its own exit code in the end.
        told: what the command ended with, for a reader.
        timed_out: whether a timeout that passed while it was suspended, and one after that, ended their commands.
        timeout_s: seconds until the caller of a suspended command had its answer; the timeout was `TIMEOUT_S`.
        usable: whether the sandbox ran the next command.
    """

    grants: GrantKind
    suspend_s: tuple[float, ...]
    resume_s: tuple[float, ...]
    idle_share: float | None
    intact: bool
    told: str
    timed_out: bool
    timeout_s: float
    usable: bool


async def suspend_and_resume(
    place: Place, grants: GrantKind, suspensions: int, tell: Callable[[str], None]
) -> Suspension:
    """Suspend a command that writes, one that computes, and two that have a timeout."""
    tell(f"suspending, {grants}")
    async with place.sandbox(grants) as (manager, box):
        lease = manager.lease(MILLI, box)
        suspend_s, resume_s, intact, told = await _count(box, suspensions)
        idle_share = await _compute(box)
        later = await _timed_out(box, suspended_at_s=0.2, for_s=0.4)
        within, timeout_s = await _timed_out_while_suspended(box)
        done = await box.exec(["sh", "-c", "echo usable"])
        lease.release()
    return Suspension(
        grants=grants,
        suspend_s=tuple(suspend_s),
        resume_s=tuple(resume_s),
        idle_share=idle_share,
        intact=intact,
        told=told,
        timed_out=later and within,
        timeout_s=timeout_s,
        usable=done.stdout == b"usable\n",
    )


async def _count(box: DockerSandbox, suspensions: int) -> tuple[list[float], list[float], bool, str]:
    """Suspend a command again and again while it writes lines; look whether it has written all of them."""
    suspend_s: list[float] = []
    resume_s: list[float] = []
    running = asyncio.ensure_future(box.exec(["sh", "-c", _COUNT, "count", str(LINES)]))
    await asyncio.sleep(PAUSE_S)
    for _ in range(suspensions):
        if running.done():
            break
        suspend_s.append(await _timed(box.limits.freeze))
        await asyncio.sleep(PAUSE_S)
        resume_s.append(await _timed(box.limits.thaw))
        await asyncio.sleep(PAUSE_S)
    done = await running
    wanted = b"".join(b"%d\n" % (line + 1) for line in range(LINES))
    lines = len(done.stdout.splitlines())
    intact = done.exit_code == 7 and done.stdout == wanted and not done.timed_out
    return suspend_s, resume_s, intact, f"exit code {done.exit_code}, {lines} of {LINES} lines"


async def _compute(box: DockerSandbox) -> float | None:
    """Return how many cores a busy command keeps busy while it is suspended."""
    running = asyncio.ensure_future(box.exec(["sh", "-c", _BUSY], timeout=2))
    await asyncio.sleep(0.2)
    await box.limits.freeze()
    began_s, before_s = time.perf_counter(), box.limits.cpu_s()
    await asyncio.sleep(0.5)
    after_s, took_s = box.limits.cpu_s(), time.perf_counter() - began_s
    await box.limits.thaw()
    await running
    return None if before_s is None or after_s is None else (after_s - before_s) / took_s


async def _timed_out(box: DockerSandbox, *, suspended_at_s: float, for_s: float) -> bool:
    """Suspend a command for a while before its time is up; return whether its timeout ended it."""
    running = asyncio.ensure_future(box.exec(["sleep", "60"], timeout=TIMEOUT_S))
    await asyncio.sleep(suspended_at_s)
    await box.limits.freeze()
    await asyncio.sleep(for_s)
    await box.limits.thaw()
    done = await running
    return done.timed_out and done.exit_code == 137


async def _timed_out_while_suspended(box: DockerSandbox) -> tuple[bool, float]:
    """Leave a command suspended when its time is up; return whether its timeout ended it, and after how long."""
    began_s = time.perf_counter()
    running = asyncio.ensure_future(box.exec(["sleep", "60"], timeout=TIMEOUT_S))
    await asyncio.sleep(0.2)
    await box.limits.freeze()
    done = await running
    took_s = time.perf_counter() - began_s
    await box.limits.thaw()
    return done.timed_out and done.exit_code == 137, took_s


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    began_s = time.perf_counter()
    await work()
    return time.perf_counter() - began_s
