"""Bodies for the model-based test with real processes, threads and sandboxes; workers find them by their names."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import arl_tangram as tangram
from arl_tangram import BodyExitedError


class OwnError(Exception):
    """What a body raises."""


@tangram.action(cpu=1)
async def in_sandbox(number: int, how: str) -> int:
    """Run a command; what it leaves behind is killed."""
    script = {"ok": f"echo {number}", "fail": "exit 3", "slow": "sleep 60", "leave": f"sleep 60 & echo {number}"}[how]
    done = await tangram.current_sandbox().exec(["sh", "-c", script])
    if done.exit_code:
        raise OwnError(number)
    return int(done.stdout)


@tangram.action(cpu=0.5, isolate="process")
def in_process(number: int, how: str) -> int:
    """Work in a worker process; one way to end takes the worker with it."""
    if how == "leave":
        os._exit(7)
    return _end(number, how)


@tangram.action()
def on_thread(number: int, how: str) -> int:
    """Work on a thread; one way is to call another action from there."""
    if how == "leave":
        return tangram.run_sync(on_loop, number, "ok")
    return _end(number, how)


@tangram.action(quota={"api": 1})
async def on_loop(number: int, how: str) -> int:
    """Work on the loop; one way is to call another action from there."""
    if how == "leave":
        return await on_thread(number, "ok")
    if how == "slow":
        await asyncio.sleep(60)
    return _end(number, how)


def _end(number: int, how: str) -> int:
    if how == "fail":
        raise OwnError(number)
    if how == "slow":
        time.sleep(0.2)
    return number


ACTIONS: dict[str, Any] = {
    "sandbox": in_sandbox,
    "process": in_process,
    "thread": on_thread,
    "loop": on_loop,
}
ENDS: dict[tuple[str, str], type[Exception]] = {("process", "leave"): BodyExitedError}
"""What comes of a way to end, where that is no result: `OwnError` of "fail", and these."""
