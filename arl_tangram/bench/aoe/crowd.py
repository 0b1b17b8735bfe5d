"""Whether an action costs more beside 200 live containers than beside 10."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from arl_tangram.bench.aoe.overhead import SETTLE_S, finished, sleeping
from arl_tangram.bench.aoe.place import Place, cores_of, runtime
from arl_tangram.bench.aoe.plan import SHORT_S, Mode, Plan
from arl_tangram.bench.aoe.residents import Residents
from arl_tangram.trace.sink import MemorySink

GUESTS = 8
"""Containers of the other mode, which come and go beside the crowd."""

GUEST_SHARE = 5
"""Their actions are dearer, so there are fewer."""


@dataclass(frozen=True, slots=True)
class CrowdCost:
    """What actions cost beside so many live containers.

    Attributes:
        mode: of the actions.
        live: containers of the crowd.
        overheads_s: of each action.
    """

    mode: Mode
    live: int
    overheads_s: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        """The median."""
        return sorted(self.overheads_s)[len(self.overheads_s) // 2] * 1e3


async def measure_crowd(
    place: Place, modes: tuple[Mode, Mode], plan: Plan, tell: Callable[[str], None]
) -> list[CrowdCost]:
    """Measure with few, many and few live containers again; guests in another mode come each time.

    Args:
        place: where.
        modes: of those that live, and of the guests.
        plan: how many containers and actions.
        tell: hears what is going on.
    """
    crowd, guest = modes
    few, many = plan.crowd
    actions = plan.crowd_actions
    sink = MemorySink()
    stages = {f"crowd {stage}": live for stage, live in enumerate((few, many, few))}
    costs: list[CrowdCost] = []
    async with runtime(place.pool(crowd), sink) as tg:
        residents = Residents(tg)
        for stage, live in stages.items():
            tell(f"{live} live: creating or removing")
            await residents.become(live)
            await asyncio.sleep(SETTLE_S)
            tell(f"{live} live: {crowd.name}")
            workers = cores_of(tg)
            await residents.work(partial(sleeping, stage, SHORT_S), workers=workers, each=-(-actions // workers))
            tell(f"{live} live: {guest.name}")
            overheads_s = await _guests(place, guest, max(1, actions // GUEST_SHARE))
            costs.append(CrowdCost(guest, live, overheads_s))
        tell("removing")
        await residents.become(0)
    for stage, live in stages.items():
        own = tuple(action.overhead_s for action in finished(sink) if action.key == stage)
        costs.append(CrowdCost(crowd, live, own))
    return sorted(costs, key=lambda one: modes.index(one.mode))


async def _guests(place: Place, mode: Mode, actions: int) -> tuple[float, ...]:
    sink = MemorySink()
    async with runtime(place.pool(mode), sink) as tg:
        residents, workers = Residents(tg), cores_of(tg)
        await residents.become(GUESTS)
        await asyncio.sleep(SETTLE_S)
        await residents.work(partial(sleeping, "guest", SHORT_S), workers=workers, each=-(-actions // workers))
        await residents.become(0)
    return tuple(action.overhead_s for action in finished(sink))
