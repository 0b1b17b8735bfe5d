"""A coding rollout: an agent edits a file in a sandbox, runs the tests there, and is rewarded by the tests that pass.

The sandbox is a folder with processes of its own. The cores are held only while a command runs, not while the agent
thinks. The last reward is elastic: it runs one test process for each core that it was granted.
"""

from __future__ import annotations

import asyncio
import os
import sys

import arl_tangram as tangram

PYTHON = os.path.abspath(sys.executable)  # as a command finds it in its sandbox, however this one was started
BUGGY = b"""\
def middle(values):
    return sorted(values)[len(values) // 2 - 1]
"""
FIXED = b"""\
def middle(values):
    return sorted(values)[len(values) // 2]
"""
TESTS = {
    "test_odd.py": b"from middle import middle\nassert middle([3, 1, 2]) == 2\n",
    "test_one.py": b"from middle import middle\nassert middle([7]) == 7\n",
    "test_even.py": b"from middle import middle\nassert middle([4, 1, 3, 2]) == 3\n",
}
ALL_TESTS = 'printf "%s\\n" test_*.py | xargs -P "$(nproc)" -I FILE sh -c "$PYTHON FILE 2>/dev/null && echo passed"'


@tangram.action(cpu=1, timeout=30)
async def write(path: str, data: bytes) -> None:
    await tangram.current_sandbox().write_file(path, data)


@tangram.action(cpu=1, timeout=30)
async def run_test(path: str) -> int:
    done = await tangram.current_sandbox().exec([PYTHON, path])
    return done.exit_code


@tangram.action(cpu=tangram.Elastic(1, 4, speedup=tangram.Linear()), timeout=60)
async def share_passed() -> float:
    done = await tangram.current_sandbox().exec(["sh", "-c", ALL_TESTS], env={"PYTHON": PYTHON})
    return done.stdout.count(b"passed") / len(TESTS)


async def think() -> None:
    await asyncio.sleep(0.05)  # the model writes its next turn; no core is held meanwhile


async def rollout(turns: list[bytes]) -> list[float]:
    rewards: list[float] = []
    async with tangram.trajectory(memory_gib=0.25):
        for name, source in TESTS.items():
            await write(name, source)
        for patch in turns:
            await think()
            await write("middle.py", patch)
            print("test_odd.py ends with", await run_test("test_odd.py"))
            rewards.append(await share_passed())
    return rewards


async def main() -> None:
    async with tangram.Tangram(tangram.LocalPool()):
        for reward in await rollout([BUGGY, FIXED]):
            print(f"reward {reward:.2f}")


asyncio.run(main())
