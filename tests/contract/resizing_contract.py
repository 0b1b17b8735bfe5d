"""What every manager whose cores can be changed while actions run promises about that: one suite for all of them.

A test file subclasses `ResizingContract` and provides the fixture `manager`, a started `CpuManager` of two cores that
says that it can. Its processes can be seen in this machine's /proc. Commands use a POSIX shell, and coreutils or
busybox.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from arl_tangram.errors import SandboxLostError, UsageError
from arl_tangram.managers.manager import CpuLease, CpuManager, ManagedSandbox
from arl_tangram.model.sandbox import ExecResult
from contract.sandbox_contract import mark, processes, shell, until_there_is, visible_cores

SPIN = "while :; do :; done"
COUNT = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo $i; exit 3"


def cpu_s(text: str) -> float:
    """Return the CPU seconds of the processes whose command line holds a text."""
    ticks = 0
    for pid in processes(text):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def busy(text: str, workers: int) -> list[str]:
    """Return a command of so many processes that never end by themselves."""
    return shell(f": {text}; " + f"({SPIN}) & " * (workers - 1) + SPIN)


async def ended(*tasks: asyncio.Task[ExecResult]) -> list[ExecResult | BaseException]:
    """Return how tasks end, which must not take long."""
    async with asyncio.timeout(60):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def until_still(text: str) -> None:
    """Wait until processes have hardly run for a second: by a daemon, they are suspended a moment later."""
    async with asyncio.timeout(60):
        while True:
            before_s = cpu_s(text)
            await asyncio.sleep(1.0)
            if cpu_s(text) - before_s < 0.1:
                return


async def still_waits(task: asyncio.Task[object]) -> bool:
    done, _ = await asyncio.wait([task], timeout=0.2)
    return not done


class ResizingContract:
    """The suite.

    Attributes:
        at_once_s: seconds that killing may take in which a suspended sandbox has its time back; without, it takes 2 s.
    """

    at_once_s = 1.5

    @pytest.fixture
    async def sandbox(self, manager: CpuManager) -> AsyncIterator[ManagedSandbox]:
        assert manager.cannot_resize() is None
        created = await manager.create_sandbox(image=None, memory_bytes=0)
        yield created
        await created.aclose()

    @pytest.fixture
    def lease(self, manager: CpuManager, sandbox: ManagedSandbox) -> Iterator[CpuLease]:
        held = manager.lease(1000, sandbox, most=2000)
        yield held
        held.release()

    # other cores

    async def test_a_switch_takes_a_known_time(self, manager: CpuManager) -> None:
        assert 0 < manager.switch_s < 1

    async def test_commands_see_the_cores_that_they_have(self, sandbox: ManagedSandbox, lease: CpuLease) -> None:
        for cores in (1, 2, 1, 0, 2, 0, 0, 1):
            lease.resize(cores * 1000)
            if cores:
                assert await visible_cores(sandbox) == cores
            assert len(lease.core_ids) == cores

    async def test_a_running_command_sees_them_change(self, sandbox: ManagedSandbox, lease: CpuLease) -> None:
        wait = "until [ $(env -u OMP_NUM_THREADS nproc) = %d ]; do sleep 0.01; done; : >saw-%d; "
        running = asyncio.create_task(sandbox.exec(shell(wait % (1, 1) + wait % (2, 2) + wait % (1, 3))))
        for number, cores in ((1, 2), (2, 1)):
            async with asyncio.timeout(60):
                while (await sandbox.exec(["test", "-e", f"saw-{number}"])).exit_code:
                    pass
            lease.resize(cores * 1000)
        assert (await running).exit_code == 0

    async def test_a_suspended_command_sees_as_many_cores_as_it_had(
        self, sandbox: ManagedSandbox, lease: CpuLease
    ) -> None:
        count = "until [ -e go ]; do sleep 0.01; done; env -u OMP_NUM_THREADS nproc"
        running = asyncio.create_task(sandbox.exec(shell(f"touch there; {count}")))
        async with asyncio.timeout(60):
            while (await sandbox.exec(["test", "-e", "there"])).exit_code:
                pass
        lease.resize(2000)
        lease.resize(1000)
        going = asyncio.create_task(sandbox.exec(shell("sleep 0.1; touch go")))
        await asyncio.sleep(0.05)
        lease.resize(0)
        done, _ = await ended(running, going)
        assert isinstance(done, ExecResult)
        assert done.stdout == b"1\n"

    async def test_programs_are_told_the_most_that_they_ever_have(
        self, sandbox: ManagedSandbox, lease: CpuLease
    ) -> None:
        for cores in (1, 2, 1):
            lease.resize(cores * 1000)
            assert (await sandbox.exec(shell("echo $OMP_NUM_THREADS"))).stdout == b"2\n"

    async def test_what_a_suspended_action_had_is_others(
        self, manager: CpuManager, sandbox: ManagedSandbox, lease: CpuLease
    ) -> None:
        other = await manager.create_sandbox(image=None, memory_bytes=0)
        lease.resize(0)
        assert lease.core_ids == ()
        theirs = manager.lease(2000, other)
        assert await visible_cores(other) == 2
        theirs.resize(1000)
        lease.resize(1000)
        assert lease.core_ids
        assert not set(lease.core_ids) & set(theirs.core_ids)
        assert (await visible_cores(sandbox), await visible_cores(other)) == (1, 1)
        theirs.release()
        await other.aclose()

    # commands go on

    async def test_a_command_goes_on_where_it_was(self, sandbox: ManagedSandbox, lease: CpuLease) -> None:
        chance = random.Random(1)
        running = asyncio.create_task(sandbox.exec(shell(COUNT), timeout=60))
        for _ in range(40):
            lease.resize(chance.choice((0, 1000, 2000)))
            await asyncio.sleep(chance.random() * 0.02)
        lease.resize(2000)
        done = await running
        assert (done.exit_code, done.stdout, done.timed_out) == (3, b"100000\n", False)

    async def test_a_suspended_command_stands_nearly_still(self, sandbox: ManagedSandbox, lease: CpuLease) -> None:
        mine = mark()
        running = asyncio.create_task(sandbox.exec(busy(mine, 4)))
        await until_there_is(mine)
        lease.resize(0)
        await until_still(mine)
        before_s = cpu_s(mine)
        lease.resize(1000)
        async with asyncio.timeout(60):
            while cpu_s(mine) - before_s < 0.2:  # noqa: ASYNC110 - nothing tells of the progress of a loop
                await asyncio.sleep(0.01)
        running.cancel()
        await ended(running)

    async def test_one_that_ends_while_it_is_suspended_has_ended_as_ever(
        self, sandbox: ManagedSandbox, lease: CpuLease
    ) -> None:
        running = asyncio.create_task(sandbox.exec(shell("echo a; sleep 0.3; echo b >&2; exit 4")))
        await asyncio.sleep(0.1)
        lease.resize(0)
        (done,) = await ended(running)
        assert isinstance(done, ExecResult)
        assert (done.exit_code, done.stdout, done.stderr) == (4, b"a\n", b"b\n")

    async def test_the_time_that_a_command_was_suspended_for_is_not_of_its_duration(
        self, sandbox: ManagedSandbox, lease: CpuLease
    ) -> None:
        mine = mark()
        running = asyncio.create_task(sandbox.exec(shell(f": {mine}; until [ -e go ]; do sleep 0.01; done")))
        await until_there_is(mine)
        lease.resize(0)
        began_s = time.monotonic()
        await asyncio.sleep(2.0)
        lease.resize(1000)
        stood_s = time.monotonic() - began_s
        await sandbox.write_file("go", b"")
        took_s = time.monotonic() - began_s
        (done,) = await ended(running)
        assert isinstance(done, ExecResult)
        assert 0 < done.duration_s < took_s - stood_s + 1.5

    # what is new waits

    async def test_new_commands_wait_until_it_goes_on(self, sandbox: ManagedSandbox, lease: CpuLease) -> None:
        lease.resize(0)
        waiting = asyncio.create_task(sandbox.exec(["echo", "on"]))
        assert await still_waits(waiting)
        lease.resize(1000)
        (done,) = await ended(waiting)
        assert isinstance(done, ExecResult)
        assert done.stdout == b"on\n"

    async def test_a_command_that_waits_is_something_of_its_action_and_file_operations_are_not(
        self, sandbox: ManagedSandbox, lease: CpuLease
    ) -> None:
        lease.resize(0)
        writing = asyncio.create_task(sandbox.write_file("file", b"of nobody"))
        assert await still_waits(writing)
        assert not lease.needs_cleanup()
        waiting = asyncio.create_task(sandbox.exec(["echo", "on"]))
        assert await still_waits(waiting)
        assert lease.needs_cleanup()
        lease.resize(1000)
        assert lease.needs_cleanup()
        (done,) = await ended(waiting)
        assert isinstance(done, ExecResult)
        assert not lease.needs_cleanup()
        await writing

    async def test_cleaning_up_ends_a_command_that_waits(self, manager: CpuManager, sandbox: ManagedSandbox) -> None:
        lease, mine = manager.lease(1000, sandbox), mark()
        lease.resize(0)
        waiting = asyncio.create_task(sandbox.exec(["sleep", mine]))
        assert await still_waits(waiting)
        await lease.clean()
        (error,) = await ended(waiting)
        assert isinstance(error, UsageError)
        assert not processes(mine)
        lease.release()

    async def test_what_is_woken_cleans_up_and_is_not_suspended_again(
        self, manager: CpuManager, sandbox: ManagedSandbox, lease: CpuLease
    ) -> None:
        waiting = asyncio.create_task(sandbox.exec(["sleep", "0.01"]))
        await ended(waiting)
        lease.resize(0)
        writing = asyncio.create_task(sandbox.write_file("file", b"written"))
        waiting = asyncio.create_task(sandbox.exec(shell(COUNT), timeout=60))
        assert await still_waits(waiting)
        lease.wake()
        assert lease.core_ids == ()
        manager.lease(2000, None).release()  # its cores are others'
        async with asyncio.timeout(60):
            await writing
            assert (await waiting).stdout == b"100000\n"
            lease.resize(1000)
            lease.resize(0)
            assert await sandbox.read_file("file") == b"written"
            assert await visible_cores(sandbox) == 1

    async def test_the_wait_is_no_overhead(self, sandbox: ManagedSandbox, lease: CpuLease) -> None:
        lease.resize(0)
        waiting = asyncio.create_task(sandbox.exec(["true"]))
        await asyncio.sleep(1.0)
        lease.resize(2000)
        await ended(waiting)
        assert 0 < lease.usage.overhead_s < 1.0

    async def test_files_wait_until_it_goes_on(self, sandbox: ManagedSandbox, lease: CpuLease) -> None:
        await sandbox.write_file("old", b"old")
        lease.resize(0)
        writing = asyncio.create_task(sandbox.write_file("new", b"new"))
        reading = asyncio.create_task(sandbox.read_file("old"))
        assert await still_waits(writing)
        assert not reading.done()
        lease.resize(1000)
        async with asyncio.timeout(60):
            await writing
            assert await reading == b"old"
            assert await sandbox.read_file("new") == b"new"

    async def test_a_command_that_waits_when_its_action_ends_never_starts(
        self, manager: CpuManager, sandbox: ManagedSandbox
    ) -> None:
        lease, mine = manager.lease(1000, sandbox), mark()
        lease.resize(0)
        waiting = asyncio.create_task(sandbox.exec(["sleep", mine]))
        writing = asyncio.create_task(sandbox.write_file("file", b"of nobody"))
        assert await still_waits(waiting)
        lease.release()
        following = manager.lease(1000, sandbox)
        (error,) = await ended(waiting)
        assert isinstance(error, UsageError)
        assert "no action" in str(error)
        await writing  # which needs no action
        assert (await sandbox.exec(["cat", "file"])).stdout == b"of nobody"
        assert not processes(mine)
        following.release()

    async def test_a_command_that_waits_when_its_sandbox_closes_is_told(
        self, manager: CpuManager, sandbox: ManagedSandbox, lease: CpuLease
    ) -> None:
        lease.resize(0)
        waiting = asyncio.create_task(sandbox.exec(["true"]))
        reading = asyncio.create_task(sandbox.read_file("file"))
        assert await still_waits(waiting)
        await sandbox.aclose()
        for task in (waiting, reading):
            with pytest.raises(SandboxLostError):
                await task
        with pytest.raises(SandboxLostError):
            lease.resize(1000)
        lease.release()
        manager.lease(2000, None).release()  # all is back

    async def test_a_command_that_waits_can_be_cancelled(self, sandbox: ManagedSandbox, lease: CpuLease) -> None:
        mine = mark()
        lease.resize(0)
        waiting = asyncio.create_task(sandbox.exec(["sleep", mine]))
        assert await still_waits(waiting)
        waiting.cancel()
        (error,) = await ended(waiting)
        assert isinstance(error, asyncio.CancelledError)
        lease.resize(1000)
        assert (await sandbox.exec(["echo", "on"])).stdout == b"on\n"
        assert not processes(mine)

    # time limits

    async def test_a_time_limit_stands_still_and_goes_on(self, sandbox: ManagedSandbox, lease: CpuLease) -> None:
        mine = mark()
        started_s = time.monotonic()
        running = asyncio.create_task(sandbox.exec(["sleep", mine], timeout=2.0))
        await until_there_is(mine)
        lease.resize(0)
        stopped_s = time.monotonic()
        await asyncio.sleep(2.5)
        assert not running.done()
        stood_s = time.monotonic() - stopped_s
        lease.resize(1000)
        (done,) = await ended(running)
        assert isinstance(done, ExecResult)
        assert done.timed_out
        assert time.monotonic() - started_s >= 2.0 + stood_s
        assert not processes(mine)

    async def test_the_time_limit_of_a_command_that_waits_has_not_begun(
        self, sandbox: ManagedSandbox, lease: CpuLease
    ) -> None:
        lease.resize(0)
        waiting = asyncio.create_task(sandbox.exec(["echo", "on"], timeout=1.0))
        await asyncio.sleep(1.2)
        lease.resize(1000)
        (done,) = await ended(waiting)
        assert isinstance(done, ExecResult)
        assert (done.stdout, done.timed_out) == (b"on\n", False)

    # ends

    async def test_cancelling_a_suspended_command_kills_it_at_once(
        self, sandbox: ManagedSandbox, lease: CpuLease
    ) -> None:
        first, second = mark(), mark()
        running = [asyncio.create_task(sandbox.exec(busy(each, 8))) for each in (first, second)]
        await until_there_is(first)
        await until_there_is(second)
        lease.resize(0)
        await asyncio.sleep(0.2)
        began_s = time.monotonic()
        running[0].cancel()
        await ended(running[0])
        assert time.monotonic() - began_s < self.at_once_s
        assert not processes(first)
        await until_still(second)  # which is suspended as before
        running[1].cancel()
        await ended(running[1])
        lease.resize(1000)
        assert (await sandbox.exec(["echo", "on"])).stdout == b"on\n"

    async def test_cleaning_up_a_suspended_sandbox_kills_all_at_once_and_it_is_ready_for_the_next(
        self, manager: CpuManager, sandbox: ManagedSandbox
    ) -> None:
        lease, mine = manager.lease(2000, sandbox), mark()
        await sandbox.exec(shell(f"(: {mine}; {SPIN}) & setsid sh -c ': {mine}; {SPIN}' & :"))
        running = asyncio.create_task(sandbox.exec(busy(mine, 8)))
        await until_there_is(f"{mine}; ({SPIN})")
        lease.resize(0)
        await asyncio.sleep(0.2)
        began_s = time.monotonic()
        assert lease.needs_cleanup()
        await lease.clean()
        assert time.monotonic() - began_s < self.at_once_s
        assert not processes(mine)
        lease.release()
        await ended(running)
        following = manager.lease(2000, sandbox)
        assert await visible_cores(sandbox) == 2
        assert (await sandbox.exec(shell(COUNT), timeout=60)).stdout == b"100000\n"
        following.release()

    async def test_a_lease_that_is_released_while_it_is_suspended_leaves_a_sandbox_that_runs(
        self, manager: CpuManager, sandbox: ManagedSandbox
    ) -> None:
        for cores in (1, 2, 1):
            lease = manager.lease(cores * 1000, sandbox)
            assert (await sandbox.exec(["true"])).exit_code == 0
            lease.resize(0)
            lease.release()
            lease.release()
            lease.resize(1000)  # too late: nothing happens
        manager.lease(2000, None).release()
        lease = manager.lease(1000, sandbox)
        assert (await sandbox.exec(shell(COUNT), timeout=60)).stdout == b"100000\n"
        lease.release()

    async def test_closing_a_suspended_sandbox_kills_all_at_once(
        self, manager: CpuManager, sandbox: ManagedSandbox, lease: CpuLease
    ) -> None:
        mine = mark()
        running = asyncio.create_task(sandbox.exec(busy(mine, 8)))
        await until_there_is(mine)
        lease.resize(0)
        await asyncio.sleep(0.2)
        began_s = time.monotonic()
        await sandbox.aclose()
        assert time.monotonic() - began_s < self.at_once_s
        assert not processes(mine)
        (error,) = await ended(running)
        assert isinstance(error, SandboxLostError)
        lease.release()
        manager.lease(2000, None).release()
