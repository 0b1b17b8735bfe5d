"""Rewards that may hang or crash: in worker processes they are killed on time, and the next one is served as before."""

from __future__ import annotations

import asyncio
import os
import re

import arl_tangram as tangram

ANSWERS = ["42", "a" * 40 + "!", "crash", "41"]


@tangram.action(cpu=1, timeout=1, isolate="process")
def reward(answer: str) -> float:
    if answer == "crash":
        os._exit(7)  # stands for a fault in a library
    if re.fullmatch(r"(a+)+", answer):  # takes hours for some answers, in C code that nothing interrupts
        return 0.5
    return float(answer == "42")


async def main() -> None:
    async with tangram.Tangram(tangram.LocalPool(cores=1)):
        for answer, result in zip(ANSWERS, await tangram.map(reward, ANSWERS, on_error="return"), strict=True):
            shown = type(result.error).__name__ if isinstance(result, tangram.Failure) else result
            print(f"{answer[:5]:5}  {shown}")


if __name__ == "__main__":  # each worker imports this file
    asyncio.run(main())
