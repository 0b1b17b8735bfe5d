from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from arl_tangram.errors import SandboxStartError
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.managers.docker.warm import RETRIES_S, WarmPool

pytestmark = pytest.mark.looptime


class Box:
    """A sandbox, as far as the pool looks at it."""

    def __init__(self, maker: Maker) -> None:
        self.id = "box"
        self.is_usable = True
        self._maker = maker

    async def aclose(self) -> None:
        await asyncio.sleep(1)
        self._maker.closed.append(self)
        self._maker.made.remove(self)
        if self._maker.warm is not None:
            self._maker.warm.refill()  # as its node does


class Maker:
    """Makes sandboxes in 2 s each, of which there may be so many."""

    def __init__(self, most: int = 100) -> None:
        self.made: list[Box] = []
        self.closed: list[Box] = []
        self.warm: WarmPool | None = None
        self.die_at_once = 0
        self.most = most
        self.errors: list[Exception] = []
        self.at_once = self.most_at_once = 0

    async def create(self) -> DockerSandbox:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(2)
            if self.errors:
                raise self.errors.pop()
        finally:
            self.at_once -= 1
        self.made.append(Box(self))
        if self.die_at_once:
            self.die_at_once -= 1
            self.made[-1].is_usable = False
        return cast(DockerSandbox, self.made[-1])

    def has_room(self) -> bool:
        return len(self.made) < self.most


def pool(size: int, maker: Maker) -> WarmPool:
    maker.warm = WarmPool(size, create=maker.create, has_room=maker.has_room)
    return maker.warm


async def test_it_is_filled_one_after_the_other_and_what_is_taken_is_replaced() -> None:
    maker = Maker()
    warm = pool(2, maker)
    assert warm.take() is None
    await asyncio.sleep(4.1)
    assert (len(warm), maker.most_at_once) == (2, 1)
    assert warm.take() is cast(Any, maker.made[0])
    assert len(warm) == 1
    await asyncio.sleep(2.1)
    assert len(warm) == 2
    await warm.aclose()


async def test_one_that_has_died_is_not_handed_out() -> None:
    maker = Maker()
    warm = pool(2, maker)
    warm.refill()
    await asyncio.sleep(4.1)
    dead, alive = maker.made
    dead.is_usable = False
    assert warm.take() is cast(Any, alive)
    assert warm.take() is None
    await asyncio.sleep(1.1)
    assert maker.closed == [dead], "its place is free again"
    await warm.aclose()


async def test_it_keeps_within_the_limit_of_sandboxes() -> None:
    maker = Maker(most=1)
    warm = pool(3, maker)
    warm.refill()
    await asyncio.sleep(100)
    assert len(maker.made) == 1
    maker.most = 2
    warm.refill()  # as is done when a sandbox is closed
    await asyncio.sleep(100)
    assert len(maker.made) == 2
    await warm.aclose()


async def test_a_failure_is_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    maker = Maker()
    maker.errors = [SandboxStartError("no room"), SandboxStartError("no room")]
    warm = pool(1, maker)
    warm.refill()
    await asyncio.sleep(2 + RETRIES_S[0] + 2 + RETRIES_S[1] + 1.9)
    assert len(warm) == 0
    await asyncio.sleep(0.2)
    assert len(warm) == 1
    assert "no room" in caplog.text
    await warm.aclose()


async def test_closing_ends_what_is_being_made() -> None:
    maker = Maker()
    warm = pool(1, maker)
    warm.refill()
    await asyncio.sleep(1)
    await warm.aclose()
    warm.refill()
    await asyncio.sleep(10)
    assert (maker.made, maker.at_once) == ([], 0)


async def test_one_can_be_given_up_for_another_sandbox() -> None:
    maker = Maker(most=1)
    warm = pool(1, maker)
    assert warm.give_up() is None
    warm.refill()
    await asyncio.sleep(2.1)
    assert warm.give_up() is cast(Any, maker.made[0])
    await asyncio.sleep(100)
    assert len(warm) == 0, "the place is taken"
    await warm.aclose()


async def test_those_that_die_are_removed_and_replaced_without_being_asked_for() -> None:
    maker = Maker(most=4)
    warm = pool(2, maker)
    warm.refill()
    for _ in range(3):
        await asyncio.sleep(5.1)
        assert (len(warm), len(maker.made)) == (2, 2)
        for box in list(maker.made):
            box.is_usable = False
            warm.on_lost(cast(DockerSandbox, box))
        assert len(warm) == 0
    await asyncio.sleep(5.1)
    assert (len(warm), len(maker.made), len(maker.closed)) == (2, 2, 6)
    await warm.aclose()


async def test_the_death_of_one_that_somebody_owns_is_left_to_its_owner() -> None:
    maker = Maker()
    warm = pool(1, maker)
    warm.refill()
    await asyncio.sleep(2.1)
    taken = warm.take()
    assert taken is not None
    warm.on_lost(taken)
    await asyncio.sleep(10)
    assert maker.closed == []
    await warm.aclose()


async def test_one_that_is_dead_when_it_is_ready_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    maker = Maker()
    maker.die_at_once = 1
    warm = pool(1, maker)
    warm.refill()
    await asyncio.sleep(2.1)
    assert (len(warm), "died as soon as it was ready" in caplog.text) == (0, True)
    await asyncio.sleep(RETRIES_S[0] + 2.1)
    assert (len(warm), len(maker.closed)) == (1, 1)
    await warm.aclose()


async def test_closing_waits_for_what_is_being_removed() -> None:
    maker = Maker()
    warm = pool(1, maker)
    warm.refill()
    await asyncio.sleep(2.1)
    warm.on_lost(cast(DockerSandbox, maker.made[0]))
    await warm.aclose()
    assert len(maker.closed) == 1
