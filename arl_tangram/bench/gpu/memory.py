"""What is in use of the device while a module is there, and after it has gone."""

from __future__ import annotations

import asyncio

from arl_tangram.bench.gpu.bed import SEED, bytes_of, on_device
from arl_tangram.bench.gpu.card import Card
from arl_tangram.bench.gpu.figures import Memory
from arl_tangram.bench.gpu.plan import Plan
from arl_tangram.bench.gpu.teacher import load, some_tokens


async def measure(card: Card, plan: Plan) -> Memory:
    """Restore a module, call it, evict it, give its arena back; the same once more; and close everything."""

    async def used() -> int:
        await asyncio.to_thread(card.tidy)
        return await asyncio.to_thread(card.used_bytes)

    model = await asyncio.to_thread(load, plan.usual, SEED, card.dtype)
    before = await used()
    device = await card.open(2 * bytes_of(model))
    try:
        async with on_device(card, device, "model", model) as hosted:
            region, _ = await hosted.restore()
            _ = await hosted.call(some_tokens(1, plan.length))
            resident = await used()
            _ = await hosted.evict(region)
            await device.vacate()
            vacated = await used()
            await device.occupy()
            region, _ = await hosted.restore()
            again = await used()
            _ = await hosted.evict(region)
        arena = device.capacity_bytes
    finally:
        await device.aclose()
    return Memory(arena, before, resident, vacated, again, closed=await used())
