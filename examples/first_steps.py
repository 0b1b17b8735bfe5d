"""First steps: declare two actions, run them on the cores of this machine, and see what they were granted."""

from __future__ import annotations

import asyncio

import arl_tangram as tangram


@tangram.action(cpu=1)
def word_count(text: str) -> int:  # a plain function: it runs on a thread of the library, on one core of its own
    return len(text.split())


@tangram.action(cpu=tangram.Elastic(1, 8))
async def cores_granted() -> float:  # 1 to 8 cores, whatever is best now
    return tangram.current_allocation().cores


async def main() -> None:
    async with tangram.Tangram(tangram.LocalPool(cores=1)) as tg:
        print("one call:", await word_count("an action is one call"))
        print("the same:", await tangram.run(word_count, "an action is one call"))
        print("a batch:", await tangram.map(word_count, ["one", "one two", "one two three"]))
        print("cores:", await cores_granted())
        print("still in use:", tg.statistics().dimensions["cpu"].used)
    print("without a runtime:", word_count.body("the function itself is still there"))


asyncio.run(main())
