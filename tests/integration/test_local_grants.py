"""What a grant does on this machine, and what sandboxes cost and leave."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.host.machine import parse_cpulist
from arl_tangram.managers.local import LocalPool
from arl_tangram.managers.local.site import IsolationChoice
from contract.sandbox_contract import longest_turn_s, mark, processes, shell, until_there_is, visible_cores
from integration.local_managers import keepers, local_manager

pytestmark = pytest.mark.usefixtures("bwrap")
everywhere = pytest.mark.parametrize("cgroups", [True, False], ids=["cgroups", "advisory"])
both = pytest.mark.parametrize("isolation", ["none", "bwrap"])

SPIN = "while :; do :; done"


def allowed(text: str) -> set[tuple[int, ...]]:
    """Return the cores of the processes whose command line holds a text."""
    found: set[tuple[int, ...]] = set()
    for pid in processes(text):
        status = Path(f"/proc/{pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("Cpus_allowed_list:"))
        found.add(parse_cpulist(line.split()[1]))
    return found


async def until_allowed(text: str, cores: tuple[int, ...]) -> None:
    async with asyncio.timeout(10):
        while allowed(text) != {cores}:  # noqa: ASYNC110 - a keeper applies it, which nobody waits for
            await asyncio.sleep(0.005)


@both
async def test_a_fraction_is_enforced(tmp_path: Path, isolation: IsolationChoice) -> None:
    async with local_manager(tmp_path, isolation=isolation) as manager:
        if not manager.site.tree.limits_time:
            assert "fractions not enforced" in manager.describe() or "advisory" in manager.describe()
            return
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(300, box)
        mine = mark()
        running = asyncio.ensure_future(box.exec(shell(f": {mine}; {SPIN} & {SPIN}")))
        await until_there_is(mine)
        before, started = sum(map(cpu_s, processes(mine))), time.monotonic()
        await asyncio.sleep(1.0)
        used = (sum(map(cpu_s, processes(mine))) - before) / (time.monotonic() - started)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        lease.release()
        assert 0 < used < 0.4


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@both
@everywhere
async def test_running_fractions_move_with_the_shared_cores(
    tmp_path: Path, isolation: IsolationChoice, cgroups: bool
) -> None:
    async with local_manager(tmp_path, isolation=isolation, cgroups=cgroups) as manager:
        boxes = [await manager.create_sandbox(image=None, memory_bytes=0) for _ in range(2)]
        first, second = [manager.lease(600, box) for box in boxes]
        assert not set(first.core_ids) & set(second.core_ids)
        mine = mark()
        running = asyncio.ensure_future(boxes[1].exec(["sleep", mine]))
        await until_there_is(f"sleep\0{mine}")
        await until_allowed(f"sleep\0{mine}", second.core_ids)
        was = first.core_ids
        first.release()
        assert second.core_ids == was  # the one shared core that is left
        await until_allowed(f"sleep\0{mine}", was)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        second.release()


@everywhere
async def test_a_new_grant_holds_before_the_next_command(tmp_path: Path, cgroups: bool) -> None:
    async with local_manager(tmp_path, cgroups=cgroups) as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        for _ in range(10):
            for cores in (1, 2):
                lease = manager.lease(cores * 1000, box)
                assert await visible_cores(box) == cores
                lease.release()


async def test_applying_a_grant_is_fast(tmp_path: Path) -> None:
    async with local_manager(tmp_path) as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        took: list[float] = []
        for turn in range(200):
            started = time.perf_counter()
            manager.lease(1000 + 1000 * (turn % 2), box).release()
            took.append(time.perf_counter() - started)
        assert sorted(took)[len(took) // 2] < 0.005  # 0.1 ms where nothing is emulated


async def test_bwrap_separates(tmp_path: Path) -> None:
    async with local_manager(tmp_path, isolation="bwrap") as manager:
        first, second = [await manager.create_sandbox(image=None, memory_bytes=0) for _ in range(2)]
        lease = manager.lease(1000, first)
        work = manager.site.folders(2).work
        await second.write_file("secret", b"secret")
        assert (await first.exec(["cat", f"{work}/secret"])).exit_code != 0
        assert (await first.exec(shell("touch /etc/arl_tangram-test || touch /usr/arl_tangram-test"))).exit_code != 0
        assert (await first.exec(shell("ls /proc | grep -c '^[0-9]'"))).stdout.strip() in (b"3", b"4")
        await first.exec(shell("echo x > /tmp/arl_tangram-test"))
        assert "arl_tangram-test" not in os.listdir("/tmp")
        assert (await first.exec(shell("cat $TMPDIR/arl_tangram-test"))).stdout == b"x\n"
        assert "read-only" in manager.describe()
        lease.release()


async def test_secrets_of_the_trainer_stay_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "s3cret-value")
    async with local_manager(tmp_path, isolation="none") as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, box)
        done = await box.exec(shell("env; cat /proc/$PPID/environ /proc/self/environ"))
        assert b"s3cret-value" not in done.stdout
        assert b"ARL_TANGRAM_SANDBOX" in done.stdout
        lease.release()


@both
async def test_descriptors_of_the_trainer_stay_with_it(tmp_path: Path, isolation: IsolationChoice) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)  # as native libraries leave theirs
    try:
        async with local_manager(tmp_path, isolation=isolation) as manager:
            box = await manager.create_sandbox(image=None, memory_bytes=0)
            lease = manager.lease(1000, box)
            done = await box.exec(["ls", "/proc/self/fd"])
            assert done.stdout.split() == [b"0", b"1", b"2", b"3"]  # 3 is the folder that ls reads
            lease.release()
    finally:
        os.close(reading)
        os.close(writing)


@everywhere
async def test_many_commands_cost_nothing_that_stays(tmp_path: Path, cgroups: bool) -> None:
    async with local_manager(tmp_path, cgroups=cgroups) as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, box)

        async def some() -> None:
            for _ in range(150):
                await box.exec(["true"])

        await some()
        (keeper,) = keepers(manager.site.owner.name)
        before = (len(os.listdir("/proc/self/fd")), resident_kib(keeper), len(asyncio.all_tasks()))
        await some()
        after = (len(os.listdir("/proc/self/fd")), resident_kib(keeper), len(asyncio.all_tasks()))
        assert (after[0], after[2]) == (before[0], before[2])
        assert after[1] - before[1] < 500
        lease.release()


def resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


async def test_many_sandboxes_at_once(tmp_path: Path) -> None:
    async with local_manager(tmp_path) as manager:
        creating = asyncio.gather(*(manager.create_sandbox(image=None, memory_bytes=0) for _ in range(24)))
        longest_s = await longest_turn_s(creating)
        boxes = await creating
        assert len({box.id for box in boxes}) == 24
        assert longest_s < 0.1
        closing = asyncio.gather(*(box.aclose() for box in boxes))
        await closing


async def test_a_pool_makes_it_all_work(tmp_path: Path) -> None:
    manager = LocalPool(cores=1, root=tmp_path / "made").manager()
    await manager.start()
    box = await manager.create_sandbox(image=None, memory_bytes=1 << 28)
    lease = manager.lease(1000, box)
    assert await visible_cores(box) == 1
    lease.release()
    await manager.aclose()
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("script", ["exit 1", "echo 'bwrap: No permissions to create new namespace' >&2; exit 1"])
async def test_a_bwrap_that_does_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    fake = tmp_path / "bin" / "bwrap"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    async with local_manager(tmp_path / "root", isolation="auto") as manager:
        assert "bwrap does not work here" in manager.describe()
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, box)
        assert (await box.exec(["echo", "on"])).stdout == b"on\n"
        lease.release()
    with pytest.raises(ConfigurationError, match=r"isolation='bwrap' was asked"):
        async with local_manager(tmp_path / "root", isolation="bwrap"):
            pass


@both
@everywhere
async def test_a_pool_that_grows_and_shrinks_moves_nobody(
    tmp_path: Path, isolation: IsolationChoice, cgroups: bool
) -> None:
    async with local_manager(tmp_path, cores=1, isolation=isolation, cgroups=cgroups) as manager:
        first = await manager.create_sandbox(image=None, memory_bytes=0)
        lease, mine = manager.lease(1000, first), mark()
        await first.exec(shell(f"sleep {mine} & :"))
        here = lease.core_ids
        await until_allowed(mine, here)
        manager.check_capacity("cpu", 2000)
        manager.resize("cpu", 2000)
        second = await manager.create_sandbox(image=None, memory_bytes=0)  # on cores that the pool did not have
        other, theirs = manager.lease(1000, second), mark()
        assert not set(other.core_ids) & set(here)
        await second.exec(shell(f"sleep {theirs} & :"))
        await until_allowed(theirs, other.core_ids)
        manager.resize("cpu", 1000)
        assert allowed(mine) == {here}
        assert allowed(theirs) == {other.core_ids}
        assert await visible_cores(second) == 1
        await other.clean()
        other.release()
        await lease.clean()
        lease.release()
        manager.resize("cpu", 2000)
        both_cores = manager.lease(2000, first)
        assert await visible_cores(first) == 2
        both_cores.release()


async def test_a_pool_does_not_grow_beyond_what_this_process_may_use(tmp_path: Path) -> None:
    async with local_manager(tmp_path, cores=1) as manager:
        with pytest.raises(ConfigurationError, match=r"\d+ cores can be used here"):
            manager.check_capacity("cpu", 1_000_000_000)
        with pytest.raises(ConfigurationError, match="GiB can be used here"):
            manager.check_capacity("memory", 1 << 60)
