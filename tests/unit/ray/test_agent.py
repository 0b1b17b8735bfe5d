"""The agent of a node: what it offers, whom it ends when the owner says so, and what it does without an owner."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from agent_lines import AgentHost, ScriptedOwner, node
from arl_tangram.errors import (
    ConfigurationError,
    LeaseLostError,
    NodeLostError,
    RemoteError,
    UsageError,
    VersionMismatchError,
)
from arl_tangram.integrations.ray.answers import error_of, result_of
from arl_tangram.integrations.ray.client.cores import RemoteCores
from arl_tangram.integrations.ray.node.agent import CALLS, NodeAgent
from arl_tangram.integrations.ray.wire import (
    AgentCall,
    CallId,
    EndSession,
    NodeCapacity,
    NodeReady,
    Reshaped,
    Resize,
    Roster,
    SessionEnded,
    Shape,
)
from arl_tangram.model.topology import Dimension
from arl_tangram.testing import FakeNode, FakePool
from unit.ray.slow_pool import KILL_S, SlowPool
from virtual_time import turns, virtual

LEASE_S = 30.0


def cores_at(host: AgentHost, shape: Shape, session: str = "client-1") -> RemoteCores:
    return RemoteCores(session, shape, 0, lambda _node: host)


async def busy(cores: RemoteCores) -> asyncio.Task[object]:
    """Begin a command of a client, in a sandbox of its own, and leave something alive there."""
    box = await cores.create_sandbox(image=None, memory_bytes=0)
    cores.lease(1000, box)
    await box.exec(["leave"])
    running: asyncio.Task[object] = asyncio.create_task(box.exec(["sleep", "1000"]))
    await turns(10)
    assert not running.done()
    return running


@virtual
async def test_a_node_is_offered_under_its_name_once_its_pools_have_started() -> None:
    owner = ScriptedOwner()
    async with node(FakePool(cores=4, memory_gib=2, sandboxes=3), owner=owner, name="n1") as (_, _, shape):
        ready = await owner.until(NodeReady)
        assert ready.offer == shape.nodes[0]
        assert ready.offer.dimensions == (
            Dimension("cpu@n1", 4000, 1000),
            Dimension("memory@n1", 2 << 30, 1 << 30),
            Dimension("sandboxes@n1", 3),
        )
        assert (ready.offer.name, ready.offer.node_id, ready.offer.text) == ("n1", "here", "fake pool of 4 cores")
        assert ready.offer.least_memory_bytes == 0


@virtual
async def test_pools_that_are_no_node_are_refused() -> None:
    two = FakePool(nodes=(FakeNode("a"), FakeNode("b")))
    with pytest.raises(ConfigurationError, match=r"node 'n1' has several machines \(cpu@a, memory@a, cpu@b"):
        async with node(two, name="n1"):
            pass
    for pools in ((), (FakePool(), FakePool())):
        with pytest.raises(
            ConfigurationError, match=r"the node has \d pools of cores and 0 of GPUs; it has at most one"
        ):
            NodeAgent("", pools, ScriptedOwner())
    for wrong in (FakePool(), None, 3, [3]):
        with pytest.raises(ConfigurationError, match=r"^node 'a': pools= has to return a list of pools, not "):
            NodeAgent("a", wrong, ScriptedOwner())  # type: ignore[arg-type]


@virtual
async def test_an_agent_that_is_refused_leaves_nothing() -> None:
    class Refusing(ScriptedOwner):
        async def hello(self, greeting):  # type: ignore[no-untyped-def]
            raise VersionMismatchError("0.1 and 0.2")

    pool = SlowPool()
    with pytest.raises(VersionMismatchError):
        async with node(pool, owner=Refusing()):
            pass


@virtual
async def test_what_goes_wrong_with_one_word_of_the_owner_is_not_the_end_of_those_behind_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = ScriptedOwner()
    async with node(FakePool(cores=4), owner=owner):
        owner.tell(Resize("of another node", 1000), EndSession("client-1"))
        assert await owner.until(SessionEnded) == SessionEnded("client-1")
    assert "Resize" in caplog.text


@virtual
@pytest.mark.parametrize("is_closed", [True, False])
async def test_a_node_that_was_cut_off_is_offered_again_unless_it_closes(is_closed: bool) -> None:
    owner, pool = ScriptedOwner(), SlowPool()
    async with node(pool, owner=owner) as (agent, host, shape):
        running = await busy(cores_at(host, shape))
        agent._on_lost(LeaseLostError("cut off"))
        if is_closed:
            await agent.aclose()
        with pytest.raises(NodeLostError):
            await running
        await asyncio.sleep(10)
        assert len([told for told in owner.told if isinstance(told, NodeReady)]) == (1 if is_closed else 2)


@virtual
async def test_a_node_is_offered_again_though_something_could_not_be_ended() -> None:
    owner = ScriptedOwner()
    async with node(FakePool(cores=4), owner=owner) as (agent, _, _):

        async def fails(_: object) -> None:
            raise OSError("it does not end")

        agent._end_all = fails  # type: ignore[method-assign]
        for times in (2, 3):
            agent._on_lost(LeaseLostError("cut off"))
            await owner.until(NodeReady, times)
        del agent._end_all


@virtual
async def test_a_session_is_ended_and_then_said_to_be() -> None:
    owner, pool = ScriptedOwner(), SlowPool()
    async with node(pool, owner=owner) as (_, host, shape):
        gone, other = cores_at(host, shape), cores_at(host, shape, "client-2")
        running, others = await busy(gone), await busy(other)
        creating = asyncio.create_task(gone.create_sandbox(image=None, memory_bytes=0))
        await turns(5)
        owner.tell(EndSession("client-1"))
        await owner.until(SessionEnded)
        assert pool.made.running == [("sleep", "1000")], "the other's"
        assert len(pool.made.sandboxes) == 1
        assert pool.made.milli_free == 1000
        for ended in (running, creating):
            with pytest.raises(LeaseLostError, match="client-1 is over"):
                await ended
        with pytest.raises(LeaseLostError, match="client-1 is over"):  # a client that returns
            await gone.create_sandbox(image=None, memory_bytes=0)
        assert not others.done()
        others.cancel()


@virtual
async def test_a_session_that_is_ended_twice_is_said_to_be_only_when_it_is() -> None:
    owner, pool = ScriptedOwner(), SlowPool()
    async with node(pool, owner=owner) as (_, host, shape):
        running = await busy(cores_at(host, shape))
        owner.tell(EndSession("client-1"), EndSession("client-1"))
        await asyncio.sleep(KILL_S / 2)
        assert not [told for told in owner.told if isinstance(told, SessionEnded)]
        await owner.until(SessionEnded, times=2)
        assert pool.made.milli_free == 2000
        owner.tell(EndSession("client-7"))  # that was never here
        assert await owner.until(SessionEnded, times=3) == SessionEnded("client-7")
        await asyncio.wait([running])
        running.exception()


@virtual
async def test_what_came_for_a_session_that_the_owner_has_ended_before_does_not_stay() -> None:
    pool, owner = SlowPool(cores=4), ScriptedOwner(lease_s=LEASE_S)
    async with node(pool, owner=owner) as (_, host, shape):
        old, new = [await busy(cores_at(host, shape, session)) for session in ("client-1", "client-2")]
        owner.tell(Roster(("client-2",)))
        await asyncio.sleep(2 * LEASE_S + 5)
        assert len(pool.made.sandboxes) == 1
        assert pool.made.milli_free == 3000
        with pytest.raises(LeaseLostError):
            await old
        assert not new.done()
        owner.tell(EndSession("client-2"))
        with pytest.raises(LeaseLostError):
            await new


@virtual
async def test_a_node_that_is_cut_off_ends_all_and_is_offered_anew() -> None:
    owner, pool = ScriptedOwner(LEASE_S), SlowPool()
    async with node(pool, owner=owner) as (_, host, shape):
        cores = cores_at(host, shape)
        running = await busy(cores)
        owner.tell(EndSession("client-3"))
        await owner.until(SessionEnded)
        cut_at_s = asyncio.get_running_loop().time()
        owner.is_cut = True
        with pytest.raises(NodeLostError, match="cut off from the owner"):
            await running
        assert asyncio.get_running_loop().time() - cut_at_s <= LEASE_S + 0.01
        owner.is_cut = False
        await owner.until(NodeReady, times=2)
        assert pool.made.milli_free == 2000
        assert not pool.made.sandboxes
        for session in ("client-1", "client-2"):  # their owner has not ended them
            (await busy(cores_at(host, shape, session))).cancel()
        with pytest.raises(LeaseLostError):
            await cores_at(host, shape, "client-3").create_sandbox(image=None, memory_bytes=0)


@virtual
async def test_without_an_owner_for_good_a_node_ends_all_once() -> None:
    owner, pool = ScriptedOwner(LEASE_S), SlowPool()
    async with node(pool, owner=owner) as (_, host, shape):
        running = await busy(cores_at(host, shape))
        owner.for_good = True
        with pytest.raises(NodeLostError, match="no owner any more"):
            await running
        await asyncio.sleep(100)
        assert pool.made.milli_free == 2000
        with pytest.raises(NodeLostError, match="is not open"):
            await cores_at(host, shape, "client-2").create_sandbox(image=None, memory_bytes=0)


@virtual
async def test_an_owner_that_was_started_again_is_told_of_the_node_and_the_roster_and_nothing_ends() -> None:
    owner, pool = ScriptedOwner(LEASE_S), SlowPool()
    async with node(pool, owner=owner) as (_, host, shape):
        running = await busy(cores_at(host, shape))
        owner.tell(Roster(("client-1", "client-2")), Reshaped(shape))
        await asyncio.sleep(1)
        owner.restart()
        await asyncio.sleep(10)
        (resume,) = owner.resumed
        assert (resume.sessions, resume.shape, resume.offer) == (("client-1", "client-2"), shape, shape.nodes[0])
        assert not running.done()
        running.cancel()


@virtual
async def test_capacity_that_changes_by_itself_is_told_and_offered() -> None:
    owner, pool = ScriptedOwner(LEASE_S), SlowPool()
    async with node(pool, owner=owner, name="n1") as (_, _, _):
        pool.made.tell_capacity("cpu", 1000)
        assert await owner.until(NodeCapacity) == NodeCapacity("cpu@n1", 1000)
        owner.restart()
        await asyncio.sleep(10)
        (resume,) = owner.resumed
        assert resume.offer is not None
        assert resume.offer.dimensions[0] == Dimension("cpu@n1", 1000, 1000)


@virtual
async def test_a_call_runs_once_however_often_it_comes_and_not_after_its_cancellation() -> None:
    pool = SlowPool()
    async with node(pool) as (agent, host, shape):
        cores = cores_at(host, shape)
        box = await cores.create_sandbox(image=None, memory_bytes=0)
        lease = cores.lease(1000, box)
        await box.exec(["true"])
        arguments = {**lease._arguments, "argv": ["sleep", "5"]}  # type: ignore[attr-defined]
        twice = AgentCall(CallId("client-1", 10**6), "exec", arguments)
        replies = await asyncio.gather(agent.call(twice), agent.call(twice))
        assert [result_of(reply, "exec")[0].stdout for reply in replies] == [b"sleep 5"] * 2
        late = AgentCall(CallId("client-1", 10**6 + 1), "exec", arguments)
        await agent.cancel(late.id)
        for request in (late, twice):
            assert isinstance(error_of(await agent.call(request), "exec"), RemoteError)
        assert pool.made.started == [("true",), ("sleep", "5")]
        await box.aclose()


@virtual
async def test_what_a_node_does_not_know_is_refused() -> None:
    async with node(FakePool(), name="n1") as (agent, host, shape):
        for what in ("seat", "serve", "dance"):
            reply = await agent.call(AgentCall(CallId("client-1", hash(what) % 1000 + 10**7), what, {"lease": 1}))
            error = error_of(reply, what)
            assert isinstance(error, UsageError)
            assert str(error) == f"{what!r} was asked of node 'n1', which has fake pool of 8 cores"
        assert "dance" not in CALLS
        pickle.dumps(shape)
        del host


@virtual
async def test_a_closed_agent_answers() -> None:
    async with node(FakePool()) as (agent, _, _):
        await asyncio.gather(agent.aclose(), agent.aclose())
        reply = await agent.call(AgentCall(CallId("client-1", 1), "create", {}))
        assert isinstance(error_of(reply, "create"), NodeLostError)
        await agent.cancel(CallId("client-1", 2))
