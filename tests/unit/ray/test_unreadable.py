"""Values of the user's own types, whose class the other side lacks: they stay here, or spoil one session only."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntEnum
from typing import Any, NoReturn, cast

import pytest

import arl_tangram as tangram
from arl_tangram import Amdahl, Elastic, LeaseLostError, Quota, RemoteError, Tangram, current_quota, current_sandbox
from arl_tangram.integrations.ray.agent_actor import AgentActor
from arl_tangram.integrations.ray.client.calls import AgentCalls
from arl_tangram.integrations.ray.client.demands import portable
from arl_tangram.integrations.ray.client.shared import Shared
from arl_tangram.integrations.ray.handles import AgentHandle, OwnerHandle
from arl_tangram.integrations.ray.owner_actor import OwnerActor
from arl_tangram.integrations.ray.wire import Withdraw
from arl_tangram.managers.breaker import Breaker
from arl_tangram.managers.quota import QuotaHandle
from arl_tangram.model.lifecycle import Demand
from arl_tangram.testing import FakePool
from shared_world import SharedWorld
from unit.ray.actors_here import Ray, ray_here
from virtual_time import virtual


def not_there(name: str) -> NoReturn:
    raise ModuleNotFoundError(f"No module named {name!r}")


class Text(str):
    """A text of the user's: no other process can make it again."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        return not_there, ("users_own",)


class Level(IntEnum):
    """A number of the user's."""

    HIGH = -1

    def __reduce_ex__(self, _: object) -> Any:
        return not_there, ("users_own",)


class Curve(Amdahl):
    """A speed-up of the user's that looks like one of ours."""

    def __reduce__(self) -> Any:
        return not_there, ("users_own",)


API = Text("api")


@tangram.action(cpu=Elastic(1, 2, speedup=Curve(0.9)), key=lambda: Text("python"))
async def command() -> str:
    box = current_sandbox()
    await box.exec([Text("ls"), "-l"], env={Text("A"): Text("b")}, cwd=Text("."))
    await box.write_file(Text("x"), b"")
    return (await box.read_file(Text("x"))).decode()


@tangram.action(quota={API: tangram.QuotaUse(1, tokens=1)})
async def search() -> None:
    cast(QuotaHandle, current_quota(API)).failed()


@virtual
async def test_what_is_a_text_or_a_number_goes_as_one() -> None:
    quota = Quota("api", concurrency=2, calls=100, tokens=100, period_s=60, breaker=Breaker())
    shared = SharedWorld(quota, nodes={"a": [FakePool(cores=4, memory_gib=16)]})
    async with shared, shared.client() as tg, asyncio.timeout(10):
        async with tg.trajectory(group=Text("g")):
            await command.with_options(priority=Level.HIGH, timeout=5)()
            await tg.run(search)
        assert await tg.cancel_group(Text("g")) == 0
        tg.set_capacity(Text("quota:api/concurrency"), 3)
        await shared.check_idle()
    demand = Demand("f", (), elastic=0, options=(1000, 2000), speedup=Curve(0.5))
    assert pickle.loads(pickle.dumps(portable(demand))).speedup(1) == 1


def pools() -> Tangram:
    return Tangram(Quota("api", concurrency=2))


@asynccontextmanager
async def client(ray: Ray) -> AsyncIterator[Shared]:
    """Open a client of an owner in its actor."""
    actor = OwnerActor(pools, (), 30.0)
    await actor.ready()
    handle = ray.put("owner", actor)

    class Reached:
        owner = OwnerHandle(ray, handle)  # type: ignore[arg-type]

        def __init__(self) -> None:
            self.greeting = {"kind": "client", "name": "test", "host": "here", "node_id": ""}

        async def aclose(self) -> None:
            await actor.aclose()

    async def reach() -> Any:
        return Reached()

    async with Shared(reach, name="test", timeout_s=10) as tg:
        yield tg


@tangram.action(quota={"api": 1})
async def plain() -> str:
    return "done"


@virtual
@pytest.mark.parametrize("command", [Withdraw(Text("1")), Withdraw(lambda: 1)])  # type: ignore[arg-type]
async def test_a_command_that_cannot_cross_ends_the_session_and_not_all_that_follow(command: Withdraw) -> None:
    with ray_here() as ray:
        async with client(ray) as tg, asyncio.timeout(5):
            assert await plain() == "done"
            tg._pump.post(command)
            with pytest.raises(LeaseLostError, match=r"cannot be (sent|read)"):
                await plain()
            assert await plain() == "done"


@virtual
async def test_what_an_agent_cannot_read_is_an_error_of_who_sent_it() -> None:
    with ray_here() as ray:
        owner = OwnerActor(pools, (), 30.0)
        await owner.ready()
        ray.put("owner", owner)
        actor = AgentActor("a", lambda: [FakePool(cores=1)], "owner")
        ray.put("agent", actor)
        await actor.started()
        calls = AgentCalls("client-1", "a", AgentHandle(ray, "agent"))  # type: ignore[arg-type]
        with pytest.raises(RemoteError, match="No module named 'users_own'"):
            await calls.do("create", {"sandbox": Text("1"), "image": None, "memory_bytes": 0})
        await calls.do("create", {"sandbox": 1, "image": None, "memory_bytes": 0})
        await actor.aclose()
        await owner.aclose()
