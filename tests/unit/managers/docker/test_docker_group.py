from __future__ import annotations

from pathlib import Path

import pytest

from arl_tangram.managers.docker.group import NoGroupError, SessionGroup, check_writable, find_group
from arl_tangram.managers.host.cgroup import SandboxGroup

ID = "4f1c" * 16
PID = 4321


class FakeHost:
    """A file tree like that of a machine with one container; `effective` files follow what is written."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str = "") -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def follow(self, path: str, target: str) -> None:
        (self.root / path).symlink_to(target)

    def v1(self, own: str, pairs: tuple[str, ...] = ("cpu,cpuacct", "cpuset", "freezer", "memory", "pids")) -> None:
        """Lay out version 1, hybrid: there is a mount of version 2 that has other controllers."""
        lines = [f"{number}:{names}:{own}" for number, names in enumerate(pairs, 1)]
        self.write(f"proc/{PID}/cgroup", "\n".join([*lines, "1:name=systemd:/", f"0::{own}"]) + "\n")
        mounts = [
            f"3{number} 30 0:3{number} / /sys/fs/cgroup/{names} rw - cgroup cgroup rw,{names}"
            for number, names in enumerate(pairs)
        ]
        mounts.append("40 30 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw")
        self.write("proc/self/mountinfo", "\n".join(mounts) + "\n")
        self.write("proc/self/cgroup", "0::/\n")
        self.write("sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n")
        cpu, cpuset = f"sys/fs/cgroup/{pairs[0]}{own}", f"sys/fs/cgroup/cpuset{own}"
        self.write(f"{cpu}/cpu.cfs_quota_us", "10000\n")
        self.write(f"{cpu}/cpuacct.usage", "2500000000\n")
        self.write(f"{cpuset}/cpuset.cpus", "0-7\n")
        self.follow(f"{cpuset}/cpuset.effective_cpus", "cpuset.cpus")
        self.write(f"sys/fs/cgroup/freezer{own}/freezer.state", "THAWED\n")
        for name in pairs[3:]:
            self.write(f"sys/fs/cgroup/{name}{own}/cgroup.procs")

    def v2(self, own: str, inner: str = "", controllers: str = "cpuset cpu io memory pids") -> None:
        self.write(f"proc/{PID}/cgroup", f"0::{own}{inner}\n")
        self.write("proc/self/mountinfo", "40 30 0:40 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        self.write("proc/self/cgroup", "0::/user.slice\n")
        folder = f"sys/fs/cgroup{own}"
        self.write(f"{folder}{inner}/cgroup.controllers", controllers + "\n")
        self.write(f"{folder}/cgroup.controllers", controllers + "\n")
        self.write(f"{folder}/cpu.stat", "usage_usec 1500000\nuser_usec 1\n")
        if "cpu " in controllers:
            self.write(f"{folder}/cpu.max", "10000 100000\n")
        if "cpuset" in controllers:
            self.write(f"{folder}/cpuset.cpus", "0-7\n")
            self.follow(f"{folder}/cpuset.cpus.effective", "cpuset.cpus")

    def find(self) -> SandboxGroup:
        return find_group(ID, PID, self.root)


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.mark.parametrize("own", [f"/docker/{ID}", f"/system.slice/docker-{ID}.scope", f"/libpod_parent/libpod-{ID}"])
def test_v1_group_is_found_whatever_the_driver_calls_it(host: FakeHost, own: str) -> None:
    host.v1(own)
    group = host.find()
    check_writable(group)
    assert group.version == 1
    assert group.folders["cpu"] == host.root / f"sys/fs/cgroup/cpu,cpuacct{own}"
    assert (group.effective_cores(), group.quota_us(), group.cpu_s()) == (tuple(range(8)), 10_000, 2.5)
    group.set_cores([2, 3])
    group.set_quota_us(None)
    assert (group.effective_cores(), group.quota_us()) == ((2, 3), None)
    assert (host.root / f"sys/fs/cgroup/cpu,cpuacct{own}/cpu.cfs_quota_us").read_text() == "-1"


@pytest.mark.parametrize(
    ("own", "inner"),
    [
        (f"/docker/{ID}", ""),
        (f"/system.slice/docker-{ID}.scope", ""),
        (f"/libpod_parent/libpod-{ID}", ""),
        (f"/machine.slice/libpod-{ID}.scope", "/container"),
        (f"/machine.slice/libpod-{ID}.scope", f"/libpod-payload-{ID}"),
        (f"/system.slice/docker-{ID}.scope", "/init.scope"),  # an init inside has moved itself
    ],
)
def test_v2_group_is_found_whatever_the_driver_calls_it(host: FakeHost, own: str, inner: str) -> None:
    host.v2(own, inner)
    group = host.find()
    check_writable(group)
    assert group.version == 2
    assert set(group.folders.values()) == {host.root / f"sys/fs/cgroup{own}"}
    assert (group.effective_cores(), group.quota_us(), group.cpu_s()) == (tuple(range(8)), 10_000, 1.5)
    group.set_cores([2, 3])
    group.set_quota_us(50_000)
    assert (group.effective_cores(), group.quota_us()) == ((2, 3), 50_000)
    assert (host.root / f"sys/fs/cgroup{own}/cpu.max").read_text() == "50000 100000"


def test_a_process_that_is_not_visible_here_is_no_way_in(host: FakeHost) -> None:
    with pytest.raises(NoGroupError, match="process 4321 of the container is not visible here"):
        host.find()


@pytest.mark.parametrize("own", ["/", "/user.slice/session-1.scope", f"/docker/{'0' * 64}"])
def test_another_process_of_that_number_is_not_the_container(host: FakeHost, own: str) -> None:
    host.v2(own)
    with pytest.raises(NoGroupError, match="is not the cgroup of container 4f1c4f1c4f1c"):
        host.find()


def test_from_inside_a_container_nothing_is_visible(host: FakeHost) -> None:
    """With the processes of the host visible, but a cgroup namespace of our own."""
    host.v2(f"/../{ID}")
    (host.root / "proc/self/cgroup").write_text("0::/\n")
    host.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n")
    with pytest.raises(NoGroupError, match="is not the cgroup of container"):
        host.find()


@pytest.mark.parametrize(
    ("controllers", "message"),
    [
        ("memory pids", "no cgroup controller cpu and cpuset and freezer"),
        ("cpu memory pids", "no cgroup controller cpuset"),
        ("cpuset memory pids", "no cgroup controller cpu is"),
    ],
)
def test_v2_without_the_controllers_says_which_are_missing(host: FakeHost, controllers: str, message: str) -> None:
    host.v2(f"/user.slice/user-1000.slice/docker-{ID}.scope", controllers=controllers)
    with pytest.raises(NoGroupError, match=message):
        host.find()


def test_v2_without_delegation_says_which_file_is_missing(host: FakeHost) -> None:
    own = f"/user.slice/docker-{ID}.scope"
    host.v2(own)
    (host.root / f"sys/fs/cgroup{own}/cpuset.cpus").unlink()
    with pytest.raises(NoGroupError, match=r"has no cpuset: .*cpuset\.cpus is missing"):
        host.find()


def test_a_file_that_may_not_be_written_is_named(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.v2(f"/docker/{ID}")
    group = host.find()
    monkeypatch.setattr("os.access", lambda path, _: not str(path).endswith("cpu.max"))  # root may write everything
    with pytest.raises(NoGroupError, match=r"no permission to write .*cpu\.max"):
        check_writable(group)


def test_no_process_is_not_this_one(tmp_path: Path) -> None:
    """Written to `cgroup.procs`, 0 would move the trainer into the container's group."""
    with pytest.raises(ValueError, match="0 is no process"):
        SessionGroup(2, tmp_path / "session").enter(0)
    assert list(tmp_path.iterdir()) == []


def test_v2_session_is_killed_by_the_kernel_unless_something_is_spared(tmp_path: Path) -> None:
    folder = tmp_path / "container" / "arl_tangram-1"
    folder.mkdir(parents=True)
    for file in ("cgroup.kill", "cgroup.procs", "cgroup.freeze"):
        (folder / file).write_text("")
    session = SessionGroup(2, folder)
    assert session.kill(spared=[1])
    assert (folder / "cgroup.kill").read_text() == ""
    assert (folder / "cgroup.freeze").read_text() == "0", "frozen, then thawed"
    assert session.kill()
    assert (folder / "cgroup.kill").read_text() == "1"
