"""An agent with a slow pool, without its owner, and clients of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent_lines import AgentHost, ScriptedOwner, node
from arl_tangram.integrations.ray.client.cores import RemoteCores
from arl_tangram.integrations.ray.node.agent import NodeAgent
from unit.ray.slow_pool import SlowManager, SlowPool

LEASE_S = 30.0


class Bed:
    """An agent with a slow pool, and clients of it."""

    def __init__(self, agent: NodeAgent, host: AgentHost, owner: ScriptedOwner, cores: RemoteCores, pool: SlowPool):
        self.agent, self.host, self.owner, self.cores, self.pool = agent, host, owner, cores, pool

    @property
    def manager(self) -> SlowManager:
        return self.pool.made

    def client(self, session: str) -> RemoteCores:
        return RemoteCores(session, self.cores._shape, 0, lambda _node: self.host)

    def assert_idle(self) -> None:
        """Nothing runs, is being made or is held."""
        manager = self.manager
        assert not manager.running
        assert not manager.creating
        assert not manager.sandboxes
        assert manager.milli_free == 2000


@asynccontextmanager
async def bed() -> AsyncIterator[Bed]:
    owner, pool = ScriptedOwner(LEASE_S), SlowPool()
    async with node(pool, owner=owner) as (agent, host, shape):
        cores = RemoteCores("client-1", shape, 0, lambda _node: host)
        yield Bed(agent, host, owner, cores, pool)
        host.is_cut = False


async def returned(bed: Bed, milli: int = 2000) -> None:
    """Wait until what was sent to give cores back has been done."""
    async with asyncio.timeout(5):
        while bed.manager.milli_free < milli:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)
