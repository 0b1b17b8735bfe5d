from __future__ import annotations

import asyncio
import errno
import gc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from arl_tangram.errors import AllocationError, InfrastructureError, SandboxLostError
from arl_tangram.managers.cores import Placement
from arl_tangram.managers.docker.absence import DaemonAwayError
from arl_tangram.managers.docker.allotment import SUSPENDED, Wish
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.api_limits import AGAIN_S, RUSH_LIMIT_S, ApiLimits
from arl_tangram.managers.docker.direct_limits import DirectLimits
from arl_tangram.managers.host.cgroup import SandboxGroup

ID = "4f1c" * 16
CORES = (0, 1, 2, 3)
TWO, ONE, HALF = Placement((2, 3), 2000), Placement((1,), 1000), Placement((1,), 500)


@pytest.fixture
def group(tmp_path: Path) -> SandboxGroup:
    """Return a cgroup of version 2 whose effective cores are what is written."""
    (tmp_path / "cpuset.cpus").write_text("0-3\n")
    (tmp_path / "cpuset.cpus.effective").symlink_to("cpuset.cpus")
    (tmp_path / "cpu.max").write_text("10000 100000\n")
    (tmp_path / "cpu.weight").write_text("100\n")
    (tmp_path / "cgroup.freeze").write_text("0\n")
    (tmp_path / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    return SandboxGroup(2, dict.fromkeys(("cpu", "cpuset", "freezer"), tmp_path))


def direct(group: SandboxGroup) -> DirectLimits:
    return DirectLimits(group, idle_cores=lambda: CORES)


def written(group: SandboxGroup) -> tuple[str, str]:
    folder = group.folders["cpu"]
    return (folder / "cpuset.cpus").read_text(), (folder / "cpu.max").read_text()


async def test_direct_limits_are_in_effect_at_once(group: SandboxGroup) -> None:
    limits = direct(group)
    limits.want(TWO)
    assert written(group) == ("2,3", "max 100000")
    limits.want(HALF)
    assert written(group) == ("1", "50000 100000")
    limits.want(None)
    assert written(group) == ("0,1,2,3", "10000 100000")
    await limits.settled()


def test_direct_limits_never_permit_more_than_both(group: SandboxGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised, the cores go first; lowered, the time goes first."""
    order: list[str] = []
    set_cores, set_quota = SandboxGroup.set_cores, SandboxGroup.set_quota_us

    def cores(self: SandboxGroup, core_ids: tuple[int, ...]) -> None:
        order.append("cores")
        set_cores(self, core_ids)

    def quota(self: SandboxGroup, quota_us: int | None) -> None:
        order.append("time")
        set_quota(self, quota_us)

    monkeypatch.setattr(SandboxGroup, "set_cores", cores)
    monkeypatch.setattr(SandboxGroup, "set_quota_us", quota)
    limits = direct(group)
    for grant, expected in [(TWO, ["cores", "time"]), (HALF, ["time", "cores"]), (ONE, ["cores", "time"])]:
        limits.want(grant)
        assert order == expected
        order.clear()
    limits.want(None)
    assert order == ["time", "cores"]
    for wish, expected in [(SUSPENDED, ["time"]), (TWO, ["cores", "time"]), (SUSPENDED, ["time"])]:
        order.clear()
        limits.want(wish)
        assert order == expected


def weight(group: SandboxGroup) -> str:
    return (group.folders["cpu"] / "cpu.weight").read_text().strip()


async def test_direct_suspension_is_next_to_no_time_on_the_cores_that_it_had(group: SandboxGroup) -> None:
    limits = direct(group)
    limits.want(TWO)
    limits.want(SUSPENDED)
    assert (*written(group), weight(group)) == ("2,3", "1000 100000", "1")
    await limits.settled()
    limits.want(ONE)
    assert (*written(group), weight(group)) == ("1", "max 100000", "100")
    limits.want(SUSPENDED)
    assert (*written(group), weight(group)) == ("1", "1000 100000", "1")
    limits.want(None)
    assert (*written(group), weight(group)) == ("0,1,2,3", "10000 100000", "100"), "released, it is idle as ever"
    assert (group.folders["freezer"] / "cgroup.freeze").read_text() == "0\n", "nothing was frozen"


async def test_what_is_killed_while_suspended_has_time_to_end(group: SandboxGroup) -> None:
    limits = direct(group)
    limits.want(TWO)
    limits.want(SUSPENDED)
    async with limits.rush():
        assert (*written(group), weight(group)) == ("2,3", "max 100000", "100")
        with limits.session_group(1).rush():
            pass
        assert (written(group)[1], weight(group)) == ("max 100000", "100"), "the outer one is not over"
    assert (written(group)[1], weight(group)) == ("1000 100000", "1")
    async with limits.rush():
        limits.want(HALF)
        assert written(group) == ("1", "max 100000")
    assert written(group) == ("1", "50000 100000")
    async with limits.rush():
        assert written(group)[1] == "50000 100000", "only what is suspended needs it"


async def test_suspending_what_does_not_take_it_is_an_error_and_the_container_is_idle(
    group: SandboxGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = direct(group)
    limits.want(TWO)
    with monkeypatch.context() as patch:
        patch.setattr(SandboxGroup, "quota_us", lambda _: None)
        with pytest.raises(AllocationError, match="wanted next to no time, but more than that is in effect"):
            limits.want(SUSPENDED)
    assert (*written(group), weight(group)) == ("2,3", "10000 100000", "100")


async def test_what_is_closed_is_left_with_the_time_of_an_idle_one(group: SandboxGroup) -> None:
    """Should its daemon not remove it yet."""
    limits = direct(group)
    limits.want(TWO)
    limits.want(SUSPENDED)
    async with limits.rush():
        await limits.aclose()
        assert written(group)[1] == "max 100000"
    assert (*written(group), weight(group)) == ("0,1,2,3", "10000 100000", "100")


def test_what_is_suspended_need_not_be_where_it_was(group: SandboxGroup) -> None:
    """Its cores can be offline, which nothing depends on."""
    limits = direct(group)
    limits.want(TWO)
    group.set_cores([3])
    limits.want(SUSPENDED)
    assert written(group) == ("3", "1000 100000")


async def test_what_is_not_in_effect_is_an_error_and_the_container_is_idle(group: SandboxGroup) -> None:
    effective = group.folders["cpuset"] / "cpuset.cpus.effective"
    effective.unlink()
    effective.write_text("0,2-3\n")
    limits = direct(group)
    with pytest.raises(AllocationError, match=r"wanted 1 core \(1\), but 3 cores \(0,2,3\) are in effect"):
        limits.want(ONE)
    assert written(group) == ("0,2,3", "10000 100000")
    with pytest.raises(AllocationError):
        await limits.settled()
    limits.want(None)
    await limits.settled()


async def test_cores_that_the_kernel_refuses_are_an_error(group: SandboxGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: SandboxGroup, core_ids: tuple[int, ...]) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(SandboxGroup, "set_cores", refuse)
    limits = direct(group)
    with pytest.raises(AllocationError, match=r"wanted 2 cores \(2,3\); the kernel does not take it"):
        limits.want(TWO)
    limits.want(None)  # which is done without a lease that could hear of it


def test_a_container_that_is_gone_is_told_by_its_missing_files(tmp_path: Path) -> None:
    limits = direct(SandboxGroup(2, dict.fromkeys(("cpu", "cpuset", "freezer"), tmp_path / "gone")))
    with pytest.raises(FileNotFoundError):
        limits.want(TWO)
    limits.want(None)
    assert limits.cpu_s() is None


async def test_direct_freeze_waits_until_all_stands_still(group: SandboxGroup) -> None:
    limits = direct(group)
    folder = group.folders["freezer"]
    freezing = asyncio.create_task(limits.freeze())
    await asyncio.sleep(0.01)
    assert not freezing.done()
    assert (folder / "cgroup.freeze").read_text() == "1"
    (folder / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    await asyncio.wait_for(freezing, 1)
    await limits.aclose()
    assert (folder / "cgroup.freeze").read_text() == "0", "nothing is left suspended"


async def test_freezing_what_is_gone_says_so(tmp_path: Path) -> None:
    limits = direct(SandboxGroup(2, dict.fromkeys(("cpu", "cpuset", "freezer"), tmp_path / "gone")))
    with pytest.raises(SandboxLostError, match="the container is gone"):
        await limits.freeze()
    with pytest.raises(SandboxLostError, match="the container is gone"):
        await limits.thaw()
    await limits.thaw()  # it is not suspended any more


def test_what_is_killed_has_time_to_end_and_a_change_meanwhile_counts_afterwards(group: SandboxGroup) -> None:
    limits = direct(group)
    limits.want(HALF)
    with limits.session_group(1).rush():
        assert written(group)[1] == "max 100000"
        limits.want(None)
        assert written(group) == ("0,1,2,3", "max 100000")
    assert written(group)[1] == "10000 100000"


@dataclass
class FakeDaemon:
    """A fake engine: each update waits until the test lets it end; faults are put into `error`."""

    updates: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    shares: list[int | None] = field(default_factory=list[int | None])
    running: int = 0
    most_running: int = 0
    error: DaemonError | None = None
    only_cpus: str = ""  # if set, the error is of updates to these only
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def update(
        self, container_id: str, /, *, quota_us: int, period_us: int, cpus: str, shares: int | None = None
    ) -> None:
        assert (container_id, period_us) == (ID, 100_000)
        self.updates.append((quota_us, cpus))
        self.shares.append(shares)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        if self.error is not None and self.only_cpus in ("", cpus):
            raise self.error


@pytest.fixture
def daemon() -> FakeDaemon:
    daemon = FakeDaemon()
    daemon.gate.set()
    return daemon


def api(daemon: FakeDaemon) -> ApiLimits:
    return ApiLimits(daemon, ID, idle_cores=lambda: CORES, idle_after_s=0.02)


def telling(text: bytes) -> Callable[[str], Awaitable[tuple[int, bytes, bytes]]]:
    async def shell(script: str) -> tuple[int, bytes, bytes]:
        assert "Cpus_allowed_list" in script
        return 0, text, b""

    return shell


async def test_the_daemon_suspends_by_a_quota_and_the_last_wish_wins(daemon: FakeDaemon) -> None:
    limits = api(daemon)
    limits.want(TWO)
    await limits.settled()
    daemon.gate.clear()
    limits.want(SUSPENDED)
    await asyncio.sleep(0)
    for wish in (ONE, SUSPENDED, TWO, SUSPENDED, ONE):
        limits.want(wish)
        await asyncio.sleep(0)
    daemon.gate.set()
    await limits.settled()
    assert daemon.updates == [(-1, "2,3"), (1_000, ""), (-1, "1")]
    assert daemon.shares == [None, 2, 1024]
    assert daemon.most_running == 1
    limits.want(TWO)
    await limits.settled()
    assert daemon.shares[3:] == [None]
    await limits.aclose()


async def test_resized_back_while_the_daemon_works_it_has_what_it_had(daemon: FakeDaemon) -> None:
    limits = api(daemon)
    limits.want(TWO)
    await limits.settled()
    daemon.gate.clear()
    limits.want(SUSPENDED)
    await asyncio.sleep(0)
    limits.want(TWO)
    daemon.gate.set()
    await limits.settled()
    assert daemon.updates == [(-1, "2,3"), (1_000, ""), (-1, "2,3")]
    await limits.aclose()


@pytest.mark.looptime
async def test_what_was_suspended_becomes_idle_at_once_and_not_a_moment_later(daemon: FakeDaemon) -> None:
    limits = api(daemon)
    limits.want(TWO)
    limits.want(SUSPENDED)
    await limits.settled()
    limits.want(None)
    await asyncio.sleep(0.001)
    assert daemon.updates[-1] == (10_000, "0,1,2,3")
    await limits.aclose()


async def test_the_daemon_lifts_the_quota_of_what_is_killed_while_suspended(daemon: FakeDaemon) -> None:
    limits = api(daemon)
    limits.want(TWO)
    limits.want(SUSPENDED)
    await limits.settled()
    del daemon.updates[:]
    async with limits.rush():
        assert daemon.updates == [(-1, "")]
        async with limits.rush():
            assert len(daemon.updates) == 1
    await limits.settled()
    assert daemon.updates == [(-1, ""), (1_000, "")]
    async with limits.rush():
        limits.want(ONE)
        await limits.settled()
    assert daemon.updates[2:] == [(-1, ""), (-1, "1")]
    async with limits.rush():
        assert len(daemon.updates) == 4, "only what is suspended needs it"
    await limits.freeze()
    async with limits.rush():
        assert daemon.updates[-1] == (-1, "1"), "frozen by others, it goes on"
    await limits.aclose()


async def test_a_grant_that_fails_while_something_is_killed_is_tried_again_after_that(daemon: FakeDaemon) -> None:
    """Else what runs besides would stand still, and its time limits, without anybody who hears of it."""
    granted: list[int] = []
    limits = api(daemon)
    limits.listen(lambda: granted.append(len(daemon.updates)), lambda _: None)
    limits.want(TWO)
    limits.want(SUSPENDED)
    await limits.settled()
    async with limits.rush(), limits.rush():
        daemon.error = DaemonError("failed", 500, "device or resource busy")
        limits.want(ONE)
        with pytest.raises(AllocationError, match="device or resource busy"):
            await limits.settled()
        daemon.error = None
    await limits.settled()
    assert daemon.updates == [(1_000, ""), (-1, ""), (-1, "1"), (-1, "1")]
    assert granted == [4]
    await limits.aclose()


async def test_a_daemon_that_does_not_lift_the_quota_keeps_nobody_from_killing(daemon: FakeDaemon) -> None:
    limits = api(daemon)
    limits.want(SUSPENDED)
    await limits.settled()
    daemon.error = DaemonError("failed", 500, "busy")
    async with limits.rush():
        daemon.error = None
    await limits.settled()
    assert daemon.updates == [(1_000, ""), (-1, ""), (1_000, "")]
    await limits.aclose()


@pytest.mark.looptime
async def test_a_daemon_that_hangs_keeps_nobody_from_killing_for_long(daemon: FakeDaemon) -> None:
    limits = api(daemon)
    limits.want(SUSPENDED)
    await limits.settled()
    daemon.gate.clear()
    began_s = asyncio.get_running_loop().time()
    async with limits.rush():
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(RUSH_LIMIT_S, abs=0.1)
    daemon.gate.set()
    await limits.settled()
    assert daemon.updates == [(1_000, ""), (-1, ""), (1_000, "")]
    await limits.aclose()


async def test_a_container_tells_what_is_in_effect_once_for_each_action(daemon: FakeDaemon) -> None:
    """Later, commands of the action may have taken all the processes that there may be."""
    told = [b"cores 2-3\nquota -1\n", b"cores 1\nquota -1\n"]

    async def shell(script: str) -> tuple[int, bytes, bytes]:
        return 0, told.pop(0), b""

    limits = api(daemon)
    limits.see_inside(shell)
    for wish in (TWO, ONE, SUSPENDED, HALF, TWO):
        limits.want(wish)
        await limits.settled()
    assert len(told) == 1
    limits.want(None)
    limits.want(ONE)
    await limits.settled()
    assert told == []
    assert len(daemon.updates) == 6
    await limits.aclose()


async def test_who_is_suspended_before_it_was_seen_is_looked_at_when_it_goes_on(daemon: FakeDaemon) -> None:
    looks: list[str] = []

    async def shell(script: str) -> tuple[int, bytes, bytes]:
        looks.append(script)
        return 0, b"cores 2-3\nquota -1\n", b""

    limits = api(daemon)
    limits.see_inside(shell)
    limits.want(TWO)
    limits.want(SUSPENDED)
    await limits.settled()
    assert (daemon.updates, looks) == ([(1_000, "")], [])
    limits.want(TWO)
    await limits.settled()
    assert len(looks) == 1
    await limits.aclose()


@pytest.mark.parametrize(("before", "meanwhile"), [(ONE, SUSPENDED), (SUSPENDED, None)])
async def test_who_is_to_go_on_while_the_daemon_still_works_is_looked_at_when_it_does(
    daemon: FakeDaemon, before: Wish, meanwhile: Wish
) -> None:
    """A look inside while it has next to no time takes seconds, and tells what nobody wants any more."""
    looks: list[tuple[int, str]] = []

    async def shell(script: str) -> tuple[int, bytes, bytes]:
        looks.append(daemon.updates[-1])
        await asyncio.sleep(0)
        return 0, b"cores 2-3\nquota -1\n", b""

    limits = api(daemon)
    limits.want(before)
    await limits.settled()
    limits.see_inside(shell)
    daemon.gate.clear()
    limits.want(meanwhile)
    await asyncio.sleep(0)
    limits.want(TWO)
    daemon.gate.set()
    await limits.settled()
    assert looks == [(-1, "2,3")]
    await limits.aclose()


async def test_who_is_suspended_again_while_the_daemon_still_works_fails_nothing(daemon: FakeDaemon) -> None:
    async def shell(script: str) -> tuple[int, bytes, bytes]:
        limits.want(SUSPENDED)
        return 0, b"cores 0-3\nquota 1000\n", b""

    limits = api(daemon)
    limits.want(TWO)
    limits.see_inside(shell)
    daemon.gate.clear()
    limits.want(SUSPENDED)
    await asyncio.sleep(0)
    limits.want(TWO)
    daemon.gate.set()
    await limits.settled()
    assert daemon.updates[-1] == (1_000, "")
    await limits.aclose()


@pytest.mark.looptime
async def test_an_update_to_suspended_that_fails_is_told_and_done_later(
    daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    """No command hears of it: none begins before another update."""
    limits = api(daemon)
    limits.want(TWO)
    await limits.settled()
    daemon.error = DaemonError("failed", 500, "busy")
    limits.want(SUSPENDED)
    await asyncio.sleep(0.1)
    assert "does not have what its action has now" in caplog.text
    assert "busy; that is tried again in 5 s" in caplog.text
    daemon.error = None
    async with limits.rush():
        assert daemon.updates[-1] == (-1, ""), "whatever is tried again later"
    await asyncio.sleep(AGAIN_S)
    assert daemon.updates[-1] == (1_000, "")
    limits.want(ONE)
    await limits.settled()
    assert daemon.updates[-1] == (-1, "1")
    await limits.aclose()


@pytest.mark.looptime
async def test_a_grant_that_fails_while_its_action_runs_is_heard_by_commands_and_tried_until_it_is_there(
    daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    """What runs would go on with next to no time for ever."""
    limits = api(daemon)
    limits.see_inside(telling(b"cores 2-3\nquota -1\n"))
    limits.want(TWO)
    await limits.settled()
    limits.want(SUSPENDED)
    await limits.settled()
    daemon.error = DaemonError("failed", 500, "busy")
    limits.want(ONE)
    with pytest.raises(AllocationError, match="the daemon did not do it: busy"):
        await limits.settled()
    await asyncio.sleep(1.5 * AGAIN_S)
    assert (len(daemon.updates), len(caplog.messages)) == (4, 2)
    with pytest.raises(AllocationError, match="the daemon did not do it: busy"):
        await limits.settled()
    daemon.error = None
    await asyncio.sleep(AGAIN_S)
    await limits.settled()
    assert daemon.updates[2:] == [(-1, "1")] * 3
    await asyncio.sleep(10 * AGAIN_S)
    assert len(daemon.updates) == 5
    await limits.aclose()


@dataclass
class Told:
    """What limits tell of grants."""

    granted: int = 0
    failed: list[str] = field(default_factory=list[str])

    def grant(self) -> None:
        self.granted += 1

    def fail(self, error: InfrastructureError) -> None:
        self.failed.append(str(error))


async def test_a_grant_is_told_when_the_daemon_has_put_it_in_effect(daemon: FakeDaemon) -> None:
    limits, told = api(daemon), Told()
    limits.listen(told.grant, told.fail)
    limits.want(TWO)
    assert told.granted == 0
    await limits.settled()
    assert told.granted == 1
    limits.want(SUSPENDED)
    await limits.settled()
    daemon.gate.clear()
    limits.want(TWO)
    await asyncio.sleep(0.01)
    limits.want(SUSPENDED)
    daemon.gate.set()
    await limits.settled()
    assert told.granted == 1, "suspended again before it had them"
    limits.want(TWO)
    limits.want(SUSPENDED)
    limits.want(TWO)
    await limits.settled()
    limits.want(TWO)
    assert told.granted == 3, "what it has already is told at once"
    assert told.failed == []
    await limits.aclose()


@pytest.mark.looptime
@pytest.mark.parametrize("wish", [ONE, SUSPENDED])
async def test_a_change_of_a_running_action_that_keeps_failing_is_told_after_three_tries(
    daemon: FakeDaemon, wish: Wish
) -> None:
    limits, told = api(daemon), Told()
    limits.listen(told.grant, told.fail)
    limits.see_inside(telling(b"cores 2-3\nquota -1\n"))
    limits.want(TWO)
    await limits.settled()
    daemon.error = DaemonError("failed", 500, "busy")
    limits.want(wish)
    await asyncio.sleep(1.5 * AGAIN_S)
    assert told.failed == []
    await asyncio.sleep(AGAIN_S)
    assert len(told.failed) == 1
    assert "the daemon did not do it: busy" in told.failed[0]
    await asyncio.sleep(10 * AGAIN_S)
    assert (len(told.failed), len(daemon.updates), told.granted) == (1, 4, 1)
    await limits.aclose()


@pytest.mark.looptime
async def test_other_wishes_meanwhile_do_not_put_the_end_of_the_tries_off(daemon: FakeDaemon) -> None:
    limits, told = api(daemon), Told()
    limits.listen(told.grant, told.fail)
    limits.see_inside(telling(b"cores 2-3\nquota -1\n"))
    limits.want(TWO)
    await limits.settled()
    daemon.error = DaemonError("failed", 500, "busy")
    for _ in range(5):
        limits.want(ONE)
        await asyncio.sleep(1.0)
        limits.want(SUSPENDED)
        await asyncio.sleep(1.0)
    assert len(told.failed) == 1
    daemon.error = None
    limits.want(None)
    await asyncio.sleep(1.0)
    limits.want(TWO)
    await limits.settled()
    assert (told.granted, len(told.failed)) == (2, 1), "the next action begins anew"
    await limits.aclose()


@pytest.mark.looptime
async def test_a_daemon_that_is_away_is_waited_for(daemon: FakeDaemon) -> None:
    limits, told = api(daemon), Told()
    limits.listen(told.grant, told.fail)
    limits.see_inside(telling(b"cores 2-3\nquota -1\n"))
    limits.want(TWO)
    await limits.settled()
    limits.want(SUSPENDED)
    await limits.settled()
    daemon.error = DaemonError("gone", 0, "connection refused")
    limits.want(TWO)
    await asyncio.sleep(10 * AGAIN_S)
    assert (told.granted, told.failed) == (1, [])
    daemon.error = None
    await asyncio.sleep(2 * AGAIN_S)
    assert told.granted == 2
    await limits.aclose()


@pytest.mark.looptime
async def test_who_waits_hears_that_a_first_grant_failed(daemon: FakeDaemon) -> None:
    """Suspended before it had any, nothing runs in it whose clock must stand."""
    limits, told = api(daemon), Told()
    limits.listen(told.grant, told.fail)
    limits.want(TWO)
    limits.want(SUSPENDED)
    await limits.settled()
    daemon.error = DaemonError("failed", 500, "busy")
    limits.want(TWO)
    with pytest.raises(AllocationError):
        await limits.settled()
    assert (told.granted, told.failed) == (1, [])
    await limits.aclose()


async def test_direct_limits_tell_a_grant_at_once(group: SandboxGroup) -> None:
    limits, told = direct(group), Told()
    limits.listen(told.grant, told.fail)
    for wish, granted in ((TWO, 1), (SUSPENDED, 1), (ONE, 2), (None, 2)):
        limits.want(wish)
        assert told.granted == granted


async def test_api_limits_ask_the_daemon_and_wait(daemon: FakeDaemon) -> None:
    daemon.gate.clear()
    limits = api(daemon)
    limits.want(TWO)
    waiting = asyncio.create_task(limits.settled())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    daemon.gate.set()
    await waiting
    assert daemon.updates == [(-1, "2,3")]
    await limits.aclose()


async def test_intermediate_states_are_skipped_and_one_update_runs_at_a_time(daemon: FakeDaemon) -> None:
    daemon.gate.clear()
    limits = api(daemon)
    limits.want(TWO)
    await asyncio.sleep(0)
    for grant in (ONE, TWO, ONE, HALF):
        limits.want(grant)
        await asyncio.sleep(0)
    daemon.gate.set()
    await limits.settled()
    assert daemon.updates == [(-1, "2,3"), (50_000, "1")]
    assert daemon.most_running == 1
    await limits.aclose()


async def test_a_cancelled_waiter_does_not_stop_the_update(daemon: FakeDaemon) -> None:
    daemon.gate.clear()
    limits = api(daemon)
    limits.want(TWO)
    waiting = asyncio.create_task(limits.settled())
    await asyncio.sleep(0.001)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert daemon.running == 1
    daemon.gate.set()
    await limits.settled()
    assert daemon.updates == [(-1, "2,3")]
    await limits.aclose()


async def test_to_be_idle_is_asked_for_a_moment_later(daemon: FakeDaemon) -> None:
    limits = api(daemon)
    limits.want(TWO)
    await limits.settled()
    limits.want(None)
    await limits.settled()
    assert daemon.updates == [(-1, "2,3")]
    await asyncio.sleep(0.04)
    assert daemon.updates == [(-1, "2,3"), (10_000, "0,1,2,3")]
    await limits.aclose()


@pytest.mark.looptime
async def test_a_grant_in_between_begins_the_wait_for_idleness_anew(daemon: FakeDaemon) -> None:
    limits = api(daemon)
    limits.want(TWO)
    await limits.settled()
    limits.want(None)
    await asyncio.sleep(0.015)
    limits.want(TWO)
    limits.want(None)
    await asyncio.sleep(0.015)
    assert daemon.updates == [(-1, "2,3")]
    await asyncio.sleep(0.015)
    assert daemon.updates == [(-1, "2,3"), (10_000, "0,1,2,3")]
    await limits.aclose()


async def test_after_a_failure_nothing_is_known_to_be_in_effect(daemon: FakeDaemon) -> None:
    """An update that failed may have been done: what was there before must be asked for again."""
    limits = api(daemon)
    limits.want(TWO)
    await limits.settled()
    daemon.error = DaemonError("late", 0, "no answer")
    limits.want(ONE)
    with pytest.raises(AllocationError):
        await limits.settled()
    daemon.error = None
    limits.want(TWO)
    await limits.settled()
    assert daemon.updates == [(-1, "2,3"), (-1, "1"), (-1, "2,3")]
    await limits.aclose()


async def test_nobody_looks_into_a_container_that_is_idle_or_suspended(daemon: FakeDaemon) -> None:
    looks: list[str] = []

    async def shell(script: str) -> tuple[int, bytes, bytes]:
        looks.append(script)
        return 0, b"cores 2-3\nquota -1\n", b""

    limits = api(daemon)
    limits.see_inside(shell)
    limits.want(TWO)
    await limits.settled()
    await limits.freeze()
    assert len(looks) == 1
    await limits.thaw()
    assert len(looks) == 2
    limits.want(None)
    await asyncio.sleep(0.04)
    assert daemon.updates[-1] == (10_000, "0,1,2,3")
    assert len(looks) == 2
    await limits.aclose()


async def test_the_same_grant_again_needs_no_update(daemon: FakeDaemon) -> None:
    limits = api(daemon)
    for _ in range(3):
        limits.want(TWO)
        await limits.settled()
        limits.want(None)
    limits.want(ONE)
    await limits.settled()
    await asyncio.sleep(0.04)
    assert daemon.updates == [(-1, "2,3"), (-1, "1")]
    await limits.aclose()


async def test_a_new_container_is_idle_without_an_update(daemon: FakeDaemon) -> None:
    limits = api(daemon)
    limits.want(None)
    await asyncio.sleep(0.04)
    assert daemon.updates == []
    await limits.aclose()


async def test_a_daemon_that_ignores_updates_is_found_out_inside(daemon: FakeDaemon) -> None:
    limits = api(daemon)
    limits.see_inside(telling(b"cores 0-3\nquota 10000\n"))
    limits.want(TWO)
    with pytest.raises(AllocationError, match=r"wanted 2 cores \(2,3\), but 0\.1 cores \(0,1,2,3\) are in effect"):
        await limits.settled()
    limits.see_inside(telling(b"cores 2-3\nquota -1\n"))
    limits.want(TWO)
    await limits.settled()
    assert len(daemon.updates) == 2, "what has failed is tried anew"
    await limits.aclose()


async def test_a_container_that_never_tells_is_not_waited_for(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(script: str) -> tuple[int, bytes, bytes]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("arl_tangram.managers.docker.api_limits.LOOK_LIMIT_S", 0.02)
    limits = api(daemon)
    limits.see_inside(silent)
    limits.want(TWO)
    with pytest.raises(AllocationError, match="does not tell what is in effect"):
        await limits.settled()
    await limits.aclose()


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
    daemon: FakeDaemon, error: DaemonError, kind: type[Exception], words: str
) -> None:
    daemon.error = error
    limits = api(daemon)
    limits.want(TWO)
    with pytest.raises(kind, match=words):
        await limits.settled()
    with pytest.raises(kind, match=words):
        await limits.settled()
    daemon.error = None
    limits.want(TWO)
    await limits.settled()
    await limits.aclose()


async def test_a_failure_of_what_is_no_longer_wanted_is_not_heard(daemon: FakeDaemon) -> None:
    daemon.gate.clear()
    daemon.error, daemon.only_cpus = DaemonError("failed", 500, "it is busy"), "2,3"
    limits = api(daemon)
    limits.want(TWO)
    await asyncio.sleep(0)
    limits.want(ONE)
    daemon.gate.set()
    await limits.settled()
    assert daemon.updates[-1] == (-1, "1")
    await limits.aclose()


async def test_api_suspends_with_a_minimal_quota(daemon: FakeDaemon) -> None:
    limits = api(daemon)
    limits.want(TWO)
    await limits.settled()
    await limits.freeze()
    assert daemon.updates[-1] == (1_000, "2,3")
    await limits.thaw()
    assert daemon.updates[-1] == (-1, "2,3")
    await limits.thaw()
    assert len(daemon.updates) == 3, "there was nothing to resume"
    limits.want(None)
    await limits.freeze()
    assert daemon.updates[-1][0] == 1_000
    await limits.thaw()
    await asyncio.sleep(0.04)
    assert daemon.updates[-1] == (10_000, "0,1,2,3")
    await limits.aclose()


async def test_closing_waits_for_an_update_on_its_way_but_not_for_ever(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arl_tangram.managers.docker.api_limits.CLOSE_LIMIT_S", 0.02)
    daemon.gate.clear()
    limits = api(daemon)
    limits.want(TWO)
    await asyncio.sleep(0)
    await asyncio.wait_for(limits.aclose(), 1)
    await asyncio.sleep(0)
    assert daemon.running == 0
    limits.want(ONE)
    await asyncio.wait_for(limits.settled(), 1)
    assert daemon.updates == [(-1, "2,3")], "closed, it changes nothing more"


async def test_a_fault_of_ours_is_raised_and_not_repeated(daemon: FakeDaemon) -> None:
    async def broken(script: str) -> tuple[int, bytes, bytes]:
        raise KeyError("a bug")

    limits = api(daemon)
    limits.see_inside(broken)
    limits.want(TWO)
    with pytest.raises(KeyError):
        await limits.settled()
    await limits.aclose()
    gc.collect()


@pytest.mark.looptime
async def test_an_update_to_idle_that_fails_is_told_and_done_later(
    daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    limits = api(daemon)
    limits.want(TWO)
    await limits.settled()
    daemon.error = DaemonError("failed", 500, "busy")
    limits.want(None)
    await asyncio.sleep(0.1)
    assert "does not give back what its last action had" in caplog.text
    assert "busy; that is tried again in 5 s" in caplog.text
    daemon.error = None
    await asyncio.sleep(AGAIN_S)
    idle = (10_000, "0,1,2,3")
    assert daemon.updates == [(-1, "2,3"), idle, idle]
    await asyncio.sleep(10 * AGAIN_S)
    assert len(daemon.updates) == 3
    await limits.aclose()


@pytest.mark.looptime
async def test_an_update_to_idle_that_fails_is_tried_once_more_and_not_if_a_grant_comes(
    daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    limits = api(daemon)
    limits.want(TWO)
    await limits.settled()
    daemon.error = DaemonError("failed", 500, "busy")
    limits.want(None)
    await asyncio.sleep(100)
    assert (len(daemon.updates), len(caplog.messages)) == (3, 2)
    limits.want(None)
    await asyncio.sleep(1)
    daemon.error = None
    limits.want(ONE)
    await asyncio.sleep(100)
    assert daemon.updates[-2:] == [(10_000, "0,1,2,3"), (-1, "1")]
    await limits.aclose()


@pytest.mark.looptime
async def test_a_container_that_is_gone_need_not_become_idle(
    daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    limits = api(daemon)
    limits.want(TWO)
    await limits.settled()
    daemon.error = DaemonError("refused", 404, "No such container")
    limits.want(None)
    await asyncio.sleep(100)
    assert (len(daemon.updates), caplog.messages) == (2, [])
    await limits.aclose()
