"""A shared runtime with real sandboxes: clients, an owner and nodes on one loop, commands that really run."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import LeaseLostError, NodeLostError, current_allocation, current_sandbox, current_service
from arl_tangram.managers.local.pool import LocalPool
from arl_tangram.testing import FakeGpuPool, FakeService
from contract.sandbox_contract import mark, processes, until_there_is
from shared_world import SharedWorld

CORES = LocalPool(cores=2, memory_gib=1)


async def answer(text: str, *, twice: bool = False) -> str:
    """What the service does."""
    await asyncio.sleep(0.01)
    return text * (2 if twice else 1)


def world(**options: Any) -> SharedWorld:
    service = FakeService("judge", restore_s=0.05, max_concurrency=4, on_call=answer)
    return SharedWorld(nodes={"a": [CORES], "g": [FakeGpuPool(service, gib=1)]}, **options)


@tangram.action(cpu=tangram.Elastic(1, 2))
async def shell(script: str) -> str:
    done = await current_sandbox().exec(["sh", "-c", script])
    return f"{done.exit_code} {done.stdout.decode().strip()} of {len(current_allocation().core_ids)}"


@tangram.action(cpu=1)
async def calls_another() -> str:
    before = (await current_sandbox().exec(["cat", "file"])).stdout.decode()
    return f"{before}; {await tangram.run(shell, 'env -u OMP_NUM_THREADS nproc')}"


@tangram.action(cpu=1)
async def forever(number: str) -> None:
    await current_sandbox().exec(["sh", "-c", f"setsid sleep {number} & sleep {number}"])


@tangram.action(cpu=1, timeout=0.3)
async def too_long(number: str) -> None:
    await current_sandbox().exec(["sleep", number])


@tangram.action(cpu=1, isolate="process")
def on_the_host() -> tuple[list[int], tuple[int, ...]]:
    return sorted(os.sched_getaffinity(0)), current_allocation().core_ids


@tangram.action(service="judge")
async def judged(text: str) -> str:
    return str(await current_service().call(text, twice=True))


async def test_rollouts_of_several_clients_share_real_cores_and_a_service() -> None:
    async with world() as shared:
        clients = [shared.client(f"trainer-{number}") for number in range(3)]

        async def rollout(client: Any, number: int) -> list[str]:
            async with client.trajectory():
                told = [await client.run(shell, f"echo {number} > file; cat file")]
                told.append(await client.run(calls_another))
            return [*told, await client.run(judged, f"{number}")]

        async def trainer(client: Any, numbers: list[int]) -> list[list[str]]:
            async with client:
                return await asyncio.gather(*(rollout(client, number) for number in numbers))

        trained = await asyncio.gather(*(trainer(client, [n, n + 3]) for n, client in enumerate(clients)))
        for number, (first, second, third) in enumerate([each for told in zip(*trained, strict=True) for each in told]):
            code, said, _, cores = first.split()
            assert (code, said) == ("0", str(number))
            assert int(cores) in (1, 2)
            before, _, inner = second.partition("; ")
            code, seen, _, cores = inner.split()
            assert (before, code) == (f"{number}\n", "0")
            assert seen == cores, "a program sees what was granted"
            assert third == f"{number}" * 2
        await shared.check_idle()


async def test_a_timeout_kills_what_runs_on_the_node_before_the_cores_return() -> None:
    async with world() as shared:
        client, mine = shared.client(), mark()
        async with client, client.trajectory():
            with pytest.raises(tangram.RunTimeout):
                await client.run(too_long, mine)
            assert not processes(mine)
            assert (await client.run(shell, "echo on")).startswith("0 on of")


async def test_a_body_in_a_process_is_pinned_to_the_cores_that_the_agent_picked() -> None:
    async with world() as shared:
        client = shared.client(node_id="a")
        async with client:
            affinity, told = await client.run(on_the_host)
            assert len(affinity) == 1
            assert tuple(affinity) == told


async def test_a_client_that_is_cut_off_loses_its_commands_and_the_others_get_its_cores() -> None:
    async with world(lease_s=1.0, kill_grace_s=0.2) as shared:
        gone, other, mine = shared.client("gone"), shared.client("other"), mark()
        await gone.start()
        await other.start()
        entered = gone.trajectory()
        await entered.__aenter__()
        running = asyncio.ensure_future(asyncio.gather(gone.run(forever, mine), return_exceptions=True))
        await until_there_is(f"sleep\0{mine}")
        shared.line_of(gone).is_cut = True
        async with asyncio.timeout(5):
            (error,) = await running
        assert isinstance(error, LeaseLostError)
        async with other.trajectory():
            assert (await other.run(shell, "echo on")).startswith("0 on of")
        async with asyncio.timeout(20):
            while processes(mine):  # noqa: ASYNC110 - they are killed by the agent, when the owner says so
                await asyncio.sleep(0.05)
        shared.line_of(gone).is_cut = False
        await entered.__aexit__(None, None, None)


async def test_a_node_whose_agent_ends_is_an_error_of_the_infrastructure_and_comes_back() -> None:
    async with world(lease_s=2.0) as shared:
        client, mine = shared.client(), mark()
        await client.start()
        entered = client.trajectory()
        await entered.__aenter__()
        running = asyncio.ensure_future(asyncio.gather(client.run(forever, mine), return_exceptions=True))
        await until_there_is(f"sleep\0{mine}")
        host = shared.agents["a"]
        agent, host.agent = host.agent, None
        assert agent is not None
        await agent.aclose()
        async with asyncio.timeout(20):
            (error,) = await running
        assert isinstance(error, NodeLostError), repr(error)
        assert not processes(mine)
        await entered.__aexit__(None, None, None)
        await shared.start_agent("a")
        async with asyncio.timeout(20), client.trajectory():
            assert (await client.run(shell, "echo on")).startswith("0 on of")
        await shared.check_idle()
