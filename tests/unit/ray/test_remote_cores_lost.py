"""Cores and sandboxes of a node when connections break, the node dies, the session ends, or the pool shrinks."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from arl_tangram.errors import (
    LeaseLostError,
    NodeLostError,
    SandboxLostError,
    UsageError,
)
from arl_tangram.integrations.ray.wire import NodeCapacity, Resize
from unit.ray.core_bed import bed, returned
from virtual_time import turns, virtual


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
