"""A shared runtime on a real Ray cluster: processes that share, connect, go wrong and die.

All on one cluster of one node, but for what is about several.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ray_cluster
from documents import ROOT
from ray_cluster import RayCluster
from ray_runs import Program, peak, program, told_by

LEASE_S = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster.started(1) as cluster:
        yield cluster


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


def test_case_45_to_share_twice_in_a_job_is_to_join_and_another_configuration_is_refused(cluster: RayCluster) -> None:
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


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("odd", "RemoteError", "OddError: odd"),
        ("large", "ConfigurationError", "LocalPool(cores=4096)"),
        ("missing", "ConfigurationError", "No module named 'only_here'"),
    ],
)
def test_what_cannot_be_opened_on_a_node_is_told_and_leaves_no_actors(
    kind: str, error: str, words: str, cluster: RayCluster
) -> None:
    found = told_by(cluster, "share_wrong", "wrong", kind)
    assert found["error"] == error, found
    assert words in found["text"]
    assert [name for name in found["left"] if name.startswith("wrong@")] == []


@pytest.mark.parametrize(("end", "error"), [("close", "ShutdownError"), ("kill", "OwnerLostError")])
def test_a_client_that_outlives_the_runtime_is_told_at_once(end: str, error: str, cluster: RayCluster) -> None:
    with program(cluster, "hold", f"brief-{end}", str(LEASE_S)) as holder:
        holder.told()
        with program(cluster, "outlive", f"brief-{end}") as client:
            assert client.told()["open"]
            if end == "close":
                holder.go_on()
                assert holder.ended() == 0
            else:
                holder.process.kill()
            found = client.told()
            assert found["errors"] == [error] * 2
            assert found["took_s"] < 1
            assert client.ended() == 0


def test_a_name_can_be_shared_again_as_soon_as_it_is_closed(cluster: RayCluster) -> None:
    assert len(told_by(cluster, "share_again", "again")["spans"]) == 2


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
