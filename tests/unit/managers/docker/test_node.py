"""One daemon at work, which is a fake: what is done when something goes wrong there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arl_tangram.managers.docker import DockerPool
from arl_tangram.managers.docker.available import AvailableCores
from arl_tangram.managers.docker.declared import Grants
from arl_tangram.managers.docker.manager import DockerManager
from arl_tangram.managers.docker.node import DockerNode
from arl_tangram.managers.docker.probe import Probe
from arl_tangram.managers.host.cgroup import SandboxGroup
from fake_engine import FakeEngine

NONE = ("", "")
SAID = (" cannot limit", " the CPU time of containers, so nothing can be suspended")


@asynccontextmanager
async def started(**options: Any) -> AsyncIterator[tuple[FakeEngine, DockerManager, DockerNode]]:
    """Have a node of two cores; its manager is closed at the end, and again is fine."""
    async with FakeEngine() as daemon:
        manager = DockerPool(url=daemon.url, **options).manager()
        assert isinstance(manager, DockerManager)
        try:
            await manager.prepare()
            await manager.start()
            (node,) = manager._nodes
            yield daemon, manager, node
        finally:
            await manager.aclose()


@pytest.mark.parametrize("part", ["_warm", "_images", "_tenants", "_containers"])
async def test_whatever_cannot_be_closed_the_rest_is(
    part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with started() as (daemon, manager, node):
        daemon.run("own", **{"arl_tangram.owner": node._owner})
        others = daemon.run("another's")

        async def fail() -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(getattr(node, part), "aclose", fail)
        await manager.aclose()
        assert list(daemon.containers.values()) == [others]
        await daemon.wait_until(lambda: daemon.connected == 0)
        assert "a defect" in caplog.text


async def test_containers_are_created_for_cores_that_are_online(tmp_path: Path) -> None:
    async with started() as (_, _, node):
        online = tmp_path / "cpuset.cpus.effective"
        online.write_text("0-1\n")
        node._builder.available = AvailableCores(online)
        node.lease(1000, None, again=False, most=0)
        assert node._idle_config()["CpusetCpus"] == "0,1"
        online.write_text("1\n")
        assert node._idle_config()["CpusetCpus"] == "1", "0 is in use, and cannot be asked for"
        online.write_text("0-1\n")
        assert node._idle_config()["CpusetCpus"] == "0,1"


async def test_a_running_action_grows_only_into_cores_that_are_online(tmp_path: Path) -> None:
    async with started() as (_, _, node):
        online = tmp_path / "cpuset.cpus.effective"
        online.write_text("0-1\n")
        node._builder.available = AvailableCores(online)
        lease = node.lease(1000, None, again=False, most=2000)
        online.write_text("0\n")
        lease.resize(2000)
        assert lease.core_ids == (0,)
        online.write_text("0-1\n")
        lease.resize(2000)
        assert lease.core_ids == (0, 1)


@pytest.mark.parametrize(
    ("grants", "is_here", "may_write", "switch_s"),
    [
        ("auto", True, True, 0.0002),
        ("auto", True, False, 0.02),
        ("auto", False, True, 0.02),
        ("api", True, True, 0.02),
        ("direct", False, False, 0.0002),
    ],
)
async def test_what_a_change_of_cores_takes_is_known_before_there_is_a_container(
    grants: Grants, is_here: bool, may_write: bool, switch_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arl_tangram.managers.docker.node.is_this_machine", lambda *_: is_here)
    monkeypatch.setattr("arl_tangram.managers.docker.node.may_write", lambda: may_write)
    async with started(grants=grants) as (_, manager, node):
        assert manager.switch_s == switch_s
        node._builder.probe = Probe(None, "it turned out so")
        assert manager.switch_s == 0.02
        node._builder.probe = Probe(SandboxGroup(2, {}), "it turned out so")
        assert manager.switch_s == 0.0002


@pytest.mark.parametrize(
    ("told", "reason"),
    [({}, NONE), ({"CpuCfsQuota": True}, NONE), ({"CpuCfsQuota": False}, SAID), ({"CgroupDriver": "none"}, SAID)],
)
async def test_without_quotas_no_cores_can_be_changed(told: dict[str, object], reason: tuple[str, str]) -> None:
    async with FakeEngine() as daemon:
        daemon.answers["GET info"] = daemon._info() | told
        manager = DockerPool(url=daemon.url).manager()
        await manager.prepare()
        assert (manager.cannot_resize() or "").rpartition(" cannot limit")[1:] == reason
        await manager.aclose()


async def test_how_long_the_daemon_took_is_told() -> None:
    async with started() as (_, manager, _):
        (took,) = manager.latency().values()
        assert took["list"].count >= 1
        assert 0 < took["list"].p50_s <= took["list"].p99_s <= took["list"].max_s < 10
        assert replace(took["list"], failures=0) == took["list"]
        with pytest.raises(AttributeError):
            setattr(took["list"], "count", 0)  # noqa: B010
