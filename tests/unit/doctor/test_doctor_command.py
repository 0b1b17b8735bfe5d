from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from arl_tangram.doctor import command, daemons, host, leftovers, show
from arl_tangram.doctor.findings import Finding, Leftover, State, exit_code
from arl_tangram.managers.host.owner import LeftBehind

CONTAINER = Leftover("container", "c" * 64, "sandbox 1", "unix:///x")
FOLDER = Leftover("folder", "/tmp/box", "of local sandboxes")


@pytest.mark.parametrize(
    ("states", "left", "code"),
    [
        (["ok", "limited", "absent"], [], 0),
        (["ok", "wrong"], [], 1),
        (["ok"], [FOLDER], 1),
        (["ok"], [replace(FOLDER, removed=True)], 0),
        (["ok"], [replace(FOLDER, removed=True), replace(FOLDER, error="busy")], 1),
    ],
)
def test_the_exit_code_tells_whether_something_is_wrong_or_left(
    states: list[State], left: list[Leftover], code: int
) -> None:
    assert exit_code([Finding("x", state, "") for state in states], left) == code


def test_a_line_for_each_thing() -> None:
    findings = [Finding("bwrap", "absent", "not installed", "install it")]
    text = show.lines(findings, [], removing=False)
    assert text.splitlines() == [
        "bwrap    absent   not installed; to do: install it",
        "left     ok       nothing: no dead run has left anything",
    ]
    text = show.lines([], [CONTAINER, FOLDER], removing=False)
    assert text.splitlines() == [
        "left     left     container cccccccccccc, sandbox 1",
        "left     left     folder /tmp/box, of local sandboxes",
        "left              to do: python -m arl_tangram doctor --remove, or the next start of a pool",
    ]
    text = show.lines([], [replace(CONTAINER, removed=True), replace(FOLDER, error="busy")], removing=True)
    assert text.splitlines() == [
        "left     removed  container cccccccccccc, sandbox 1",
        "left     failed   folder /tmp/box, of local sandboxes: busy",
    ]


def test_things_of_the_machine_are_listed_one_by_one() -> None:
    left = LeftBehind({Path("/cg/arl_tangram-1"): 1}, {1: "owner.3"}, [Path("/tmp/box")])
    found = leftovers.listed(left)
    assert [(each.kind, each.name) for each in found] == [
        ("cgroup", "/cg/arl_tangram-1"),
        ("process", "1"),
        ("folder", "/tmp/box"),
    ]
    assert "sandbox owner.3" in found[1].text


def test_what_stays_after_the_sweep_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stays = Leftover("folder", str(tmp_path), "of local sandboxes")
    swept: list[str] = []
    monkeypatch.setattr(leftovers, "sweep", lambda root, _: swept.append(root))
    monkeypatch.setattr(leftovers, "find", lambda: [stays])
    assert leftovers.remove([]) == []
    assert swept == []
    gone, kept = leftovers.remove([FOLDER, stays])
    assert len(swept) == 1
    assert (gone.removed, kept.removed, kept.error) == (True, False, "it is still in use")


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[Leftover]:
    """Replace what looks and removes; return what dead owners have left, as it changes."""
    now = [CONTAINER, FOLDER]

    async def look(url: str | None) -> tuple[list[Finding], list[Leftover]]:
        return [Finding("docker", "ok", f"at {url}")], [each for each in now if each.kind == "container"]

    async def remove(containers: Sequence[Leftover]) -> dict[str, str]:
        now[:] = [each for each in now if each not in containers]
        return {}

    def remove_here(found: Sequence[Leftover]) -> list[Leftover]:
        now[:] = [each for each in now if each not in found]
        return [replace(each, removed=True) for each in found]

    monkeypatch.setattr(host, "sandboxing", lambda: iter([Finding("bwrap", "ok", "")]))
    monkeypatch.setattr(host, "beside", lambda: iter([Finding(name, "ok", "") for name in ("gpus", "ray")]))
    monkeypatch.setattr(daemons, "look", look)
    monkeypatch.setattr(daemons, "remove", remove)
    monkeypatch.setattr(leftovers, "find", lambda: [each for each in now if each.kind == "folder"])
    monkeypatch.setattr(leftovers, "remove", remove_here)
    return now


def test_by_default_nothing_is_removed(left: list[Leftover], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--url", "unix:///x"]) == 1
    assert len(left) == 2
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()] == [
        "bwrap",
        "docker",
        "gpus",
        "ray",
        "left",
        "left",
        "left",
    ]
    assert "at unix:///x" in printed


def test_removing_what_is_left(left: list[Leftover], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--remove"]) == 0
    assert left == []
    assert capsys.readouterr().out.count("removed") == 2
    assert command.main([]) == 0


def test_json_says_the_same(left: list[Leftover], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["exit_code"] == 1
    assert [each["subject"] for each in told["findings"]] == ["bwrap", "docker", "gpus", "ray"]
    assert [each["kind"] for each in told["leftovers"]] == ["container", "folder"]


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--nonsense"])
    assert ended.value.code == 2
    assert "usage: python -m arl_tangram doctor" in capsys.readouterr().err
