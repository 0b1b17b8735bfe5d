"""Suspended local sandboxes when something dies: the trainer, a keeper, what lifts their quotas."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from arl_tangram.errors import SandboxLostError
from arl_tangram.managers.host.cgroup import SUSPENDED_QUOTA_US, SandboxGroup
from arl_tangram.managers.host.hierarchy import FILES
from arl_tangram.managers.local import LocalPool
from arl_tangram.managers.local.site import IsolationChoice
from arl_tangram.model.sandbox import ExecResult
from contract.resizing_contract import busy, cpu_s
from contract.sandbox_contract import mark, processes, until_there_is
from integration.local_managers import keepers, local_manager
from integration.test_local_faults import TESTS, kill_hard, left_behind, until_gone

pytestmark = pytest.mark.usefixtures("bwrap")
both = pytest.mark.parametrize("isolation", ["none", "bwrap"])

TRAINER = """
import asyncio, os, sys
from pathlib import Path
from contract.resizing_contract import busy
from contract.sandbox_contract import until_there_is
from integration.local_managers import local_manager

async def main(root, isolation, mine):
    async with local_manager(Path(root), isolation=isolation, resizes=True) as manager:
        sandbox = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, sandbox)
        running = asyncio.ensure_future(sandbox.exec(busy(mine, 8)))
        await until_there_is(f": {mine}")  # not this process
        lease.resize(0)
        await asyncio.sleep(0.2)  # its quota is used up
        if os.fork() == 0:
            os.read(0, 1)  # a worker that holds copies of all descriptors until the test ends it
            os._exit(0)
        print("suspended", flush=True)
        await running

asyncio.run(main(*sys.argv[1:]))
"""


def start_trainer(root: Path, isolation: str, mine: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(root), isolation, mine],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )


def comes_last(group: SandboxGroup) -> bool:
    """Return whether a group has the least weight."""
    files = FILES[group.version]
    return (group.folders["cpu"] / files.weight).read_text().strip() == files.least_weight


def lifters(owner: str) -> list[int]:
    """Return what lifts the quotas of an owner's sandboxes: one live process at most."""
    found: list[int] = []
    for pid in processes("groups_$number"):
        with suppress(OSError):  # it has just ended
            if f"={owner}.lifter\0".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


async def started(trainer: subprocess.Popen[bytes], root: Path) -> str:
    """Wait until something is suspended; return the owner of it."""
    assert trainer.stdout is not None
    assert await asyncio.to_thread(trainer.stdout.readline) == b"suspended\n"
    (owner,) = os.listdir(root)
    return owner


@both
async def test_what_is_suspended_dies_with_a_killed_trainer(tmp_path: Path, isolation: IsolationChoice) -> None:
    mine, root = mark(), tmp_path / "root"
    with start_trainer(root, isolation, mine) as trainer:
        try:
            owner = await started(trainer, root)
            assert len(lifters(owner)) == 1
        finally:
            kill_hard(trainer)
        began_s = time.monotonic()
        await until_gone(f": {mine}")  # by its guards alone, before any other start
        assert time.monotonic() - began_s < 1.5  # 0.1 s; 2 to 7 s under its quota
        async with asyncio.timeout(60):
            while lifters(owner):  # noqa: ASYNC110 - nobody is told when a stranger's process ends
                await asyncio.sleep(0.01)
        async with local_manager(root, isolation=isolation):
            assert await left_behind(root, owner) == []
        assert trainer.stdin is not None
        trainer.stdin.close()


@both
async def test_a_start_sweeps_what_is_suspended_and_has_lost_all_its_guards(
    tmp_path: Path, isolation: IsolationChoice
) -> None:
    mine, root = mark(), tmp_path / "root"
    with start_trainer(root, isolation, mine) as trainer:
        try:
            owner = await started(trainer, root)
            os.kill(trainer.pid, signal.SIGSTOP)  # so that it cannot react to their death
            for pid in [*lifters(owner), *keepers(owner)]:
                os.kill(pid, signal.SIGSTOP if isolation == "bwrap" else signal.SIGKILL)
        finally:
            kill_hard(trainer)
        async with local_manager(root, isolation=isolation, resizes=True):
            assert not processes(f": {mine}")
            assert lifters(owner) == []
            assert await left_behind(root, owner) == []
        assert trainer.stdin is not None
        trainer.stdin.close()


@both
async def test_a_keeper_that_dies_while_it_is_suspended(tmp_path: Path, isolation: IsolationChoice) -> None:
    mine = mark()
    async with local_manager(tmp_path, isolation=isolation, resizes=True) as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, box)
        running = asyncio.ensure_future(box.exec(busy(mine, 8)))
        await until_there_is(mine)
        lease.resize(0)
        waiting = [asyncio.ensure_future(box.exec(["true"])), asyncio.ensure_future(box.read_file("x"))]
        await asyncio.sleep(0)
        for keeper in keepers(manager.site.owner.name):
            os.kill(keeper, signal.SIGKILL)
        async with asyncio.timeout(30):
            ended = await asyncio.gather(running, *waiting, return_exceptions=True)
        assert all(isinstance(error, SandboxLostError) for error in ended), ended
        assert not processes(mine)
        with pytest.raises(SandboxLostError):
            lease.resize(1000)
        with pytest.raises(SandboxLostError):
            lease.resize(0)
        lease.release()
        await box.aclose()
        manager.lease(2000, None).release()


async def test_those_that_are_suspended_leave_others_their_cores(tmp_path: Path) -> None:
    """By their quotas alone, they would take a tenth of a core."""
    async with local_manager(tmp_path, resizes=True) as manager:
        running: list[asyncio.Task[ExecResult]] = []
        suspended = [mark() for _ in range(10)]
        for mine in suspended:
            box = await manager.create_sandbox(image=None, memory_bytes=0)
            lease = manager.lease(2000, box)
            running.append(asyncio.create_task(box.exec(busy(mine, 2))))
            await until_there_is(f": {mine}")
            lease.resize(0)
        box, theirs = await manager.create_sandbox(image=None, memory_bytes=0), mark()
        manager.lease(2000, box)
        running.append(asyncio.create_task(box.exec(busy(theirs, 4))))
        await until_there_is(f": {theirs}")
        took: list[float] = []
        for _ in range(5):  # in one of which, nothing else on this machine is in their way
            before_s = sum(map(cpu_s, suspended))
            await asyncio.sleep(1.0)
            took.append(sum(map(cpu_s, suspended)) - before_s)
        assert min(took) < 0.05  # 0.1 s by their quotas
        for task in running:
            task.cancel()
        await asyncio.wait(running)


async def test_what_lifts_quotas_ends_with_its_manager(tmp_path: Path) -> None:
    manager = LocalPool(cores=2, root=tmp_path / "made", share="resize").manager()
    await manager.start()
    (owner,) = os.listdir(tmp_path / "made")
    assert len(lifters(owner)) == 1
    await manager.aclose()
    assert lifters(owner) == []


async def test_without_cgroups_it_says_that_cores_cannot_be_changed(tmp_path: Path) -> None:
    async with local_manager(tmp_path, cgroups=False, resizes=True) as manager:
        assert "no cgroup" in (manager.cannot_resize() or "")
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, box)
        assert (await box.exec(["echo", "on"])).stdout == b"on\n"
        lease.release()


async def test_a_change_is_written_before_it_returns(tmp_path: Path) -> None:
    """And takes little more than that: 0.1 ms where nothing is emulated."""
    async with local_manager(tmp_path, resizes=True) as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        group = manager.site.tree.group("1")
        lease = manager.lease(1000, box)
        took: list[float] = []
        had = lease.core_ids
        for turn in range(200):
            cores = (turn + 1) % 3
            began_s = time.perf_counter()
            lease.resize(1000 * cores)
            took.append(time.perf_counter() - began_s)
            had = lease.core_ids or had
            assert group.effective_cores() == had
            assert group.quota_us() == (None if cores else SUSPENDED_QUOTA_US)
            assert comes_last(group) == (not cores)
        lease.resize(0)
        lease.release()
        assert (group.quota_us(), comes_last(group)) == (None, False)
        assert sorted(took)[len(took) // 2] < 0.005
