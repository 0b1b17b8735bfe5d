"""Cancelling what a local manager does, at every point at which it waits, leaves nothing and harms nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from arl_tangram.managers.local.manager import LocalManager
from arl_tangram.managers.local.sandbox import LocalSandbox
from arl_tangram.managers.local.site import IsolationChoice
from arl_tangram.managers.manager import CpuLease
from contract.sandbox_contract import mark, processes, shell
from integration.local_managers import local_manager, new_manager
from integration.points import DoStruck, World, at_every_point

pytestmark = pytest.mark.usefixtures("bwrap")

PLACES: list[tuple[IsolationChoice, bool]] = [("none", True), ("bwrap", False)]
places = pytest.mark.parametrize(("isolation", "cgroups"), PLACES, ids=["cgroups", "advisory, in bwrap"])


@pytest.fixture
async def manager(tmp_path: Path, isolation: IsolationChoice, cgroups: bool) -> AsyncIterator[LocalManager]:
    async with local_manager(tmp_path / "root", isolation=isolation, cgroups=cgroups) as made:
        await is_usable(made)  # whatever is made once is made now
        yield made


async def is_usable(manager: LocalManager) -> None:
    box = await manager.create_sandbox(image=None, memory_bytes=0)
    lease = manager.lease(2000, box)
    assert (await box.exec(["echo", "on"])).stdout == b"on\n"
    lease.release()
    await box.aclose()


def none_but_cancelled(task: asyncio.Task[Any]) -> None:
    """Check that work came to its end, or to the end that its cancelling makes."""
    if not task.cancelled() and task.exception() is not None:
        raise AssertionError("cancelled work failed") from task.exception()


@places
async def test_starting_a_manager(tmp_path: Path, isolation: IsolationChoice, cgroups: bool) -> None:
    made = new_manager(tmp_path / "root", isolation=isolation, cgroups=cgroups)
    await made.start()
    await is_usable(made)
    await made.aclose()
    world = World([tmp_path])

    async def once(struck: DoStruck) -> None:
        none_but_cancelled(await struck(made.start()))
        await made.aclose()
        assert await world.leftovers() == []

    assert await at_every_point(once) > 10
    await made.start()
    await is_usable(made)
    await made.aclose()


@places
async def test_closing_a_manager(tmp_path: Path, isolation: IsolationChoice, cgroups: bool) -> None:
    world: World | None = None

    async def once(struck: DoStruck) -> None:
        nonlocal world
        mine = mark()
        made = new_manager(tmp_path / "root", isolation=isolation, cgroups=cgroups)
        await made.start()
        box = await made.create_sandbox(image=None, memory_bytes=0)
        lease = made.lease(1000, box)
        await box.exec(shell(f"setsid sleep {mine} & :"))
        none_but_cancelled(await struck(made.aclose()))
        lease.release()
        await made.aclose()
        assert not processes(mine)
        world = world or World([tmp_path])
        assert await world.leftovers() == []

    assert await at_every_point(once) > 10


@places
async def test_creating_a_sandbox(manager: LocalManager, tmp_path: Path) -> None:
    world = World([tmp_path])

    async def once(struck: DoStruck) -> None:
        task = await struck(manager.create_sandbox(image=None, memory_bytes=64 << 20))
        none_but_cancelled(task)
        if not task.cancelled():
            await task.result().aclose()
        assert await world.leftovers() == []

    assert await at_every_point(once) > 20
    await is_usable(manager)


async def test_creating_a_sandbox_while_others_are_created(tmp_path: Path) -> None:
    """Only some start at once: the one that is cancelled waits for its turn first."""
    async with local_manager(tmp_path / "root", cores=1) as manager:
        await (await manager.create_sandbox(image=None, memory_bytes=0)).aclose()
        world = World([tmp_path])

        async def create() -> Any:
            return await manager.create_sandbox(image=None, memory_bytes=0)

        async def once(struck: DoStruck) -> None:
            others = [asyncio.ensure_future(create()) for _ in range(2)]
            await asyncio.sleep(0)
            task = await struck(create())
            none_but_cancelled(task)
            for each in [*others, task]:
                await asyncio.wait([each])
                if not each.cancelled():
                    await each.result().aclose()
            assert await world.leftovers() == []
            async with asyncio.timeout(30):  # no turn was lost
                for sandbox in await asyncio.gather(create(), create()):
                    await sandbox.aclose()

        assert await at_every_point(once) > 20


@places
@pytest.mark.parametrize("with_command", [False, True], ids=["idle", "in use"])
async def test_closing_a_sandbox(manager: LocalManager, tmp_path: Path, with_command: bool) -> None:
    world = World([tmp_path])

    async def once(struck: DoStruck) -> None:
        mine = mark()
        box = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, box)
        if with_command:
            await box.exec(shell(f"setsid sleep {mine} & :"))
        none_but_cancelled(await struck(box.aclose()))
        lease.release()
        await box.aclose()
        assert not processes(mine)
        assert await world.leftovers() == []

    assert await at_every_point(once) > 10
    await is_usable(manager)


Work = Callable[[LocalSandbox, CpuLease, Path, str], Coroutine[Any, Any, Any]]
FAMILY = "setsid sleep {0} & sleep {0} & {1}"

WORKS: dict[str, Work] = {
    "a command": lambda box, lease, tmp, mine: box.exec(shell(FAMILY.format(mine, "echo on"))),
    "a command with a folder": lambda box, lease, tmp, mine: box.exec(shell(FAMILY.format(mine, ":")), cwd="sub"),
    "a command with much input": lambda box, lease, tmp, mine: box.exec(
        shell(FAMILY.format(mine, "cat >/dev/null")), stdin=bytes(1 << 20)
    ),
    "a command with large arguments": lambda box, lease, tmp, mine: box.exec(
        [*shell(FAMILY.format(mine, ":")), "x" * 60_000]
    ),
    "a command that spills": lambda box, lease, tmp, mine: box.exec(shell(FAMILY.format(mine, "seq 100")), spill=True),
    "a command that is too slow": lambda box, lease, tmp, mine: box.exec(
        shell(FAMILY.format(mine, "wait")), timeout=0.02
    ),
    "a program that there is not": lambda box, lease, tmp, mine: not_found(box),
    "writing": lambda box, lease, tmp, mine: box.write_file("file", b"x"),
    "reading": lambda box, lease, tmp, mine: box.read_file("sub/there"),
    "copying in": lambda box, lease, tmp, mine: box.put_dir(tmp / "source", "copy"),
    "copying out": lambda box, lease, tmp, mine: box.get_dir("sub", tmp / "source" / "out"),
    "killing": lambda box, lease, tmp, mine: box.kill(),
    "cleaning": lambda box, lease, tmp, mine: lease.clean(),
}


async def not_found(box: LocalSandbox) -> None:
    with contextlib.suppress(FileNotFoundError):
        await box.exec(["/no/such/program"])


@places
@pytest.mark.parametrize("name", WORKS)
async def test_working_in_a_sandbox(manager: LocalManager, tmp_path: Path, name: str) -> None:
    """After it, the same sandbox serves the next action as if nothing had happened."""
    (tmp_path / "source" / "deep").mkdir(parents=True)
    (tmp_path / "source" / "deep" / "file").write_bytes(b"y")
    box = await manager.create_sandbox(image=None, memory_bytes=0)
    assert isinstance(box, LocalSandbox)
    await box.write_file("sub/there", b"z")
    world = World([tmp_path / "root"])
    expected = set(world.held)

    async def once(struck: DoStruck) -> None:
        nonlocal box
        mine = mark()
        lease = manager.lease(1000, box)
        if name in ("killing", "cleaning"):
            await box.exec(shell(FAMILY.format(mine, ":")))
        task = await struck(WORKS[name](box, lease, tmp_path, mine))
        none_but_cancelled(task)
        if lease.needs_cleanup():
            await lease.clean()
        lease.release()
        assert not processes(mine)
        lease = manager.lease(2000, box)
        assert (await box.exec(shell("rm -rf ../spill/* copy file; echo on"))).stdout == b"on\n"
        assert not lease.needs_cleanup()
        lease.release()
        assert await world.leftovers() == []

    assert await at_every_point(once) > 5
    assert set(world.held) == expected
    manager.lease(2000, None).release()
    await box.aclose()
