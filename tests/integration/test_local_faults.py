"""Local sandboxes under attack: what dies, what is swept, and what the trainer hears of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arl_tangram.errors import ConfigurationError, SandboxLostError, SandboxStartError
from arl_tangram.managers.host import cgroup
from arl_tangram.managers.host.hierarchy import read_hierarchies
from arl_tangram.managers.host.owner import CGROUP_PREFIX
from arl_tangram.managers.local import destroy
from arl_tangram.managers.local import isolation as isolation_module
from arl_tangram.managers.local.site import IsolationChoice
from contract.sandbox_contract import mark, processes, shell, until_there_is, visible_cores
from integration.local_managers import keepers, local_manager

pytestmark = pytest.mark.usefixtures("bwrap")
everywhere = pytest.mark.parametrize("cgroups", [True, False], ids=["cgroups", "advisory"])
both = pytest.mark.parametrize("isolation", ["none", "bwrap"])

TESTS = Path(__file__).parent.parent

TRAINER = """
import asyncio, os, sys
from pathlib import Path
from integration.local_managers import keepers, local_manager

async def main(root, isolation, cgroups, script, forks):
    async with local_manager(Path(root), isolation=isolation, cgroups=cgroups) as manager:
        sandbox = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, sandbox)
        if forks and os.fork() == 0:
            print(os.getpid(), flush=True)
            os.read(0, 1)  # a worker that holds copies of all descriptors until the test ends it
            os._exit(0)
        await sandbox.exec(["sh", "-c", script])

root, isolation, cgroups, script, forks = sys.argv[1:]
asyncio.run(main(root, isolation, cgroups == "True", script, forks == "True"))
"""


def start_trainer(
    root: Path, isolation: str, cgroups: bool, script: str, *, forks: bool = False
) -> subprocess.Popen[bytes]:
    arguments = [str(root), isolation, str(cgroups), script, str(forks)]
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", TRAINER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )


def kill_hard(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


async def until_gone(text: str) -> None:
    async with asyncio.timeout(60):
        while processes(text):  # noqa: ASYNC110 - nobody is told when a stranger's process ends
            await asyncio.sleep(0.01)


async def left_behind(root: Path, owner: str) -> list[Path]:
    return await asyncio.to_thread(lambda: [*root.glob(owner), *cgroups_left(owner)])


def cgroups_left(owner: str) -> list[Path]:
    parents = {folder for hierarchy in read_hierarchies().values() for folder in list(hierarchy.up())[:2]}
    return [path for parent in parents for path in parent.glob(f"{CGROUP_PREFIX}{owner}*")]


@both
@everywhere
@pytest.mark.parametrize("forks", [False, True], ids=["alone", "forked"])
async def test_nothing_outlives_a_killed_trainer(
    tmp_path: Path, isolation: IsolationChoice, cgroups: bool, forks: bool
) -> None:
    mine = mark()
    root = tmp_path / "root"
    script = f"env -i setsid sleep {mine} & (setsid sleep {mine} &); sleep {mine}"
    with start_trainer(root, isolation, cgroups, script, forks=forks) as trainer:
        try:
            await until_there_is(f"sleep\0{mine}")
            (owner,) = [path.name for path in root.iterdir()]
        finally:
            kill_hard(trainer)
        await until_gone(f"sleep\0{mine}")  # by the guard alone, before any other start
        # What is left are files; a worker of the dead trainer that still runs does not keep them.
        async with local_manager(root, isolation=isolation, cgroups=cgroups):
            assert await left_behind(root, owner) == []
        assert trainer.stdin is not None
        trainer.stdin.close()


@everywhere
async def test_a_start_sweeps_what_lost_its_guard(tmp_path: Path, cgroups: bool) -> None:
    mine = mark()
    root = tmp_path / "root"
    script = f"setsid sleep {mine} & sleep {mine}"
    with start_trainer(root, "none", cgroups, script) as trainer:
        try:
            await until_there_is(f"sleep\0{mine}")
            (owner,) = [path.name for path in root.iterdir()]
            (keeper,) = keepers(owner)
            os.kill(trainer.pid, signal.SIGSTOP)  # so that it cannot react to the death of the keeper
            os.kill(keeper, signal.SIGKILL)
        finally:
            kill_hard(trainer)
    assert processes(f"sleep\0{mine}")
    async with local_manager(root, isolation="none", cgroups=cgroups):
        assert not processes(f"sleep\0{mine}")
        assert await left_behind(root, owner) == []


async def test_two_managers_leave_each_other_alone(tmp_path: Path) -> None:
    mine = mark()
    async with local_manager(tmp_path) as first:
        box = await first.create_sandbox(image=None, memory_bytes=0)
        lease = first.lease(1000, box)
        running = asyncio.ensure_future(box.exec(["sleep", mine]))
        await until_there_is(f"sleep\0{mine}")
        async with local_manager(tmp_path) as second:
            other = await second.create_sandbox(image=None, memory_bytes=0)
            assert other.id != box.id
        assert processes(f"sleep\0{mine}")
        assert (await box.exec(["echo", "alive"])).stdout == b"alive\n"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        lease.release()


@everywhere
async def test_a_command_that_kills_its_keeper_loses_the_sandbox(tmp_path: Path, cgroups: bool) -> None:
    mine = mark()
    async with local_manager(tmp_path, isolation="none", cgroups=cgroups) as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, box)
        with pytest.raises(SandboxLostError, match="its keeper ended"):
            await box.exec(shell(f"setsid sleep {mine} & kill -KILL $PPID; sleep {mine}"))
        assert not processes(mine)
        for attempt in (box.exec(["true"]), box.read_file("x"), lease.clean()):
            with pytest.raises(SandboxLostError):
                await attempt
        assert not lease.needs_cleanup()
        lease.release()
        await box.aclose()
        with pytest.raises(SandboxLostError, match="closed"):
            manager.lease(1000, box)
        fresh = await manager.create_sandbox(image=None, memory_bytes=0)  # the manager is well
        lease = manager.lease(2000, fresh)
        assert (await fresh.exec(["echo", "on"])).stdout == b"on\n"
        lease.release()


@both
async def test_cancelling_again_does_not_cut_the_kill_short(tmp_path: Path, isolation: IsolationChoice) -> None:
    mine = mark()
    async with local_manager(tmp_path, isolation=isolation) as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, box)
        running = asyncio.ensure_future(box.exec(shell(f"setsid sleep {mine} & sleep {mine}")))
        await until_there_is(f"sleep\0{mine}")
        stopped = keepers(manager.site.owner.name)
        for keeper in stopped:
            os.kill(keeper, signal.SIGSTOP)
        for _ in range(20):
            running.cancel()
            await asyncio.sleep(0.001)
        assert stopped
        assert not running.done()
        for keeper in stopped:
            os.kill(keeper, signal.SIGCONT)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not processes(mine)
        lease.release()


@both
async def test_the_cgroup_kills_all_but_the_keeper(tmp_path: Path, isolation: IsolationChoice) -> None:
    mine = mark()
    async with local_manager(tmp_path, isolation=isolation) as manager:
        if manager.site.tree.version == 0:
            assert not destroy.force(None, 1)
            return
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, box)
        group = manager.site.tree.group("1")
        # the first process is the keeper, or the bwrap around it
        started = min(await asyncio.to_thread(cgroup.processes, next(iter(group.folders.values()))))
        running = asyncio.ensure_future(box.exec(shell(f"env -i setsid sleep {mine} & sleep {mine}")))
        await until_there_is(f"sleep\0{mine}")
        assert await asyncio.to_thread(destroy.force, group, started)
        assert (await running).exit_code == 137
        assert not processes(mine)
        assert (await box.exec(["echo", "on"])).stdout == b"on\n"
        lease.release()


@everywhere
async def test_a_keeper_that_hangs_is_killed_around(tmp_path: Path, cgroups: bool) -> None:
    mine = mark()
    async with local_manager(tmp_path, cgroups=cgroups) as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, box)
        running = asyncio.ensure_future(box.exec(shell(f"setsid sleep {mine} & sleep {mine}")))
        await until_there_is(f"sleep\0{mine}")
        for keeper in keepers(manager.site.owner.name):
            os.kill(keeper, signal.SIGSTOP)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not processes(mine)
        with pytest.raises(SandboxLostError, match="could not be killed"):
            await box.exec(["true"])
        lease.release()


async def test_with_bwrap_a_command_cannot_kill_its_keeper(tmp_path: Path) -> None:
    async with local_manager(tmp_path, isolation="bwrap") as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, box)
        await box.exec(shell("kill -KILL 1; kill -KILL -1"))
        assert (await box.exec(["echo", "on"])).stdout == b"on\n"
        lease.release()


@both
@everywhere
async def test_a_moving_target_is_killed(tmp_path: Path, isolation: IsolationChoice, cgroups: bool) -> None:
    """Processes that hand over to a child in a new session all the time, faster than /proc can be read."""
    mine = mark()
    async with local_manager(tmp_path, isolation=isolation, cgroups=cgroups) as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, box)
        await box.write_file("hydra", b"setsid sh ./hydra $1 </dev/null >/dev/null 2>&1 & exit")
        started = time.monotonic()
        done = await box.exec(shell(f"for i in 1 2 3 4 5 6; do sh ./hydra {mine} & done; sleep {mine}"), timeout=0.5)
        assert done.timed_out
        assert not processes(mine)
        assert time.monotonic() - started < 15
        assert (await box.exec(["echo", "on"])).stdout == b"on\n"
        lease.release()


@both
async def test_a_fork_bomb_ends_in_bounded_time(tmp_path: Path, isolation: IsolationChoice) -> None:
    mine = mark()
    async with local_manager(tmp_path, isolation=isolation) as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        tree = manager.site.tree
        if folder := tree.folders.get("pids"):
            (folder / "pids.max").write_text("400")  # the machine has other work, too
        lease = manager.lease(1000, box)
        bomb = f"bomb() {{ bomb {mine} & bomb {mine}; }}"
        started = time.monotonic()
        script = f"exec 2>/dev/null; {bomb}; bomb {mine} & exec sleep {mine}"  # no second fork, which could fail
        done = await box.exec(shell(script), timeout=0.5)
        assert done.timed_out
        assert not processes(mine)
        assert time.monotonic() - started < 15
        assert (await box.exec(["echo", "on"])).stdout == b"on\n"
        lease.release()


@both
async def test_memory_beyond_the_limit_fails_the_command_not_the_sandbox(
    tmp_path: Path, isolation: IsolationChoice
) -> None:
    async with local_manager(tmp_path, isolation=isolation) as manager:
        if "memory" not in manager.site.tree.folders:
            assert "not limited" in manager.describe()
            return
        box = await manager.create_sandbox(image=None, memory_bytes=64 << 20)
        lease = manager.lease(1000, box)
        done = await box.exec(["tail", "/dev/zero"], timeout=60)  # remembers a line that never ends
        assert (done.exit_code, done.timed_out) == (137, False)
        # Many small ones, none of them larger than the keeper:
        many = "for i in $(seq 60); do (x=$(head -c 3000000 /dev/zero | tr '\\0' x); sleep 1) & done; wait"
        await box.exec(shell(many), timeout=60)
        assert (await box.exec(["echo", "on"])).stdout == b"on\n"
        lease.release()


@both
@everywhere
async def test_a_start_that_fails_leaves_nothing(
    tmp_path: Path, isolation: IsolationChoice, cgroups: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (*shell("echo broken >&2; exit 7"), "sh")
    monkeypatch.setattr(isolation_module, "_keeper", lambda: broken)
    async with local_manager(tmp_path, isolation=isolation, cgroups=cgroups) as manager:
        for _ in range(3):
            with pytest.raises(SandboxStartError, match="broken"):
                await manager.create_sandbox(image=None, memory_bytes=0)
        assert os.listdir(manager.site.owner.folder) == ["owner.json"]
        for folder in manager.site.tree.folders.values():
            assert not [path for path in folder.iterdir() if path.is_dir()]


async def test_a_start_without_an_interpreter_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation_module, "_keeper", lambda: ("/no/such/python",))
    async with local_manager(tmp_path, isolation="none") as manager:
        with pytest.raises(SandboxStartError, match="/no/such/python"):
            await manager.create_sandbox(image=None, memory_bytes=0)


async def test_without_permission_for_cgroups_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> cgroup.CgroupTree:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(cgroup, "make_folder", refuse)
    async with local_manager(tmp_path) as manager:
        assert "advisory" in manager.describe()
        box = await manager.create_sandbox(image=None, memory_bytes=64 << 20)
        lease = manager.lease(1000, box)
        assert await visible_cores(box) == 1
        lease.release()


async def test_too_little_memory_for_a_sandbox_is_refused(tmp_path: Path) -> None:
    async with local_manager(tmp_path) as manager:
        with pytest.raises(ConfigurationError, match="at least"):
            await manager.create_sandbox(image=None, memory_bytes=1 << 20)


async def test_a_mount_that_goes_away_while_bwrap_starts_is_no_reason_to_give_up(
    tmp_path: Path, bwrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = tmp_path / "fails"
    program = tmp_path / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f"if test -s {fails}; then\n"
        f"    sed -i 1d {fails}\n"
        '    echo "bwrap: Can\'t bind mount /oldroot/ on /newroot/: No such file or directory" >&2\n'
        "    exit 1\n"
        "fi\n"
        f'exec {bwrap} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    fails.write_text("1\n2\n")
    async with local_manager(tmp_path / "root", isolation="bwrap") as manager:
        assert fails.read_text() == ""
        fails.write_text("1\n2\n")
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        assert fails.read_text() == ""
        lease = manager.lease(1000, box)
        assert (await box.exec(["echo", "on"])).stdout == b"on\n"
        lease.release()
        fails.write_text("1\n2\n3\n")
        with pytest.raises(SandboxStartError, match="Can't bind mount"):
            await manager.create_sandbox(image=None, memory_bytes=0)
