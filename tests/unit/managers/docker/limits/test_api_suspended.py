"""A container that its daemon suspends: by a quota, as the last wish says, and lifted for what is killed."""

from __future__ import annotations

import asyncio

import pytest

from arl_tangram.errors import AllocationError
from arl_tangram.managers.docker.allotment import SUSPENDED, Wish
from arl_tangram.managers.docker.api_limits import RUSH_LIMIT_S, ApiLimits
from unit.managers.docker.limits.fakes import (
    IDLE_ASKED,
    LIFTED_ASKED,
    ONE,
    ONE_ASKED,
    SUSPENDED_ASKED,
    TWO,
    TWO_ASKED,
    FakeDaemon,
    Inside,
    Told,
    busy,
)


@pytest.fixture
async def at_first(api: ApiLimits) -> ApiLimits:
    """Return limits of a container that has had no cores before it was suspended."""
    api.want(SUSPENDED)
    await api.settled()
    return api


async def test_it_has_a_minimal_quota(suspended: ApiLimits, daemon: FakeDaemon) -> None:
    assert daemon.updates == [TWO_ASKED, SUSPENDED_ASKED]
    for _ in range(2):
        suspended.want(TWO)
        await suspended.settled()
    assert daemon.updates[2:] == [TWO_ASKED], "the second time, there was nothing to resume"
    suspended.want(None)
    suspended.want(SUSPENDED)
    await suspended.settled()
    assert daemon.updates[3:] == [SUSPENDED_ASKED]
    suspended.want(None)
    await asyncio.sleep(0.04)
    assert daemon.updates[4:] == [IDLE_ASKED]


async def test_the_last_wish_wins(granted: ApiLimits, daemon: FakeDaemon) -> None:
    daemon.gate.clear()
    granted.want(SUSPENDED)
    await asyncio.sleep(0)
    for wish in (ONE, SUSPENDED, TWO, SUSPENDED, ONE):
        granted.want(wish)
        await asyncio.sleep(0)
    daemon.gate.set()
    await granted.settled()
    assert daemon.updates == [TWO_ASKED, SUSPENDED_ASKED, ONE_ASKED]
    assert daemon.shares == [None, 2, 1024]
    assert daemon.most_running == 1
    granted.want(TWO)
    await granted.settled()
    assert daemon.shares[3:] == [None]


async def test_resized_back_while_the_daemon_works_it_has_what_it_had(granted: ApiLimits, daemon: FakeDaemon) -> None:
    daemon.gate.clear()
    granted.want(SUSPENDED)
    await asyncio.sleep(0)
    granted.want(TWO)
    daemon.gate.set()
    await granted.settled()
    assert daemon.updates == [TWO_ASKED, SUSPENDED_ASKED, TWO_ASKED]


@pytest.mark.looptime
async def test_what_was_suspended_becomes_idle_at_once_and_not_a_moment_later(
    suspended: ApiLimits, daemon: FakeDaemon
) -> None:
    suspended.want(None)
    await asyncio.sleep(0.001)
    assert daemon.updates[-1] == IDLE_ASKED


async def test_who_is_suspended_before_it_was_seen_is_looked_at_when_it_goes_on(
    api: ApiLimits, daemon: FakeDaemon, inside: Inside
) -> None:
    api.see_inside(inside.shell)
    api.want(TWO)
    api.want(SUSPENDED)
    await api.settled()
    assert (daemon.updates, inside.looks) == ([SUSPENDED_ASKED], 0)
    api.want(TWO)
    await api.settled()
    assert inside.looks == 1


@pytest.mark.parametrize(("before", "meanwhile"), [(ONE, SUSPENDED), (SUSPENDED, None)])
async def test_who_is_to_go_on_while_the_daemon_still_works_is_looked_at_when_it_does(
    api: ApiLimits, daemon: FakeDaemon, before: Wish, meanwhile: Wish
) -> None:
    """A look inside while it has next to no time takes seconds, and tells what nobody wants any more."""
    looks: list[tuple[int, str]] = []

    async def shell(script: str) -> tuple[int, bytes, bytes]:
        looks.append(daemon.updates[-1])
        await asyncio.sleep(0)
        return 0, b"cores 2-3\nquota -1\n", b""

    api.want(before)
    await api.settled()
    api.see_inside(shell)
    daemon.gate.clear()
    api.want(meanwhile)
    await asyncio.sleep(0)
    api.want(TWO)
    daemon.gate.set()
    await api.settled()
    assert looks == [TWO_ASKED]


async def test_who_is_suspended_again_while_the_daemon_still_works_fails_nothing(
    api: ApiLimits, daemon: FakeDaemon
) -> None:
    async def shell(script: str) -> tuple[int, bytes, bytes]:
        api.want(SUSPENDED)
        return 0, b"cores 0-3\nquota 1000\n", b""

    api.want(TWO)
    api.see_inside(shell)
    daemon.gate.clear()
    api.want(SUSPENDED)
    await asyncio.sleep(0)
    api.want(TWO)
    daemon.gate.set()
    await api.settled()
    assert daemon.updates[-1] == SUSPENDED_ASKED


# What is killed meanwhile.


async def test_the_daemon_lifts_the_quota_of_what_is_killed(suspended: ApiLimits, daemon: FakeDaemon) -> None:
    del daemon.updates[:]
    async with suspended.rush():
        assert daemon.updates == [LIFTED_ASKED]
        async with suspended.rush():
            assert len(daemon.updates) == 1
    await suspended.settled()
    assert daemon.updates == [LIFTED_ASKED, SUSPENDED_ASKED]
    async with suspended.rush():
        suspended.want(ONE)
        await suspended.settled()
    assert daemon.updates[2:] == [LIFTED_ASKED, ONE_ASKED]
    async with suspended.rush():
        assert len(daemon.updates) == 4, "only what is suspended needs it"


async def test_a_grant_that_fails_while_something_is_killed_is_tried_again_after_that(
    at_first: ApiLimits, daemon: FakeDaemon, told: Told
) -> None:
    """Else what runs besides would stand still, and its time limits, without anybody who hears of it."""
    async with at_first.rush(), at_first.rush():
        daemon.error = busy()
        at_first.want(ONE)
        with pytest.raises(AllocationError, match="busy"):
            await at_first.settled()
        assert told.granted == 0
        daemon.error = None
    await at_first.settled()
    assert daemon.updates == [SUSPENDED_ASKED, LIFTED_ASKED, ONE_ASKED, ONE_ASKED]
    assert told.granted == 1


async def test_a_daemon_that_does_not_lift_the_quota_keeps_nobody_from_killing(
    at_first: ApiLimits, daemon: FakeDaemon
) -> None:
    daemon.error = busy()
    async with at_first.rush():
        daemon.error = None
    await at_first.settled()
    assert daemon.updates == [SUSPENDED_ASKED, LIFTED_ASKED, SUSPENDED_ASKED]


@pytest.mark.looptime
async def test_a_daemon_that_hangs_keeps_nobody_from_killing_for_long(at_first: ApiLimits, daemon: FakeDaemon) -> None:
    daemon.gate.clear()
    began_s = asyncio.get_running_loop().time()
    async with at_first.rush():
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(RUSH_LIMIT_S, abs=0.1)
    daemon.gate.set()
    await at_first.settled()
    assert daemon.updates == [SUSPENDED_ASKED, LIFTED_ASKED, SUSPENDED_ASKED]
