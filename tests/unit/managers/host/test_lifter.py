from __future__ import annotations

import os
from pathlib import Path

from arl_tangram.managers.host.lifter import QuotaLifter


def groups(folder: Path, *names: str) -> list[Path]:
    """Make cgroups of version 1 that are suspended."""
    made = [folder / name for name in names]
    for group in made:
        group.mkdir(parents=True)
        (group / "cpu.cfs_quota_us").write_text("1000")
        (group / "cpu.shares").write_text("2")
    return made


def is_lifted(group: Path) -> bool:
    told = [(group / name).read_text().strip() for name in ("cpu.cfs_quota_us", "cpu.shares")]
    assert told in (["-1", "1024"], ["1000", "2"])
    return told[0] == "-1"


async def test_limits_are_lifted_when_the_socket_ends_of_those_that_are_watched(tmp_path: Path) -> None:
    first, second, third, fourth = groups(tmp_path / "of 1", "a", "b c", "d", "e")
    alone, _ = groups(tmp_path / "of 2", "f", "g")
    lifter = QuotaLifter(1, "owner")
    lifter.watch("first", first)
    lifter.watch("second", second)
    lifter.watch("third", third)
    lifter.forget("first")
    lifter.forget("never there")
    lifter.watch("gone", tmp_path / "not there")
    lifter.watch("all", tmp_path / "of 2" / "*")
    await lifter.aclose()
    assert [is_lifted(group) for group in (first, second, third, fourth)] == [False, True, True, False]
    assert [is_lifted(group) for group in (alone, tmp_path / "of 2" / "g")] == [True, True]
    assert sorted(os.listdir(tmp_path)) == ["of 1", "of 2"], "nothing is made of what is gone"


async def test_many_come_and_go(tmp_path: Path) -> None:
    watched = groups(tmp_path, *map(str, range(8)))
    lifter = QuotaLifter(1, "owner")
    for number in range(80):
        lifter.watch(str(number), watched[number % 8])
        if number >= 4:
            lifter.forget(str(number - 4))
    await lifter.aclose()
    assert [is_lifted(group) for group in watched] == [False] * 4 + [True] * 4


async def test_a_lifter_that_was_killed_is_no_error(tmp_path: Path) -> None:
    (group,) = groups(tmp_path, "a")
    lifter = QuotaLifter(1, "owner")
    lifter._channel.kill()
    await lifter._channel.exited
    lifter.watch("a", group)
    lifter.forget("a")
    await lifter.aclose()
    assert not is_lifted(group)
