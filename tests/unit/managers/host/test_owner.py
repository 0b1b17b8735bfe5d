from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.host import owner


def dead_name() -> str:
    """Return the name of an owner whose process has ended."""
    with subprocess.Popen(["sleep", "100"]) as process:
        name = f"{os.stat('/proc/self/ns/pid').st_ino}-{process.pid}-{owner.started(process.pid)}-abc123"
        assert not owner.is_dead(name)
        process.kill()
    return name


def test_this_process_is_alive(tmp_path: Path) -> None:
    claimed = owner.claim(str(tmp_path))
    assert not owner.is_dead(claimed.name)
    told = json.loads(Path(claimed.folder, "owner.json").read_text())
    assert told["pid"] == os.getpid()
    owner.sweep(str(tmp_path), {})
    assert os.path.isdir(claimed.folder)


def test_an_ended_process_is_dead_and_swept(tmp_path: Path) -> None:
    name = dead_name()
    assert owner.is_dead(name)
    (tmp_path / name / "1" / "work").mkdir(parents=True)
    assert owner.sweep(str(tmp_path), {}) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_number_that_is_used_again_is_dead() -> None:
    namespace = os.stat("/proc/self/ns/pid").st_ino
    assert owner.is_dead(f"{namespace}-{os.getpid()}-{owner.started(os.getpid()) - 1}-abc123")


def test_a_zombie_is_dead() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        name = f"{os.stat('/proc/self/ns/pid').st_ino}-{process.pid}-{owner.started(process.pid)}-abc123"
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert owner.is_dead(name)


def test_another_boot_is_dead_and_another_container_is_not(tmp_path: Path) -> None:
    elsewhere = "1-2-3-abc123"
    assert not owner.is_dead(elsewhere)
    assert owner.is_dead(elsewhere, "another-boot")
    (tmp_path / elsewhere).mkdir()
    (tmp_path / elsewhere / "owner.json").write_text('{"boot": "another-boot"}')
    owner.sweep(str(tmp_path), {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "x", "data", "1-2-3", ".claim-abc", "1-2-3-xyz!"])
def test_what_is_not_ours_is_left_alone(tmp_path: Path, name: str) -> None:
    assert not owner.is_dead(name)
    if name:
        (tmp_path / name).mkdir()
        owner.sweep(str(tmp_path), {})
        assert (tmp_path / name).exists()


def test_a_broken_owner_file_decides_nothing(tmp_path: Path) -> None:
    claimed = owner.claim(str(tmp_path))
    Path(claimed.folder, "owner.json").write_text("{")
    owner.sweep(str(tmp_path), {})
    assert os.path.isdir(claimed.folder)


def test_a_root_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigurationError, match="is a link"):
        owner.claim(str(tmp_path / "link"))


def test_a_root_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(ConfigurationError, match="not of user 12345"):
        owner.claim(str(tmp_path))
