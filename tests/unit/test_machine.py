"""The machine is prepared where that is ours to do, and told what to run where it is not."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

import pytest

import machine


def _without_bwrap(monkeypatch: pytest.MonkeyPatch, *, user: int, apt: bool) -> list[list[str]]:
    """Pretend that bwrap is missing; return the list that collects the commands that would have run."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/apt-get" if apt and name == "apt-get" else None)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(subprocess, "run", run)
    return commands


INSTALL = "apt-get update && apt-get install -y --no-install-recommends bubblewrap"


def test_root_on_debian_installs_what_is_missing_and_says_so_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = _without_bwrap(monkeypatch, user=0, apt=True)
    machine.prepare()
    assert capsys.readouterr().out == f"bwrap: not installed; running: {INSTALL}\n"
    assert [" ".join(command) for command in commands] == INSTALL.split(" && ")


@pytest.mark.parametrize(("user", "apt"), [(1000, True), (0, False)], ids=["not root", "no apt"])
def test_elsewhere_it_only_says_what_to_run(
    user: int, apt: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = _without_bwrap(monkeypatch, user=user, apt=apt)
    machine.prepare()
    assert commands == []
    assert INSTALL in capsys.readouterr().out


def test_a_test_that_needs_a_missing_program_is_told_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_bwrap(monkeypatch, user=1000, apt=True)
    with pytest.raises(machine.MissingProgramError, match="sudo sh -c 'apt-get update"):
        machine.require("bwrap")


def test_nothing_is_done_where_nothing_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = _without_bwrap(monkeypatch, user=0, apt=True)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    machine.prepare()
    assert (commands, capsys.readouterr().out) == ([], "")
