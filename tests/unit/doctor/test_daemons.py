"""What is said of a daemon; the daemon is a fake, so that it can be any kind and fail in any way."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from arl_tangram.doctor import daemons
from arl_tangram.doctor.daemons import Grants
from arl_tangram.managers.docker.answers import EngineInfo
from arl_tangram.managers.docker.labels import read_mark
from arl_tangram.managers.host import owner
from fake_engine import FakeEngine, Fault, response

INFO = EngineInfo(
    name="here",
    ncpu=2,
    memory_bytes=1 << 33,
    cgroup_version=2,
    cgroup_driver="systemd",
    live_restore=False,
    root_dir="/var/lib/docker",
    version="20.10.24",
    is_podman=False,
    api_version="1.41",
    rootless=False,
    limits_time=True,
    warnings=(),
    clock_s=0.0,
)


def dead_name() -> str:
    """Return the name of an owner whose process has ended."""
    with subprocess.Popen(["sleep", "100"]) as process:
        name = f"{os.stat('/proc/self/ns/pid').st_ino}-{process.pid}-{owner.started(process.pid)}-abc123"
        process.kill()
    return name


DEAD = dead_name()


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as fake:
        yield fake


async def labels(name: str) -> dict[str, str]:
    return (await read_mark()).labels(name, f"{name}.1", 60)


@pytest.mark.parametrize(
    ("change", "grants", "state", "words"),
    [
        ({}, Grants(True, "it is so"), "ok", "written to cgroup files: it is so"),
        ({}, Grants(False, "it is not"), "ok", "through the daemon: it is not"),
        ({"live_restore": True}, Grants(True, ""), "ok", "containers outlive the daemon"),
        (
            {"warnings": ("WARNING: No swap limit support", "x")},
            Grants(True, "it is so"),
            "ok",
            ", it warns: No swap limit support, it warns: x; grants would be",
        ),
        ({"is_podman": True}, Grants(True, ""), "ok", "Podman 20.10.24 at unix:///x"),
        ({"rootless": True, "cgroup_driver": "none"}, Grants(False, ""), "wrong", "can limit nothing"),
    ],
)
def test_a_daemon_is_judged_by_what_it_can_limit(
    change: dict[str, object], grants: Grants, state: str, words: str
) -> None:
    found = daemons.judge("unix:///x", replace(INFO, **change), grants)  # type: ignore[arg-type]
    assert (found.state, found.subject) == (state, "podman" if "is_podman" in change else "docker")
    assert words in found.text
    assert "cgroup version 2" in found.text


async def test_a_daemon_of_another_machine_changes_limits_itself(engine: FakeEngine) -> None:
    (found,), left = await daemons.look(engine.url)
    assert (found.subject, found.state, left) == ("docker", "ok", [])
    assert "through the daemon: it is fake's, and this is" in found.text


async def test_podman_is_called_by_its_name() -> None:
    async with FakeEngine(podman="4.3.1") as engine:
        (found,), _ = await daemons.look(engine.url)
    assert (found.subject, found.state) == ("podman", "ok")


async def test_what_was_asked_for_and_is_not_there_is_wrong(tmp_path: Path) -> None:
    (found,), left = await daemons.look(f"unix://{tmp_path}/docker.sock")
    assert (found.state, left) == ("wrong", [])
    assert f"no socket at {tmp_path}/docker.sock: start the Docker daemon" in found.text


async def test_what_nobody_asked_for_and_is_not_there_is_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("arl_tangram.managers.docker.connection.sockets", lambda _: [str(tmp_path / "docker.sock")])
    monkeypatch.setattr(daemons, "sockets", lambda _: [])
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    found, _ = await daemons.look(None)
    assert [(each.subject, each.state) for each in found] == [("docker", "absent"), ("podman", "absent")]


async def test_both_daemons_of_a_machine_are_asked(monkeypatch: pytest.MonkeyPatch, engine: FakeEngine) -> None:
    async with FakeEngine(podman="4.3.1") as podman:
        link = Path(podman.socket).with_name("podman.sock")
        link.symlink_to(podman.socket)
        monkeypatch.setattr(daemons, "sockets", lambda _: [engine.socket, str(link)])
        monkeypatch.setenv("DOCKER_HOST", engine.url)
        podman.run("left", **{key.replace(".", "__"): text for key, text in (await labels(DEAD)).items()})
        found, left = await daemons.look(None)
        link.unlink()
    assert [(each.subject, each.state) for each in found] == [("docker", "ok"), ("podman", "ok")]
    assert [each.place for each in left] == [f"unix://{link}"]


async def test_a_daemon_that_fails_is_wrong(engine: FakeEngine) -> None:
    engine.fault("GET containers/json", Fault(answer=response(500, b'{"message": "the store is broken"}')), times=9)
    (found,), _ = await daemons.look(engine.url)
    assert found.state == "wrong"
    assert "the store is broken" in found.text


async def test_containers_of_dead_owners_are_found_and_removed_and_no_others(engine: FakeEngine) -> None:
    alive = owner.new_name()
    for name, its in (("dead", await labels(DEAD)), ("alive", await labels(alive)), ("somebody's", {})):
        engine.run(name, **{key.replace(".", "__"): text for key, text in its.items()})
    _, left = await daemons.look(engine.url)
    assert [each.name for each in left] == [next(iter(engine.containers))]
    assert DEAD in left[0].text
    assert await daemons.remove(left) == {}
    assert [each.name for each in engine.containers.values()] == ["alive", "somebody's"]
    assert await daemons.remove(left) == {}  # gone already


async def test_a_container_that_cannot_be_removed_is_told(engine: FakeEngine) -> None:
    container = engine.run("dead", **{key.replace(".", "__"): text for key, text in (await labels(DEAD)).items()})
    _, left = await daemons.look(engine.url)
    fault = Fault(answer=response(500, b'{"message": "device or resource busy"}'), does=False)
    engine.fault(f"DELETE containers/{container.id}", fault, times=9)
    errors = await daemons.remove(left)
    assert list(errors) == [container.id]
    assert "busy" in errors[container.id]
    await engine.down()
    assert "no socket" in (await daemons.remove(left))[container.id]
    await engine.up()


def test_grants_without_a_container_are_foreseen_from_the_mounts(tmp_path: Path) -> None:
    assert daemons.foresee(tmp_path) == Grants(False, "no cgroup controller cpu and cpuset and freezer is mounted here")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpu cpuset memory\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "proc/self/mountinfo").write_text("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    found = daemons.foresee(tmp_path)
    assert found.is_direct
    assert "version 2" in found.reason


def test_a_container_that_cannot_be_seen_gets_its_grants_from_the_daemon(tmp_path: Path) -> None:
    assert daemons.try_group("c" * 64, 4711, tmp_path) == Grants(
        False, "process 4711 of the container is not visible here"
    )
