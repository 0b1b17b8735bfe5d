"""The actions whose bodies have faults, one for each kind, and those that are called right after them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import arl_tangram as tangram
from arl_tangram.bench.faults import bodies
from arl_tangram.bench.faults.bodies import FAULTS, LONG_S
from arl_tangram.bench.faults.cases import DEAF_S, Case, Kind
from arl_tangram.bench.faults.left import VARIABLE
from arl_tangram.managers.environment import SANDBOX_VARIABLE

SMALL_GIB = 0.25
_NO_SANDBOX = frozenset({Kind.LOOP, Kind.THREAD, Kind.PROCESS})


@tangram.action(cpu=1)
async def on_the_loop(fault: str) -> object:
    """Do it where the trainer's own code runs."""
    return await _in_a_coroutine(fault)


@tangram.action(cpu=1)
def on_a_thread(fault: str) -> object:
    """Do it on a thread of the trainer."""
    return FAULTS[fault]()


@tangram.action(cpu=1, isolate="process")
def in_a_process(fault: str) -> object:
    """Do it in a worker process."""
    return FAULTS[fault]()


@tangram.action(cpu=1, memory_gib=SMALL_GIB, isolate="process")
def in_a_small_process(fault: str) -> object:
    """Do it in a worker process with little memory."""
    return FAULTS[fault]()


@tangram.action(cpu=1)
async def in_a_command(fault: str) -> tangram.ExecResult:
    """Execute a program that does it in the sandbox."""
    box = tangram.current_sandbox()
    await box.write_file("fault.py", await asyncio.to_thread(Path(bodies.__file__).read_bytes))
    return await box.exec([sys.executable, "-I", "fault.py", fault], env=_mark())


@tangram.action(cpu=1)
async def in_a_trajectory(fault: str) -> object:
    """Do it where the trainer's own code runs, with something running in the sandbox."""
    box = tangram.current_sandbox()
    await box.exec(["sh", "-c", f"setsid sleep {LONG_S:g} >/dev/null 2>&1 &"], env=_mark())
    return await _in_a_coroutine(fault)


@tangram.action(cpu=1)
async def next_on_the_loop() -> object:
    """Succeed."""


@tangram.action(cpu=1)
def next_on_a_thread() -> object:
    """Succeed."""


@tangram.action(cpu=1, isolate="process")
def next_in_a_process() -> object:
    """Return what an earlier call may have changed."""
    environment = {name: value for name, value in os.environ.items() if name != SANDBOX_VARIABLE}  # of each its own
    return os.getcwd(), environment, sorted(os.sched_getaffinity(0))


@tangram.action(cpu=1)
async def next_in_a_sandbox() -> object:
    """Return where a command runs, and with which variables."""
    done = await tangram.current_sandbox().exec(["sh", "-c", "pwd; env | cut -d = -f 1 | sort"])
    return done.exit_code, done.stdout


def has_sandbox(case: Case) -> bool:
    """Whether the action is called in a trajectory."""
    return case.kind not in _NO_SANDBOX


def memory_gib(case: Case) -> float:
    """Return what its trajectory holds."""
    return SMALL_GIB if case.fault == "memory" else 0


def faulty(case: Case) -> Callable[[str], Awaitable[object]]:
    """Return the action of a case."""
    match case.kind:
        case Kind.LOOP:
            return on_the_loop.with_options(timeout=case.timeout_s)
        case Kind.THREAD:
            return on_a_thread.with_options(timeout=case.timeout_s)
        case Kind.PROCESS:
            action = in_a_small_process if case.fault == "memory" else in_a_process
            return action.with_options(timeout=case.timeout_s)
        case Kind.COMMAND:
            return in_a_command.with_options(timeout=case.timeout_s)
        case Kind.TRAJECTORY:
            return in_a_trajectory.with_options(timeout=case.timeout_s)


def following(kind: Kind) -> Callable[[], Awaitable[object]]:
    """Return the action that is called after a fault."""
    match kind:
        case Kind.LOOP:
            return next_on_the_loop
        case Kind.THREAD:
            return next_on_a_thread
        case Kind.PROCESS:
            return next_in_a_process
        case Kind.COMMAND | Kind.TRAJECTORY:
            return next_in_a_sandbox


async def _in_a_coroutine(fault: str) -> object:
    if fault in _WAITS:
        await _WAITS[fault]()
        return None
    return FAULTS[fault]()


async def _deaf() -> None:
    """Ignore for some time that it is cancelled."""
    until_s = time.monotonic() + DEAF_S
    while (left_s := until_s - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left_s)
        except asyncio.CancelledError:
            continue


_WAITS: dict[str, Callable[[], Awaitable[None]]] = {"await": lambda: asyncio.sleep(LONG_S), "deaf": _deaf}


def _mark() -> dict[str, str]:
    return {VARIABLE: os.environ.get(VARIABLE, "")}
