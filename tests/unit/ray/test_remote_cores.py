"""Cores and sandboxes of a node as clients have them: calls overtake, and are cancelled anywhere."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arl_tangram.errors import (
    AllocationError,
    UsageError,
)
from arl_tangram.integrations.ray.client.cores import RemoteCores
from arl_tangram.managers.manager import CpuLease
from unit.ray.core_bed import LEASE_S, bed, returned
from virtual_time import run_virtually, turns, virtual


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
