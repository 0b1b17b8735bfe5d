"""What users' tests are given: the fake pool keeps its promises, and `assert_idle` can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

import arl_tangram as tangram
from arl_tangram import ConfigurationError, ExecResult, Quota, Sandbox, SandboxLostError, Tangram
from arl_tangram.testing import FakeNode, FakePool, assert_idle
from virtual_time import turns, virtual


@tangram.action(cpu=1)
async def shell(*argv: str) -> ExecResult:
    return await tangram.current_sandbox().exec(argv)


@tangram.action(cpu=1)
async def hold() -> None:
    await asyncio.sleep(1)


def answer(argv: Sequence[str]) -> ExecResult:
    return ExecResult(
        exit_code=len(argv), stdout=b"out", stderr=b"", truncated=False, timed_out=False, duration_s=0.0, cpu_s=0.0
    )


@virtual
async def test_commands_are_answered_and_recorded() -> None:
    @tangram.action(cpu=1)
    async def box() -> Sandbox:
        return tangram.current_sandbox()

    async with Tangram(FakePool(on_exec=answer)) as tg:
        async with tangram.trajectory(image="any"):
            assert (await shell("ls", "-l")).exit_code == 2
            sandbox = await box()
            assert isinstance(sandbox, Sandbox)
            assert sandbox.commands == [("ls", "-l")]  # type: ignore[attr-defined]
            await sandbox.write_file("a", b"1")
            assert await sandbox.read_file("a") == b"1"
            with pytest.raises(FileNotFoundError):
                await sandbox.read_file("b")
            for copy in (sandbox.put_dir, sandbox.get_dir):
                with pytest.raises(NotImplementedError, match="LocalPool"):
                    await copy("a", "b")
        with pytest.raises(SandboxLostError):
            await sandbox.exec(["ls"])
        assert "fake pool of 8 cores" in tg.describe()
        assert_idle(tg)


@virtual
async def test_a_command_succeeds_by_default() -> None:
    async with Tangram(FakePool()), tangram.trajectory():
        assert (await shell("true")).exit_code == 0


@pytest.mark.parametrize("options", [{"cores": 0}, {"cores": 1.5}, {"memory_gib": -1}], ids=repr)
def test_a_pool_that_cannot_be_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="FakePool"):
        FakePool(**options)  # type: ignore[arg-type]


@virtual
async def test_assert_idle_fails_for_whatever_is_in_use() -> None:
    @tangram.action(quota={"rate": 1})
    async def call() -> None: ...

    async with Tangram(FakePool(cores=1), Quota("rate", calls=1, period_s=100)) as tg:
        assert_idle(tg)
        running = asyncio.create_task(hold())
        await turns(3)
        with pytest.raises(AssertionError, match="running=1"):
            assert_idle(tg)
        waiting = asyncio.create_task(hold())
        await running
        await waiting
        assert_idle(tg)
        async with tangram.trajectory(memory_gib=1):
            with pytest.raises(AssertionError, match="trajectories=1"):
                assert_idle(tg)
        await call()
        assert_idle(tg)  # a rate counts on by itself


@virtual
async def test_more_than_is_free_is_a_defect_that_the_fake_reports() -> None:
    manager = FakePool(cores=1).manager()
    lease = manager.lease(600, None)
    with pytest.raises(AssertionError, match="500 milli-cores were granted and 400 are free"):
        manager.lease(500, None)
    lease.release()
    lease.release()
    assert manager.milli_free == 1000


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        (lambda: FakePool(sandboxes=0), r"FakePool\(sandboxes=\)"),
        (lambda: FakeNode("a", sandboxes=0), r"FakeNode\(sandboxes=\)"),
        (lambda: FakeNode("a", cores=0), r"FakeNode\(cores=\)"),
        (lambda: FakeNode("a", memory_gib=-1), r"FakeNode\(memory_gib=\)"),
        (lambda: FakeNode(""), r"FakeNode\(name=''\): a name without @"),
        (lambda: FakeNode("a@b"), "a name without @"),
        (lambda: FakePool(nodes=[FakeNode("a"), FakeNode("a")]), "two nodes have the same name: a, a"),
        (lambda: FakePool(host=1), r"FakePool\(host=1\): the last node has the number 0"),
        (lambda: FakePool(nodes=[FakeNode("a"), FakeNode("b")], host=-1), "the last node has the number 1"),
    ],
)
def test_nodes_that_cannot_be_are_refused(what: Callable[[], object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        what()


@virtual
async def test_a_fake_pool_counts_the_cores_of_each_node_and_says_what_it_is() -> None:
    pool = FakePool(nodes=[FakeNode("a", cores=2), FakeNode("b", cores=1)], host=1)
    manager = pool.manager()
    assert manager.describe() == "fake pool of 3 cores on 2 nodes"
    box = await manager.create_sandbox(image=None, memory_bytes=0, node=0)
    first, second = manager.lease(2000, box), manager.lease(500, None)
    assert (manager.milli_free_on(0), manager.milli_free_on(1), manager.milli_free) == (0, 500, 500)
    with pytest.raises(AssertionError, match="1000 milli-cores were granted and 0 are free"):
        manager.lease(1000, box)
    with pytest.raises(AssertionError, match="600 milli-cores were granted and 500 are free"):
        manager.lease(600, None)
    first.release()
    second.release()
    second.release()
    assert manager.milli_free == 3000
    with pytest.raises(AssertionError, match="no node is this machine"):
        FakePool(host=None).manager().lease(1000, None)
    with pytest.raises(ConfigurationError, match="a FakePool has cpu@a, memory@a, cpu@b and memory@b, no 'cpu'"):
        manager.check_capacity("cpu", 1000)
    await manager.aclose()
