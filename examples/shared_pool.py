"""The same rollouts in one process, or from a pool that the processes of a Ray cluster share: one line is changed.

    python shared_pool.py
    python shared_pool.py --ray

With --ray, the scheduler is an actor, and each machine of the cluster has an agent with the sandboxes. Bodies still run
here. Other processes of the cluster would use the same pool after `async with connect():`.
"""

from __future__ import annotations

import argparse
import asyncio

import arl_tangram as tangram
from arl_tangram.integrations.ray import share


def pools() -> tangram.Tangram:
    return tangram.Tangram(
        tangram.LocalPool(cores=1, memory_gib=1),
        tangram.Quota("search", concurrency=2),
    )


@tangram.action(cpu=1, timeout=60)
async def bash(command: str) -> str:
    done = await tangram.current_sandbox().exec(["sh", "-c", command])
    return done.stdout.decode().strip()


@tangram.action(quota={"search": 1}, timeout=60)
async def search(query: str) -> str:
    await asyncio.sleep(0.01)
    return f"a page about {query}"


@tangram.action(cpu=1, timeout=60)
def score(answer: str, truth: str) -> float:
    return 1.0 if truth in answer else 0.0


async def rollout(number: int) -> float:
    async with tangram.trajectory(memory_gib=0.2):
        found = await search(f"the number {number}")
        await bash(f"echo '{found}' > notes")
        notes = await bash("cat notes")  # the sandbox has kept the file
    return await score(notes, f"number {number}")


async def main(shared: bool) -> None:
    async with share(pools) if shared else pools() as tg:  # the line
        print("scores:", await asyncio.gather(*(rollout(number) for number in range(6))))
        left = tg.statistics()
        print("left:", left.running, "running,", left.trajectories, "sandboxes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--ray", action="store_true", help="share the pool, on the Ray cluster of RAY_ADDRESS or a new one"
    )
    asyncio.run(main(parser.parse_args().ray))
