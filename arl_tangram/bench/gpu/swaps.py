"""Restores of modules of several sizes, beside plain copies and `.to()`; the same bits after many of them; the loop."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable

import torch

from arl_tangram.bench.gpu.bed import Bed, count_wrong, made_bed, wrong_weights
from arl_tangram.bench.gpu.card import Card, Plain
from arl_tangram.bench.gpu.figures import Bits, Lag, Sized, SizeRound
from arl_tangram.bench.gpu.plan import Plan
from arl_tangram.bench.gpu.teacher import some_tokens
from arl_tangram.bench.rounds import rotated
from arl_tangram.bench.swap.hosted import HostedModule
from arl_tangram.bench.swap.lag import lag_s
from arl_tangram.managers.gpu.devices.arena import ALIGNMENT

LAG_SHARE = 0.99
_ROWS = 2


async def measure_size(card: Card, plan: Plan, size: int) -> Sized:
    """Measure interleaved rounds, after one that does not count; each begins with another contender."""
    found: list[SizeRound] = []
    wrong = 0
    async with made_bed(card, size) as bed:
        plain = await asyncio.to_thread(card.plain, bed.hosted.size)
        answers = _Answers(plan)
        draw = random.Random(size)
        for number in range(plan.rounds + 1):
            one = await _round(card, bed, plain, number)
            if number:
                found.append(one)
            region, _ = await bed.hosted.restore(gap=draw.randrange(0, bed.room, ALIGNMENT))
            wrong += await answers.is_wrong(bed.hosted)
            if number == plan.rounds:
                wrong += await wrong_weights(card, bed)
            _ = await bed.hosted.evict(region)
        size = bed.hosted.size
        del plain
    return Sized(size, tuple(found), wrong)


async def _round(card: Card, bed: Bed, plain: Plain, number: int) -> SizeRound:
    hosted = bed.hosted
    seconds: dict[str, float] = {}

    async def copy_plainly() -> None:
        seconds["plain_s"] = await asyncio.to_thread(plain.copy, hosted.size)

    async def copy() -> None:
        region = hosted.device.allocate(hosted.size)
        assert region is not None
        clock = asyncio.get_running_loop().time
        began_s = clock()
        await hosted.device.copy_in(region, plain.source)
        seconds["copy_s"] = clock() - began_s
        hosted.device.free(region)

    async def restore() -> None:
        region, seconds["restore_s"] = await hosted.restore()
        seconds["evict_s"] = await hosted.evict(region)

    async def to() -> None:
        seconds["to_s"] = await asyncio.to_thread(_to, card, bed)

    contenders: list[Callable[[], Awaitable[None]]] = [copy_plainly, copy, restore, to]
    gc.collect()  # what torch has loaded makes it take longer than what is measured, so not before each
    for contend in rotated(contenders, number):
        await contend()
    return SizeRound(**seconds)


def _to(card: Card, bed: Bed) -> float:
    with card.moved(bed.twin) as moved:
        return moved.took_s


async def measure_usual(card: Card, plan: Plan) -> tuple[Bits, tuple[Lag, ...]]:
    """Swap a module of the usual size many times, compare its bits each time, and measure the lag of the loop."""
    async with made_bed(card, plan.usual) as bed:
        bits = await _bits(card, bed, plan)
        plain = await asyncio.to_thread(card.plain, bed.hosted.size)
        lags = [await _lag(bed.hosted, plain, plan.lag_repeats, number) for number in range(plan.rounds + 1)]
        del plain
    return bits, tuple(lags[1:])


async def _bits(card: Card, bed: Bed, plan: Plan) -> Bits:
    answers = _Answers(plan)
    draw = random.Random(plan.swaps)
    addresses: set[int] = set()
    weights = wrong_answers = 0
    moving = card.moved(bed.twin)
    await asyncio.to_thread(moving.__enter__)
    try:
        for _ in range(plan.swaps):
            region, _took_s = await bed.hosted.restore(gap=draw.randrange(0, bed.room, ALIGNMENT))
            addresses.add(region.offset)
            weights += await asyncio.to_thread(count_wrong, bed.model, bed.twin)
            wrong_answers += await answers.is_wrong(bed.hosted)
            _ = await bed.hosted.evict(region)
    finally:
        await asyncio.to_thread(moving.__exit__, None, None, None)
    return Bits(bed.hosted.size, plan.swaps, len(addresses), weights, wrong_answers)


async def _lag(hosted: HostedModule, plain: Plain, repeats: int, number: int) -> Lag:
    seconds: dict[str, float] = {}

    async def copies() -> None:
        for _ in range(repeats):
            _ = await asyncio.to_thread(plain.copy, hosted.size)

    async def restores() -> None:
        for _ in range(repeats):
            region, _took_s = await hosted.restore()
            _ = await hosted.evict(region)

    gc.collect()
    for name, work in rotated([("plain_s", copies), ("restore_s", restores)], number):
        seconds[name] = await lag_s(work, LAG_SHARE)
    return Lag(**seconds)


class _Answers:
    """Whether a module answers as it did the first time."""

    def __init__(self, plan: Plan) -> None:
        self._tokens = some_tokens(_ROWS, plan.length)
        self._first: torch.Tensor | None = None

    async def is_wrong(self, hosted: HostedModule) -> bool:
        """Ask a module that is resident."""
        answer: torch.Tensor = await hosted.call(self._tokens)
        if self._first is None:
            self._first = answer
        return not torch.equal(answer, self._first) or not bool(torch.isfinite(answer).all())
