from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from arl_tangram.doctor import ray
from arl_tangram.doctor.ray import Cluster, judge, look


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "version_of", lambda _: "2.60.0")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "tmp/ray").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "tmp/ray/ray_current_cluster").write_text(f"{address}\n")
        yield address


def joins_none(address: str) -> Cluster:
    raise AssertionError(f"{address} must not be joined")


@pytest.mark.parametrize(
    ("version", "state"), [(None, "absent"), ("2.39.1", "limited"), ("2.40.0", "ok"), ("3.0", "ok")]
)
def test_it_must_be_installed_and_new_enough(
    version: str | None, state: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ray, "version_of", lambda _: version)
    found = look(tmp_path, join=joins_none)
    assert found.state == state
    assert bool(found.advice) == (state != "ok")


def test_a_running_cluster_is_joined_and_its_shared_runtimes_are_told(tmp_path: Path, address: str) -> None:
    def join(asked: str) -> Cluster:
        assert asked == address
        return Cluster(3, (("tangram", "01000000"),))

    found = look(tmp_path, join=join)
    assert found.state == "ok"
    assert found.text == (
        f"2.60.0; a cluster runs at {address}, of 3 machines; shared runtimes: 'tangram' of job 01000000"
    )


def test_one_that_does_not_answer_is_not_joined(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # comes first
    assert "does not answer" in look(tmp_path, join=joins_none).text
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    assert "does not answer" in look(tmp_path, join=joins_none).text


def test_there_may_be_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no cluster" in look(tmp_path, join=joins_none).text
    monkeypatch.setenv("RAY_ADDRESS", "ray://somewhere:10001")
    assert look(tmp_path, join=joins_none).state == "limited"


def test_one_that_cannot_be_joined_is_wrong_and_says_why() -> None:
    found = judge("2.60.0", "a:1", Cluster(error="other Python"))
    assert (found.state, bool(found.advice)) == ("wrong", True)
    assert "other Python" in found.text
    assert "shared runtimes: none" in judge("2.60.0", "a:1", Cluster(1)).text


def test_a_program_that_cannot_join_says_so_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "JOIN_LIMIT_S", 0.001)
    assert "within" in ray.join("127.0.0.1:1").error
    monkeypatch.setattr(ray, "JOIN_LIMIT_S", 60)
    monkeypatch.setattr(ray.sys, "executable", "/bin/false")
    assert "exit code 1: it said nothing" in ray.join("127.0.0.1:1").error
