"""The ways to place the services: in fixed slots, or by the scheduler in an arena as large as these together."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import arl_tangram as tangram
from arl_tangram.demo.judge.actions import SCORING
from arl_tangram.demo.judge.answers import Score
from arl_tangram.demo.judge.catalogue import CORES, MAX_CONCURRENCY, SERVICES, SLOTS, ServiceName, WayName, slot_mib
from arl_tangram.demo.judge.encoder import load
from arl_tangram.demo.judge.play import Placement
from arl_tangram.demo.judge.scripts import Text
from arl_tangram.demo.judge.slot import Slot
from arl_tangram.demo.search_api import CALLS, CONCURRENCY, PERIOD_S
from arl_tangram.trace.sink import MemorySink

Trace: TypeAlias = Path | MemorySink


@asynccontextmanager
async def opened(
    way: WayName, slots: Sequence[Sequence[ServiceName]], trace_for: Callable[[str], Trace]
) -> AsyncGenerator[Placement]:
    """Open the sandboxes, the search API's quota and the services.

    Args:
        way: how the services are placed.
        slots: for the static placement, the services of each slot.
        trace_for: where the trace of a runtime goes, by the runtime's name.
    """
    if way != "static":
        pool = tangram.GpuPool(*_services(SERVICES), devices=[f"cpu:0:{SLOTS * slot_mib()}MiB"], policy=way)
        async with tangram.Tangram(*_tools(), pool, trace=trace_for(way)):
            yield _Shared()
        return
    async with AsyncExitStack() as stack:
        places: dict[ServiceName, _Place] = {}
        for number, names in enumerate(slots):
            pool = tangram.GpuPool(*_services(names), devices=[f"cpu:{number}:{slot_mib()}MiB"])
            runtime = tangram.Tangram(pool, trace=trace_for(f"{way}-slot-{number}"))
            places |= dict.fromkeys(names, _Place(Slot(), await stack.enter_async_context(runtime)))
        await stack.enter_async_context(tangram.Tangram(*_tools(), trace=trace_for(way)))  # the current one
        yield _Static(places)


class _Shared:
    """All services in one pool: the scheduler places them."""

    async def score(self, service: ServiceName, text: Text) -> Score:
        return await tangram.run(SCORING[service], text)


class _Place(NamedTuple):
    slot: Slot
    runtime: tangram.Tangram


class _Static:
    """A runtime for each slot, which has room for one service; who wants another one waits outside."""

    def __init__(self, places: Mapping[ServiceName, _Place]) -> None:
        self._places = places

    async def score(self, service: ServiceName, text: Text) -> Score:
        slot, runtime = self._places[service]
        async with slot.turn(service):
            return await runtime.run(SCORING[service], text)


def _services(names: Iterable[ServiceName]) -> list[tangram.TorchService]:
    return [tangram.TorchService(name, load=partial(load, name), max_concurrency=MAX_CONCURRENCY) for name in names]


def _tools() -> tuple[tangram.LocalPool, tangram.Quota]:
    quota = tangram.Quota("search", calls=CALLS, period_s=PERIOD_S, concurrency=CONCURRENCY)
    return tangram.LocalPool(cores=CORES), quota
