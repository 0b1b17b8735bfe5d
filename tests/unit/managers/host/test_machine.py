from __future__ import annotations

import os
from pathlib import Path

import pytest

from arl_tangram.managers.host.hierarchy import read_hierarchies
from arl_tangram.managers.host.machine import parse_cpulist, read_machine

GIB = 1 << 30


class FakeMachine:
    """A file tree like that of a machine with 64 cores in two nodes and 256 GiB."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/meminfo", f"MemTotal: {256 * GIB // 1024} kB\n")
        self.write("sys/devices/system/node/node0/cpulist", "0-31\n")
        self.write("sys/devices/system/node/node1/cpulist", "32-63\n")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def cgroup1(self, own: str = "/job") -> None:
        lines = [f"{n}:{names}:{own}" for n, names in enumerate(("cpu,cpuacct", "cpuset", "memory", "freezer"), 1)]
        self.write("proc/self/cgroup", "\n".join([*lines, f"0::{own}"]) + "\n")
        mounts = [
            f"3{n} 30 0:3{n} / /sys/fs/cgroup/{name} rw,relatime - cgroup cgroup rw,{name}"
            for n, name in enumerate(("cpu,cpuacct", "cpuset", "memory", "freezer"))
        ]
        mounts.append("40 30 0:40 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw")
        self.write("proc/self/mountinfo", "\n".join(mounts) + "\n")
        self.write(f"sys/fs/cgroup/unified{own}/cgroup.controllers", "hugetlb\n")

    def cgroup2(self, own: str = "/job", controllers: str = "cpuset cpu io memory pids") -> None:
        self.write("proc/self/cgroup", f"0::{own}\n")
        self.write("proc/self/mountinfo", "40 30 0:40 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n")
        self.write(f"sys/fs/cgroup{own}/cgroup.controllers", controllers + "\n")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    return FakeMachine(tmp_path)


def test_without_cgroups_the_machine_is_what_there_is(fake: FakeMachine) -> None:
    machine = read_machine(fake.root)
    assert machine.usable_cores == 64
    assert machine.memory_bytes == 256 * GIB
    assert machine.nodes == (tuple(range(32)), tuple(range(32, 64)))


def test_v2_quota_of_our_own_cgroup(fake: FakeMachine) -> None:
    fake.cgroup2()
    fake.write("sys/fs/cgroup/job/cpu.max", "400000 100000\n")
    fake.write("sys/fs/cgroup/job/memory.max", f"{8 * GIB}\n")
    machine = read_machine(fake.root)
    assert (machine.usable_cores, machine.memory_bytes) == (4, 8 * GIB)


def test_v2_limits_above_us_count(fake: FakeMachine) -> None:
    fake.cgroup2("/slice/job")
    fake.write("sys/fs/cgroup/slice/job/cpu.max", "max 100000\n")
    fake.write("sys/fs/cgroup/slice/cpu.max", "250000 100000\n")
    fake.write("sys/fs/cgroup/slice/job/memory.max", "max\n")
    fake.write("sys/fs/cgroup/slice/memory.max", f"{GIB}\n")
    machine = read_machine(fake.root)
    assert (machine.usable_cores, machine.memory_bytes) == (2, GIB)


def test_v2_cpuset_of_our_own_cgroup(fake: FakeMachine) -> None:
    fake.cgroup2()
    fake.write("sys/fs/cgroup/job/cpuset.cpus.effective", "30-33\n")
    machine = read_machine(fake.root)
    assert machine.cores == (30, 31, 32, 33)
    assert machine.nodes == ((30, 31), (32, 33))


def test_v1_limits(fake: FakeMachine) -> None:
    fake.cgroup1()
    fake.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "150000\n")
    fake.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "50000\n")
    fake.write("sys/fs/cgroup/cpuset/job/cpuset.effective_cpus", "0-7\n")
    fake.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", f"{3 * GIB}\n")
    machine = read_machine(fake.root)
    assert (machine.cores, machine.usable_cores, machine.memory_bytes) == (tuple(range(8)), 3, 3 * GIB)


def test_v1_unlimited(fake: FakeMachine) -> None:
    fake.cgroup1()
    fake.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n")
    fake.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n")
    machine = read_machine(fake.root)
    assert (machine.usable_cores, machine.memory_bytes) == (64, 256 * GIB)


def test_less_than_a_core_is_still_one(fake: FakeMachine) -> None:
    fake.cgroup2()
    fake.write("sys/fs/cgroup/job/cpu.max", "50000 100000\n")
    assert read_machine(fake.root).usable_cores == 1


def test_affinity_limits(fake: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 40})
    machine = read_machine(fake.root)
    assert (machine.cores, machine.nodes) == ((1, 40), ((1,), (40,)))


def test_a_mount_of_cgroup2_without_controllers_is_not_version_2(fake: FakeMachine) -> None:
    fake.cgroup1()
    (fake.root / "sys/fs/cgroup/cpuset/job").mkdir(parents=True)
    found = read_hierarchies(fake.root)
    assert {hierarchy.version for hierarchy in found.values()} == {1}
    assert found["cpuset"].own == fake.root / "sys/fs/cgroup/cpuset/job"
    assert set(found) == {"cpu", "cpuset", "memory", "freezer"}


def test_version_2_without_delegation_has_nothing(fake: FakeMachine) -> None:
    fake.cgroup2(controllers="memory pids")
    assert read_hierarchies(fake.root) == {}


def test_version_2_that_is_not_passed_on_to_us_is_found_above(fake: FakeMachine) -> None:
    fake.cgroup2(controllers="")
    fake.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory pids\n")
    fake.write("sys/fs/cgroup/cpuset.cpus.effective", "0-3\n")
    found = read_hierarchies(fake.root)
    assert (found["cpu"].version, found["cpu"].own) == (2, fake.root / "sys/fs/cgroup/job")
    assert read_machine(fake.root).cores == (0, 1, 2, 3)


def test_in_a_container_the_mount_shows_our_cgroup_as_its_root(fake: FakeMachine) -> None:
    fake.write("proc/self/cgroup", "1:cpu:/docker/abc/inner\n")
    fake.write("proc/self/mountinfo", "31 30 0:31 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
    (fake.root / "sys/fs/cgroup/cpu/inner").mkdir(parents=True)
    assert read_hierarchies(fake.root)["cpu"].own == fake.root / "sys/fs/cgroup/cpu/inner"


def test_a_cgroup_outside_of_the_namespace_stands_for_the_mount(fake: FakeMachine) -> None:
    fake.cgroup2(own="/")
    fake.write("proc/self/cgroup", "0::/../elsewhere\n")
    assert read_hierarchies(fake.root)["cpu"].own == fake.root / "sys/fs/cgroup"


def test_nothing_readable_is_nothing_permitted(tmp_path: Path) -> None:
    assert read_hierarchies(tmp_path) == {}


@pytest.mark.parametrize(("text", "cores"), [("", ()), ("0\n", (0,)), ("0-2,5", (0, 1, 2, 5)), ("4,2-3", (2, 3, 4))])
def test_lists_of_cores(text: str, cores: tuple[int, ...]) -> None:
    assert parse_cpulist(text) == cores


def test_this_machine_can_be_read() -> None:
    machine = read_machine()
    assert 1 <= machine.usable_cores <= len(os.sched_getaffinity(0)) or len(machine.cores) >= 1
    assert machine.memory_bytes > 0
