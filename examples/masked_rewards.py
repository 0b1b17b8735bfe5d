"""Rewards of a batch, failures told apart: what the program did counts, what the infrastructure did is masked.

Four programs run in sandboxes; then a judge that may be called three times per minute is asked about five answers.
"""

from __future__ import annotations

import asyncio
import os
import sys

import arl_tangram as tangram

PYTHON = os.path.abspath(sys.executable)  # as a command finds it in its sandbox, however this one was started
PROGRAMS = {
    "right": b"print(6 * 7)",
    "wrong": b"print(6 + 7)",
    "crashes": b"print(6 / 0)",
    "never ends": b"while True: pass",
}


@tangram.action(cpu=1, timeout=2)
async def prints_42(program: bytes) -> float:
    box = tangram.current_sandbox()
    await box.write_file("answer.py", program)
    done = await box.exec([PYTHON, "answer.py"])
    if done.exit_code != 0:
        raise ValueError(f"the program ended with {done.exit_code}")
    return float(done.stdout.strip() == b"42")


async def rollout(program: bytes) -> float:
    async with tangram.trajectory():
        return await prints_42(program)


@tangram.action(quota={"judge": 1}, queue_timeout=0.3)
async def judge(answer: str) -> float:
    return float("42" in answer)


def sample(result: float | tangram.Failure) -> str:
    """Turn what `map` returned into what a trainer needs: a reward, or the word that there is none."""
    if not isinstance(result, tangram.Failure):
        return f"reward {result}"
    if isinstance(result.error, tangram.InfrastructureError):
        return f"masked ({type(result.error).__name__})"
    return f"reward 0.0 ({type(result.error).__name__})"


async def main() -> None:
    quota = tangram.Quota("judge", calls=3, period_s=60)
    async with tangram.Tangram(tangram.LocalPool(), quota):
        results = await tangram.map(rollout, PROGRAMS.values(), on_error="return")
        for name, result in zip(PROGRAMS, results, strict=True):
            print(f"{name}: {sample(result)}")
        for number, judged in enumerate(await tangram.map(judge, ["42"] * 5, on_error="return")):
            print(f"judge, answer {number}: {sample(judged)}")


asyncio.run(main())
