"""Who greets an owner and is refused: another configuration, another version, a session that is over."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass, replace

import pytest

import arl_tangram as tangram
from arl_tangram import ConfigurationMismatchError, LeaseLostError, Quota, Tangram, VersionMismatchError
from arl_tangram.integrations.ray import wire
from arl_tangram.integrations.ray.configuration import describe, fingerprint
from arl_tangram.integrations.ray.sessions.greeting import greeting, read_answer
from arl_tangram.integrations.ray.wire import ClientFrame, Resume
from arl_tangram.managers.breakers import Tripped
from arl_tangram.model.lifecycle import Demand
from arl_tangram.model.topology import Dimension
from arl_tangram.testing import FakePool
from shared_world import SharedWorld, settle
from virtual_time import virtual

ABOUT = {"kind": "client", "name": "test", "host": "here"}


@tangram.action(quota={"api": 1})
async def search() -> str:
    return "found"


def world(**options: float) -> SharedWorld:
    return SharedWorld(Quota("api", concurrency=2), nodes={"a": [FakePool(cores=2)]}, **options)  # type: ignore[arg-type]


@virtual
async def test_case_45_another_configuration_is_refused_with_what_differs() -> None:
    async with world() as shared:
        lines = describe(Tangram(Quota("api", concurrency=3)).setup)
        told = {"fingerprint": fingerprint(lines), "configuration": list(lines)}
        with pytest.raises(ConfigurationMismatchError, match=r"concurrency=2.*concurrency=3"):
            await shared.client(**told).start()
        same = {"fingerprint": fingerprint(shared.settings.lines), "configuration": list(shared.settings.lines)}
        async with shared.client(**same) as tg:
            assert await tg.run(search) == "found"


@virtual
async def test_who_connects_need_not_know_the_nodes_and_who_shares_must() -> None:
    async with world() as shared:
        expected = {"fingerprint": fingerprint(shared.settings.lines), "configuration": list(shared.settings.lines)}
        lines = (*shared.settings.lines, "node a: pools=m:f, resources={}")
        shared.owner._settings = replace(shared.settings, lines=lines)
        async with shared.client(**expected, without_nodes=True) as tg:
            assert await tg.run(search) == "found"
        with pytest.raises(ConfigurationMismatchError, match="only there: node a: pools=m:f"):
            await shared.client(**expected).start()


@virtual
async def test_a_function_that_declares_something_else_in_the_actor_is_told_so() -> None:
    async with world() as shared:
        lines = describe(Tangram(Quota("api", concurrency=3)).setup)
        told = {"fingerprint": fingerprint(lines), "configuration": list(lines), "made": True}
        with pytest.raises(ConfigurationMismatchError, match=r"^the function .* in each process: .*concurrency=3"):
            await shared.client(**told).start()


@virtual
async def test_another_version_is_refused_and_both_are_named() -> None:
    async with world() as shared:
        answer = await shared.owner.hello({**greeting(ABOUT, "t1"), "library": "0.0.1"})
        with pytest.raises(VersionMismatchError, match=rf"0\.0\.1.*{tangram.__version__}"):
            read_answer(answer)
        answer = await shared.owner.hello({"kind": "client", "name": "old"})
        with pytest.raises(VersionMismatchError):
            read_answer(answer)


CROSSES = {1: "73a75c551634f2e9"}


def test_what_crosses_has_the_version_that_it_was_given() -> None:
    """When this fails, `WIRE_VERSION` is to go up, unless no version with it was released yet; then this is pinned."""
    names: list[str] = [*greeting(ABOUT, "t1")]
    for kind in [getattr(wire, name) for name in wire.__all__] + [Tripped, Dimension, Demand]:
        if isinstance(kind, type):
            fields = [field.name for field in dataclass_fields(kind)] if is_dataclass(kind) else kind._fields
            names.append(f"{kind.__name__}({', '.join(fields)})")
    told = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    assert {wire.WIRE_VERSION: told} == CROSSES


@virtual
async def test_the_same_greeting_twice_is_one_session() -> None:
    async with world() as shared:
        message = greeting(ABOUT, "t1")
        first, second = await asyncio.gather(shared.owner.hello(message), shared.owner.hello(message))
        assert read_answer(first).session == read_answer(second).session


@virtual
async def test_a_session_that_is_over_or_unknown_is_told_so() -> None:
    async with world(lease_s=6.0) as shared:
        welcome = read_answer(await shared.owner.hello(greeting(ABOUT, "t1")))
        frame = ClientFrame(welcome.epoch, welcome.session, 1, (), 0)
        assert (await shared.owner.exchange(frame)).ended is None
        await asyncio.sleep(6 + 10 + 1)
        await settle()
        assert isinstance((await shared.owner.exchange(frame)).ended, LeaseLostError)
        strange = ClientFrame(welcome.epoch, "nobody", 1, (), 0)
        assert isinstance((await shared.owner.exchange(strange)).ended, LeaseLostError)
        assert (await shared.owner.exchange(ClientFrame("other", "nobody", 1, (), 0))).epoch == welcome.epoch


@virtual
async def test_what_is_resumed_too_late_is_refused() -> None:
    async with world() as shared:
        late = greeting(ABOUT, "t1", epoch="before", session="client-before-1", resume=Resume(None))
        with pytest.raises(LeaseLostError):
            read_answer(await shared.owner.hello(late))


@virtual
async def test_a_client_is_welcome_at_once_whatever_the_nodes_are_doing() -> None:
    async with world() as shared:
        before_s = asyncio.get_running_loop().time()
        clients = [shared.client() for _ in range(4)]
        await asyncio.gather(*(client.start() for client in clients))
        assert asyncio.get_running_loop().time() == before_s


@virtual
async def test_a_node_that_stands_still_holds_a_client_up_for_a_beat_only() -> None:
    async with world(lease_s=12.0) as shared:
        await shared.client().start()
        shared.lines["a"].is_cut = True
        before_s = asyncio.get_running_loop().time()
        late = await shared.client().start()
        assert asyncio.get_running_loop().time() - before_s <= 2.0
        assert await late.run(search) == "found"
        shared.lines["a"].is_cut = False


@virtual
async def test_an_agent_that_greets_again_was_not_silent() -> None:
    async with world() as shared:
        await settle()
        node = shared.owner._nodes.find("a")
        assert node is not None
        before = node.session
        assert before is not None
        agent = shared.agents["a"].agent
        assert agent is not None
        await shared.start_agent("a")
        assert "begun anew" in str(before.ended)
        await agent.aclose()
