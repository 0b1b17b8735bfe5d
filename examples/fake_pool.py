"""Test a tool without running anything: a fake pool, answers for its commands, and a check that nothing is left.

Run it as a program, or with `python -m pytest fake_pool.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import arl_tangram as tangram
from arl_tangram.testing import FakePool, assert_idle


# What is to be tested.
@tangram.action(cpu=tangram.Elastic(1, 16), timeout=600)
async def suite_passes(target: str) -> bool:
    done = await tangram.current_sandbox().exec(["python", "-m", "pytest", "-q", target])
    return done.exit_code == 0


# The tests.
def answer(argv: Sequence[str]) -> tangram.ExecResult:
    code = 1 if "test_broken.py" in argv else 0
    return tangram.ExecResult(
        exit_code=code, stdout=b"", stderr=b"", truncated=False, timed_out=False, duration_s=0.0, cpu_s=0.0
    )


def test_the_exit_code_decides() -> None:
    async def scenario() -> list[bool]:
        async with tangram.Tangram(FakePool(cores=64, on_exec=answer)) as tg:
            async with tangram.trajectory(image="python:3.12"):  # a fake pool takes any image
                passed = [await suite_passes("test_fine.py"), await suite_passes("test_broken.py")]
            assert_idle(tg)
            return passed

    assert asyncio.run(scenario()) == [True, False]


def test_a_lost_sandbox_is_the_fault_of_the_infrastructure() -> None:
    def lost(_argv: Sequence[str]) -> tangram.ExecResult:
        raise tangram.SandboxLostError("the machine is gone")

    async def scenario() -> tangram.InfrastructureError | None:
        async with tangram.Tangram(FakePool(on_exec=lost)), tangram.trajectory():
            try:
                await suite_passes("test_fine.py")
            except tangram.InfrastructureError as error:
                return error
            return None

    assert "gone" in str(asyncio.run(scenario()))


if __name__ == "__main__":
    for test in (test_the_exit_code_decides, test_a_lost_sandbox_is_the_fault_of_the_infrastructure):
        test()
        print(f"{test.__name__}: passed")
