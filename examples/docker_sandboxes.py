"""Rollouts in Docker containers: each has its own, keeps its files and its memory, and holds cores only while it acts.

    python docker_sandboxes.py --image python:3.12-slim

The image needs a shell, nothing else. Without --url, the daemon is the one that the docker command would use.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import arl_tangram as tangram

CORES = 2
ROLLOUTS = 6


@tangram.action(cpu=1, timeout=30)
async def bash(command: str) -> str:
    done = await tangram.current_sandbox().exec(["sh", "-c", command])
    return done.stdout.decode()


@tangram.action(cpu=tangram.Elastic(1, CORES), timeout=60)  # one core, or both, whatever is best now
async def count_cores() -> bool:
    granted = tangram.current_allocation().cores
    done = await tangram.current_sandbox().exec(["sh", "-c", "grep Cpus_allowed_list /proc/self/status"])
    return len(done.stdout.split()[1].replace(b"-", b",").split(b",")) == granted  # what the kernel lets it use


async def rollout(number: int) -> tuple[str, bool]:
    async with tangram.trajectory(memory_gib=0.25):
        await bash(f"echo 'rollout {number}' > notes")
        await asyncio.sleep(0.05)  # the model thinks; the container keeps its memory, and has no core
        return (await bash("cat notes")).strip(), await count_cores()


async def main(image: str, url: str | None) -> None:
    pool = tangram.DockerPool(cores=CORES, memory_gib=1, image=image, url=url)
    async with tangram.Tangram(pool) as tg:
        for notes, honest in await asyncio.gather(*(rollout(number) for number in range(ROLLOUTS))):
            print(f"{notes}: the cores are {'what was granted' if honest else 'wrong'}")
        print(f"{tg.statistics().trajectories} containers are left")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--image", default="python:3.12-slim")
    parser.add_argument("--url")
    options = parser.parse_args()
    try:
        asyncio.run(main(options.image, options.url))
    except (tangram.ConfigurationError, tangram.SandboxStartError) as error:  # no such daemon, no such image
        sys.exit(str(error))
