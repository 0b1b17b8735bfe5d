"""What one session has on a node, below the agent; and the numbers that it remembers."""

from __future__ import annotations

import asyncio

import pytest

from arl_tangram.errors import LeaseLostError, SandboxLostError, UsageError
from arl_tangram.integrations.ray.node.leases import Room
from arl_tangram.integrations.ray.node.recent import Recent
from arl_tangram.integrations.ray.node.spool import Spool
from arl_tangram.integrations.ray.node.tenancy import Tenancy
from arl_tangram.integrations.ray.wire import LeaseTold
from unit.ray.slow_pool import SlowManager, SlowPool
from virtual_time import virtual

CREATE = {"sandbox": 1, "image": None, "memory_bytes": 0}


def tenancy() -> tuple[Tenancy, SlowManager]:
    manager = SlowPool().manager()
    return Tenancy("client-1", 1, manager, Room(manager, 30.0), Spool()), manager


@virtual
async def test_a_sandbox_that_was_closed_before_it_was_made_is_not_kept() -> None:
    own, manager = tenancy()
    creating = asyncio.ensure_future(own.calls["create"](CREATE))
    await asyncio.sleep(0.5)
    await own.calls["close"]({"sandbox": 1})
    with pytest.raises(LeaseLostError, match="has closed the sandbox meanwhile"):
        await creating
    assert not manager.sandboxes
    with pytest.raises(SandboxLostError, match="it was closed"):
        await own.calls["read_file"]({"sandbox": 1, "path": "x", "max_bytes": 1})


@virtual
async def test_a_sandbox_that_is_made_after_the_end_of_its_session_is_not_kept() -> None:
    own, manager = tenancy()
    creating = asyncio.ensure_future(own.calls["create"](CREATE))
    await asyncio.sleep(0.5)
    await own.end()
    with pytest.raises(LeaseLostError, match="client-1 is over"):
        await creating
    assert not manager.sandboxes


@virtual
async def test_an_end_that_is_cancelled_goes_on_to_its_end() -> None:
    own, manager = tenancy()
    await own.calls["create"](CREATE)
    told = LeaseTold(1, 1000, False)
    await own.calls["exec"]({"lease": told, "sandbox": 1, "argv": ["leave"]})
    ending = asyncio.ensure_future(own.end())
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert not manager.sandboxes
    assert manager.milli_free == 2000


@virtual
async def test_a_sandbox_that_the_agent_does_not_know_is_lost() -> None:
    own, _ = tenancy()
    with pytest.raises(SandboxLostError, match="its node has not made it, or was started again since"):
        await own.calls["exec"]({"lease": LeaseTold(1, 1000, False), "sandbox": 3, "argv": ["true"]})


@virtual
async def test_a_lease_that_ends_while_it_waits_takes_nothing() -> None:
    own, manager = tenancy()
    for number in (1, 2):
        await own.calls["create"]({**CREATE, "sandbox": number})
    await own.calls["exec"]({"lease": LeaseTold(1, 2000, False), "sandbox": 1, "argv": ["true"]})
    waiting = asyncio.ensure_future(
        own.calls["exec"]({"lease": LeaseTold(2, 2000, False), "sandbox": 2, "argv": ["late"]})
    )
    await asyncio.sleep(1)
    for lease in (2, 1):
        async with asyncio.timeout(1):
            await own.calls["release"]({"lease": LeaseTold(lease, 2000, False)})
    assert (await waiting).told
    await asyncio.sleep(1)
    assert manager.milli_free == 2000
    assert manager.started == [("true",)]
    await own.end()


@virtual
async def test_an_earlier_action_of_a_sandbox_has_no_cores_any_more() -> None:
    own, manager = tenancy()
    await own.calls["create"](CREATE)
    await own.calls["exec"]({"lease": LeaseTold(2, 1000, False), "sandbox": 1, "argv": ["true"]})
    with pytest.raises(UsageError, match="no action has cores"):
        await own.calls["exec"]({"lease": LeaseTold(1, 1000, False), "sandbox": 1, "argv": ["late"]})
    assert manager.started == [("true",)]
    await own.end()


@virtual
async def test_cores_that_are_applied_long_after_they_were_granted_are_had() -> None:
    own, manager = tenancy()
    await own.calls["create"](CREATE)
    for lease in range(2, 20_002):
        await own.calls["release"]({"lease": LeaseTold(lease, 1000, False), "sandbox": None})
    with pytest.raises(UsageError, match="were given back"):
        await own.calls["apply"]({"lease": LeaseTold(20_001, 1000, False), "sandbox": None})
    await own.calls["exec"]({"lease": LeaseTold(1, 1000, False), "sandbox": 1, "argv": ["true"]})
    assert manager.started == [("true",)]
    await own.end()


def test_the_latest_numbers_are_known() -> None:
    seen = Recent(most=100)
    for number in range(1000, 0, -1):
        assert number not in seen
        assert seen.add(number)
        assert not seen.add(number)
        assert number in seen
    assert 100 in seen
    assert 101 not in seen
