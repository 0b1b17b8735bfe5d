"""Limits that a daemon changes: one change at a time, the last wish only, and seen inside before it is believed."""

from __future__ import annotations

import asyncio

import pytest

from arl_tangram.errors import AllocationError
from arl_tangram.managers.docker.allotment import SUSPENDED
from arl_tangram.managers.docker.api_limits import ApiLimits
from unit.managers.docker.limits.fakes import (
    HALF,
    HALF_ASKED,
    IDLE_ASKED,
    ONE,
    ONE_ASKED,
    TWO,
    TWO_ASKED,
    FakeDaemon,
    Inside,
    Told,
)


async def test_they_ask_the_daemon_and_wait(api: ApiLimits, daemon: FakeDaemon) -> None:
    daemon.gate.clear()
    api.want(TWO)
    waiting = asyncio.create_task(api.settled())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    daemon.gate.set()
    await waiting
    assert daemon.updates == [TWO_ASKED]


async def test_intermediate_states_are_skipped_and_one_update_runs_at_a_time(
    api: ApiLimits, daemon: FakeDaemon
) -> None:
    daemon.gate.clear()
    api.want(TWO)
    await asyncio.sleep(0)
    for grant in (ONE, TWO, ONE, HALF):
        api.want(grant)
        await asyncio.sleep(0)
    daemon.gate.set()
    await api.settled()
    assert daemon.updates == [TWO_ASKED, HALF_ASKED]
    assert daemon.most_running == 1


async def test_a_cancelled_waiter_does_not_stop_the_update(api: ApiLimits, daemon: FakeDaemon) -> None:
    daemon.gate.clear()
    api.want(TWO)
    waiting = asyncio.create_task(api.settled())
    await asyncio.sleep(0.001)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert daemon.running == 1
    daemon.gate.set()
    await api.settled()
    assert daemon.updates == [TWO_ASKED]


async def test_the_same_grant_again_needs_no_update(api: ApiLimits, daemon: FakeDaemon) -> None:
    for _ in range(3):
        api.want(TWO)
        await api.settled()
        api.want(None)
    api.want(ONE)
    await api.settled()
    await asyncio.sleep(0.04)
    assert daemon.updates == [TWO_ASKED, ONE_ASKED]


async def test_a_grant_is_told_when_the_daemon_has_put_it_in_effect(
    api: ApiLimits, daemon: FakeDaemon, told: Told
) -> None:
    api.want(TWO)
    assert told.granted == 0
    await api.settled()
    assert told.granted == 1
    api.want(SUSPENDED)
    await api.settled()
    daemon.gate.clear()
    api.want(TWO)
    await asyncio.sleep(0.01)
    api.want(SUSPENDED)
    daemon.gate.set()
    await api.settled()
    assert told.granted == 1, "suspended again before it had them"
    api.want(TWO)
    api.want(SUSPENDED)
    api.want(TWO)
    await api.settled()
    api.want(TWO)
    assert told.granted == 3, "what it has already is told at once"
    assert told.failed == []


async def test_closing_waits_for_an_update_on_its_way_but_not_for_ever(
    api: ApiLimits, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arl_tangram.managers.docker.api_limits.CLOSE_LIMIT_S", 0.02)
    daemon.gate.clear()
    api.want(TWO)
    await asyncio.sleep(0)
    await asyncio.wait_for(api.aclose(), 1)
    await asyncio.sleep(0)
    assert daemon.running == 0
    api.want(ONE)
    await asyncio.wait_for(api.settled(), 1)
    assert daemon.updates == [TWO_ASKED], "closed, it changes nothing more"


# To be idle.


async def test_a_new_container_is_idle_without_an_update(api: ApiLimits, daemon: FakeDaemon) -> None:
    api.want(None)
    await asyncio.sleep(0.04)
    assert daemon.updates == []


async def test_to_be_idle_is_asked_for_a_moment_later(granted: ApiLimits, daemon: FakeDaemon) -> None:
    granted.want(None)
    await granted.settled()
    assert daemon.updates == [TWO_ASKED]
    await asyncio.sleep(0.04)
    assert daemon.updates == [TWO_ASKED, IDLE_ASKED]


@pytest.mark.looptime
async def test_a_grant_in_between_begins_the_wait_for_idleness_anew(granted: ApiLimits, daemon: FakeDaemon) -> None:
    granted.want(None)
    await asyncio.sleep(0.015)
    granted.want(TWO)
    granted.want(None)
    await asyncio.sleep(0.015)
    assert daemon.updates == [TWO_ASKED]
    await asyncio.sleep(0.015)
    assert daemon.updates == [TWO_ASKED, IDLE_ASKED]


# What the container tells.


async def test_a_container_tells_what_is_in_effect_once_for_each_action(
    running: ApiLimits, daemon: FakeDaemon, inside: Inside
) -> None:
    """Later, commands of the action may have taken all the processes that there may be."""
    for wish in (ONE, SUSPENDED, HALF, TWO):
        running.want(wish)
        await running.settled()
    assert inside.looks == 1
    inside.tells = b"cores 1\nquota -1\n"
    running.want(None)
    running.want(ONE)
    await running.settled()
    assert inside.looks == 2
    assert len(daemon.updates) == 6


async def test_nobody_looks_into_a_container_that_is_idle_or_suspended(
    running: ApiLimits, daemon: FakeDaemon, inside: Inside
) -> None:
    running.forget()  # the next one who runs is looked at again
    running.want(SUSPENDED)
    await running.settled()
    assert inside.looks == 1
    running.want(TWO)
    await running.settled()
    assert inside.looks == 2
    running.want(None)
    await asyncio.sleep(0.04)
    assert daemon.updates[-1] == IDLE_ASKED
    assert inside.looks == 2


async def test_a_daemon_that_ignores_updates_is_found_out_inside(
    api: ApiLimits, daemon: FakeDaemon, inside: Inside
) -> None:
    inside.tells = b"cores 0-3\nquota 10000\n"
    api.see_inside(inside.shell)
    api.want(TWO)
    with pytest.raises(AllocationError, match=r"wanted 2 cores \(2,3\), but 0\.1 cores \(0,1,2,3\) are in effect"):
        await api.settled()
    inside.tells = b"cores 2-3\nquota -1\n"
    api.want(TWO)
    await api.settled()
    assert len(daemon.updates) == 2, "what has failed is tried anew"


async def test_a_container_that_never_tells_is_not_waited_for(api: ApiLimits, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(script: str) -> tuple[int, bytes, bytes]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("arl_tangram.managers.docker.api_limits.LOOK_LIMIT_S", 0.02)
    api.see_inside(silent)
    api.want(TWO)
    with pytest.raises(AllocationError, match="does not tell what is in effect"):
        await api.settled()
