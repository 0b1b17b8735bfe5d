"""Do something at every single step of a scenario, one run per step, and hold each run to the same rules."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from arl_tangram import Quota, Tangram
from arl_tangram.testing import assert_idle
from counting_pools import CountingPool
from virtual_time import VirtualLoop, run_virtually, turns


@dataclass(eq=False)
class Scene:
    """One run of a scenario.

    Attributes:
        tg: the open runtime.
        pool: its cores.
        victims: the tasks that are struck.
    """

    tg: Tangram
    pool: CountingPool
    victims: list[asyncio.Task[Any]] = field(default_factory=list[asyncio.Task[Any]])

    def victim(self, awaitable: Awaitable[Any]) -> asyncio.Task[Any]:
        """Start a task that is to be struck."""
        task = asyncio.ensure_future(awaitable)
        self.victims.append(task)
        return task


Scenario = Callable[[Scene], Awaitable[None]]
Strike = Callable[[Scene], None]


def cancel(scene: Scene) -> None:
    """Cancel the victims."""
    for task in scene.victims:
        task.cancel()


def at_every_step(
    scenario: Scenario,
    *,
    pool: Callable[[], CountingPool] = CountingPool,
    quotas: Sequence[Quota] = (),
    strike: Strike = cancel,
    again_after: Sequence[int] = (),
    **options: Any,
) -> int:
    """Run a scenario once for each of its steps, and strike there; return the number of runs.

    Args:
        scenario: what happens; it ends when all that it started has ended.
        pool: makes the cores.
        quotas: what else there is.
        strike: what is done.
        again_after: for each of these numbers, do all runs again with a second strike that many steps later.
        options: of the runtime.
    """
    runs = 0
    for later in (None, *again_after):
        step = 0
        while _run(scenario, pool(), quotas, strike, options, step, later):
            step += 1
            runs += 1
            assert step < 3000, "the scenario does not end"
    return runs


def _run(
    scenario: Scenario,
    pool: CountingPool,
    quotas: Sequence[Quota],
    strike: Strike,
    options: dict[str, Any],
    at: int,
    later: int | None,
) -> bool:
    """Strike `at` steps after the scenario began; return whether it lasted that long."""
    loop = VirtualLoop()
    struck = False

    async def main() -> None:
        nonlocal struck
        async with Tangram(pool, *quotas, **options) as tg:
            scene = Scene(tg, pool)
            first = loop.step + 1

            def before_step(step: int) -> None:
                nonlocal struck
                assert tg.statistics().dimensions["cpu"].free * 1000 <= pool.made.milli_free
                assert min(d.free for d in tg.statistics().dimensions.values()) >= 0
                if step - first == at or (later is not None and step - first == at + later):
                    struck = True
                    strike(scene)

            loop.before_step = before_step
            try:
                await scenario(scene)
            finally:
                loop.before_step = lambda step: None
                for task in scene.victims:
                    with suppress(BaseException):
                        await task
            await turns(6)
            assert_idle(tg)
            assert pool.is_whole
        assert pool.is_whole
        assert tg.statistics().running == 0

    try:
        run_virtually(main(), loop)
    except BaseException as error:
        error.add_note(f"struck at step {at}" + ("" if later is None else f" and {later} steps later"))
        raise
    return struck
