"""Cores and sandboxes of a node as clients have them: calls overtake, are cancelled anywhere, and nodes are lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_lines import AgentHost, ScriptedOwner, node, shape_of
from arl_tangram.errors import (
    AllocationError,
    ConfigurationError,
    LeaseLostError,
    NodeLostError,
    SandboxLostError,
    UsageError,
)
from arl_tangram.integrations.ray.client.cores import RemoteCores
from arl_tangram.integrations.ray.node.agent import NodeAgent
from arl_tangram.integrations.ray.wire import NodeCapacity, NodeOffer, Resize
from arl_tangram.managers.local.pool import LocalPool
from arl_tangram.managers.manager import CpuLease
from arl_tangram.model.topology import Dimension
from unit.ray.slow_pool import SlowManager, SlowPool
from virtual_time import run_virtually, turns, virtual

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


@virtual
async def test_an_action_without_a_command_costs_no_call() -> None:
    async with bed() as b:
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        lease = b.cores.lease(1000, box)
        assert not lease.needs_cleanup()
        lease.release()
        await turns(5)
        assert b.host.calls == ["create"]


@virtual
async def test_the_first_command_takes_the_cores_there() -> None:
    async with bed() as b:
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        lease = b.cores.lease(2000, box)
        await asyncio.gather(*(box.exec(["sleep", "1"]) for _ in range(3)))
        assert b.host.calls == ["create", "exec", "exec", "exec"]
        assert lease.core_ids == (0,)
        assert b.manager.milli_free == 0
        lease.release()
        await returned(b)


@virtual
async def test_cores_are_waited_for_until_their_release_arrives() -> None:
    async with bed() as b:
        first, second = b.client("client-1"), b.client("client-2")
        boxes = [await cores.create_sandbox(image=None, memory_bytes=0) for cores in (first, second)]
        lease = first.lease(2000, boxes[0])
        await boxes[0].exec(["true"])
        b.host.delay_s = lambda what: 3.0 if what == "release" else 0.0
        lease.release()
        lease = second.lease(2000, boxes[1])
        started_s = asyncio.get_running_loop().time()
        await boxes[1].exec(["true"])
        assert asyncio.get_running_loop().time() - started_s == pytest.approx(3.0)
        assert lease.usage.overhead_s >= 0
        lease.release()


@virtual
async def test_a_release_that_never_comes_is_an_error_of_the_infrastructure() -> None:
    async with bed() as b:
        boxes = [await b.cores.create_sandbox(image=None, memory_bytes=0) for _ in range(2)]
        held = b.cores.lease(2000, boxes[0])
        await boxes[0].exec(["true"])
        b.cores.lease(1000, boxes[1])
        started_s = asyncio.get_running_loop().time()
        with pytest.raises(AllocationError, match=r"1 cores were granted.*within 30 s"):
            await boxes[1].exec(["true"])
        assert asyncio.get_running_loop().time() - started_s == pytest.approx(LEASE_S)
        held.release()


@virtual
async def test_the_next_action_of_a_sandbox_does_not_wait_for_a_release_that_it_has_overtaken() -> None:
    async with bed() as b:
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        b.host.delay_s = lambda what: 100.0 if what == "release" else 0.0
        for number in range(5):
            lease = b.cores.lease(2000, box)
            assert (await box.exec(["say", str(number)])).stdout == f"say {number}".encode()
            lease.release()
        assert asyncio.get_running_loop().time() < 5
        await asyncio.sleep(200)
        assert b.manager.milli_free == 2000


@virtual
async def test_a_command_that_arrives_after_the_end_of_its_action_does_not_run() -> None:
    async with bed() as b:
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        lease = b.cores.lease(1000, box)
        b.host.delay_s = lambda what: 5.0 if what == "exec" else 0.0
        late = asyncio.create_task(box.exec(["late"]))
        await turns(2)
        assert lease.needs_cleanup()
        await lease.clean()
        lease.release()
        with pytest.raises(UsageError, match="no action has cores"):
            await late
        assert b.manager.started == []
        assert b.manager.milli_free == 2000


@virtual
async def test_what_is_alive_is_known_and_killed_before_the_cores_return() -> None:
    async with bed() as b:
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        lease = b.cores.lease(1000, box)
        await box.exec(["true"])
        assert not lease.needs_cleanup()
        await box.exec(["leave"])
        assert lease.needs_cleanup()
        await lease.clean()
        assert not lease.needs_cleanup()
        assert b.manager.milli_free == 2000
        lease.release()
        await turns(5)
        assert "release" not in b.host.calls, "cleaning has given them back"


@virtual
async def test_answers_that_overtake_each_other_do_not_hide_what_is_alive() -> None:
    async with bed() as b:
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        lease = b.cores.lease(1000, box)
        b.host.answer_delay_s = lambda _what: 5.0
        first = asyncio.create_task(box.exec(["true"]))
        await asyncio.sleep(1)
        b.host.answer_delay_s = lambda _what: 0.0
        await box.exec(["leave"])
        await first
        assert lease.needs_cleanup()
        await lease.clean()
        lease.release()


@virtual
async def test_overhead_is_what_is_not_the_commands_own() -> None:
    async with bed() as b:
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        lease = b.cores.lease(1000, box)
        b.host.delay_s = lambda _what: 0.5
        await asyncio.gather(box.exec(["sleep", "2"]), box.exec(["sleep", "3"]))
        assert lease.usage.overhead_s == pytest.approx(0.5)
        running = asyncio.create_task(box.exec(["sleep", "1000"]))
        await asyncio.sleep(4)
        running.cancel()
        await asyncio.wait([running])
        assert lease.usage.overhead_s == pytest.approx(
            0.5 + 0.5
        )  # until the cancellation came it was the command's own
        lease.release()


@pytest.mark.parametrize("delay_s", [0.0, 0.3])
def test_a_creation_that_is_cancelled_at_any_step_leaves_nothing(delay_s: float) -> None:
    async def cancelled_after(steps: int) -> bool:
        async with bed() as b:
            b.host.delay_s = lambda what: delay_s if what != "close" else 2 * delay_s
            creating = asyncio.create_task(b.cores.create_sandbox(image=None, memory_bytes=0))
            for _ in range(steps):
                await asyncio.sleep(0 if steps < 12 else 0.1)
            was_done = creating.done()
            creating.cancel()
            if was_done:
                await creating.result().aclose()
            else:
                with pytest.raises(asyncio.CancelledError):
                    await creating
            await asyncio.sleep(5)
            b.assert_idle()
            return was_done

    ends = [run_virtually(cancelled_after(steps)) for steps in range(40)]
    assert ends[0] is False
    assert ends[-1] is True


@pytest.mark.parametrize("delay_s", [0.0, 0.3])
def test_a_command_that_is_cancelled_at_any_step_has_ended(delay_s: float) -> None:
    async def cancelled_after(steps: int) -> bool:
        async with bed() as b:
            box = await b.cores.create_sandbox(image=None, memory_bytes=0)
            lease = b.cores.lease(1000, box)
            chance = random.Random(steps)
            b.host.delay_s = lambda what: chance.choice((0.0, delay_s))
            running = asyncio.create_task(box.exec(["sleep", "1"]))
            for _ in range(steps):
                await asyncio.sleep(0 if steps < 12 else 0.1)
            was_done = running.done()
            running.cancel()
            if not was_done:
                with pytest.raises(asyncio.CancelledError):
                    await running
                assert b.manager.running == []
            if lease.needs_cleanup():
                await lease.clean()
            lease.release()
            await returned(b)
            await asyncio.sleep(2)
            assert b.manager.running == []
            await box.aclose()
            b.assert_idle()
            return was_done

    ends = [run_virtually(cancelled_after(steps)) for steps in range(40)]
    assert ends[0] is False
    assert ends[-1] is True


# Nodes and sessions that are lost.


@virtual
async def test_a_release_that_is_lost_is_made_up_for_when_the_sandbox_is_closed() -> None:
    async with bed() as b:
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        lease = b.cores.lease(2000, box)
        await box.exec(["true"])
        agent, b.host.agent = b.host.agent, None
        lease.release()
        await asyncio.sleep(1)
        b.host.agent = agent
        assert b.manager.milli_free == 0
        await box.aclose()
        b.assert_idle()


class Breaking:
    """Breaks the connection at the first requests of a kind.

    Attributes:
        left: how many more.
    """

    def __init__(self, what: str, left: int = 1) -> None:
        self.what, self.left = what, left

    def __call__(self, what: str) -> bool:
        self.left -= what == self.what
        return what == self.what and self.left >= 0


@virtual
async def test_cores_are_given_back_though_the_connection_breaks_at_that_moment() -> None:
    async with bed() as b:
        suspected: list[int] = []
        b.cores.on_node_lost = lambda number, _: suspected.append(number)
        other = b.client("client-2")
        box, others = (
            await b.cores.create_sandbox(image=None, memory_bytes=0),
            await other.create_sandbox(image=None, memory_bytes=0),
        )
        lease = b.cores.lease(2000, box)
        await box.exec(["true"])
        b.host.breaks = Breaking("release", 3)
        lease.release()
        other.lease(2000, others)
        started_s = asyncio.get_running_loop().time()
        await others.exec(["true"])
        assert asyncio.get_running_loop().time() - started_s < 1
        assert suspected == [0], "once"


@virtual
async def test_what_an_action_left_is_killed_though_the_connection_breaks_when_it_is_cleaned() -> None:
    async with bed() as b:
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        lease = b.cores.lease(2000, box)
        await box.exec(["leave"])
        b.host.breaks = Breaking("clean")
        with pytest.raises(NodeLostError, match="the connection was reset"):
            await lease.clean()
        await returned(b)
        lease.release()


@virtual
async def test_a_sandbox_is_removed_though_the_connection_breaks_when_it_is_closed() -> None:
    async with bed() as b:
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        b.host.breaks = Breaking("close", 2)
        await box.aclose()
        b.assert_idle()
        b.host.breaks = Breaking("close", 1000)
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        async with asyncio.timeout(10):
            await box.aclose()
        assert b.manager.sandboxes
        b.host.breaks = lambda _: False
        await asyncio.sleep(2)
        b.assert_idle()


@virtual
async def test_nothing_is_asked_again_when_the_session_is_over() -> None:
    async with bed() as b:
        for end in (lambda: b.cores.lost(LeaseLostError("cut off")), b.cores.aclose):
            box = await b.cores.create_sandbox(image=None, memory_bytes=0)
            lease = b.cores.lease(1000, box)
            await box.exec(["true"])
            b.host.breaks = Breaking("release", 1000)
            lease.release()
            await asyncio.sleep(5)
            if (ending := end()) is not None:
                await ending
            left = b.host.breaks.left
            await asyncio.sleep(50)
            assert b.host.breaks.left == left
            b.host.breaks = lambda _: False


@virtual
async def test_a_command_whose_answer_is_lost_is_killed_before_its_cores_are_given_back() -> None:
    async with bed() as b:
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        lease = b.cores.lease(2000, box)
        running = asyncio.create_task(box.exec(["sleep", "1000"]))
        await turns(10)
        b.host.lose_calls()
        with pytest.raises(NodeLostError, match="the way is gone"):
            await running
        assert b.manager.running == [("sleep", "1000")]
        assert lease.needs_cleanup()
        await lease.clean()
        assert b.manager.running == []
        assert b.manager.milli_free == 2000


@virtual
async def test_a_node_that_dies_ends_what_goes_on_there() -> None:
    async with bed() as b:
        lost: list[tuple[int, NodeLostError]] = []
        b.cores.on_node_lost = lambda number, error: lost.append((number, error))
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        lease = b.cores.lease(1000, box)
        b.host.agent = None
        with pytest.raises(NodeLostError, match="its agent has died"):
            await box.exec(["true"])
        for attempt in (box.read_file("x"), b.cores.create_sandbox(image=None, memory_bytes=0), lease.applied()):
            with pytest.raises(NodeLostError):
                await attempt
        assert [number for number, _ in lost] == [0] * 4
        assert lease.needs_cleanup(), "nobody knows what came of the command"
        with pytest.raises(NodeLostError):
            await lease.clean()
        assert not lease.needs_cleanup()
        lease.release()
        await box.aclose()
        b.host.agent = b.agent


@virtual
async def test_an_agent_that_is_silent_holds_up_nothing_for_ever() -> None:
    async with bed() as b:
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        lease = b.cores.lease(1000, box)
        await box.exec(["leave"])
        running = asyncio.create_task(box.exec(["sleep", "1000"]))
        await turns(10)
        b.host.is_cut = True
        running.cancel()
        async with asyncio.timeout(20):
            with pytest.raises(asyncio.CancelledError):
                await running
        async with asyncio.timeout(60):
            with pytest.raises(NodeLostError, match="has not answered in time"):
                await lease.clean()
        lease.release()
        async with asyncio.timeout(100):
            await box.aclose()
        with pytest.raises(SandboxLostError, match="it was closed"):
            await box.exec(["true"])


@virtual
async def test_a_session_that_is_over_ends_its_calls_at_once() -> None:
    async with bed() as b:
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        lease = b.cores.lease(1000, box)
        running = asyncio.create_task(box.exec(["sleep", "1000"]))
        await turns(10)
        error = LeaseLostError("cut off for 30 s")
        b.cores.lost(error)
        with pytest.raises(LeaseLostError, match="cut off") as raised:
            await running
        assert raised.value is not error, "each who hears it has one of his own"
        for attempt in (box.exec(["true"]), box.read_file("x")):
            with pytest.raises(LeaseLostError, match="cut off"):
                await attempt
        with pytest.raises(LeaseLostError):
            b.cores.lease(1000, box)
        with suppress(LeaseLostError):
            await lease.clean()
        lease.release()
        await box.aclose()
        b.cores.reopen("client-9", b.cores._shape)
        fresh = await b.cores.create_sandbox(image=None, memory_bytes=0)
        b.cores.lease(1000, fresh)
        assert (await fresh.exec(["true"])).exit_code == 0


# What there is.


@virtual
async def test_a_pool_is_resized_when_the_owner_says_so_and_it_is_told_what_there_is_then() -> None:
    async with bed() as b:
        b.owner.tell(Resize("cpu", 1000))
        assert await b.owner.until(NodeCapacity) == NodeCapacity("cpu", 1000)
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        lease = b.cores.lease(2000, box)
        waiting = asyncio.create_task(box.exec(["true"]))
        await asyncio.sleep(1)
        assert not waiting.done()
        b.owner.tell(Resize("cpu", 0))  # which cannot be
        b.owner.tell(Resize("cpu", 2000))
        assert (await waiting).exit_code == 0
        lease.release()
        assert [told.capacity for told in b.owner.told if isinstance(told, NodeCapacity)] == [1000, 2000]
        with pytest.raises(UsageError, match="the agent of its node decides"):
            b.cores.check_capacity("cpu", 1000)


@virtual
async def test_cores_that_were_lent_are_had_back_from_a_pool_that_has_shrunk() -> None:
    async with bed() as b:
        box = await b.cores.create_sandbox(image=None, memory_bytes=0)
        lease = b.cores.lease(2000, box)
        await box.exec(["true"])
        lease.release()
        b.owner.tell(Resize("cpu", 1000))
        await b.owner.until(NodeCapacity)
        lease = b.cores.lease(2000, box, again=True)
        async with asyncio.timeout(1):
            assert (await box.exec(["true"])).exit_code == 0
        lease.release()


def offer(name: str, *, image: str | None = None, least: int = 0, cores: int = 2) -> NodeOffer:
    dimensions = (Dimension(f"cpu@{name}", cores * 1000, 1000), Dimension(f"memory@{name}", 1 << 30, 1 << 30))
    return NodeOffer(name, f"host-{name}", dimensions, image=image, least_memory_bytes=least, text=f"pool of {name}")


def cores_of(*offers: NodeOffer, host: int | None = None) -> RemoteCores:
    def no_line(number: int) -> AgentHost:
        raise AssertionError(f"node {number} is called")

    return RemoteCores("client-1", shape_of(*offers), host, no_line)


def test_a_trajectory_goes_where_it_can_be() -> None:
    services = replace(offer("c"), dimensions=())
    cores = cores_of(offer("a", image="a LocalPool has no images"), offer("b", least=1 << 20), services)
    assert cores.nodes_for(None, 0) == (0, 1)
    assert cores.nodes_for("python:3.12", 0) == (1,)
    assert cores.nodes_for(None, 1 << 10) == (0,)
    cores.check_image("python:3.12")
    cores.check_memory(1)
    assert [d.name for d in cores.dimensions()] == ["cpu@a", "memory@a", "cpu@b", "memory@b"]
    assert cores.describe() == "a: pool of a; b: pool of b; c: pool of c"


def test_what_no_node_can_do_is_refused() -> None:
    cores = cores_of(*(offer(name, image="no 'IMAGE' here", least=1 << 20) for name in "ab"))
    with pytest.raises(ConfigurationError, match=r"^node 'a': no 'python:3.12' here; node 'b': no 'python:3.12' here$"):
        cores.check_image("python:3.12")
    cores.check_image(None)
    with pytest.raises(ConfigurationError, match="shared pool"):
        cores.check_memory(1 << 10)
    with pytest.raises(UsageError, match="no node of the shared pool is this machine"):
        cores.lease(1000, None)


async def test_an_offer_says_what_its_pool_says() -> None:
    async with node(LocalPool(cores=1, memory_gib=1), name="n1") as (_, _, shape):
        (told,) = shape.nodes
        assert [d.name for d in told.dimensions] == ["cpu@n1", "memory@n1"]
        assert told.least_memory_bytes == 32 << 20
        assert told.no_image is None
        assert told.node_id == "here"
        cores = RemoteCores("client-1", shape, 0, lambda _node: AgentHost(None))
        with pytest.raises(
            ConfigurationError, match=r"node 'n1': a LocalPool has no images, and image='x:1' was asked"
        ):
            cores.check_image("x:1")
        assert "1 core" in cores.describe()


# All of it at once.


class Counted:
    """Grants cores as an owner does, that knows of releases only what clients say."""

    def __init__(self) -> None:
        self.free = 2000
        self._changed = asyncio.Event()

    async def take(self, milli: int) -> None:
        while self.free < milli:
            self._changed.clear()
            await self._changed.wait()
        self.free -= milli

    def give_back(self, milli: int) -> None:
        self.free += milli
        self._changed.set()


async def rollout(cores: RemoteCores, counted: Counted, chance: random.Random) -> None:
    box = await cores.create_sandbox(image=None, memory_bytes=0)
    for _ in range(chance.randint(1, 4)):
        milli = chance.choice((300, 500, 1000, 2000))
        await counted.take(milli)
        await action(cores.lease(milli, box), box, chance)
        counted.give_back(milli)
    if chance.random() < 0.8:
        await box.aclose()


async def action(lease: CpuLease, box, chance: random.Random) -> None:  # type: ignore[no-untyped-def]
    body = asyncio.gather(*(command(box, chance) for _ in range(chance.randint(0, 3))), return_exceptions=True)
    if chance.random() < 0.3:
        await asyncio.wait([body], timeout=chance.uniform(0, 2))
        body.cancel()
    with suppress(asyncio.CancelledError):
        for result in await body:
            assert not isinstance(result, Exception), result
    if lease.needs_cleanup():
        await lease.clean()
    lease.release()


async def command(box, chance: random.Random) -> None:  # type: ignore[no-untyped-def]
    argv = chance.choice((["true"], ["leave"], ["sleep", f"{chance.uniform(0, 3):.3f}"]))
    await box.exec(argv)


@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 32))
def test_no_core_is_had_twice_and_all_return_whatever_overtakes_what(seed: int) -> None:
    async def main() -> None:
        chance = random.Random(seed)
        async with bed() as b:
            b.host.delay_s = lambda what: chance.choice((0.0, 0.0, chance.uniform(0, 1)))
            b.host.answer_delay_s = b.host.delay_s
            counted = Counted()
            clients = [b.client(f"client-{number}") for number in range(3)]
            async with asyncio.timeout(600):
                await asyncio.gather(*(rollout(chance.choice(clients), counted, chance) for _ in range(8)))
            await asyncio.sleep(5)
            assert b.manager.milli_free == 2000
            assert b.manager.running == []
            for client in clients:
                await client.aclose()
            b.assert_idle()

    run_virtually(main())
