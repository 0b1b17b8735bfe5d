"""What every manager of cores promises about leases: taken in turns in one sandbox, and in a pool that is resized."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from arl_tangram.errors import ConfigurationError, UsageError
from arl_tangram.managers.host.machine import read_machine
from arl_tangram.managers.local.manager import LocalManager
from arl_tangram.managers.manager import CpuManager, ManagedSandbox
from arl_tangram.testing import FakePool
from contract.sandbox_contract import mark, processes, shell

GIB = 1 << 30


@pytest.fixture(params=["fake", "local, cgroups", "local, advisory"])
async def manager(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[CpuManager]:
    """A started manager of two cores and 1 GiB."""
    made: CpuManager
    if request.param == "fake":
        made = FakePool(cores=2, memory_gib=1).manager()
    else:
        made = LocalManager(
            read_machine(),
            cores=2,
            memory_bytes=GIB,
            ignore_image=False,
            isolation="none",
            root=str(tmp_path),
            cgroups=request.param == "local, cgroups",
        )
    await made.start()
    yield made
    await made.aclose()


@pytest.fixture
async def box(manager: CpuManager) -> ManagedSandbox:
    return await manager.create_sandbox(image=None, memory_bytes=0)


async def refused(box: ManagedSandbox) -> None:
    with pytest.raises(UsageError, match="has lent its cores while it waits for actions that it called"):
        await box.exec(["true"])


async def test_an_action_and_one_that_it_calls_take_turns_in_a_sandbox(
    manager: CpuManager, box: ManagedSandbox
) -> None:
    parent = manager.lease(1000, box)
    assert (await box.exec(["true"])).exit_code == 0
    for cores in (2, 1):
        assert not parent.needs_cleanup(), "nothing that it started is alive, so it can lend"
        parent.release()
        await refused(box)
        child = manager.lease(cores * 1000, box)
        assert (await box.exec(["true"])).exit_code == 0
        parent.release()  # once more, late: the turn is the child's
        assert (await box.exec(["true"])).exit_code == 0
        child.release()
        await refused(box)
        parent = manager.lease(1000, box)
        child.release()
        assert (await box.exec(["true"])).exit_code == 0
    parent.release()
    manager.lease(2000, None).release()  # all is back


async def test_what_a_called_action_started_ends_with_it_and_the_caller_goes_on(
    manager: CpuManager, box: ManagedSandbox
) -> None:
    parent = manager.lease(1000, box)
    await box.exec(["true"])
    parent.release()
    child, mine = manager.lease(1000, box), mark()
    await box.exec(shell(f"setsid sleep {mine} & :"))
    if child.needs_cleanup():
        assert processes(mine)
        await child.clean()
    assert not child.needs_cleanup()
    assert not processes(mine)
    child.release()
    parent = manager.lease(1000, box)
    assert not parent.needs_cleanup()
    assert (await box.exec(["true"])).exit_code == 0
    parent.release()
    manager.lease(2000, None).release()


async def test_usage_is_counted_for_the_lease_in_which_it_was(manager: CpuManager, box: ManagedSandbox) -> None:
    parent = manager.lease(1000, box)
    await box.exec(["true"])
    parent.release()
    before = parent.usage
    child = manager.lease(1000, box)
    await box.exec(shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"))
    child.release()
    assert parent.usage == before
    assert child.usage.cpu_s >= before.cpu_s


def sizes(manager: CpuManager) -> dict[str, int]:
    return {dimension.name: dimension.capacity for dimension in manager.dimensions()}


@pytest.mark.parametrize(
    ("name", "capacity"),
    [
        ("cpu", 0),
        ("cpu", -1000),
        ("cpu", 1500),
        ("cpu", 1000.0),
        ("cpu", True),
        ("cpu", "2000"),
        ("memory", 0),
        ("memory", -1),
        ("memory", 1.5),
        ("gpu", 1000),
    ],
)
async def test_a_size_that_is_not_possible_is_refused(manager: CpuManager, name: str, capacity: Any) -> None:
    before = sizes(manager)
    with pytest.raises(ConfigurationError, match=name):
        manager.check_capacity(name, capacity)
    assert sizes(manager) == before


async def test_a_resized_pool_tells_its_size_and_grants_it(manager: CpuManager, box: ManagedSandbox) -> None:
    for cores in (1, 2, 1, 2):
        manager.check_capacity("cpu", cores * 1000)
        manager.resize("cpu", cores * 1000)
        assert sizes(manager)["cpu"] == cores * 1000
        assert re.search("1 core\\b" if cores == 1 else f"{cores} cores", manager.describe())
        lease = manager.lease(cores * 1000, box)
        assert (await box.exec(["true"])).exit_code == 0
        with pytest.raises((AssertionError, ValueError)):
            manager.lease(1, None)
        lease.release()
    manager.check_capacity("memory", GIB // 2)
    manager.resize("memory", GIB // 2)
    assert sizes(manager)["memory"] == GIB // 2


async def test_what_is_in_use_is_not_taken_and_is_retired_when_it_comes_back(
    manager: CpuManager, box: ManagedSandbox
) -> None:
    first, second = manager.lease(1000, box), manager.lease(1000, None)
    manager.resize("cpu", 1000)
    assert (await box.exec(["true"])).exit_code == 0
    second.release()
    with pytest.raises((AssertionError, ValueError)):
        manager.lease(100, None)
    first.release()
    lease = manager.lease(1000, box)
    assert (await box.exec(["true"])).exit_code == 0
    lease.release()
    manager.resize("cpu", 2000)
    manager.lease(2000, box).release()


async def test_fractions_are_retired_when_their_share_of_a_core_is_back(manager: CpuManager) -> None:
    leases = [manager.lease(700, None) for _ in range(2)]  # two shared cores
    manager.resize("cpu", 1000)
    with pytest.raises((AssertionError, ValueError)):
        manager.lease(100, None)
    leases[0].release()
    small = manager.lease(300, None)
    with pytest.raises((AssertionError, ValueError)):
        manager.lease(100, None)
    small.release()
    leases[1].release()
    manager.lease(1000, None).release()
