"""Case 66: hundreds of sandboxes asked for at once are started a few at a time, and each of them is."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import arl_tangram as tangram
from arl_tangram import LocalPool, SandboxStartError
from arl_tangram.managers.host.cgroup import SandboxGroup
from arl_tangram.managers.local.manager import LocalManager
from arl_tangram.managers.local.sandbox import LocalSandbox
from arl_tangram.managers.local.site import Site
from cases.settled import opened
from virtual_time import until

CORES = 2
MOST_AT_ONCE = 2 * CORES
MANY = 150


@dataclass
class Gateway:
    """Stands before every start of a sandbox, and refuses when too many are in progress.

    Attributes:
        order: the numbers of the sandboxes, in order of their starts.
        most: starts in progress at once.
        broken: numbers whose start fails in any case.
    """

    order: list[int] = field(default_factory=list[int])
    now: int = 0
    most: int = 0
    broken: frozenset[int] = frozenset()

    def enter(self, number: int) -> None:
        if self.now >= MOST_AT_ONCE:
            raise OSError("too many are being started")
        self.now += 1
        self.most = max(self.most, self.now)
        self.order.append(number)


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Gateway:
    made = Gateway()
    begin, ready = LocalManager._begin, LocalSandbox.wait_ready

    def counted(self: LocalManager, site: Site, number: int, group: SandboxGroup | None) -> LocalSandbox:
        made.enter(number)
        try:
            if number in made.broken:
                raise OSError("this one is broken")
            return begin(self, site, number, group)
        except BaseException:
            made.now -= 1
            raise

    async def until_ready(self: LocalSandbox) -> None:
        try:
            await ready(self)
        finally:
            made.now -= 1

    monkeypatch.setattr(LocalManager, "_begin", counted)
    monkeypatch.setattr(LocalSandbox, "wait_ready", until_ready)
    return made


@tangram.action(cpu=1)
async def first_command() -> int:
    return (await tangram.current_sandbox().exec(["true"])).exit_code


async def rollout() -> int:
    async with tangram.trajectory():
        return await first_command()


async def test_case_66_hundreds_of_sandboxes_at_once_are_started_a_few_at_a_time(
    gateway: Gateway, tmp_path: Path
) -> None:
    async with opened(LocalPool(cores=CORES, isolation="none", root=tmp_path)):
        assert await asyncio.gather(*(rollout() for _ in range(MANY))) == [0] * MANY
    assert 1 < gateway.most <= MOST_AT_ONCE
    places = [abs(place - number) for place, number in enumerate(gateway.order, start=1)]
    assert len(places) == MANY
    assert max(places) <= 2 * MOST_AT_ONCE, "in the order in which they were asked for, or nearly"


async def test_case_66_starts_that_fail_do_not_hold_up_or_harm_the_others(gateway: Gateway, tmp_path: Path) -> None:
    gateway.broken = frozenset(range(3, 60, 4))
    async with opened(LocalPool(cores=CORES, isolation="none", root=tmp_path)) as tg:
        results = await asyncio.gather(*(rollout() for _ in range(60)), return_exceptions=True)
        kinds = Counter("done" if result == 0 else type(result).__name__ for result in results)
        assert kinds == {"done": 60 - len(gateway.broken), SandboxStartError.__name__: len(gateway.broken)}
        assert tg.statistics().trajectories == 0
        assert gateway.now == 0
        assert await rollout() == 0


async def test_case_66_those_who_give_up_while_they_wait_for_their_start_take_no_place(
    gateway: Gateway, tmp_path: Path
) -> None:
    async with opened(LocalPool(cores=CORES, isolation="none", root=tmp_path)) as tg:
        calls = [asyncio.create_task(rollout()) for _ in range(80)]
        await until(lambda: bool(gateway.order))
        for call in calls[::2]:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])
        assert results[1::2] == [0] * 40
        assert len(gateway.order) < 40 + 2 * MOST_AT_ONCE, "no sandbox was started for those that had given up"
        assert gateway.now == 0
        assert tg.statistics().trajectories == 0
