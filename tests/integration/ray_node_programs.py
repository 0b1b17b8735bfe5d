"""Programs of the tests of shared runtimes over several nodes: each function is one; see `ray_programs`.

What they do is seen by an observer that they connect to: commands from where they run, searches from here, what a
service computes from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import ray

import arl_tangram as tangram
from arl_tangram.integrations.ray import Node, Shared, connect, share
from arl_tangram.integrations.ray.installed import connected
from arl_tangram.integrations.ray.lines import LineError
from arl_tangram.integrations.ray.naming import SharedName
from integration.ray_programs import join, line, tell

MEMORY_GIB = 1 / 4
SMALL_GIB = 1 / 16
SEARCHES = 2
EXAMS = 20
SERVICES = ("judge", "teacher")
SEATS = 2
WEIGHTS_BYTES = 8 << 20

# A command that says of which client it is, in which container and on which cores, and is connected while it lives.
SEEN = """
set -e
exec 3<>/dev/tcp/127.0.0.1/{port}
while read -r name value; do case $name in Cpus_allowed_list:) cpus=$value;; esac; done < /proc/self/status
while read -r mount; do case $mount in */containers/*/hostname*)
    id=${{mount##*/containers/}}; id=${{id%%/hostname*}};; esac; done < /proc/self/mountinfo
echo "{pid} ${{id:-$PWD}} $cpus" >&3
read -r word <&3
{command}
"""


# What is shared.


def quotas() -> tangram.Tangram:
    return tangram.Tangram(
        tangram.Quota("search", concurrency=SEARCHES),
        tangram.Quota("exam", total_calls=EXAMS),
        kill_grace_s=1,
    )


def load(port: int) -> Any:
    """Return a model that is seen while it computes."""
    import torch  # clients do without

    torch.set_num_threads(1)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.Parameter(torch.full((WEIGHTS_BYTES // 4,), 0.5), requires_grad=False)

        def forward(self, value: float) -> float:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(b"model\n")
                connection.recv(16)
                time.sleep(0.01)
                return float(self.weights[0]) * value

    return Model()


def pools_of(spec: dict[str, Any]) -> list[Any]:
    """Return the pools of a node: one core of a daemon or of this machine, or a device with room for one service."""
    if "ports" in spec:
        services = [
            tangram.TorchService(name, load=partial(load, port), max_concurrency=SEATS)
            for name, port in zip(SERVICES, spec["ports"], strict=True)
        ]
        return [tangram.GpuPool(*services, devices=["cpu:0:0.015GiB"], reserve=0)]
    if "folder" in spec:
        return [tangram.LocalPool(cores=1, memory_gib=MEMORY_GIB, root=spec["folder"])]
    return [
        tangram.DockerPool(
            cores=1,
            core_ids=[spec["core"]],
            memory_gib=MEMORY_GIB,
            image=spec["image"],
            url=spec["url"],
            network="host",  # which is that of the daemon, where the observer listens
            pull="never",
        )
    ]


@contextlib.asynccontextmanager
async def seen_here(port: int) -> AsyncIterator[None]:
    """Be seen meanwhile, from this process."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{os.getpid()}\n".encode())
        await reader.readline()
        yield
    finally:
        writer.close()


# Actions.


@tangram.action(cpu=1, timeout=120)
async def seen(port: int, command: str) -> str:
    """Run a command that somebody can see."""
    script = SEEN.format(port=port, pid=os.getpid(), command=command)
    done = await tangram.current_sandbox().exec(["bash", "-c", script])
    if done.exit_code:
        raise RuntimeError(f"{command!r} ended with {done.exit_code}: {done.stderr.decode()}")
    return done.stdout.decode()


@tangram.action(cpu=1, timeout=120)
async def give(folder: str) -> None:
    await tangram.current_sandbox().put_dir(folder, "given")


@tangram.action(cpu=1, timeout=120)
async def take(folder: str) -> None:
    await tangram.current_sandbox().get_dir("given", folder)


@tangram.action(quota={"search": 1}, timeout=120)
async def search(port: int, seconds: float) -> None:
    async with seen_here(port):
        await asyncio.sleep(seconds)


@tangram.action(quota={"exam": 1}, timeout=120)
async def exam(port: int) -> None:
    async with seen_here(port):
        pass


@tangram.action(service="judge", timeout=120)
async def judge(value: float) -> float:
    return float(await tangram.current_service().call(value))


@tangram.action(service="teacher", timeout=120)
async def teach(value: float) -> float:
    return float(await tangram.current_service().call(value))


# Programs.


async def share_nodes(name: str, lease_s: str, specs: str) -> None:
    """Share a node for each of some specifications, on the machines of the cluster in turn, until an empty line comes.

    For a line with the name of an actor, tell the number of its process; for `used`, what is in use.
    """
    join()
    ids = [node["NodeID"] for node in ray.nodes()]
    nodes = [
        Node(f"n{number}", partial(pools_of, spec), node_id=ids[number % len(ids)])
        for number, spec in enumerate(json.loads(specs))
    ]
    async with share(quotas, name=name, nodes=nodes, lease_s=float(lease_s)) as tg:
        tell(dimensions=sorted(tg.statistics().dimensions))
        library = connected(start=False)
        shared = SharedName(name, library.job)
        while said := (await line()).strip():
            actor = library.find(shared.owner if said == "owner" else shared.agent(said))
            try:
                if said == "used":
                    tell(**in_use(tg))
                else:
                    tell(pid=await library.answer(actor.pid.remote))
            except (LineError, tangram.TangramError) as error:
                tell(pid=None, used=None, text=str(error))
        tell(**in_use(tg))
    tell(actors=connected(start=False).actor_names())


def in_use(tg: Shared) -> dict[str, Any]:
    """What runs, and what is used of all that is given back."""
    statistics = tg.statistics()
    return {
        "running": statistics.running,
        "waiting": statistics.waiting,
        "trajectories": statistics.trajectories,
        "used": {name: d.used for name, d in statistics.dimensions.items() if d.used and not name.endswith("/total")},
    }


async def work(name: str, rollouts: str, doors: str) -> None:
    """Run rollouts, all at once: commands, searches and judgements by turns; tell what went wrong with the files."""
    join()
    door = json.loads(doors)
    wrong: list[str] = []
    values: list[float] = []
    failed = 0

    async def rollout(number: int) -> None:
        mine = f"{os.getpid()} {number}"
        with tempfile.TemporaryDirectory() as folder:
            file_of(folder).write_text(f"{mine}\n")
            async with tangram.trajectory(memory_gib=SMALL_GIB):
                await give(folder)
                for turn in range(3):
                    await seen(door["sandboxes"], f"echo {mine} {turn} >> notes; sleep 0.02")
                    await search(door["search"], 0.02)
                    ask = judge if (number + turn) % 2 else teach
                    values.append(await ask(turn))
                kept = await seen(door["sandboxes"], "cat notes given/mine")
                await take(f"{folder}/back")
            kept += file_of(f"{folder}/back").read_text()
            if kept.splitlines() != [*(f"{mine} {turn}" for turn in range(3)), mine, mine]:
                wrong.append(kept)

    async with connect(name):
        await asyncio.gather(*(rollout(number) for number in range(int(rollouts))))
        for _ in range(2):
            try:
                await exam(door["exam"])
            except tangram.InfeasibleError:  # the budget is spent
                failed += 1
    tell(wrong=wrong, values=sorted(values), failed=failed, torch="torch" in sys.modules)


def file_of(folder: str) -> Path:
    return Path(folder, "mine")


async def until_told(name: str, loops: str, doors: str) -> None:
    """Hold cores, memory, sandboxes and a quota again and again, until a line comes or this is killed."""
    join()
    door = json.loads(doors)
    ended = asyncio.create_task(line())

    async def loop() -> None:
        while not ended.done():
            began_s = time.monotonic()
            error: tangram.InfrastructureError | None = None
            try:
                async with asyncio.timeout(90), tangram.trajectory(memory_gib=SMALL_GIB):
                    await seen(door["sandboxes"], f"sleep {random.choice([0.1, 0.3, 1])}")
                    await search(door["search"], 0.1)
                    await seen(door["sandboxes"], ":")
            except tangram.InfrastructureError as caught:
                error = caught
            tell(error=error and type(error).__name__, text=str(error)[:300], took_s=time.monotonic() - began_s)

    async with connect(name):
        await asyncio.gather(*(loop() for _ in range(int(loops))))


async def all_at_once(name: str, nodes: str, doors: str) -> None:
    """Have all that there is at once, if the observer holds it: memory and core of each node, all searches."""
    join()
    door = json.loads(doors)

    async def node() -> None:
        async with tangram.trajectory(memory_gib=MEMORY_GIB):
            await seen(door["sandboxes"], ":")

    async with connect(name):
        searches = (search(door["search"], 0) for _ in range(SEARCHES))
        await asyncio.gather(*(node() for _ in range(int(nodes))), *searches)
    tell(had=True)


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
