"""Grants in real containers: by direct writes and through the daemon, what is seen inside, and sub-groups."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

import arl_tangram as tangram
from arl_tangram import DockerPool, Tangram
from arl_tangram.errors import AllocationError, SandboxLostError
from arl_tangram.managers.cores import Placement
from arl_tangram.managers.docker.allotment import IDLE_QUOTA_US, SUSPENDED
from arl_tangram.managers.docker.api_limits import ApiLimits
from arl_tangram.managers.docker.available import AvailableCores
from arl_tangram.managers.docker.declared import Grants
from arl_tangram.managers.docker.direct_limits import DirectLimits
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.group import NoGroupError, SessionGroup, find_group
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.managers.docker.limits import Limits
from arl_tangram.managers.docker.probe import probe_direct
from arl_tangram.managers.host.cgroup import PERIOD_US, SandboxGroup, cpulist
from arl_tangram.managers.host.machine import read_machine
from contract.sandbox_contract import mark, until_there_is
from docker_engine import EngineApi
from docker_images import Images

CORES = read_machine().cores
REAP = "trap 'exit 0' TERM; while :; do sleep 86400 & wait $!; done"
GRANTS = [Placement(CORES[:1], 1000), Placement(CORES, 1000 * len(CORES)), Placement(CORES[-1:], 500)]
LOOK = (
    "import os, subprocess as s; "
    "print(len(os.sched_getaffinity(0)), *sorted(os.sched_getaffinity(0)), s.check_output('nproc').decode().strip())"
)


@dataclass
class Box:
    """A running, idle container."""

    engine: Engine
    id: str
    pid: int

    @property
    def group(self) -> SandboxGroup:
        return find_group(self.id, self.pid)

    def direct(self) -> DirectLimits:
        return DirectLimits(self.group, idle_cores=lambda: CORES)

    def api(self) -> ApiLimits:
        return ApiLimits(self.engine, self.id, idle_cores=lambda: CORES, idle_after_s=0.05)

    async def run(self, *argv: str, on_start: Callable[[bytes], None] = lambda _: None) -> bytes:
        """Return what a program prints."""
        stream = await self.engine.open_exec(self.id, argv)
        told = b""
        try:
            while (piece := await stream.read()) is not None:
                told += piece[1]
                on_start(told)
        finally:
            stream.close()
        return told

    async def shell(self, script: str) -> tuple[int, bytes, bytes]:
        return 0, await self.run("sh", "-c", script), b""


@pytest_asyncio.fixture
async def engine(docker_url: str) -> AsyncIterator[Engine]:
    engine = Engine(docker_url, LatencyMeter())
    await engine.open()
    yield engine
    await engine.aclose()


@contextlib.asynccontextmanager
async def container(engine: Engine, image: str) -> AsyncIterator[Box]:
    config = {
        "Image": image,
        "Entrypoint": ["/bin/sh", "-c", REAP],
        "Labels": {"arl_tangram.test": "grants"},
        "HostConfig": {
            "NetworkMode": "none",
            "PidsLimit": 4096,
            "CapDrop": ["ALL"],
            "CpuPeriod": PERIOD_US,
            "CpuQuota": IDLE_QUOTA_US,
            "CpusetCpus": cpulist(CORES),
        },
    }
    container_id = await engine.create(config, f"grants-{os.getpid()}-{time.monotonic_ns()}")
    try:
        await engine.start(container_id)
        yield Box(engine, container_id, (await engine.inspect(container_id)).pid)
    finally:
        await engine.remove(container_id)


@pytest_asyncio.fixture
async def box(engine: Engine, images: Images) -> AsyncIterator[Box]:
    async with container(engine, images.busybox) as box:
        yield box


@pytest.mark.parametrize("how", ["direct", "api"])
async def test_inside_the_grant_is_seen_also_when_it_changes(engine: Engine, images: Images, how: str) -> None:
    """`nproc` and the affinity follow whole cores and the cores of a fraction, for every grant, one after the other."""
    async with container(engine, images.python) as box:
        limits: Limits = box.direct() if how == "direct" else box.api()
        limits.see_inside(box.shell)
        for grant in (*GRANTS, *reversed(GRANTS)):
            limits.want(grant)
            await limits.settled()
            count = len(grant.core_ids)
            expected = " ".join(map(str, (count, *grant.core_ids, count)))
            assert (await box.run("python3", "-c", LOOK)).decode().strip() == expected
            quota = None if grant.is_whole else grant.milli_cores * PERIOD_US // 1000
            assert (box.group.effective_cores(), box.group.quota_us()) == (grant.core_ids, quota)
        limits.want(None)
        if how == "api":  # through the daemon, a moment later
            await _wait(lambda: (box.group.effective_cores(), box.group.quota_us()) == (CORES, IDLE_QUOTA_US))
        assert (box.group.effective_cores(), box.group.quota_us()) == (CORES, IDLE_QUOTA_US)
        await limits.aclose()


async def test_a_direct_grant_costs_next_to_nothing(box: Box) -> None:
    limits, api = box.direct(), box.api()
    whole = GRANTS[0]
    took: list[float] = []
    for _ in range(100):
        begin = time.perf_counter()
        limits.want(whole)
        limits.want(None)
        took.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    api.want(whole)
    await api.settled()
    through_daemon = time.perf_counter() - begin
    await api.aclose()
    assert sorted(took)[50] / 2 * 20 < through_daemon, "100 times is what the benchmark shows on a quiet machine"


async def test_cores_that_there_are_not_are_refused_and_the_container_stays_usable(box: Box) -> None:
    wrong = Placement((CORES[0], 8000), 2000)
    direct, api = box.direct(), box.api()
    with pytest.raises(AllocationError, match="wanted 2 cores"):
        direct.want(wrong)
    assert box.group.quota_us() == IDLE_QUOTA_US
    api.want(wrong)
    with pytest.raises(AllocationError, match=r"the daemon did not do it: .*Requested CPUs are not available"):
        await api.settled()
    api.want(GRANTS[0])
    await api.settled()
    assert (await box.run("echo", "well")) == b"well\n"
    await api.aclose()


class FakeEngine:
    """A fake: it says that it has done what was asked, and does nothing."""

    async def update(
        self, container_id: str, /, *, quota_us: int, period_us: int, cpus: str, shares: int | None = None
    ) -> None:
        pass


async def test_a_daemon_that_ignores_updates_is_found_out_by_a_look_inside(box: Box) -> None:
    limits = ApiLimits(FakeEngine(), box.id, idle_cores=lambda: CORES)
    limits.see_inside(box.shell)
    limits.want(Placement(CORES, 1000 * len(CORES)))
    with pytest.raises(
        AllocationError, match=rf"wanted {len(CORES)} cores \(.*\), but 0\.1 cores \(.*\) are in effect"
    ):
        await limits.settled()
    await limits.aclose()


async def test_a_container_that_died_takes_no_grant(engine: Engine, box: Box) -> None:
    direct, api = box.direct(), box.api()
    await engine.remove(box.id)
    with pytest.raises(FileNotFoundError):
        direct.want(GRANTS[0])
    direct.want(None)
    api.want(GRANTS[0])
    with pytest.raises(SandboxLostError):
        await api.settled()
    await api.aclose()


@pytest.mark.parametrize("grants", ["direct", "api"])
async def test_a_core_that_goes_offline_is_granted_to_nobody_until_it_is_back(
    docker_url: str, images: Images, grants: Grants, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a file that stands for that of the cgroup above the containers': the pool shrinks and grows with it."""
    effective = tmp_path / "cpuset.cpus.effective"
    effective.write_text(cpulist(CORES))
    monkeypatch.setattr(AvailableCores, "above", lambda _: AvailableCores(effective))
    monkeypatch.setattr("arl_tangram.managers.docker.available.LOOK_EVERY_S", 0.05)

    @tangram.action(cpu=1)
    async def where() -> int:
        result = await tangram.current_sandbox().exec(["sh", "-c", "sleep 0.1; nproc"])
        assert result.stdout == b"1\n"
        return tangram.current_allocation().core_ids[0]

    @tangram.action(cpu=1)
    async def anywhere() -> int:
        return tangram.current_allocation().core_ids[0]

    rounds: list[list[int]] = [[], [], []]
    barrier = asyncio.Barrier(len(CORES) + 1)

    async def agent() -> None:
        async with tangram.trajectory():
            for found in rounds:
                await barrier.wait()
                found.append(await where())
                await barrier.wait()

    async with (
        Tangram(DockerPool(cores=len(CORES), url=docker_url, image=images.busybox, grants=grants)) as tg,
        asyncio.TaskGroup() as agents,
    ):
        for _ in CORES:
            agents.create_task(agent())

        async def count_is(count: int) -> None:
            await _wait(lambda: tg.statistics().dimensions["cpu"].capacity == count)

        await barrier.wait()
        await barrier.wait()
        assert sorted(rounds[0]) == list(CORES)
        effective.write_text(cpulist(CORES[:-1]))
        assert await anywhere() != CORES[-1]
        await count_is(len(CORES) - 1)
        await barrier.wait()
        await barrier.wait()
        assert CORES[-1] not in rounds[1], "who found no core waited for another"
        assert len(rounds[1]) == len(CORES)
        effective.write_text(cpulist(CORES))
        await count_is(len(CORES))
        await barrier.wait()
        await barrier.wait()
        assert sorted(rounds[2]) == list(CORES)


COUNT = "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo $i; done; sleep 0.2; echo end; exit 7"
SPIN = "while :; do :; done"


@pytest.mark.parametrize("how", ["direct", "api"])
async def test_what_is_suspended_takes_no_time_and_goes_on(box: Box, how: str) -> None:
    limits: Limits = box.direct() if how == "direct" else box.api()
    group = box.group
    limits.want(GRANTS[0])
    await limits.settled()
    spinning = asyncio.create_task(box.run("sh", "-c", f"echo on; {SPIN}"))
    await _wait(lambda: group.cpu_s() > 0.3)
    limits.want(SUSPENDED)
    await limits.settled()
    before, begin = group.cpu_s(), time.monotonic()
    await asyncio.sleep(0.5)
    suspended = (group.cpu_s() - before) / (time.monotonic() - begin)
    assert suspended < 0.05
    limits.want(GRANTS[0])
    await limits.settled()
    before = group.cpu_s()
    await _wait(lambda: group.cpu_s() > before + 0.2)
    spinning.cancel()
    await asyncio.wait([spinning])
    await limits.aclose()


@pytest.mark.parametrize("how", ["direct", "api"])
async def test_output_and_exit_code_survive_a_suspension(box: Box, how: str) -> None:
    limits: Limits = box.direct() if how == "direct" else box.api()
    limits.want(GRANTS[0])
    await limits.settled()
    stream = await box.engine.open_exec(box.id, ["sh", "-c", COUNT])
    told = (await stream.read() or (1, b""))[1]
    for _ in range(3):
        limits.want(SUSPENDED)
        await limits.settled()
        await asyncio.sleep(0.02)
        limits.want(GRANTS[0])
        await limits.settled()
    while (piece := await stream.read()) is not None:
        told += piece[1]
    assert told.decode().split() == [*map(str, range(1, 401)), "end"]
    assert (await box.engine.exec_state(stream.exec_id)).exit_code == 7
    stream.close()
    await limits.aclose()


@pytest.mark.parametrize("grants", ["direct", "api"])
async def test_a_suspended_command_is_the_same_command_afterwards(
    docker_url: str, images: Images, grants: Grants
) -> None:
    """Through the sandbox of a pool: output, exit code, and a time limit that stands still meanwhile."""
    manager = DockerPool(cores=1, url=docker_url, image=images.busybox, grants=grants).manager()
    try:
        await manager.prepare()
        await manager.start()
        sandbox = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, sandbox)
        counting = asyncio.create_task(sandbox.exec(["sh", "-c", COUNT]))
        await asyncio.sleep(0.05)
        for _ in range(3):
            lease.resize(0)
            await asyncio.sleep(0.05)
            lease.resize(1000)
            await asyncio.sleep(0.05)
        result = await counting
        assert result.stdout.decode().split() == [*map(str, range(1, 401)), "end"]
        assert result.exit_code == 7
        begin, mine = time.monotonic(), mark()
        sleeping = asyncio.create_task(sandbox.exec(["sh", "-c", f"setsid sleep {mine} & sleep {mine}"], timeout=1))
        await until_there_is(f"sleep\0{mine}")
        lease.resize(0)
        await asyncio.sleep(1.2)
        assert not sleeping.done()
        lease.resize(1000)
        result = await sleeping
        assert result.timed_out
        assert time.monotonic() - begin < 5
        assert (await sandbox.exec(["echo", "well"])).stdout == b"well\n"
        assert not lease.needs_cleanup()
        lease.release()
    finally:
        await manager.aclose()


async def pause(url: str, box: Box) -> None:
    """Have a container stand still, as an operator may."""
    await asyncio.to_thread(EngineApi(url).call, "POST", f"/containers/{box.id}/pause")


async def test_a_paused_container_can_be_removed(engine: Engine, images: Images, docker_url: str) -> None:
    async with container(engine, images.busybox) as box:
        await pause(docker_url, box)
        begin = time.monotonic()
        await engine.remove(box.id)  # as a sweep does, which knows nothing of it
        assert time.monotonic() - begin < 10


FIVE = """
sleep 1000 & setsid sleep 1001 & (setsid sh -c 'sleep 1002 & :' &) ; env -i /bin/setsid /bin/sleep 1003 &
sh -c 'trap "" TERM HUP; sleep 1004' &
exec 2>/dev/null; echo ready; cat >/dev/null; echo end; exit 3
"""


async def test_a_session_group_holds_all_that_a_session_started(box: Box) -> None:
    """Also what it started before it was put there; killed, only what is spared is left, and it goes on."""
    limits = box.direct()
    limits.want(GRANTS[0])
    group = limits.session_group(1)
    stream = await box.engine.open_exec(box.id, ["sh", "-c", FIVE])
    assert (await stream.read() or (0, b""))[1] == b"ready\n"
    pid = await _started(box, stream.exec_id)
    await asyncio.to_thread(group.enter, pid)
    # What has lost its parent before belongs to the first process: a session is entered before its first command.
    inside = set(group.processes())
    assert pid in inside
    assert len(inside) >= 5
    await _wait(lambda: ["cat"] in map(_command, group.processes()))
    cat = next(other for other in group.processes() if _command(other) == ["cat"])
    assert await asyncio.to_thread(group.kill, [pid, cat])
    assert set(group.processes()) == {pid, cat}
    os.kill(cat, signal.SIGTERM)
    assert (await stream.read() or (0, b""))[1] == b"end\n"
    assert await stream.read() is None
    assert (await box.engine.exec_state(stream.exec_id)).exit_code == 3
    assert await asyncio.to_thread(group.remove)
    assert not group.folder.exists()
    stream.close()


async def test_whatever_a_command_forks_after_its_session_entered_is_killed(box: Box) -> None:
    limits = box.direct()
    limits.want(GRANTS[0])
    group = limits.session_group(2)
    stream = await box.engine.open_exec(box.id, ["sh", "-c", f"read -r go; {FIVE}"])
    pid = await _started(box, stream.exec_id)
    await asyncio.to_thread(group.enter, pid)
    await stream.write(b"go\n")
    assert (await stream.read() or (0, b""))[1] == b"ready\n"
    others = _outside(group)
    started = [["cat"], *(["sleep", str(seconds)] for seconds in (1000, 1001, 1002, 1004)), ["/bin/sleep", "1003"]]
    await _wait(lambda: all(each in map(_command, group.processes()) for each in started))
    assert await asyncio.to_thread(group.kill)
    assert group.processes() == []
    assert _outside(group) == others, "the first process and its sleep are not touched"
    assert await asyncio.to_thread(group.remove)
    stream.close()


BOMB = """
read -r go; f() { sleep 1000 & }
i=0; while [ $i -lt 800 ]; do f; i=$((i+1)); done
echo full; while :; do f; done
"""


@pytest.mark.parametrize("milli_cores", [1000, 100])
async def test_a_fork_bomb_is_killed_in_bounded_time(box: Box, milli_cores: int) -> None:
    limits = box.direct()
    limits.want(GRANTS[0])
    group = limits.session_group(3)
    stream = await box.engine.open_exec(box.id, ["sh", "-c", BOMB])
    await asyncio.to_thread(group.enter, await _started(box, stream.exec_id))
    await stream.write(b"go\n")
    assert (await stream.read() or (0, b""))[1] == b"full\n"
    limits.want(Placement(CORES[:1], milli_cores))
    assert len(group.processes()) >= 800
    begin = time.monotonic()
    assert await asyncio.to_thread(group.kill)
    took = time.monotonic() - begin
    assert group.processes() == []
    assert took < 5.0
    assert box.group.quota_us() == (None if milli_cores == 1000 else 10_000), "as it was before"
    assert await asyncio.to_thread(group.remove)
    stream.close()


async def test_killing_what_is_paused_works(box: Box, docker_url: str) -> None:
    group = box.direct().session_group(4)
    stream = await box.engine.open_exec(box.id, ["sh", "-c", "read -r go; sleep 1000"])
    await asyncio.to_thread(group.enter, await _started(box, stream.exec_id))
    await stream.write(b"go\n")
    await pause(docker_url, box)
    assert await asyncio.to_thread(group.kill)
    assert await asyncio.to_thread(group.remove)
    stream.close()


async def test_a_container_is_removed_with_its_sub_groups(engine: Engine, images: Images) -> None:
    async with container(engine, images.busybox) as box:
        group = box.direct().session_group(5)
        await asyncio.to_thread(group.enter, box.pid)
        await engine.remove(box.id)
        assert not group.folder.parent.exists()
        with pytest.raises(FileNotFoundError):
            await asyncio.to_thread(group.enter, box.pid)
        assert await asyncio.to_thread(group.kill)
        assert await asyncio.to_thread(group.remove)


async def test_the_probe_finds_direct_writes_possible_here(box: Box) -> None:
    probe = await probe_direct(box.engine, box.id, box.pid, is_socket=True, core_ids=CORES)
    assert probe.is_direct, probe.reason
    assert (box.group.effective_cores(), box.group.quota_us()) == (CORES, IDLE_QUOTA_US)


async def test_the_probe_is_not_taken_in_by_another_process_of_that_number(box: Box) -> None:
    probe = await probe_direct(box.engine, box.id, os.getpid(), is_socket=True, core_ids=CORES)
    assert not probe.is_direct
    assert "is not the cgroup of container" in probe.reason
    with pytest.raises(NoGroupError, match="not visible"):
        find_group(box.id, 1 << 23)


def _outside(group: SessionGroup) -> set[int]:
    return set(SessionGroup(group.version, group.folder.parent).processes())


async def _started(box: Box, exec_id: str) -> int:
    """Return the number of an exec's process, once it is there."""
    async with asyncio.timeout(20):
        while not (pid := (await box.engine.exec_state(exec_id)).pid):  # noqa: ASYNC110 - the daemon has no event
            await asyncio.sleep(0.005)
    return pid


async def _wait(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - cgroups have no event
            await asyncio.sleep(0.01)


def _command(pid: int) -> Sequence[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode().split("\0")[:-1]
    except OSError:
        return []
