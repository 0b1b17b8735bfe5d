"""What every manager promises about leases, kept by remote cores over a real pool; and what two clients show."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest

from agent_lines import ScriptedOwner, node, remote_cores
from arl_tangram.integrations.ray.client.cores import RemoteCores
from arl_tangram.integrations.ray.wire import EndSession, SessionEnded
from arl_tangram.managers.local.pool import LocalPool
from contract import test_leases
from contract.sandbox_contract import mark, processes, shell, until_there_is

POOL = LocalPool(cores=2, memory_gib=1)


def at_once(_what: str) -> float:
    return 0.0


@pytest.fixture(params=["at once", "overtaking"])
async def manager(request: pytest.FixtureRequest) -> AsyncIterator[RemoteCores]:
    """Cores of a node with two cores and 1 GiB."""
    chance = random.Random(7)
    way: Callable[[str], float] = at_once
    if request.param == "overtaking":
        way = lambda _what: chance.choice((0.0, 0.002, 0.01))  # noqa: E731
    async with remote_cores(POOL, delay_s=way) as cores:
        yield cores


box = test_leases.box
# Those about sizes are kept by the agent, which resizes the real manager: see test_remote_cores.
test_turns = test_leases.test_an_action_and_one_that_it_calls_take_turns_in_a_sandbox
test_ends = test_leases.test_what_a_called_action_started_ends_with_it_and_the_caller_goes_on
test_usage = test_leases.test_usage_is_counted_for_the_lease_in_which_it_was


async def test_two_clients_never_have_the_same_core_and_each_sees_its_own() -> None:
    chance = random.Random(11)
    async with node(POOL) as (_, host, shape):
        host.delay_s = lambda _what: chance.choice((0.0, 0.001, 0.005))
        clients = [RemoteCores(f"client-{number}", shape, 0, lambda _node: host) for number in range(2)]
        held: set[int] = set()
        free = asyncio.Semaphore(2)

        async def rollout(cores: RemoteCores) -> None:
            sandbox = await cores.create_sandbox(image=None, memory_bytes=0)
            for _ in range(10):
                async with free:
                    lease = cores.lease(1000, sandbox)
                    seen = (await sandbox.exec(["cat", "/proc/self/status"])).stdout
                    (core,) = lease.core_ids
                    assert f"Cpus_allowed_list:\t{core}\n".encode() in seen
                    assert core not in held
                    held.add(core)
                    await sandbox.exec(["true"])
                    held.discard(core)
                    lease.release()
            await sandbox.aclose()

        await asyncio.gather(*(rollout(cores) for cores in clients for _ in range(2)))


async def test_a_client_that_is_gone_leaves_no_process_and_no_core() -> None:

    owner, mine = ScriptedOwner(), mark()
    async with node(POOL, owner=owner) as (_, host, shape):
        gone = RemoteCores("client-1", shape, 0, lambda _node: host)
        sandbox = await gone.create_sandbox(image=None, memory_bytes=0)
        gone.lease(2000, sandbox)
        running = asyncio.create_task(sandbox.exec(shell(f"setsid sleep {mine} & env -i setsid sleep {mine} & wait")))
        await until_there_is(mine)
        owner.tell(EndSession("client-1"))
        await owner.until(SessionEnded)
        assert not processes(mine)
        await asyncio.wait([running])
        running.exception()
        other = RemoteCores("client-2", shape, 0, lambda _node: host)
        fresh = await other.create_sandbox(image=None, memory_bytes=0)
        lease = other.lease(2000, fresh)
        async with asyncio.timeout(5):
            assert (await fresh.exec(["true"])).exit_code == 0
        lease.release()
