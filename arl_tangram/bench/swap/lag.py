"""How late the event loop is for others while something is copied."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import numpy as np

EVERY_S = 0.001


async def lag_s(work: Callable[[], Awaitable[object]], share: float) -> float:
    """Do some work, and return by how many seconds a task that asks for its turn every millisecond was late.

    Args:
        work: what is done meanwhile.
        share: of the moments at which it was due, those that it slept through included, it was at most so late.
    """
    late_s: list[float] = []
    ticking = asyncio.create_task(_tick(late_s))
    await asyncio.sleep(0)
    await work()
    ticking.cancel()
    await asyncio.wait([ticking])
    return float(np.quantile(late_s, share))


async def _tick(late_s: list[float]) -> None:
    due_s = time.perf_counter() + EVERY_S
    while True:
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        late = time.perf_counter() - due_s
        if late >= 0:  # a timer may fire early by the resolution of the loop's clock
            late_s += [late - missed * EVERY_S for missed in range(int(late / EVERY_S) + 1)]
            due_s = time.perf_counter() + EVERY_S
