"""Commands in real containers that do their worst: nothing survives, nothing hangs, and the sandbox goes on."""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Mapping

import pytest

from arl_tangram.errors import SandboxLostError
from arl_tangram.managers.docker.direct_limits import DirectLimits
from arl_tangram.managers.docker.manager import DockerManager
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.managers.manager import CpuLease
from contract.sandbox_contract import mark, processes, shell, until_there_is
from docker_images import Images
from integration.docker_managers import docker_manager

# ruff: noqa: ASYNC110 - nothing announces what is waited for here

SESSION_PROCESSES = 5
BOXES, CANCELS, WITHIN_S = 4, 120, 0.5
# Children that stay, leave the session, are orphaned, lose their environment, and all of that at once.
NASTY = """\
sleep {0} & setsid sleep {0} & (setsid sleep {0} &); (env -i /bin/sh -c '(/bin/sleep {0} &) & /bin/sleep {0}' &)
(setsid env -i /bin/sh -c '/bin/sleep {0} & (/bin/sleep {0} &)' >/dev/null 2>&1 &); trap '' TERM INT HUP
while :; do sleep {0}; done"""

grants = pytest.mark.parametrize("grants", ["direct", "api"])


@pytest.fixture
def image(images: Images) -> str:
    return images.busybox


@pytest.fixture
def options() -> Mapping[str, object]:
    return {}


@pytest.fixture
async def manager(
    grants: str, docker_url: str, image: str, options: Mapping[str, object]
) -> AsyncIterator[DockerManager]:
    async with docker_manager(docker_url, image, grants=grants, **options) as manager:
        yield manager


@pytest.fixture
async def box(manager: DockerManager) -> AsyncIterator[DockerSandbox]:
    created = await manager.create_sandbox(image=None, memory_bytes=0)
    assert isinstance(created, DockerSandbox)
    yield created
    await created.aclose()


@pytest.fixture
def lease(manager: DockerManager, box: DockerSandbox) -> Iterator[CpuLease]:
    held = manager.lease(1000, box)
    yield held
    held.release()


def sub_groups(box: DockerSandbox) -> list[tuple[str, list[int]]]:
    """Return the cgroups below that of a container, with their processes; none without direct grants."""
    if not isinstance(box.limits, DirectLimits):
        return []
    own = box.limits.session_group(0).folder.parent
    return [
        (each.name, [*map(int, (each / "cgroup.procs").read_text().split())]) for each in own.iterdir() if each.is_dir()
    ]


async def says_next(manager: DockerManager, box: DockerSandbox) -> bool:
    """Return whether the sandbox is fit for the next action."""
    lease = manager.lease(500, box)
    done = await box.exec(["echo", "next"])
    assert not lease.needs_cleanup()
    lease.release()
    return done.stdout == b"next\n"


async def until_tidy(box: DockerSandbox) -> None:
    """Wait until the sub-groups that there are belong to sessions that are open, and hold nothing else."""
    async with asyncio.timeout(20):
        # A session that is not kept is ended in the background.
        while any(len(found) not in (0, SESSION_PROCESSES) for _, found in sub_groups(box)) or len(sub_groups(box)) > 4:
            await asyncio.sleep(0.01)


@grants
async def test_cancels_at_random_moments_leave_nothing(manager: DockerManager) -> None:
    draw = random.Random(5)
    boxes = [await manager.create_sandbox(image=None, memory_bytes=0) for _ in range(BOXES)]
    kills_s: list[float] = []

    async def torture(box: DockerSandbox) -> None:
        for _ in range(CANCELS // BOXES):
            mine = mark()
            lease = manager.lease(500, box)
            running = asyncio.ensure_future(box.exec(shell(NASTY.format(mine))))
            await asyncio.sleep(draw.uniform(0, WITHIN_S))
            begun_s = time.monotonic()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            if lease.needs_cleanup():
                await lease.clean()
            kills_s.append(time.monotonic() - begun_s)
            assert processes(mine) == []
            lease.release()
        assert await says_next(manager, box)

    async with asyncio.TaskGroup() as group:
        for box in boxes:
            assert isinstance(box, DockerSandbox)
            group.create_task(torture(box))
    assert len(kills_s) == CANCELS
    print(f"{CANCELS} cancels: {statistics.median(kills_s) * 1000:.0f} ms each, {max(kills_s) * 1000:.0f} ms at most")
    for box in boxes:
        assert isinstance(box, DockerSandbox)
        await until_tidy(box)
        await box.aclose()
        if isinstance(box.limits, DirectLimits):
            assert not box.limits.session_group(0).folder.parent.exists()


@grants
async def test_beside_another_command_only_ones_own_is_killed(box: DockerSandbox, lease: CpuLease) -> None:
    mine, others, daemons = mark(), mark(), mark()
    await box.exec(["mkfifo", "gate"])
    script = f"setsid sleep {others} & (setsid sleep {daemons} &); read line < gate; kill $!; echo $line"
    other = asyncio.ensure_future(box.exec(shell(script)))
    await until_there_is(f"sleep\0{daemons}")
    for _ in range(3):
        done = await box.exec(shell(NASTY.format(mine)), timeout=0.3)
        assert (done.exit_code, done.timed_out) == (137, True)
        assert processes(mine) == []
        assert len(processes(f"sleep\0{others}")) == 1
        assert len(processes(f"sleep\0{daemons}")) == 1  # marked by its environment
    await box.exec(shell("echo alive > gate"))
    assert (await other).stdout == b"alive\n"
    assert lease.needs_cleanup()
    await lease.clean()
    assert processes(daemons) == []


@grants
@pytest.mark.parametrize(
    "script", ["kill -9 0", "kill -9 $PPID", "kill -9 -1; kill -9 $$", "kill -SEGV $PPID; sleep {0}"], ids=repr
)
async def test_a_command_that_kills_its_own_shell_has_failed(box: DockerSandbox, lease: CpuLease, script: str) -> None:
    mine = mark()
    done = await box.exec(shell(f"setsid sleep {mine} & echo out; {script.format(mine)}"))
    assert (done.exit_code, done.timed_out, done.stdout) == (137, False, b"out\n")
    assert processes(mine) == []
    assert (await box.exec(["echo", "next"])).stdout == b"next\n"


@grants
@pytest.mark.parametrize("target", ["$PPID", "0"])
async def test_a_shell_that_is_stopped_is_killed_from_outside(box: DockerSandbox, lease: CpuLease, target: str) -> None:
    mine = mark()
    async with asyncio.timeout(60):
        done = await box.exec(shell(f"echo out; sleep {mine} & kill -STOP {target}; sleep {mine}"), timeout=0.3)
    assert (done.exit_code, done.timed_out, done.stdout) == (137, True, b"out\n")
    assert processes(mine) == []
    assert (await box.exec(["echo", "next"])).stdout == b"next\n"


@grants
@pytest.mark.parametrize("options", [{"pids_limit": 100}])
async def test_a_fork_bomb_ends_with_its_command(manager: DockerManager, box: DockerSandbox, lease: CpuLease) -> None:
    mine = mark()
    async with asyncio.timeout(60):
        done = await box.exec(shell(f"f() {{ f | f & }}; f; sleep {mine}"), timeout=0.5, max_output_bytes=100)
    assert done.exit_code in (137, 2)  # the shell that cannot fork any more may end first
    await lease.clean()
    lease.release()
    assert processes(mine) == []
    assert await says_next(manager, box)


@grants
@pytest.mark.parametrize("options", [{"pids_limit": 60}])
async def test_too_many_processes_are_the_commands_own_fault(
    manager: DockerManager, box: DockerSandbox, lease: CpuLease
) -> None:
    mine = mark()
    await box.exec(shell(f"while :; do sleep {mine} & done"), timeout=20)
    with pytest.raises(BlockingIOError):  # EAGAIN, as for a fork
        await box.exec(["true"])
    await lease.clean()
    lease.release()
    assert processes(mine) == []
    assert await says_next(manager, box)


@grants
async def test_what_is_left_running_does_not_write_into_the_next(box: DockerSandbox, lease: CpuLease) -> None:
    first = await box.exec(shell("(while :; do echo noise; echo noise >&2; done) & echo quiet"))
    assert first.stdout.endswith(b"quiet\n") or b"quiet\n" in first.stdout
    for number in range(3):
        done = await box.exec(shell(f"sleep 0.05; echo {number}"))
        assert (done.stdout, done.stderr) == (b"%d\n" % number, b"")
    await lease.clean()
    assert not lease.needs_cleanup()


@grants
async def test_a_command_leaves_its_working_folder_its_shell_and_its_path_to_the_next(
    box: DockerSandbox, lease: CpuLease
) -> None:
    state = "pwd; umask; env | grep -v -e ^_= -e ARL_TANGRAM_EXEC | sort; ulimit -n; cat /proc/self/oom_score_adj"
    before = (await box.exec(shell(state))).stdout
    await box.exec(shell("cd /; umask 0; export PATH=/nowhere X=1; trap '' INT TERM; exec <&- >&- 2>&-"))
    assert (await box.exec(shell(state))).stdout == before
    assert before.endswith(b"\n1000\n")  # when memory is short, the command goes first
    assert (await box.exec(["tty"])).stdout == b"not a tty\n"


@grants
async def test_without_its_working_folder_a_command_does_not_start(box: DockerSandbox, lease: CpuLease) -> None:
    folder = (await box.exec(["pwd"])).stdout.decode().strip()
    await box.exec(["rmdir", folder])
    with pytest.raises(FileNotFoundError):
        await box.exec(["true"])
    await box.exec(["mkdir", folder], cwd="/")
    assert (await box.exec(["pwd"])).stdout.decode().strip() == folder


@grants
async def test_without_a_shell_the_sandbox_goes_on_as_far_as_it_can(box: DockerSandbox, lease: CpuLease) -> None:
    """To remove /bin/sh must not look like a failure of the infrastructure, which would excuse the command."""
    await box.exec(["rm", "/bin/sh"])
    assert (await box.exec(["echo", "next"])).stdout == b"next\n"
    results = await asyncio.gather(*(box.exec(["sleep", "0.1"]) for _ in range(2)), return_exceptions=True)
    assert sorted(type(each).__name__ for each in results) == ["ExecResult", "FileNotFoundError"]


@grants
async def test_input_that_the_container_cannot_keep_is_its_own_fault(box: DockerSandbox, lease: CpuLease) -> None:
    await box.exec(["cat"], stdin=bytes(10_000))
    await box.exec(shell("for each in /tmp/.arl_tangram-*; do rm -r $each; echo > $each; done"))
    with pytest.raises(OSError, match="cannot keep the input") as raised:
        await box.exec(["cat"], stdin=bytes(1 << 20))
    assert not isinstance(raised.value, SandboxLostError)
    assert (await box.exec(["echo", "next"])).stdout == b"next\n"


@grants
async def test_a_command_takes_milliseconds(box: DockerSandbox, lease: CpuLease) -> None:
    """The session is what makes short commands cheap: an exec of the daemon's takes some 70 ms."""
    took_s: list[float] = []
    for _ in range(100):
        begun_s = time.perf_counter()
        await box.exec(["true"])
        took_s.append(time.perf_counter() - begun_s)
    print(f"true: {statistics.median(took_s) * 1000:.2f} ms, {min(took_s) * 1000:.2f} ms at least")
    assert min(took_s) < 0.02


@grants
async def test_a_closed_sandbox_leaves_no_tasks(manager: DockerManager) -> None:
    before = asyncio.all_tasks()
    box = await manager.create_sandbox(image=None, memory_bytes=0)
    lease = manager.lease(1000, box)
    running = [asyncio.ensure_future(box.exec(["sleep", mark()])) for _ in range(3)]
    await box.exec(shell("sleep 300 & :"))
    await box.aclose()
    for each in running:
        with contextlib.suppress(SandboxLostError):
            await each
    lease.release()
    async with asyncio.timeout(10):
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0.01)
