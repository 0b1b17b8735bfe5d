"""Restore one service while another one computes on the same device."""

from __future__ import annotations

import asyncio
import time
from statistics import median

from arl_tangram.bench.gpu.bed import SEED, bytes_of, on_device
from arl_tangram.bench.gpu.card import Card
from arl_tangram.bench.gpu.figures import Overlap
from arl_tangram.bench.gpu.plan import Plan
from arl_tangram.bench.gpu.teacher import load, some_tokens
from arl_tangram.bench.swap.hosted import HostedModule

_ROWS = 4


async def measure(card: Card, plan: Plan) -> tuple[Overlap, ...]:
    """Measure rounds, after one that does not count, which tells how many calls take as long as the restores."""
    computing, coming = [await asyncio.to_thread(load, plan.usual, SEED + n, card.dtype) for n in range(2)]
    device = await card.open(3 * bytes_of(computing))
    tokens = some_tokens(_ROWS, plan.length)
    try:
        async with (
            on_device(card, device, "computing", computing) as one,
            on_device(card, device, "coming", coming) as other,
        ):
            region, _ = await one.restore()
            calls = _Calls(one, tokens)
            _ = await calls.make(2)
            call_s = min(await calls.make(3))
            restores_s = sum(await _restores(other, plan.lag_repeats))
            count = max(2, round(restores_s / call_s))
            rounds = [await _round(calls, other, count, plan.lag_repeats) for _ in range(plan.rounds)]
            _ = await one.evict(region)
    finally:
        await device.aclose()
        await asyncio.to_thread(card.tidy)
    return tuple(rounds)


async def _round(calls: _Calls, other: HostedModule, count: int, repeats: int) -> Overlap:
    began_s = time.perf_counter()
    alone = await calls.make(count)
    compute_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    restores = await _restores(other, repeats)
    restores_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    beside, restores_beside = await asyncio.gather(calls.make(count), _restores(other, repeats))
    both_s = time.perf_counter() - began_s
    return Overlap(
        compute_s,
        restores_s,
        both_s,
        call_s=median(alone),
        call_beside_s=median(beside),
        restore_s=median(restores),
        restore_beside_s=median(restores_beside),
    )


async def _restores(hosted: HostedModule, repeats: int) -> list[float]:
    took_s: list[float] = []
    for _ in range(repeats):
        region, seconds = await hosted.restore()
        took_s.append(seconds)
        _ = await hosted.evict(region)
    return took_s


class _Calls:
    """Calls of a module that is resident, one after the other."""

    def __init__(self, hosted: HostedModule, tokens: object) -> None:
        self._hosted = hosted
        self._tokens = tokens

    async def make(self, count: int) -> list[float]:
        """Call it, and return the seconds of each call."""
        took_s: list[float] = []
        for _ in range(count):
            began_s = time.perf_counter()
            _ = await self._hosted.call(self._tokens)
            took_s.append(time.perf_counter() - began_s)
        return took_s
