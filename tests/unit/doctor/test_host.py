from __future__ import annotations

from pathlib import Path

import pytest

from arl_tangram.doctor import host
from arl_tangram.managers.host.cgroup import NOTHING, CgroupTree
from arl_tangram.managers.host.hierarchy import Hierarchy
from arl_tangram.managers.local.isolation import Isolation, without_bwrap

V1 = Hierarchy(1, Path("/cg/cpu"), Path("/cg/cpu/own"))
V2 = Hierarchy(2, Path("/cg"), Path("/cg/own"))


def tree(*controllers: str) -> CgroupTree:
    return CgroupTree(2, {name: Path("/cg") for name in controllers})


@pytest.mark.parametrize(
    ("hierarchy", "found", "state", "words", "advice"),
    [
        (V2, tree("cpu", "cpuset", "memory"), "ok", "version 2: cores, fractions and memory", ""),
        (V2, tree("cpu", "memory"), "limited", "pinned by affinity", "passed on"),
        (V2, tree("cpuset", "memory"), "limited", "fractions are not enforced", "passed on"),
        (V2, tree("cpuset", "cpu"), "limited", "memory is not limited", "passed on"),
        (
            V2,
            NOTHING,
            "limited",
            "no cgroup can be created below /cg/own: grants of a LocalPool are advisory",
            "systemd-run",
        ),
        (V1, NOTHING, "limited", "version 1, and no cgroup can be created", "run as root"),
    ],
)
def test_cgroups_are_judged_by_what_could_be_created(
    hierarchy: Hierarchy, found: CgroupTree, state: str, words: str, advice: str
) -> None:
    judged = host.judge_cgroups(hierarchy, found)
    assert judged.state == state
    assert words in judged.text
    assert advice in judged.advice
    assert bool(advice) == bool(judged.advice)


def test_looking_at_cgroups_leaves_none() -> None:
    before = _own_groups()
    assert host.cgroups().subject == "cgroups"
    assert _own_groups() == before


def _own_groups() -> set[Path]:
    folders = {folder for each in host.read_hierarchies().values() for folder in list(each.up())[:2]}
    return {path for folder in folders for path in folder.glob("arl_tangram-*")}


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        (Isolation(("keeper",), bwrap=("/usr/bin/bwrap", "--unshare-pid")), "ok", "/usr/bin/bwrap works"),
        (without_bwrap("bwrap is not installed"), "absent", "not installed"),
        (without_bwrap("bwrap does not work here: no namespaces"), "wrong", "no namespaces"),
    ],
    ids=["works", "missing", "broken"],
)
def test_bubblewrap_is_run(monkeypatch: pytest.MonkeyPatch, found: Isolation, state: str, words: str) -> None:
    monkeypatch.setattr(host, "find_isolation", lambda root: found)
    judged = host.bubblewrap()
    assert judged.state == state
    assert words in judged.text
    assert bool(judged.advice) == (state != "ok")


def test_versions_and_capacity_are_told() -> None:
    assert "numpy" in host.python().text
    assert "core" in host.cores().text
