"""The actor of an agent: when it cannot start, at first and after its death."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from arl_tangram import ConfigurationError, NodeLostError, Tangram
from arl_tangram.integrations.ray.agent_actor import AgentActor
from arl_tangram.integrations.ray.answers import result_of
from arl_tangram.integrations.ray.client.calls import AgentCalls
from arl_tangram.integrations.ray.handles import AgentHandle
from arl_tangram.integrations.ray.owner_actor import OwnerActor
from arl_tangram.managers.manager import CpuPool
from arl_tangram.testing import FakePool
from unit.ray.actors_here import Ray, ray_here
from virtual_time import virtual

CREATE = {"sandbox": 1, "image": None, "memory_bytes": 0}


class Pools:
    """Pools that cannot be made at first, as while a daemon starts."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    def __call__(self) -> Sequence[CpuPool]:
        self.left -= 1
        if self.left >= 0:
            raise ConfigurationError("the daemon does not answer")
        return [FakePool(cores=1)]


@asynccontextmanager
async def owner() -> AsyncIterator[Ray]:
    with ray_here() as ray:
        actor = OwnerActor(Tangram, (), 30.0)
        await actor.ready()
        ray.put("owner", actor)
        yield ray
        await actor.aclose()


@virtual
async def test_an_agent_that_cannot_start_says_why() -> None:
    async with owner():
        actor = AgentActor("a", Pools(1), "owner")
        with pytest.raises(ConfigurationError, match="does not answer"):
            result_of(pickle.loads(await actor.started()), "start")
        await actor.aclose()


@virtual
async def test_one_that_was_started_again_tries_until_it_can() -> None:
    async with owner() as ray:
        ray.restarted = True
        actor = AgentActor("a", Pools(5), "owner")
        ray.put("agent", actor)
        calls = AgentCalls("client-1", "a", AgentHandle(ray, "agent"))  # type: ignore[arg-type]
        await asyncio.sleep(1)
        async with asyncio.timeout(0.1):
            with pytest.raises(NodeLostError, match="does not answer"):
                await calls.do("create", CREATE)
        async with asyncio.timeout(60):
            await actor.started()
        assert await calls.do("create", CREATE)
        await actor.aclose()


@virtual
async def test_one_that_tries_can_be_closed() -> None:
    async with owner() as ray:
        ray.restarted = True
        actor = AgentActor("a", Pools(1000), "owner")
        await asyncio.sleep(100)
        await actor.aclose()
