"""What every one of these tests ends with: whatever went wrong in between, nothing is in use, waits or is set any more.

Tasks, threads, child processes and descriptors are looked for by `conftest.py`, for all tests alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from arl_tangram import Tangram
from arl_tangram.testing import assert_idle
from virtual_time import VirtualLoop, turns

# What is set further ahead only holds something, for as long as the runtime is open, that the end of the loop lets go.
_FAR_S = 1e8


@asynccontextmanager
async def opened(*resources: Any, **options: Any) -> AsyncIterator[Tangram]:
    """Open a runtime, and hold it to the general check at the end, before it is closed and after."""
    before = set(timers())
    async with Tangram(*resources, **options) as tg:
        yield tg
        await turns(6)
        assert_settled(tg)
        left = {timer for timer in set(timers()) - before if timer.when() < now_s() + _FAR_S}
        assert not left, f"timers are still set: {left}"
    left = set(timers()) - before
    assert not left, f"timers are still set after the end: {left}"
    state = tg.statistics()
    assert (state.waiting, state.running, state.trajectories) == (0, 0, 0), state
    for pool in resources:
        assert getattr(pool, "is_whole", True), f"not everything came back to {pool}"


def assert_settled(tg: Tangram) -> None:
    """Fail unless nothing waits, runs, lingers or is held, and what is held and returns is free to the last unit."""
    assert_idle(tg)
    state = tg.statistics()
    for name, dimension in state.dimensions.items():
        assert dimension.used + dimension.free == dimension.capacity, f"{name} does not add up: {dimension}"
        if not name.startswith("quota:") or name.endswith("/concurrency"):
            assert dimension.free == dimension.capacity, f"{name} is not whole: {dimension}"
    assert not tg._workshop.live
    assert not tg._dispatcher.waiters()


def timers() -> list[asyncio.TimerHandle]:
    """Return the timers of the running loop that will still fire."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualLoop):
        return loop.timers()
    return [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]


def now_s() -> float:
    """Return the time of the running loop."""
    return asyncio.get_running_loop().time()


def watch_at_rest(tg: Tangram, dimension: str, wanted: float) -> None:
    """Fail as soon as the loop comes to rest while somebody waits and what all of them wait for is there.

    Args:
        tg: the runtime, on a loop in virtual time.
        dimension: what they wait for.
        wanted: the units that each of them needs.
    """

    def look() -> None:
        if tg.is_open:
            state = tg.statistics()
            there = state.dimensions[dimension].free
            assert not (state.waiting and there >= wanted), f"{there} of {dimension} are free, and calls wait: {state}"

    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.when_quiet = look
