"""The doctor on a real daemon and this machine, beside runs that live and runs that were killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arl_tangram.managers.host.hierarchy import read_hierarchies
from arl_tangram.managers.host.owner import CGROUP_PREFIX, default_root
from contract.sandbox_contract import mark, processes
from docker_engine import EngineApi
from docker_images import Images
from integration.docker_managers import docker_manager

TESTS = Path(__file__).parent.parent

LOCAL_TRAINER = """
import asyncio, sys
from pathlib import Path
from integration.local_managers import local_manager
from arl_tangram.managers.host.owner import default_root

async def main(script):
    async with local_manager(Path(default_root()), isolation="none") as manager:
        sandbox = await manager.create_sandbox(image=None, memory_bytes=0)
        manager.lease(1000, sandbox)
        print(sandbox.id, flush=True)
        await sandbox.exec(["sh", "-c", script])

asyncio.run(main(sys.argv[1]))
"""

NOBODY = """
import sys
import aiodocker  # what it imports later would be too late
from arl_tangram.doctor import command
from integration.nonroot_program import give_up_root

url, home = sys.argv[1:]
give_up_root(url, home)
sys.exit(command.main(["--json", "--url", url]))
"""


@pytest.fixture(autouse=True)
def _own_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the default folder for sandboxes be below one of the test's own, in all processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]))


def doctor(*options: str) -> tuple[int, Any]:
    """Run the doctor as a user would; return its exit code and what it says."""
    argv = [sys.executable, "-m", "arl_tangram", "doctor", "--json", *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    told = json.loads(done.stdout)
    assert told["exit_code"] == done.returncode
    return done.returncode, told


def state(told: Any, subject: str) -> str:
    (found,) = [each["state"] for each in told["findings"] if each["subject"] == subject]
    return str(found)


def start(*argv: str) -> tuple[subprocess.Popen[str], str]:
    """Start a trainer; return it and the first line that it prints."""
    process = subprocess.Popen([sys.executable, *argv], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)


@pytest.fixture
def docker_trainer(docker_url: str, images: Images) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A trainer with one container in which a command runs, and the container's id."""
    program = str(TESTS / "integration" / "docker_trainer.py")
    process, container = start(program, docker_url, images.busybox, "auto", "sleep 600")
    yield process, container
    kill(process)
    EngineApi(docker_url).remove(container)


# Somebody else may be killing trainers that use the same daemon, so a test looks only at what is its own.


def left(told: Any, *names: str) -> list[tuple[str, bool]]:
    """Return which of these things are left, and whether they have been removed."""
    return [(each["name"], each["removed"]) for each in told["leftovers"] if each["name"] in names]


def test_a_healthy_machine(docker_url: str) -> None:
    _, told = doctor("--url", docker_url)
    subjects = [each["subject"] for each in told["findings"]]
    assert subjects == ["python", "machine", "cgroups", "bwrap", "docker", "gpus", "ray"]
    assert (state(told, "docker"), state(told, "python")) == ("ok", "ok")


def test_somebody_without_rights(docker_url: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        os.chmod(home, 0o777)
        done = subprocess.run(
            [sys.executable, "-c", NOBODY, docker_url, home], capture_output=True, text=True, check=False
        )
    told = json.loads(done.stdout)
    (text,) = [each["text"] for each in told["findings"] if each["subject"] == "docker"]
    assert state(told, "docker") == "ok"
    assert "grants would go through the daemon: " in text
    assert state(told, "cgroups") == "limited" or os.geteuid() != 0


def test_what_a_live_owner_has_is_left_alone(
    docker_url: str, docker_trainer: tuple[subprocess.Popen[str], str]
) -> None:
    process, container = docker_trainer
    assert len(container) == 64
    for options in ((), ("--remove",)):
        _, told = doctor("--url", docker_url, *options)
        assert left(told, container) == []
    assert process.poll() is None
    assert container in [each["Id"] for each in EngineApi(docker_url).containers("arl_tangram.owner")]


def test_containers_of_a_killed_trainer_are_shown_and_removed(
    docker_url: str, docker_trainer: tuple[subprocess.Popen[str], str]
) -> None:
    process, container = docker_trainer
    kill(process)
    for _ in range(2):  # showing changes nothing
        code, told = doctor("--url", docker_url)
        assert (code, left(told, container)) == (1, [(container, False)])
    _, told = doctor("--url", docker_url, "--remove")
    assert left(told, container) == [(container, True)]
    assert container not in [each["Id"] for each in EngineApi(docker_url).containers("arl_tangram.owner")]
    _, told = doctor("--url", docker_url)
    assert left(told, container) == []


@pytest.fixture
def local_trainer() -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A trainer with a local sandbox in which a command runs that leaves its session; with the ids of both."""
    seconds = mark()
    process, sandbox = start("-c", LOCAL_TRAINER, f"setsid sleep {seconds} & sleep {seconds}")
    while len(processes(f"sleep\0{seconds}")) < 2:  # nothing announces the start of somebody else's process
        time.sleep(0.01)
    yield process, sandbox, seconds
    kill(process)


def things(sandbox: str) -> list[str]:
    """Return the folder and the cgroups of a sandbox's owner."""
    owner = sandbox.partition(".")[0]
    folders = [path for hierarchy in read_hierarchies().values() for path in list(hierarchy.up())[:2]]
    groups = {str(found) for path in folders for found in path.glob(f"{CGROUP_PREFIX}{owner}")}
    return [*map(str, Path(default_root()).glob(owner)), *sorted(groups)]


def test_local_sandboxes_of_a_killed_trainer_are_shown_and_removed(
    docker_url: str, local_trainer: tuple[subprocess.Popen[str], str, str]
) -> None:
    process, sandbox, seconds = local_trainer
    names = things(sandbox)
    assert names
    _, told = doctor("--url", docker_url, "--remove")
    assert left(told, *names) == []
    assert len(processes(f"sleep\0{seconds}")) == 2
    kill(process)
    code, told = doctor("--url", docker_url)
    assert (code, sorted(left(told, *names))) == (1, sorted((name, False) for name in names))
    assert things(sandbox) == names
    _, told = doctor("--url", docker_url, "--remove")
    assert sorted(left(told, *names)) == sorted((name, True) for name in names)
    assert (things(sandbox), processes(f"sleep\0{seconds}")) == ([], [])
    _, told = doctor("--url", docker_url)
    assert left(told, *names) == []


def test_a_daemon_that_is_not_there_is_wrong_only_when_asked_for(tmp_path: Path) -> None:
    code, told = doctor("--url", f"unix://{tmp_path}/docker.sock")
    assert (code, state(told, "docker")) == (1, "wrong")


async def test_it_says_of_a_running_container_how_its_grants_are_applied(docker_url: str, images: Images) -> None:
    async with docker_manager(docker_url, images.busybox) as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        _, told = await asyncio.to_thread(doctor, "--url", docker_url)
        await box.aclose()
        is_direct = "cgroup version" in manager.describe() and "files are written directly" in manager.describe()
    (text,) = [each["text"] for each in told["findings"] if each["subject"] == "docker"]
    assert ("grants would be written to cgroup files" in text) == is_direct
