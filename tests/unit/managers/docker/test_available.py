from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from arl_tangram.managers.cores import Cores, Placement
from arl_tangram.managers.docker.available import AvailableCores, CoreWatch
from arl_tangram.managers.host.cgroup import SandboxGroup

ID = "4f1c" * 16


def test_available_cores_are_told_when_they_change(tmp_path: Path) -> None:
    container = tmp_path / "docker" / ID
    container.mkdir(parents=True)
    group = SandboxGroup(2, {"cpuset": container})
    file = tmp_path / "cpuset.cpus.effective"  # none in between: there the controller is not passed on
    file.write_text("0-7\n")
    available = AvailableCores.above(group)
    assert available is not None
    assert available.read() == tuple(range(8))
    assert available.read() is None, "nothing has changed"
    file.write_text("0,2-7\n")
    assert available.read() == (0, 2, 3, 4, 5, 6, 7)
    file.write_text("\n")
    assert available.read() is None, "a file that says nothing is no reason to have no cores"
    file.write_text("0-7\n")
    assert available.read() == tuple(range(8))
    file.unlink()
    assert available.read() is None


def test_without_such_a_file_nothing_is_followed(tmp_path: Path) -> None:
    assert AvailableCores.above(SandboxGroup(2, {"cpuset": tmp_path / "container"})) is None


class Pool:
    """The cores of a pool under a watch, with what it was told."""

    def __init__(self, folder: Path, cores: Cores) -> None:
        self.file = folder / "cpuset.cpus.effective"
        self.file.write_text("0-7\n")
        self.cores = cores
        self.moved: dict[int, Placement] = {}
        self.told: list[int] = []
        self.watch = CoreWatch(cores, on_moved=self._move, on_capacity=self.told.append)
        available = AvailableCores.above(SandboxGroup(2, {"cpuset": folder / "docker" / ID}))
        assert available is not None
        self.watch.follow(available)

    def _move(self, moved: Mapping[int, Placement]) -> None:
        self.moved.update(moved)

    def online(self, text: str) -> None:
        self.file.write_text(text)


async def test_a_core_that_is_gone_is_granted_to_nobody_until_it_is_back(tmp_path: Path) -> None:
    """The scheduler hears of the smaller pool, and of the larger one though nothing is granted meanwhile."""
    pool = Pool(tmp_path, Cores([range(8)]))
    assert pool.watch.is_following
    pool.cores.take(1, 2000)
    pool.online("0,2-7\n")
    pool.watch.look()
    assert (pool.cores.capacity, pool.cores.free) == (7, 5)
    assert pool.told == [], "not inside of the grant that found it out"
    pool.online("0,2-5,7\n")
    pool.watch.look()
    pool.online("0,2-7\n")
    pool.watch.look()
    await asyncio.sleep(0)
    assert pool.told == [7]
    pool.cores.give_back(1)
    assert 1 not in pool.cores.take(2, 7000)[2].core_ids
    pool.watch.close()


async def test_the_pool_grows_again_without_any_grant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arl_tangram.managers.docker.available.LOOK_EVERY_S", 0.01)
    pool = Pool(tmp_path, Cores([range(8)]))
    pool.online("0,2-7\n")
    pool.watch.look()
    await asyncio.sleep(0.03)
    pool.online("0-7\n")
    async with asyncio.timeout(5):
        while pool.told != [7, 8]:  # noqa: ASYNC110 - it looks now and then, too
            await asyncio.sleep(0.005)
    pool.watch.close()


async def test_spare_cores_keep_the_pool_as_large_as_it_was(tmp_path: Path) -> None:
    pool = Pool(tmp_path, Cores([range(8)], 4))
    pool.cores.take(1, 500)
    pool.cores.take(2, 500)
    pool.online("1-7\n")
    pool.watch.look()
    await asyncio.sleep(0)
    assert pool.told == []
    assert {placed.core_ids for placed in pool.moved.values()} == {(1,)}
    pool.watch.close()


async def test_after_the_close_nothing_is_told(tmp_path: Path) -> None:
    pool = Pool(tmp_path, Cores([range(8)]))
    pool.online("0-3\n")
    pool.watch.look()
    pool.watch.close()
    pool.online("0-7\n")
    pool.watch.look()
    await asyncio.sleep(0)
    assert pool.told == []
