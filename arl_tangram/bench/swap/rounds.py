"""Measure in interleaved rounds, so that what else happens on the machine meets all alike."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable

from arl_tangram.bench.rounds import rotated
from arl_tangram.bench.swap.bed import Bed
from arl_tangram.bench.swap.figures import Round
from arl_tangram.bench.swap.lag import lag_s

LAG_SHARE = 0.99


async def measure(bed: Bed, rounds: int, repeats: int, tell: Callable[[str], None]) -> list[Round]:
    """Measure so many rounds, after one that does not count; each begins with another contender.

    Args:
        bed: what is measured.
        rounds: how many count.
        repeats: how many copies and restores, one after the other, the lag of the loop is measured over.
        tell: is told what is going on.
    """
    found: list[Round] = []
    for number in range(rounds + 1):
        tell(f"round {number} of {rounds}" if number else "warm-up")
        one = await _round(bed, number, repeats)
        if number:
            found.append(one)
    return found


async def _round(bed: Bed, number: int, repeats: int) -> Round:
    seconds: dict[str, float] = {}

    async def copy() -> None:
        seconds["copy_s"] = await asyncio.to_thread(bed.copy)

    async def restore() -> None:
        region, seconds["restore_s"] = await bed.hosted.restore()
        seconds["evict_s"] = await bed.hosted.evict(region)

    async def to() -> None:
        seconds["to_s"] = await asyncio.to_thread(bed.to)

    async def copy_lag() -> None:
        seconds["copy_lag_s"] = await lag_s(lambda: _copies(bed, repeats), LAG_SHARE)

    async def restore_lag() -> None:
        seconds["restore_lag_s"] = await lag_s(lambda: _restores(bed, repeats), LAG_SHARE)

    pairs: list[tuple[Callable[[], Awaitable[None]], ...]] = [(copy, restore, to), (copy_lag, restore_lag)]
    for contenders in pairs:
        for contend in rotated(contenders, number):
            gc.collect()
            await contend()
    began_s = time.perf_counter()
    await bed.device.drop_free_pages()
    seconds["drop_s"] = time.perf_counter() - began_s
    region, seconds["cold_s"] = await bed.hosted.restore()
    if not await bed.is_intact():
        raise RuntimeError("the module does not answer as it did before it was moved")
    _ = await bed.hosted.evict(region)
    return Round(**seconds)


async def _copies(bed: Bed, repeats: int) -> None:
    for _ in range(repeats):
        _ = await asyncio.to_thread(bed.copy)


async def _restores(bed: Bed, repeats: int) -> None:
    for _ in range(repeats):
        region, _seconds = await bed.hosted.restore()
        _ = await bed.hosted.evict(region)
