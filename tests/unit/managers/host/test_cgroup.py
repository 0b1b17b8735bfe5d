from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

from arl_tangram.managers.host.cgroup import CgroupTree, SandboxGroup, lift_limits, plant, processes, quota_us_of
from arl_tangram.managers.host.hierarchy import Hierarchy

V2_NAMES = ("cpu", "cpuset", "memory", "pids", "freezer")


def v2(own: Path) -> dict[str, Hierarchy]:
    return dict.fromkeys(V2_NAMES, Hierarchy(2, own.parent, own))


def lay(folder: Path, controllers: str, passed_on: str) -> None:
    """Make a folder look like a cgroup of version 2."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text(passed_on)


def read(tree: CgroupTree | SandboxGroup, controller: str, file: str) -> str:
    return (tree.folders[controller] / file).read_text()


def test_v2_goes_beside_us_if_we_cannot_have_children(tmp_path: Path) -> None:
    own, beside = tmp_path / "job", tmp_path / "ours"
    lay(own, "cpu cpuset memory pids", "")
    lay(own / "ours", "", "")  # no controller arrives: we are in the cgroup ourselves
    lay(tmp_path, "cpu cpuset memory pids", "cpu cpuset memory pids")
    lay(beside, "cpu cpuset memory pids", "cpu cpuset memory pids")
    tree = plant(v2(own), "ours", [2, 3])
    assert tree.version == 2
    assert set(tree.folders.values()) == {beside}
    assert (tree.pins, tree.limits_time) == (True, True)
    assert read(tree, "cpuset", "cpuset.cpus") == "2,3"


def test_v2_without_cpuset_still_limits_time(tmp_path: Path) -> None:
    own = tmp_path / "job"
    lay(own, "cpu memory pids", "cpu memory pids")
    lay(own / "ours", "cpu memory pids", "cpu memory pids")
    tree = plant(v2(own), "ours", [0])
    assert (tree.version, tree.pins, tree.limits_time) == (2, False, True)


def test_v2_without_delegation_has_nothing(tmp_path: Path) -> None:
    own = tmp_path / "job"
    lay(own, "cpu cpuset", "")
    lay(own / "ours", "", "")
    tree = plant(v2(own), "ours", [0])
    assert (tree.version, dict(tree.folders)) == (0, {})


def test_without_permission_there_is_nothing_and_nothing_is_left() -> None:
    missing = Path("/proc/nowhere/job")  # nobody can create a folder here
    assert plant(v2(missing), "ours", [0]).version == 0
    assert plant({"cpu": Hierarchy(1, missing, missing)}, "ours", [0]).version == 0


def test_nothing_detected_is_nothing_permitted() -> None:
    assert plant({}, "ours", [0]).version == 0


def test_v2_files(tmp_path: Path) -> None:
    group = CgroupTree(2, dict.fromkeys(V2_NAMES, tmp_path)).group("7")
    group.create()
    group.limit_memory(1 << 30)
    group.set_cores([1, 3])
    assert read(group, "pids", "pids.max") == "4096"
    assert (read(group, "memory", "memory.max"), read(group, "memory", "memory.swap.max")) == (str(1 << 30), "0")
    assert read(group, "cpuset", "cpuset.cpus") == "1,3"
    for milli_cores, text in ((None, "max 100000"), (1500, "150000 100000"), (300, "30000 100000"), (1, "1000 100000")):
        group.set_quota_us(None if milli_cores is None else quota_us_of(milli_cores))
        assert read(group, "cpu", "cpu.max") == text
    assert group.entrances == (str(tmp_path / "7" / "cgroup.procs"),)


def test_v1_files(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in V2_NAMES}
    for folder in folders.values():
        folder.mkdir()
    (tmp_path / "cpuset" / "cpuset.mems").write_text("0-1\n")
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-7\n")
    group = CgroupTree(1, folders).group("7")
    group.create()
    assert (read(group, "cpuset", "cpuset.mems"), read(group, "cpuset", "cpuset.cpus")) == ("0-1", "0-7")
    group.limit_memory(1 << 30)
    assert read(group, "memory", "memory.limit_in_bytes") == str(1 << 30)
    for milli_cores, text in ((None, "-1"), (1500, "150000"), (1, "1000")):
        group.set_quota_us(None if milli_cores is None else quota_us_of(milli_cores))
        assert read(group, "cpu", "cpu.cfs_quota_us") == text
    assert len(group.entrances) == len(V2_NAMES)


def test_killing_freezes_spares_and_thaws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = CgroupTree(2, {"cpu": tmp_path}).group("7")
    group.create()
    folder = tmp_path / "7"
    (folder / "cgroup.freeze").write_text("0")
    (folder / "cgroup.procs").write_text("11\n12\n13\n")
    killed: list[tuple[int, int, str]] = []

    def kill(pid: int, number: int) -> None:
        killed.append((pid, number, (folder / "cgroup.freeze").read_text()))
        (folder / "cgroup.procs").write_text("12\n")

    monkeypatch.setattr(os, "kill", kill)
    assert group.kill({12})
    assert sorted(killed) == [(11, signal.SIGKILL, "1"), (13, signal.SIGKILL, "1")]
    assert (folder / "cgroup.freeze").read_text() == "0"


def test_a_cgroup_that_is_gone_is_removed(tmp_path: Path) -> None:
    assert CgroupTree(2, {"cpu": tmp_path}).group("7").remove()


def test_processes_that_are_not_visible_here_are_not_listed(tmp_path: Path) -> None:
    """The kernel lists them as 0; a signal to 0 would end our own group."""
    (tmp_path / "cgroup.procs").write_text("0\n17\n0\n")
    assert processes(tmp_path) == [17]


@pytest.mark.parametrize(
    ("version", "lifted"),
    [(1, {"cpu.cfs_quota_us": "-1", "cpu.shares": "1024"}), (2, {"cpu.max": "max", "cpu.weight": "100"})],
)
def test_limits_are_lifted_where_there_are_any(
    tmp_path: Path, version: Literal[1, 2], lifted: Mapping[str, str]
) -> None:
    lift_limits(version, tmp_path)
    assert list(tmp_path.iterdir()) == []
    group = CgroupTree(version, {"cpu": tmp_path.parent}).group(tmp_path.name)
    group.set_quota_us(1000)
    group.set_weight(least=True)
    lift_limits(version, tmp_path)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == lifted


@pytest.mark.parametrize(
    ("version", "name", "texts"), [(1, "cpu.shares", ["2", "1024"]), (2, "cpu.weight", ["1", "100"])]
)
def test_a_weight_is_the_least_or_the_usual_one(
    tmp_path: Path, version: Literal[1, 2], name: str, texts: list[str]
) -> None:
    group = CgroupTree(version, {"cpu": tmp_path.parent}).group(tmp_path.name)
    for least, text in zip((True, False), texts, strict=True):
        group.set_weight(least=least)
        assert read(group, "cpu", name) == text
