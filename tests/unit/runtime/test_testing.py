"""What users' tests are given: the fake pool keeps its promises, and `assert_idle` can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

import arl_tangram as tangram
from arl_tangram import ConfigurationError, ExecResult, Quota, Sandbox, SandboxLostError, Tangram
from arl_tangram.testing import FakePool, assert_idle
from unit.runtime.virtual import turns, virtual


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
