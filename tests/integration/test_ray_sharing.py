"""A shared runtime on a real Ray cluster: processes that share, connect, go wrong and die.

All on one cluster of one node, but for what is about several.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ray_cluster
from documents import ROOT
from ray_cluster import RayCluster

PROGRAMS = Path(__file__).with_name("ray_programs.py")
LEASE_S = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster.started(1) as cluster:
        yield cluster


class Program:
    """One of `ray_programs`, as it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        told = self.process.stdout.readline()
        assert told, f"it ended with {self.process.wait(10)}"
        return json.loads(told)

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ended(self) -> int:
        return self.process.wait(60)


@contextmanager
def program(cluster: RayCluster, *words: str) -> Iterator[Program]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS), *words],
        env=cluster.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Program(process)
    finally:
        process.kill()
        process.communicate()


def told_by(cluster: RayCluster, *words: str) -> dict[str, Any]:
    with program(cluster, *words) as started:
        found = started.told()
        assert started.ended() == 0
        return found


def peak(spans: list[tuple[float, float]]) -> int:
    """Return how many of some spans were open at once."""
    events = sorted([(begun, 1) for begun, _ in spans] + [(ended, -1) for _, ended in spans])
    now = most = 0
    for _, step in events:
        now += step
        most = max(most, now)
    return most


@pytest.fixture(scope="module")
def shared(cluster: RayCluster) -> Iterator[Program]:
    """A runtime `main` that another process shares for as long as the tests run; nothing of it may be left in use."""
    with program(cluster, "hold", "main", str(LEASE_S)) as holder:
        assert "core" in holder.told()["describe"]
        yield holder
        holder.go_on()
        assert holder.told() == {"running": 0, "waiting": 0, "trajectories": 0, "used": {}}
        assert holder.ended() == 0


@pytest.mark.parametrize("options", [(), ("--ray",)])
def test_the_example_prints_the_same_in_one_process_and_on_ray(options: tuple[str, ...], cluster: RayCluster) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/shared_pool.py"), *options],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (ROOT / "examples/shared_pool.out").read_text()


@pytest.mark.usefixtures("shared")
def test_processes_share_one_limit_and_a_sandbox_keeps_its_files(cluster: RayCluster) -> None:
    with program(cluster, "use", "main", "5") as one, program(cluster, "use", "main", "5") as other:
        found = [one.told(), other.told()]
    assert [each["kept"] for each in found] == [5, 5]
    assert [each["cores"] for each in found] == [1, 1]
    assert peak([tuple(span) for each in found for span in each["spans"]]) == 2


@pytest.mark.usefixtures("shared")
def test_what_is_expected_is_compared(cluster: RayCluster) -> None:
    assert told_by(cluster, "expect", "main", "same", "10")["error"] is None
    found = told_by(cluster, "expect", "main", "other", "10")
    assert found["error"] == "ConfigurationMismatchError"
    for words in ("only there: pool: LocalPool(cores=2", "only here: pool: LocalPool(cores=1", "concurrency=3"):
        assert words in found["text"]


@pytest.mark.usefixtures("shared")
def test_a_name_that_is_not_there_is_refused_when_its_time_has_passed_with_what_there_is(cluster: RayCluster) -> None:
    found = told_by(cluster, "expect", "nowhere", "", "1")
    assert found["error"] == "NoSharedRuntimeError"
    assert "'nowhere' was there within 1 s; there are: 'main' of job" in found["text"]
    assert 1 <= found["took_s"] < 10


def test_to_share_twice_in_a_job_is_to_join_and_another_configuration_is_refused(cluster: RayCluster) -> None:
    found = told_by(cluster, "share_other", "twice")
    assert found["error"] == "ConfigurationMismatchError"
    assert "only here: pool: LocalPool(cores=1" in found["text"]
    assert len(found["spans"]) == 2


@pytest.mark.usefixtures("shared")
def test_another_version_of_the_library_is_refused_with_both(cluster: RayCluster) -> None:
    found = told_by(cluster, "old", "main")
    assert found["error"] == "VersionMismatchError"
    assert "0.0.1" in found["text"]


@pytest.mark.usefixtures("shared")
def test_a_client_that_is_stopped_for_longer_than_its_lease_loses_what_it_had_and_begins_anew(
    cluster: RayCluster,
) -> None:
    with program(cluster, "pause", "main") as held:
        pid = held.told()["pid"]
        os.kill(pid, signal.SIGSTOP)
        with program(cluster, "pause", "main") as other:  # whose command is ended with its process
            other.told()
            other.process.kill()
        _until_free(cluster)
        os.kill(pid, signal.SIGCONT)
        found = held.told()
        assert found["error"] == "LeaseLostError"
        assert "InfrastructureError" in found["mro"]
        again = held.told()
        while "again" not in again:
            assert again == {"left": "LeaseLostError"}  # which the trajectory may tell, too
            again = held.told()
        assert held.ended() == 0


def _until_free(cluster: RayCluster) -> None:
    """Wait until the cores of who is stopped, or was killed, have gone to others: this takes both of them."""
    assert told_by(cluster, "use", "main", "1")["kept"] == 1
    assert told_by(cluster, "both", "main")["cores"] == 2


def test_nobody_needs_ray_to_be_told_that_it_is_missing(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError('no')\n")
    code = "from arl_tangram.integrations.ray import connect\nconnect()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "MissingExtraError" in done.stderr
    assert "pip install 'arl-tangram[ray]'" in done.stderr
