from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import pytest

from arl_tangram.managers.docker.answers import DaemonError, EngineInfo, EngineVersion, read_info
from arl_tangram.managers.docker.probe import Probe, host_cores, is_this_machine, may_write, probe_direct
from arl_tangram.managers.host.machine import Machine

ID = "4f1c" * 16


@dataclass
class FakeDaemon:
    """A fake engine: writes quota and cores to where `folder` says, or does what faults it is told."""

    folder: Path
    error: DaemonError | None = None
    asked: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    afterwards: Callable[[], None] = lambda: None

    async def update(
        self, container_id: str, /, *, quota_us: int, period_us: int, cpus: str, shares: int | None = None
    ) -> None:
        assert (container_id, period_us, shares) == (ID, 100_000, None)
        self.asked.append((quota_us, cpus))
        if self.error is not None:
            raise self.error
        await asyncio.to_thread(self._write, quota_us, cpus)

    def _write(self, quota_us: int, cpus: str) -> None:
        (self.folder / "cpu.max").write_text(f"{quota_us} 100000\n")
        (self.folder / "cpuset.cpus").write_text(cpus)
        self.afterwards()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a file tree of a machine with one container, of version 2 with the systemd driver."""
    folder = tmp_path / f"sys/fs/cgroup/system.slice/docker-{ID}.scope"
    folder.mkdir(parents=True)
    (folder / "cgroup.controllers").write_text("cpuset cpu memory\n")
    (folder / "cpu.max").write_text("10000 100000\n")
    (folder / "cpuset.cpus").write_text("0-3\n")
    (folder / "cpuset.cpus.effective").symlink_to("cpuset.cpus")
    for pid in ("77", "self"):
        (tmp_path / "proc" / pid).mkdir(parents=True)
    (tmp_path / "proc/77/cgroup").write_text(f"0::/system.slice/docker-{ID}.scope\n")
    (tmp_path / "proc/self/mountinfo").write_text("40 30 0:40 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    return tmp_path


def folder_of(root: Path) -> Path:
    return root / f"sys/fs/cgroup/system.slice/docker-{ID}.scope"


async def probe(root: Path, daemon: FakeDaemon, *, is_socket: bool = True) -> Probe:
    return await probe_direct(daemon, ID, 77, is_socket=is_socket, core_ids=[0, 1, 2, 3], root=root)


async def test_what_the_daemon_writes_must_be_seen_in_the_files(root: Path) -> None:
    daemon = FakeDaemon(folder_of(root))
    found = await probe(root, daemon)
    assert found.is_direct
    assert found.reason == "cgroup version 2 files are written directly"
    assert [quota for quota, _ in daemon.asked] == [10_340, 10_000], "and it is idle again"
    assert (folder_of(root) / "cpu.max").read_text() == "10000 100000"


async def test_files_that_do_not_show_what_the_daemon_wrote_are_not_the_containers(root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    found = await probe(root, FakeDaemon(elsewhere))
    assert not found.is_direct
    assert found.reason.endswith("does not show what the daemon set")


async def test_a_daemon_that_cannot_change_limits_does_not_stand_in_the_way(root: Path) -> None:
    """Podman before 5 has no such route."""
    found = await probe(root, FakeDaemon(folder_of(root), DaemonError("refused", 404, "no such route")))
    assert found.is_direct
    assert found.reason == "the daemon cannot change limits (no such route)"


async def test_a_daemon_that_is_gone_is_no_answer(root: Path) -> None:
    with pytest.raises(DaemonError):
        await probe(root, FakeDaemon(folder_of(root), DaemonError("gone", 0, "connection refused")))


async def test_a_remote_daemon_is_not_asked(root: Path) -> None:
    daemon = FakeDaemon(folder_of(root))
    found = await probe(root, daemon, is_socket=False)
    assert (found.is_direct, daemon.asked) == (False, [])
    assert found.reason == "the daemon is not reached through a socket of this machine"


async def test_a_user_who_may_not_write_the_files_hears_which(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    found = await probe(root, FakeDaemon(folder_of(root)))
    assert not found.is_direct
    assert found.reason.startswith("no permission to write ")


async def test_files_that_do_not_keep_what_is_written_are_no_use(root: Path) -> None:
    daemon = FakeDaemon(folder_of(root))

    def ignore() -> None:
        effective = folder_of(root) / "cpuset.cpus.effective"
        effective.unlink()
        effective.write_text("0-7")

    daemon.afterwards = lambda: None if len(daemon.asked) == 1 else ignore()
    found = await probe(root, daemon)
    assert not found.is_direct
    assert "does not keep what is written: 0.1 cores (0,1,2,3,4,5,6,7) in effect" in found.reason


def machine(quota: float = inf) -> Machine:
    return Machine(tuple(range(2, 10)), quota, 1 << 33, ((2, 3, 4), (5, 6, 7, 8, 9)))


@pytest.mark.parametrize(
    ("ncpu", "quota", "nodes"),
    [
        (64, inf, ((2, 3, 4), (5, 6, 7, 8, 9))),
        (64, 4.0, ((5, 6, 7, 8),)),
        (6, inf, ((2,), (5, 6, 7, 8, 9))),
        (64, 0.5, ((5,),)),
    ],
)
def test_cores_of_this_machine_are_those_that_we_may_use_too(
    ncpu: int, quota: float, nodes: tuple[tuple[int, ...], ...]
) -> None:
    assert host_cores(ncpu, machine(quota)) == nodes


def test_cores_of_another_machine_are_one_node() -> None:
    assert host_cores(4, None) == ((0, 1, 2, 3),)


def info(name: str) -> EngineInfo:
    answer = {"Name": name, "NCPU": 4, "MemTotal": 1 << 30, "SystemTime": "2026-01-01T00:00:00Z"}
    return read_info(answer, EngineVersion("20.10", (1, 41), (1, 12), None), "1.41")


def test_a_socket_that_leads_to_another_machine_is_not_this_one() -> None:
    here = os.uname().nodename
    assert is_this_machine("unix:///var/run/docker.sock", info(here))
    assert not is_this_machine("unix:///var/run/docker.sock", info("docker-desktop"))
    assert not is_this_machine("tcp://127.0.0.1:2376", info(here))


def test_whether_cgroups_can_be_written_is_seen_before_there_is_a_container(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "proc/self/cgroup").write_text("0::/\n")
    (root / "sys/fs/cgroup/cgroup.controllers").write_text("cpuset cpu memory\n")
    assert may_write(root)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert not may_write(root)
    (root / "proc/self/mountinfo").write_text("")
    assert not may_write(root)
