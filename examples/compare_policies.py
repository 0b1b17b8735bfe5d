"""Compare two policies on the same work by their traces: cores reserved per trajectory, and shared action by action.

The pool is a fake one and the work of a tool is a pause that gets shorter with more cores, so that this runs anywhere;
`python -m arl_tangram demo` compares the policies on real work.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import arl_tangram as tangram
from arl_tangram.testing import FakePool

TRAJECTORIES, TURNS, THINKING_S, WORK_CORE_S = 12, 3, 0.1, 0.05


@tangram.action(cpu=tangram.Elastic(1, 4, speedup=tangram.Linear()), duration_s=WORK_CORE_S)
async def tool() -> None:
    await asyncio.sleep(WORK_CORE_S / tangram.current_allocation().cores)


async def rollout() -> None:
    async with tangram.trajectory():
        for _ in range(TURNS):
            await asyncio.sleep(THINKING_S)
            await tool()


async def run_batch(policy: tangram.policies.Policy, trace: Path) -> None:
    async with tangram.Tangram(FakePool(cores=4), policy=policy, trace=trace):
        await asyncio.gather(*(rollout() for _ in range(TRAJECTORIES)))


def report(trace: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "arl_tangram", "report", "--json", str(trace)]
    figures: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return figures


def main() -> None:
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for policy in (tangram.policies.reserved(1), tangram.policies.paper(best_prefix=True)):
            trace = Path(folder, f"{len(found)}.jsonl")
            asyncio.run(run_batch(policy, trace))
            found[policy.name] = report(trace)
            print(f"{policy.name}: {found[policy.name]['total']['calls']} actions")
    reserved, shared = found.values()
    shorter = reserved["elapsed_s"] / shared["elapsed_s"]
    faster = reserved["admitted_act_mean_s"] / shared["admitted_act_mean_s"]
    print(f"the batch ends at least 1.5 times earlier when cores are shared: {shorter >= 1.5}")
    print(f"an action, with the wait for admission, takes at least 1.5 times less: {faster >= 1.5}")


main()
