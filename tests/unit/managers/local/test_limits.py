from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from arl_tangram.managers.cores import Placement
from arl_tangram.managers.host.cgroup import SandboxGroup
from arl_tangram.managers.local.limits import Limits

EVERY = {name: Path("/nowhere") for name in ("cpu", "cpuset")}


class Group(SandboxGroup):
    """Cgroups that take down what is written into them, or refuse it."""

    __slots__ = ("refuses", "written")
    refuses: bool
    written: list[object]

    def __init__(self, *controllers: str) -> None:
        super().__init__(2, {name: EVERY[name] for name in controllers or EVERY})
        object.__setattr__(self, "written", list[object]())
        object.__setattr__(self, "refuses", False)

    def set_cores(self, core_ids: Sequence[int]) -> None:
        self.take(tuple(core_ids))

    def set_quota_us(self, quota_us: int | None) -> None:
        self.take(quota_us)

    def set_weight(self, *, least: bool) -> None:
        self.take("last" if least else "as others")

    def take(self, what: object) -> None:
        if self.refuses:
            raise OSError(errno.ENOENT, "No such file")
        self.written.append(what)

    def read(self) -> list[object]:
        """Return what was written since the last time."""
        found = list(self.written)
        self.written.clear()
        return found


def limits_of(group: Group | None) -> tuple[Limits, list[Sequence[int]]]:
    pinned: list[Sequence[int]] = []
    return Limits(group, pin=pinned.append), pinned


def test_whole_cores_are_one_write_each_time() -> None:
    group = Group()
    limits, pinned = limits_of(group)
    for core_ids in ((1,), (1, 2), (2,)):
        limits.place(Placement(core_ids, 1000 * len(core_ids)))
        assert group.read() == [core_ids]
    limits.end()
    assert (group.read(), pinned) == ([], [])


def test_fractions_have_a_quota_until_whole_cores_come() -> None:
    group = Group()
    limits, _ = limits_of(group)
    limits.place(Placement((1,), 300))
    assert group.read() == [(1,), 30_000]
    limits.end()
    assert group.read() == [], "only what is suspended goes on"
    limits.place(Placement((1,), 1000))
    assert group.read() == [(1,), None]


def test_what_is_suspended_keeps_its_cores_and_comes_last_until_it_goes_on() -> None:
    group = Group()
    limits, _ = limits_of(group)
    limits.place(Placement((1,), 1000))
    group.read()
    limits.suspend()
    assert group.read() == [1000, "last"]
    limits.suspend()
    assert group.read() == []
    limits.place(Placement((2, 3), 2000))
    assert group.read() == [(2, 3), None, "as others"]
    limits.suspend()
    group.read()
    limits.end()
    assert group.read() == [None, "as others"]
    limits.end()
    assert group.read() == []


def test_the_quota_is_lifted_while_something_is_being_killed() -> None:
    group = Group()
    limits, _ = limits_of(group)
    limits.place(Placement((1,), 1000))
    group.read()
    with limits.rush():
        assert group.read() == [], "there is none"
        limits.suspend()
        assert group.read() == [], "that comes later"
    assert group.read() == [1000, "last"]
    with limits.rush():
        with limits.rush():
            assert group.read() == [None, "as others"]
        assert group.read() == [], "something else is still being killed"
    assert group.read() == [1000, "last"]
    with limits.rush():
        group.read()
        limits.place(Placement((1,), 1000))
        assert group.read() == [(1,)]
    assert group.read() == []


def test_a_group_that_is_gone_is_heard_where_that_matters() -> None:
    group = Group()
    limits, _ = limits_of(group)
    limits.suspend()
    object.__setattr__(group, "refuses", True)
    with pytest.raises(OSError, match="No such file"):
        limits.place(Placement((1,), 1000))
    object.__setattr__(group, "refuses", False)
    limits.place(Placement((1,), 1000))
    object.__setattr__(group, "refuses", True)
    with pytest.raises(OSError, match="No such file"):
        limits.suspend()
    with limits.rush():
        limits.end()


def test_what_goes_on_only_in_part_is_lifted_at_its_end() -> None:
    group = Group()
    limits, _ = limits_of(group)
    limits.suspend()
    object.__setattr__(group, "refuses", True)
    with pytest.raises(OSError, match="No such file"):
        limits.place(Placement((1,), 1000))
    object.__setattr__(group, "refuses", False)
    group.read()
    limits.end()
    assert group.read() == [None, "as others"]


@pytest.mark.parametrize("group", [None, Group("cpu")], ids=["no cgroups", "no cpuset"])
def test_without_a_cpuset_the_keeper_pins(group: Group | None) -> None:
    limits, pinned = limits_of(group)
    limits.place(Placement((1, 3), 2000))
    assert pinned == [(1, 3)]
    assert group is None or group.read() == [(1, 3), 200_000]
