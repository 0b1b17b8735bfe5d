"""Cases 85 to 89, on files like those of a kernel: cores that go and come, no controllers, a quota of our own."""

from __future__ import annotations

import asyncio
import math
import os
from pathlib import Path

import pytest

from arl_tangram.managers.cores import Cores
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.available import AvailableCores
from arl_tangram.managers.docker.probe import Probe, host_cores, probe_direct
from arl_tangram.managers.host.machine import read_machine

ID = "9b1d" * 16


class FakeMachine:
    """A fake: the file tree of a machine with 64 cores and one container, of cgroup version 1 or 2."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/meminfo", "MemTotal: 1048576 kB\n")

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def version1(self) -> None:
        names = ("cpu", "cpuset", "memory", "freezer", "pids")
        mounts = [
            f"3{n} 30 0:3{n} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}" for n, name in enumerate(names)
        ]
        self.write("proc/self/mountinfo", "\n".join(mounts) + "\n")
        self.write("proc/7/cgroup", "".join(f"{n}:{name}:/docker/{ID}\n" for n, name in enumerate(names, 1)))
        for name in names:
            self.write(f"sys/fs/cgroup/{name}/docker/{ID}/cgroup.procs", "7\n")
        self.write(f"sys/fs/cgroup/cpu/docker/{ID}/cpu.cfs_quota_us", "10000\n")
        self.write(f"sys/fs/cgroup/cpu/docker/{ID}/cpu.cfs_period_us", "100000\n")
        for name in ("cpuset.cpus", "cpuset.effective_cpus"):
            self.write(f"sys/fs/cgroup/cpuset/docker/{ID}/{name}", "0-3\n")
        self.write(f"sys/fs/cgroup/freezer/docker/{ID}/freezer.state", "THAWED\n")

    def version2(self, controllers: str) -> None:
        self.write("proc/self/mountinfo", "40 30 0:40 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        self.write("proc/7/cgroup", f"0::/docker/{ID}\n")
        own = f"sys/fs/cgroup/docker/{ID}"
        for folder in ("sys/fs/cgroup", "sys/fs/cgroup/docker", own):
            self.write(f"{folder}/cgroup.controllers", controllers + "\n")
        self.write(f"{own}/cgroup.procs", "7\n")
        self.write(f"{own}/cgroup.freeze", "0\n")
        if "cpu" in controllers.split():
            self.write(f"{own}/cpu.max", "10000 100000\n")
        if "cpuset" in controllers.split():
            self.write(f"{own}/cpuset.cpus", "0-3\n")
            self.write(f"{own}/cpuset.cpus.effective", "0-3\n")


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


class FakeEngine:
    """A fake: does what it is asked for by writing a file, as the daemon of this machine would."""

    def __init__(self, quota: Path) -> None:
        self.quota = quota

    async def update(
        self, container_id: str, /, *, quota_us: int, period_us: int, cpus: str, shares: int | None = None
    ) -> None:
        await asyncio.to_thread(self._write, quota_us, period_us)

    def _write(self, quota_us: int, period_us: int) -> None:
        if not self.quota.parent.exists():
            raise DaemonError("refused", 400, "the kernel does not support it")
        self.quota.write_text(f"{quota_us} {period_us}\n" if self.quota.name == "cpu.max" else f"{quota_us}\n")


async def probed(machine: FakeMachine, quota: str) -> Probe:
    engine = FakeEngine(machine.root / "sys/fs/cgroup" / quota)
    return await probe_direct(engine, ID, 7, is_socket=True, core_ids=[0, 1, 2, 3], root=machine.root)


def test_case_85_a_core_that_goes_offline_is_not_granted_until_it_is_back(machine: FakeMachine) -> None:
    file = machine.write("cpuset.cpus.effective", "0-7\n")
    available, cores = AvailableCores(file), Cores([range(8)])

    def look() -> tuple[int, int]:
        if (found := available.read()) is not None:
            cores.set_available(found)
        return cores.capacity, cores.free

    def take(key: int, count: int) -> set[int]:
        return set(cores.take(key, count * 1000)[key].core_ids)

    assert [take(0, 1), take(1, 1)] == [{0}, {1}]
    assert look() == (8, 6)
    file.write_text("0,2-7\n")
    assert look() == (7, 5), "core 1 stays with its action, which goes on and counts"
    cores.give_back(1)
    assert look() == (7, 6)
    assert take(2, 6) == {2, 3, 4, 5, 6, 7}
    with pytest.raises(ValueError, match=r"room|free"):
        cores.take(3, 1000)
    file.write_text("0-7\n")
    assert look() == (8, 1)
    assert take(4, 1) == {1}
    for key in (0, 2, 4):
        cores.give_back(key)
    assert look() == (8, 8)


async def test_case_87_without_the_controllers_it_says_so_and_does_not_pretend(machine: FakeMachine) -> None:
    machine.version2("memory pids")
    found = await probed(machine, f"docker/{ID}/cpu.max")
    assert not found.is_direct
    assert "cpu" in found.reason
    machine.version2("cpu memory pids")
    found = await probed(machine, f"docker/{ID}/cpu.max")
    assert not found.is_direct
    assert "cpuset" in found.reason


async def test_case_87_both_versions_of_cgroups_work(machine: FakeMachine) -> None:
    machine.version2("cpuset cpu memory pids")
    assert (await probed(machine, f"docker/{ID}/cpu.max")).is_direct
    machine.version1()
    assert (await probed(machine, f"cpu/docker/{ID}/cpu.cfs_quota_us")).is_direct


async def test_case_87_files_that_may_not_be_written_are_named(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.version2("cpuset cpu memory pids")
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    found = await probed(machine, f"docker/{ID}/cpu.max")
    assert not found.is_direct
    assert str(machine.root) in found.reason
    assert "permission" in found.reason


@pytest.mark.parametrize("version", [1, 2])
def test_case_89_a_pool_has_the_cores_that_its_own_cgroup_allows(
    version: int, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    if version == 2:
        machine.version2("cpuset cpu memory")
        machine.write("proc/self/cgroup", "0::/job\n")
        machine.write("sys/fs/cgroup/job/cgroup.controllers", "cpuset cpu memory\n")
        machine.write("sys/fs/cgroup/job/cpu.max", "400000 100000\n")
    else:
        machine.version1()
        machine.write("proc/self/cgroup", "1:cpu:/job\n2:cpuset:/job\n")
        machine.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "400000\n")
        machine.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n")
    ours = read_machine(machine.root)
    assert math.isclose(ours.quota_cores, 4)
    assert sum(map(len, host_cores(64, ours))) == 4
