"""Let cores move between running actions: short commands go first, and a long search has the cores that they leave.

The same work runs twice, without `share=` and with it. Where the cores of running commands cannot be changed, as
without cgroups, both runs are alike, and the second one says why.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Literal

import arl_tangram as tangram

CORES = min(2, len(os.sched_getaffinity(0)))
PIECES, LOOKS, APART_S = 64, 8, 0.1
SEARCH = (
    """seq "$1" | xargs -n 1 -P "$2" sh -c 'i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done; echo "searched $0"'"""
)


@tangram.action(cpu=tangram.Elastic(1, 4, resizable=True), timeout=300)
async def search() -> int:
    workers = tangram.current_allocation().max_units  # as many as it can ever use; on fewer cores they take turns
    done = await tangram.current_sandbox().exec(["sh", "-c", SEARCH, "search", str(PIECES), str(workers)])
    return done.stdout.count(b"searched")


@tangram.action(cpu=1, timeout=60)
async def look() -> int:
    done = await tangram.current_sandbox().exec(["sh", "-c", "echo one > file; grep -c one file"])
    return int(done.stdout)


async def looks() -> list[float]:
    """Return how long each look took, in seconds."""
    taken_s: list[float] = []
    async with tangram.trajectory():
        for _ in range(LOOKS):
            await asyncio.sleep(APART_S)  # the model thinks
            began_s = time.perf_counter()
            assert await look() == 1
            taken_s.append(time.perf_counter() - began_s)
    return taken_s


async def long_search() -> float:
    """Return how long the search took, in seconds."""
    async with tangram.trajectory():
        began_s = time.perf_counter()
        assert await search() == PIECES
        return time.perf_counter() - began_s


async def run_both(share: Literal["resize"] | None) -> float:
    async with tangram.Tangram(tangram.LocalPool(cores=CORES, share=share)) as tg:
        search_s, taken_s = await asyncio.gather(long_search(), looks())
        changes = tg.figures().total.switches
        mean_s = sum(taken_s) / len(taken_s)
        print(f"share={share!r}: the search took {search_s:.2f} s, a look {mean_s:.3f} s; {changes} changes of cores")
        if share and not changes:
            print(tg.describe())
    return mean_s


def main() -> None:
    alone_s, shared_s = (asyncio.run(run_both(share)) for share in (None, "resize"))
    print(f"with cores that move, a look takes {shared_s / alone_s:.2f} times as long")


main()
