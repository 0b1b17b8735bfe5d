from __future__ import annotations

import dataclasses

import pytest

from arl_tangram import Tangram
from arl_tangram.errors import ConfigurationError, UsageError
from arl_tangram.managers.host.machine import read_machine
from arl_tangram.managers.local import LocalPool


def test_by_default_it_has_what_this_process_may_use() -> None:
    machine = read_machine()
    cpu, memory = LocalPool().manager().dimensions()
    assert (cpu.name, cpu.capacity, cpu.scale) == ("cpu", machine.usable_cores * 1000, 1000)
    assert (memory.name, memory.scale) == ("memory", 1 << 30)
    assert memory.capacity == machine.memory_bytes


def test_it_has_what_was_asked() -> None:
    cpu, memory = LocalPool(cores=1, memory_gib=0.25).manager().dimensions()
    assert (cpu.capacity, memory.capacity) == (1000, 1 << 28)


@pytest.mark.parametrize("cores", [0, -1, 1.5, "2", True, 10**6, float("nan")])
def test_wrong_cores(cores: object) -> None:
    with pytest.raises(ConfigurationError, match=r"LocalPool\(cores=.*[0-9]+"):
        LocalPool(cores=cores)  # type: ignore[arg-type]


@pytest.mark.parametrize("memory_gib", [0, -1, float("nan"), float("inf"), "1", True, 1e9])
def test_wrong_memory(memory_gib: object) -> None:
    with pytest.raises(ConfigurationError, match=r"LocalPool\(memory_gib=.*GiB can be used here"):
        LocalPool(memory_gib=memory_gib)  # type: ignore[arg-type]


def test_wrong_isolation() -> None:
    with pytest.raises(ConfigurationError, match="'chroot'"):
        LocalPool(isolation="chroot")  # type: ignore[arg-type]


def test_it_is_a_frozen_value() -> None:
    assert LocalPool(cores=1) == LocalPool(cores=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        LocalPool().cores = 2  # type: ignore[misc]
    pool = LocalPool()
    assert pool.manager() is not pool.manager()


def test_images_are_refused_unless_ignored() -> None:
    LocalPool().manager().check_image(None)
    with pytest.raises(ConfigurationError, match=r"image='python:3'.*ignore_image=True"):
        LocalPool().manager().check_image("python:3")
    LocalPool(ignore_image=True).manager().check_image("python:3")


async def test_a_trajectory_with_too_little_memory_is_refused_at_once() -> None:
    async with Tangram(LocalPool(cores=1, memory_gib=1)) as tg:
        with pytest.raises(ConfigurationError, match=r"memory_gib=0\.01\): .*LocalPool needs 0\.03125 GiB \(32 MiB\)"):
            tg.trajectory(memory_gib=0.01)
        tg.trajectory(memory_gib=0.03125)


async def test_it_must_be_started() -> None:
    manager = LocalPool().manager()
    assert "not started" in manager.describe()
    with pytest.raises(UsageError, match=r"before start\(\)"):
        await manager.create_sandbox(image=None, memory_bytes=0)
    await manager.aclose()


@pytest.mark.parametrize("share", ["sized", True, 1, object(), type])
def test_wrong_share(share: object) -> None:
    with pytest.raises(ConfigurationError, match=r"LocalPool\(share=\)"):
        LocalPool(share=share)  # type: ignore[arg-type]


def test_cores_are_shared_only_where_that_is_asked() -> None:
    assert LocalPool().share is None
    assert LocalPool(share="resize").share == "resize"
