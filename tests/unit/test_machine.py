"""The machine is prepared where that is ours to do, and told what to run where it is not."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import machine


def _without_programs(monkeypatch: pytest.MonkeyPatch, *, user: int, apt: bool) -> list[list[str]]:
    """Pretend that every program is missing; return the list that collects the commands that would have run."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    def which(name: str, path: str | None = None) -> str | None:
        return "/usr/bin/apt-get" if apt and name == "apt-get" else None

    monkeypatch.setattr(shutil, "which", which)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(machine, "POLICY", Path("/no/such/folder/policy-rc.d"))
    return commands


INSTALL = (
    "apt-get update && apt-get install -y --no-install-recommends --no-remove "
    "bubblewrap busybox-static docker.io python3 util-linux"
)


def test_root_on_debian_installs_what_is_missing_and_says_so_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = _without_programs(monkeypatch, user=0, apt=True)
    machine.prepare()
    assert (
        capsys.readouterr().out
        == f"bwrap, busybox, dockerd, unshare, /usr/bin/python3: not installed; running: {INSTALL}\n"
    )
    assert [" ".join(command) for command in commands] == INSTALL.split(" && ")


@pytest.mark.parametrize(("user", "apt"), [(1000, True), (0, False)], ids=["not root", "no apt"])
def test_elsewhere_it_only_says_what_to_run(
    user: int, apt: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = _without_programs(monkeypatch, user=user, apt=apt)
    machine.prepare()
    assert commands == []
    assert INSTALL in capsys.readouterr().out


def test_a_test_that_needs_a_missing_program_is_told_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_programs(monkeypatch, user=1000, apt=True)
    with pytest.raises(machine.MissingProgramError, match="sudo sh -c 'apt-get update"):
        machine.require("bwrap")


def test_nothing_is_done_where_nothing_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = _without_programs(monkeypatch, user=0, apt=True)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/usr/bin/{name}")
    machine.prepare()
    assert (commands, capsys.readouterr().out) == ([], "")


def test_a_daemon_in_a_folder_of_the_administrator_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The PATH of an ordinary user lacks /usr/sbin, where dockerd lies."""
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/usr/sbin/{name}" if path else None)
    assert machine.require("dockerd") == "/usr/sbin/dockerd"
    assert machine.missing() == []


def test_no_package_starts_a_service_while_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(machine, "POLICY", policy)

    def install() -> None:
        assert os.access(policy, os.X_OK)
        assert policy.read_text() == "#!/bin/sh\nexit 101\n"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), machine.no_services():
        install()
    assert not policy.exists()


def test_a_policy_that_the_machine_has_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("of the machine")
    monkeypatch.setattr(machine, "POLICY", policy)
    with machine.no_services():
        assert policy.read_text() == "of the machine"
    assert policy.read_text() == "of the machine"
