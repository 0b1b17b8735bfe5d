"""Scenes of the limits of one container: its cgroups, or its daemon, and how far its action has come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from arl_tangram.managers.docker.allotment import SUSPENDED
from arl_tangram.managers.docker.api_limits import ApiLimits
from arl_tangram.managers.docker.direct_limits import DirectLimits
from arl_tangram.managers.host.cgroup import SandboxGroup
from unit.managers.docker.limits.fakes import CORES, ID, TWO, FakeDaemon, Inside, Told


@pytest.fixture
def group(tmp_path: Path) -> SandboxGroup:
    """Return a cgroup of version 2 whose effective cores are what is written."""
    (tmp_path / "cpuset.cpus").write_text("0-3\n")
    (tmp_path / "cpuset.cpus.effective").symlink_to("cpuset.cpus")
    (tmp_path / "cpu.max").write_text("10000 100000\n")
    (tmp_path / "cpu.weight").write_text("100\n")
    (tmp_path / "cgroup.freeze").write_text("0\n")
    return SandboxGroup(2, dict.fromkeys(("cpu", "cpuset", "freezer"), tmp_path))


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def inside() -> Inside:
    return Inside()


@pytest.fixture
def daemon() -> FakeDaemon:
    daemon = FakeDaemon()
    daemon.gate.set()
    return daemon


@pytest.fixture
def direct(group: SandboxGroup, told: Told) -> DirectLimits:
    """Return the limits of an idle container of this machine."""
    limits = DirectLimits(group, idle_cores=lambda: CORES)
    limits.listen(told.grant, told.fail)
    return limits


@pytest.fixture
def gone(tmp_path: Path) -> DirectLimits:
    """Return the limits of a container of this machine whose cgroups there are no more."""
    folders = dict.fromkeys(("cpu", "cpuset", "freezer"), tmp_path / "gone")
    return DirectLimits(SandboxGroup(2, folders), idle_cores=lambda: CORES)


@pytest.fixture
async def api(daemon: FakeDaemon, told: Told) -> AsyncIterator[ApiLimits]:
    """Return the limits of an idle container that a daemon changes."""
    limits = ApiLimits(daemon, ID, idle_cores=lambda: CORES, idle_after_s=0.02)
    limits.listen(told.grant, told.fail)
    yield limits
    await limits.aclose()


@pytest.fixture
async def granted(api: ApiLimits) -> ApiLimits:
    """Return such limits with two cores in effect, which nobody has looked at."""
    api.want(TWO)
    await api.settled()
    return api


@pytest.fixture
async def running(api: ApiLimits, inside: Inside) -> ApiLimits:
    """Return such limits with two cores in effect, as the container has told: commands may run."""
    api.see_inside(inside.shell)
    api.want(TWO)
    await api.settled()
    return api


@pytest.fixture
async def suspended(granted: ApiLimits) -> ApiLimits:
    """Return such limits that had two cores, and are suspended."""
    granted.want(SUSPENDED)
    await granted.settled()
    return granted
