"""Updates that a daemon does not do: who hears of it, and what is tried again."""

from __future__ import annotations

import asyncio
import gc

import pytest

from arl_tangram.errors import AllocationError, SandboxLostError
from arl_tangram.managers.docker.absence import DaemonAwayError
from arl_tangram.managers.docker.allotment import SUSPENDED, Wish
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.api_limits import AGAIN_S, ApiLimits
from unit.managers.docker.limits.fakes import (
    IDLE_ASKED,
    LIFTED_ASKED,
    ONE,
    ONE_ASKED,
    SUSPENDED_ASKED,
    TWO,
    TWO_ASKED,
    FakeDaemon,
    Told,
    busy,
)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (DaemonError("refused", 400, "Requested CPUs are not available"), AllocationError, "Requested CPUs are not"),
        (DaemonError("failed", 500, "systemd says no"), AllocationError, "the daemon did not do it: systemd says no"),
        (DaemonError("late", 0, "no answer in 30 s"), AllocationError, "no answer in 30 s"),
        (DaemonError("refused", 404, "No such container"), SandboxLostError, "No such container"),
        (DaemonError("refused", 409, "is not running"), SandboxLostError, "is not running"),
        (DaemonError("failed", 500, "container is marked for removal"), SandboxLostError, "marked for removal"),
        (DaemonError("gone", 0, "connection refused"), DaemonAwayError, "connection refused"),
    ],
)
async def test_what_the_daemon_answers_becomes_an_error_of_the_command(
    api: ApiLimits, daemon: FakeDaemon, error: DaemonError, kind: type[Exception], words: str
) -> None:
    daemon.error = error
    api.want(TWO)
    with pytest.raises(kind, match=words):
        await api.settled()
    with pytest.raises(kind, match=words):
        await api.settled()
    daemon.error = None
    api.want(TWO)
    await api.settled()


async def test_after_a_failure_nothing_is_known_to_be_in_effect(granted: ApiLimits, daemon: FakeDaemon) -> None:
    """An update that failed may have been done: what was there before must be asked for again."""
    daemon.error = DaemonError("late", 0, "no answer")
    granted.want(ONE)
    with pytest.raises(AllocationError):
        await granted.settled()
    daemon.error = None
    granted.want(TWO)
    await granted.settled()
    assert daemon.updates == [TWO_ASKED, ONE_ASKED, TWO_ASKED]


async def test_a_failure_of_what_is_no_longer_wanted_is_not_heard(api: ApiLimits, daemon: FakeDaemon) -> None:
    daemon.gate.clear()
    daemon.error, daemon.only_cpus = busy(), "2,3"
    api.want(TWO)
    await asyncio.sleep(0)
    api.want(ONE)
    daemon.gate.set()
    await api.settled()
    assert daemon.updates[-1] == ONE_ASKED


async def test_a_fault_of_ours_is_raised_and_not_repeated(api: ApiLimits) -> None:
    async def broken(script: str) -> tuple[int, bytes, bytes]:
        raise KeyError("a bug")

    api.see_inside(broken)
    api.want(TWO)
    with pytest.raises(KeyError):
        await api.settled()
    await api.aclose()
    gc.collect()


# While an action runs.


@pytest.mark.looptime
async def test_a_grant_that_fails_while_its_action_runs_is_heard_by_commands_and_tried_until_it_is_there(
    running: ApiLimits, daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    """What runs would go on with next to no time for ever."""
    running.want(SUSPENDED)
    await running.settled()
    daemon.error = busy()
    running.want(ONE)
    with pytest.raises(AllocationError, match="the daemon did not do it: busy"):
        await running.settled()
    await asyncio.sleep(1.5 * AGAIN_S)
    assert (len(daemon.updates), len(caplog.messages)) == (4, 2)
    with pytest.raises(AllocationError, match="the daemon did not do it: busy"):
        await running.settled()
    daemon.error = None
    await asyncio.sleep(AGAIN_S)
    await running.settled()
    assert daemon.updates[2:] == [ONE_ASKED] * 3
    await asyncio.sleep(10 * AGAIN_S)
    assert len(daemon.updates) == 5


@pytest.mark.looptime
@pytest.mark.parametrize("wish", [ONE, SUSPENDED])
async def test_a_change_of_a_running_action_that_keeps_failing_is_told_after_three_tries(
    running: ApiLimits, daemon: FakeDaemon, told: Told, wish: Wish
) -> None:
    daemon.error = busy()
    running.want(wish)
    await asyncio.sleep(1.5 * AGAIN_S)
    assert told.failed == []
    await asyncio.sleep(AGAIN_S)
    assert len(told.failed) == 1
    assert "the daemon did not do it: busy" in told.failed[0]
    await asyncio.sleep(10 * AGAIN_S)
    assert (len(told.failed), len(daemon.updates), told.granted) == (1, 4, 1)


@pytest.mark.looptime
async def test_other_wishes_meanwhile_do_not_put_the_end_of_the_tries_off(
    running: ApiLimits, daemon: FakeDaemon, told: Told
) -> None:
    daemon.error = busy()
    for _ in range(5):
        running.want(ONE)
        await asyncio.sleep(1.0)
        running.want(SUSPENDED)
        await asyncio.sleep(1.0)
    assert len(told.failed) == 1
    daemon.error = None
    running.want(None)
    await asyncio.sleep(1.0)
    running.want(TWO)
    await running.settled()
    assert (told.granted, len(told.failed)) == (2, 1), "the next action begins anew"


@pytest.mark.looptime
async def test_a_daemon_that_is_away_is_waited_for(running: ApiLimits, daemon: FakeDaemon, told: Told) -> None:
    running.want(SUSPENDED)
    await running.settled()
    daemon.error = DaemonError("gone", 0, "connection refused")
    running.want(TWO)
    await asyncio.sleep(10 * AGAIN_S)
    assert (told.granted, told.failed) == (1, [])
    daemon.error = None
    await asyncio.sleep(2 * AGAIN_S)
    assert told.granted == 2


@pytest.mark.looptime
async def test_who_waits_hears_that_a_first_grant_failed(api: ApiLimits, daemon: FakeDaemon, told: Told) -> None:
    """Suspended before it had any, nothing runs in it whose clock must stand."""
    api.want(TWO)
    api.want(SUSPENDED)
    await api.settled()
    daemon.error = busy()
    api.want(TWO)
    with pytest.raises(AllocationError):
        await api.settled()
    assert (told.granted, told.failed) == (1, [])


@pytest.mark.looptime
async def test_a_grant_that_is_tried_again_later_is_not_taken_for_done_after_a_kill(
    running: ApiLimits, daemon: FakeDaemon
) -> None:
    daemon.error = busy()
    running.want(ONE)
    with pytest.raises(AllocationError):
        await running.settled()
    async with running.rush():
        pass
    with pytest.raises(AllocationError):
        await running.settled()
    daemon.error = None
    await asyncio.sleep(AGAIN_S)
    await running.settled()
    assert daemon.updates[-1] == ONE_ASKED


@pytest.mark.looptime
async def test_an_update_to_suspended_that_fails_is_told_and_done_later(
    granted: ApiLimits, daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    """No command hears of it: none begins before another update."""
    daemon.error = busy()
    granted.want(SUSPENDED)
    await asyncio.sleep(0.1)
    assert "does not have what its action has now" in caplog.text
    assert "busy; that is tried again in 5 s" in caplog.text
    daemon.error = None
    async with granted.rush():
        assert daemon.updates[-1] == LIFTED_ASKED, "whatever is tried again later"
    await asyncio.sleep(AGAIN_S)
    assert daemon.updates[-1] == SUSPENDED_ASKED
    granted.want(ONE)
    await granted.settled()
    assert daemon.updates[-1] == ONE_ASKED


# To be idle.


@pytest.mark.looptime
async def test_an_update_to_idle_that_fails_is_told_and_done_later(
    granted: ApiLimits, daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.error = busy()
    granted.want(None)
    await asyncio.sleep(0.1)
    assert "does not give back what its last action had" in caplog.text
    assert "busy; that is tried again in 5 s" in caplog.text
    daemon.error = None
    await asyncio.sleep(AGAIN_S)
    assert daemon.updates == [TWO_ASKED, IDLE_ASKED, IDLE_ASKED]
    await asyncio.sleep(10 * AGAIN_S)
    assert len(daemon.updates) == 3


@pytest.mark.looptime
async def test_an_update_to_idle_that_fails_is_tried_once_more_and_not_if_a_grant_comes(
    granted: ApiLimits, daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.error = busy()
    granted.want(None)
    await asyncio.sleep(100)
    assert (len(daemon.updates), len(caplog.messages)) == (3, 2)
    granted.want(None)
    await asyncio.sleep(1)
    daemon.error = None
    granted.want(ONE)
    await asyncio.sleep(100)
    assert daemon.updates[-2:] == [IDLE_ASKED, ONE_ASKED]


@pytest.mark.looptime
async def test_a_container_that_is_gone_need_not_become_idle(
    granted: ApiLimits, daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.error = DaemonError("refused", 404, "No such container")
    granted.want(None)
    await asyncio.sleep(100)
    assert (len(daemon.updates), caplog.messages) == (2, [])
