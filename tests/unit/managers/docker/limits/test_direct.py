"""Limits that are written into the cgroups of a container: at once, in a safe order, and read back."""

from __future__ import annotations

import errno

import pytest

from arl_tangram.errors import AllocationError
from arl_tangram.managers.docker.allotment import SUSPENDED, Wish
from arl_tangram.managers.docker.direct_limits import DirectLimits
from arl_tangram.managers.host.cgroup import SandboxGroup
from unit.managers.docker.limits.fakes import HALF, ONE, TWO, Told


def written(group: SandboxGroup) -> tuple[str, str]:
    folder = group.folders["cpu"]
    return (folder / "cpuset.cpus").read_text(), (folder / "cpu.max").read_text()


async def test_they_are_in_effect_at_once(direct: DirectLimits, group: SandboxGroup) -> None:
    direct.want(TWO)
    assert written(group) == ("2,3", "max 100000")
    direct.want(HALF)
    assert written(group) == ("1", "50000 100000")
    direct.want(None)
    assert written(group) == ("0,1,2,3", "10000 100000")
    await direct.settled()


def test_they_never_permit_more_than_both(direct: DirectLimits, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised, the cores go first; lowered, the time goes first."""
    order: list[str] = []
    set_cores, set_quota = SandboxGroup.set_cores, SandboxGroup.set_quota_us

    def cores(self: SandboxGroup, core_ids: tuple[int, ...]) -> None:
        order.append("cores")
        set_cores(self, core_ids)

    def quota(self: SandboxGroup, quota_us: int | None) -> None:
        order.append("time")
        set_quota(self, quota_us)

    monkeypatch.setattr(SandboxGroup, "set_cores", cores)
    monkeypatch.setattr(SandboxGroup, "set_quota_us", quota)
    raised, lowered = ["cores", "time"], ["time", "cores"]
    changes: list[tuple[Wish, list[str]]] = [
        (TWO, raised),
        (HALF, lowered),
        (ONE, raised),
        (None, lowered),
        (SUSPENDED, ["time"]),
        (TWO, raised),
        (SUSPENDED, ["time"]),
    ]
    for wish, expected in changes:
        direct.want(wish)
        assert order == expected
        order.clear()


async def test_what_is_not_in_effect_is_an_error_and_the_container_is_idle(
    direct: DirectLimits, group: SandboxGroup
) -> None:
    effective = group.folders["cpuset"] / "cpuset.cpus.effective"
    effective.unlink()
    effective.write_text("0,2-3\n")
    with pytest.raises(AllocationError, match=r"wanted 1 core \(1\), but 3 cores \(0,2,3\) are in effect"):
        direct.want(ONE)
    assert written(group) == ("0,2,3", "10000 100000")
    with pytest.raises(AllocationError):
        await direct.settled()
    direct.want(None)
    await direct.settled()


async def test_cores_that_the_kernel_refuses_are_an_error(
    direct: DirectLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: SandboxGroup, core_ids: tuple[int, ...]) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(SandboxGroup, "set_cores", refuse)
    with pytest.raises(AllocationError, match=r"wanted 2 cores \(2,3\); the kernel does not take it"):
        direct.want(TWO)
    direct.want(None)  # which is done without a lease that could hear of it


@pytest.mark.parametrize("wish", [TWO, SUSPENDED])
def test_a_container_that_is_gone_is_told_by_its_missing_files(gone: DirectLimits, wish: Wish) -> None:
    with pytest.raises(FileNotFoundError):
        gone.want(wish)
    gone.want(None)
    assert gone.cpu_s() is None


async def test_closing_what_is_gone_raises_nothing(gone: DirectLimits) -> None:
    with pytest.raises(FileNotFoundError):
        gone.want(SUSPENDED)
    await gone.aclose()


def test_what_is_killed_has_time_to_end_and_a_change_meanwhile_counts_afterwards(
    direct: DirectLimits, group: SandboxGroup
) -> None:
    direct.want(HALF)
    with direct.session_group(1).rush():
        assert written(group)[1] == "max 100000"
        direct.want(None)
        assert written(group) == ("0,1,2,3", "max 100000")
    assert written(group)[1] == "10000 100000"


async def test_they_tell_a_grant_at_once(direct: DirectLimits, told: Told) -> None:
    for wish, granted in ((TWO, 1), (SUSPENDED, 1), (ONE, 2), (None, 2)):
        direct.want(wish)
        assert told.granted == granted
