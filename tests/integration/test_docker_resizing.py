"""Cores of running actions in real containers: more, fewer, none and back, directly and through the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator
from functools import partial
from pathlib import Path

import pytest

from arl_tangram.errors import AllocationError, SandboxLostError
from arl_tangram.managers.docker import api_limits
from arl_tangram.managers.docker.allotment import IDLE_QUOTA_US
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.group import find_group
from arl_tangram.managers.docker.manager import DockerManager
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.managers.host.cgroup import SUSPENDED_QUOTA_US, SandboxGroup
from arl_tangram.managers.host.hierarchy import FILES
from arl_tangram.managers.manager import CpuLease
from arl_tangram.model.sandbox import ExecResult
from contract.sandbox_contract import mark, processes, shell
from docker_engine import EngineApi
from docker_images import Images
from integration.docker_managers import OWNER_LABEL, containers, docker_manager

TESTS = Path(__file__).parents[1]
WORKERS = 8


@pytest.fixture(params=["direct", "api"])
def grants(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def manager(grants: str, docker_url: str, images: Images) -> AsyncIterator[DockerManager]:
    async with docker_manager(docker_url, images.busybox, grants=grants) as manager:
        yield manager


@pytest.fixture
async def box(manager: DockerManager) -> AsyncIterator[DockerSandbox]:
    created = await manager.create_sandbox(image=None, memory_bytes=0)
    assert isinstance(created, DockerSandbox)
    yield created
    await created.aclose()


@pytest.fixture
def group(box: DockerSandbox) -> SandboxGroup:
    """Return the cgroups of the container, where the tests see what is in effect."""
    return find_group(box.container.id, box.container.pid)


async def until(true: Callable[[], bool], *, within_s: float = 20) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.005)


def weight(group: SandboxGroup) -> str:
    """Return how much a container counts on cores that others use, too."""
    return (group.folders["cpu"] / FILES[group.version].weight).read_text().strip()


async def until_suspended(group: SandboxGroup) -> None:
    await until(lambda: group.quota_us() == SUSPENDED_QUOTA_US)


def busy(mine: str) -> str:
    """Return a script whose workers keep all cores busy that there are."""
    return WORKERS * f"sh -c 'while :; do :; done' {mine} &\n" + "wait"


def is_busy(mine: str) -> bool:
    return len(processes(f"done\0{mine}")) == WORKERS


async def until_busy(mine: str) -> None:
    await until(partial(is_busy, mine))


def python(program: str, count: int, mine: str) -> str:
    """Return a script that runs a program of Python, with 8 MiB, several times."""
    loads = f"import json, email, sys; x = bytearray(8 << 20); sys.argv.append(1)\n{program}"
    return f"i=0; while [ $i -lt {count} ]; do python3 -c '{loads}' {mine} & i=$((i+1)); done; wait"


def pythons(mine: str) -> list[int]:
    """Return those that have their memory."""
    return [pid for pid in processes(f"\0{mine}\0") if resident_bytes(pid) > 12 << 20]


def resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def owner_of(url: str, container_id: str) -> str:
    """Return under which name a container was created. It blocks."""
    return str(EngineApi(url).get(f"/containers/{container_id}/json")["Config"]["Labels"][OWNER_LABEL])


def lifters(owner: str) -> list[int]:
    """Return what lifts the quotas of an owner's sandboxes."""
    return [pid for pid in processes("groups_$number") if f"={owner}.lifter\0" in environment(pid)]


def environment(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_text()
    return ""


async def test_the_cores_of_a_running_command_follow(
    manager: DockerManager, box: DockerSandbox, group: SandboxGroup
) -> None:
    lease = manager.lease(1000, box, most=2000)
    tell = "while [ ! -e stop ]; do nproc >next; mv next now; sleep 0.01; done"
    running = asyncio.ensure_future(box.exec(shell(f'echo "$OMP_NUM_THREADS"; {tell}; exit 3')))
    for cores in (2, 1, 0, 2, 0, 1, 2):
        before = group.effective_cores()
        lease.resize(cores * 1000)
        assert len(lease.core_ids) == cores
        if cores == 0:
            await until_suspended(group)
            assert group.effective_cores() == before
            assert weight(group) == "2"
            continue
        async with asyncio.timeout(20):
            while (await box.exec(["cat", "now"])).stdout != b"%d\n" % cores:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.01)
        assert (group.effective_cores(), group.quota_us(), weight(group)) == (lease.core_ids, None, "1024")
    await box.write_file("stop", b"")
    done = await running
    assert (done.exit_code, done.timed_out, done.stdout) == (3, False, b"2\n")
    lease.resize(0)
    await until_suspended(group)
    lease.release()
    await until(lambda: (group.effective_cores(), group.quota_us()) == ((0, 1), IDLE_QUOTA_US))
    assert weight(group) == "1024"


async def test_a_container_that_is_removed_while_it_is_suspended_is_lost_at_once(
    manager: DockerManager, box: DockerSandbox, group: SandboxGroup, docker_url: str
) -> None:
    mine = mark()
    lease = manager.lease(2000, box)
    running = asyncio.ensure_future(box.exec(shell(busy(mine))))
    await until_busy(mine)
    lease.resize(0)
    await until_suspended(group)
    waiting = [asyncio.ensure_future(box.exec(["true"])), asyncio.ensure_future(box.read_file("there is none"))]
    await asyncio.sleep(0.3)
    began_s = time.monotonic()
    await asyncio.to_thread(EngineApi(docker_url).remove, box.container.id)
    for each in (running, *waiting):
        with pytest.raises(SandboxLostError):
            await each
    assert time.monotonic() - began_s < 10, "before the daemon gives up waiting for the end of what it has killed"
    assert not processes(mine)
    with pytest.raises(SandboxLostError):
        lease.resize(1000)
    lease.release()
    manager.lease(2000, None).release()  # all is back


async def test_a_daemon_that_is_back_leaves_it_suspended(
    manager: DockerManager, box: DockerSandbox, group: SandboxGroup
) -> None:
    lease = manager.lease(1000, box)
    lease.resize(0)
    await until_suspended(group)
    await box.limits.settled()
    group.set_quota_us(50_000)  # as a daemon may that does not know of it
    box.resume()
    await until_suspended(group)
    lease.resize(1000)
    assert (await box.exec(["nproc"])).stdout == b"1\n"
    lease.release()


async def test_the_pool_tells_what_a_change_costs(manager: DockerManager, grants: str) -> None:
    assert manager.cannot_resize() is None
    assert manager.switch_s == (0.0002 if grants == "direct" else 0.02)


async def refused_while_suspended(
    manager: DockerManager, box: DockerSandbox, patch: pytest.MonkeyPatch
) -> tuple[CpuLease, asyncio.Task[ExecResult]]:
    """Suspend a sandbox with a running command, and have its daemon refuse all that is asked of it from then on."""
    patch.setattr(api_limits, "AGAIN_S", 2.0)
    patch.setattr(api_limits, "GIVE_UP_S", 3.0)
    lease = manager.lease(1000, box)
    assert (await box.exec(["true"])).exit_code == 0
    running = asyncio.ensure_future(box.exec(shell("while [ ! -e stop ]; do :; done; exit 3"), timeout=1.0))
    await asyncio.sleep(0.05)

    async def refuse(*_: object, **__: object) -> None:
        raise DaemonError("failed", 500, "device or resource busy")

    lease.resize(0)
    await box.limits.settled()
    patch.setattr(Engine, "update", refuse)
    return lease, running


async def test_a_daemon_that_does_not_let_it_go_on_ends_no_command_by_its_time_limit(
    docker_url: str, images: Images
) -> None:
    async with docker_manager(docker_url, images.busybox, grants="api") as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        assert isinstance(box, DockerSandbox)
        with pytest.MonkeyPatch.context() as patch:
            lease, running = await refused_while_suspended(manager, box, patch)
            lease.resize(1000)
            waiting = asyncio.ensure_future(box.exec(["echo", "on"]))
            with pytest.raises(AllocationError, match="device or resource busy"):
                await waiting
            await asyncio.sleep(1.2)
            assert not running.done()
        group = find_group(box.container.id, box.container.pid)
        await until(lambda: group.quota_us() is None)  # tried again
        await box.exec(["touch", "stop"])
        done = await running
        assert (done.exit_code, done.timed_out) == (3, False)
        lease.release()


async def test_a_daemon_that_never_lets_it_go_on_is_heard_by_its_commands(docker_url: str, images: Images) -> None:
    async with docker_manager(docker_url, images.busybox, grants="api") as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        assert isinstance(box, DockerSandbox)
        with pytest.MonkeyPatch.context() as patch:
            lease, running = await refused_while_suspended(manager, box, patch)
            lease.resize(1000)
            with pytest.raises(SandboxLostError, match=r"cannot have what its action has: .*device or resource busy"):
                await running
            await box.aclose()
        lease.release()
        assert box.container.id not in await asyncio.to_thread(containers, docker_url)


@contextlib.contextmanager
def trainer(*words: str) -> Generator[subprocess.Popen[str]]:
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    program = [sys.executable, str(TESTS / "integration" / "docker_trainer.py"), *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        program, stdin=pipe, stdout=pipe, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def suspended_trainer(url: str, image: str, grants: str, script: str, is_ready: Callable[[], bool]) -> str:
    """Kill a trainer while what it runs is suspended; return the container that it leaves."""
    with trainer(url, image, grants, script, "suspended") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        left = (await asyncio.to_thread(process.stdout.readline)).strip()
        await until(is_ready, within_s=60)
        process.stdin.write("suspend\n")
        process.stdin.flush()
        assert await asyncio.to_thread(process.stdout.readline) == "suspended\n"
        pid = (await asyncio.to_thread(EngineApi(url).get, f"/containers/{left}/json"))["State"]["Pid"]
        await until_suspended(find_group(left, pid))
    return left


async def test_the_next_start_removes_what_was_suspended_when_its_trainer_was_killed(
    docker_url: str, images: Images, grants: str
) -> None:
    image, mine = images.busybox, mark()
    left = await suspended_trainer(docker_url, image, grants, busy(mine), partial(is_busy, mine))
    began_s = time.monotonic()
    async with docker_manager(docker_url, image, grants=grants):
        assert left not in await asyncio.to_thread(containers, docker_url)
    assert not processes(mine)
    assert time.monotonic() - began_s < 15


async def test_what_was_suspended_when_its_trainer_was_killed_ends_at_once(docker_url: str, images: Images) -> None:
    """Its guard had little time, and had to share that with what it kills: 14 s for 16 busy programs of Python."""
    mine = mark()
    script = python("while True: pass", 16, mine)
    left = await suspended_trainer(docker_url, images.python, "auto", script, lambda: len(pythons(mine)) == 16)
    try:
        began_s = time.monotonic()
        await until(lambda: not processes(mine))
        assert time.monotonic() - began_s < 3, "1 s, where nothing else runs"
    finally:
        await asyncio.to_thread(EngineApi(docker_url).remove, left)


async def test_what_died_with_its_trainer_leaves_nothing_that_lifts_quotas(docker_url: str, images: Images) -> None:
    mine = mark()
    left = await suspended_trainer(docker_url, images.busybox, "auto", busy(mine), partial(is_busy, mine))
    owner = await asyncio.to_thread(owner_of, docker_url, left)
    await asyncio.to_thread(EngineApi(docker_url).remove, left)
    await until(lambda: not lifters(owner))


async def test_a_pool_that_shares_has_one_process_that_lifts_quotas_until_it_closes(
    docker_url: str, images: Images, grants: str
) -> None:
    async with docker_manager(docker_url, images.busybox, grants=grants, share="resize") as manager:
        boxes = [await manager.create_sandbox(image=None, memory_bytes=0) for _ in range(2)]
        assert isinstance(boxes[0], DockerSandbox)
        owner = await asyncio.to_thread(owner_of, docker_url, boxes[0].container.id)
        assert len(lifters(owner)) == (grants == "direct")
        await boxes[1].aclose()
        lease = manager.lease(1000, boxes[0])
        lease.resize(0)
        await boxes[0].aclose()
        lease.release()
    assert lifters(owner) == []


@pytest.mark.parametrize("grants", ["direct", "api"])
async def test_many_programs_that_are_suspended_are_removed_at_once(
    docker_url: str, images: Images, grants: str
) -> None:
    """Suspended, 64 take longer than a daemon waits for what it has killed: 12 s."""
    mine = mark()
    async with docker_manager(docker_url, images.python, grants=grants, memory_gib=4) as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        assert isinstance(box, DockerSandbox)
        lease = manager.lease(2000, box)
        running = asyncio.ensure_future(box.exec(shell(python("import time; time.sleep(1000)", 64, mine))))
        await until(lambda: len(pythons(mine)) == 64, within_s=60)
        lease.resize(0)
        await until_suspended(find_group(box.container.id, box.container.pid))
        began_s = time.monotonic()
        await box.aclose()
        took_s = time.monotonic() - began_s
        assert box.container.id not in await asyncio.to_thread(containers, docker_url)
        with pytest.raises(SandboxLostError):
            await running
        lease.release()
    assert took_s < 5


async def test_a_start_removes_several_that_are_suspended_at_once(docker_url: str, images: Images, grants: str) -> None:
    marks = [mark() for _ in range(2)]
    left = []
    for mine in marks:
        script = python("import time; time.sleep(1000)", 32, mine)
        is_ready = partial(lambda mine: len(pythons(mine)) == 32, mine)
        left.append(await suspended_trainer(docker_url, images.python, grants, script, is_ready))
    began_s = time.monotonic()
    async with docker_manager(docker_url, images.busybox, grants=grants):
        took_s = time.monotonic() - began_s
        assert not set(left) & set(await asyncio.to_thread(containers, docker_url))
    assert took_s < 8
