"""A container of this machine that is suspended: next to no time, and enough of it to die."""

from __future__ import annotations

import pytest

from arl_tangram.errors import AllocationError
from arl_tangram.managers.docker.allotment import SUSPENDED
from arl_tangram.managers.docker.direct_limits import DirectLimits
from arl_tangram.managers.host.cgroup import SandboxGroup
from unit.managers.docker.limits.fakes import HALF, ONE, TWO

IDLE = ("0,1,2,3", "10000 100000", "100")


@pytest.fixture
def stopped(direct: DirectLimits) -> DirectLimits:
    """Return the limits of a container that had two cores, and is suspended."""
    direct.want(TWO)
    direct.want(SUSPENDED)
    return direct


def in_effect(group: SandboxGroup) -> tuple[str, str, str]:
    """Return what is written: the cores, the time, and the weight."""
    folder = group.folders["cpu"]
    cores, time, weight = ((folder / name).read_text() for name in ("cpuset.cpus", "cpu.max", "cpu.weight"))
    return cores, time, weight.strip()


async def test_it_has_next_to_no_time_on_the_cores_that_it_had(stopped: DirectLimits, group: SandboxGroup) -> None:
    assert in_effect(group) == ("2,3", "1000 100000", "1")
    await stopped.settled()
    stopped.want(ONE)
    assert in_effect(group) == ("1", "max 100000", "100")
    stopped.want(SUSPENDED)
    assert in_effect(group) == ("1", "1000 100000", "1")
    stopped.want(None)
    assert in_effect(group) == IDLE, "released, it is idle as ever"
    assert (group.folders["freezer"] / "cgroup.freeze").read_text() == "0\n", "nothing was frozen"


async def test_what_is_killed_while_suspended_has_time_to_end(stopped: DirectLimits, group: SandboxGroup) -> None:
    async with stopped.rush():
        assert in_effect(group) == ("2,3", "max 100000", "100")
        with stopped.session_group(1).rush():
            pass
        assert in_effect(group) == ("2,3", "max 100000", "100"), "the outer one is not over"
    assert in_effect(group) == ("2,3", "1000 100000", "1")
    async with stopped.rush():
        stopped.want(HALF)
        assert in_effect(group) == ("1", "max 100000", "100")
    assert in_effect(group) == ("1", "50000 100000", "100")
    async with stopped.rush():
        assert in_effect(group) == ("1", "50000 100000", "100"), "only what is suspended needs it"


async def test_what_does_not_take_it_is_an_error_and_the_container_is_idle(
    direct: DirectLimits, group: SandboxGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct.want(TWO)
    with monkeypatch.context() as patch:
        patch.setattr(SandboxGroup, "quota_us", lambda _: None)
        with pytest.raises(AllocationError, match="wanted next to no time, but more than that is in effect"):
            direct.want(SUSPENDED)
    assert in_effect(group) == ("2,3", "10000 100000", "100")


async def test_what_is_closed_is_left_with_the_time_of_an_idle_one(stopped: DirectLimits, group: SandboxGroup) -> None:
    """Should its daemon not remove it yet."""
    async with stopped.rush():
        await stopped.aclose()
        assert in_effect(group)[1] == "max 100000"
    assert in_effect(group) == IDLE


def test_what_is_suspended_need_not_be_where_it_was(direct: DirectLimits, group: SandboxGroup) -> None:
    """Its cores can be offline, which nothing depends on."""
    direct.want(TWO)
    group.set_cores([3])
    direct.want(SUSPENDED)
    assert in_effect(group) == ("3", "1000 100000", "1")
