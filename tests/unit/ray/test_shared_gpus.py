"""Services on the GPUs of a node, used by several clients: the owner gives seats, the node makes them real."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

import arl_tangram as tangram
from arl_tangram import ConfigurationError, InfrastructureError, NodeLostError, Quota, RestoreError
from arl_tangram.integrations.ray.holdings import Held, Holdings
from arl_tangram.integrations.ray.wire import Event, Granted
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.testing import FakeGpuPool, FakePool, FakeService
from shared_world import SharedWorld, settle
from virtual_time import virtual


@tangram.action(service="judge")
async def judge(answer: str, for_s: float = 1.0) -> int:
    found = await tangram.current_service().call(answer)
    await asyncio.sleep(for_s)
    return found  # type: ignore[no-any-return]


@tangram.action(service="teacher")
async def teach(answer: str, for_s: float = 1.0) -> str:
    found = await tangram.current_service().call(answer)
    await asyncio.sleep(for_s)
    return found  # type: ignore[no-any-return]


def time() -> float:
    return asyncio.get_running_loop().time()


def world(*services: FakeService, lease_s: float = 12.0) -> SharedWorld:
    hosted = services or (FakeService("judge", gib=60, on_call=len), FakeService("teacher", gib=60, on_call=str.upper))
    return SharedWorld(nodes={"a": [FakePool(cores=2)], "g": [FakeGpuPool(*hosted)]}, lease_s=lease_s)


@virtual
async def test_clients_take_turns_on_one_device_and_services_are_swapped() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        told = await asyncio.gather(
            one.run(judge, "four"), two.run(teach, "four"), two.run(judge, "three"), one.run(teach, "three")
        )
        assert told == [4, "FOUR", 5, "THREE"]
        await shared.check_idle()
        services = one.statistics().services
        assert list(services) == ["judge", "teacher"]
        assert sum(service.uses for service in services.values()) == 4
        assert (services["judge"].restores, services["teacher"].evictions) == (services["judge"].asked, 1)
        assert services["judge"].restore_s > 0


@virtual
async def test_a_restore_that_fails_is_tried_again_and_then_told() -> None:
    tries = 0

    def broken(_dop: int) -> None:
        nonlocal tries
        tries += 1
        raise RestoreError("no luck")

    nodes = {"g": [FakeGpuPool(FakeService("judge", on_restore=broken), gpus=2)]}
    async with SharedWorld(nodes=nodes) as shared, shared.client() as tg:
        with pytest.raises(RestoreError):
            await tg.run(judge, "four")
        assert tries > 1
        await shared.check_idle()


@virtual
async def test_a_cancelled_caller_gives_its_seat_back() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        for pause_s in (0.0, 0.5, 1.5):
            task = asyncio.ensure_future(one.run(judge, "four", 100.0))
            await settle()
            await asyncio.sleep(pause_s)
            waits = asyncio.ensure_future(two.run(teach, "four"))
            await settle()
            task.cancel()
            assert await waits == "FOUR"
        await shared.check_idle()


@virtual
async def test_the_seat_of_a_client_that_is_gone_goes_to_others() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        gone = asyncio.ensure_future(one.run(judge, "four", 1000.0))
        await asyncio.sleep(2.0)
        shared.line_of(one).is_cut = True
        before_s = time()
        assert await two.run(teach, "four") == "FOUR"
        assert time() - before_s < 12 + 10 + 5
        with pytest.raises(tangram.LeaseLostError):
            await gone
        await shared.check_idle()


@virtual
async def test_a_new_owner_lets_no_seat_stay_and_goes_on() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        seated = asyncio.ensure_future(one.run(judge, "four", 1000.0))
        await settle()
        waits = asyncio.ensure_future(two.run(judge, "three"))
        await asyncio.sleep(2.0)
        shared.kill_owner()
        await asyncio.sleep(0.5)
        shared.start_owner()
        with pytest.raises(InfrastructureError):
            await seated
        assert await waits == 5
        assert await one.run(teach, "four") == "FOUR"
        await shared.check_idle()


@virtual
async def test_a_node_with_gpus_that_is_lost_and_back_begins_with_nothing() -> None:
    async with world() as shared, shared.client() as tg:
        assert await tg.run(judge, "four") == 4
        host = shared.agents["g"]
        assert host.agent is not None
        agent, host.agent = host.agent, None
        shared.lines["g"].is_cut = True
        await agent.aclose()
        await asyncio.sleep(30.0)
        waits = asyncio.ensure_future(tg.run(judge, "three"))
        await settle()
        assert shared.statistics().waiting == 1
        await shared.start_agent("g")
        assert await waits == 5
        assert await tg.run(teach, "four") == "FOUR"
        await shared.check_idle()


@virtual
async def test_a_node_with_gpus_that_stays_away_is_an_error_for_who_needs_it() -> None:
    async with world() as shared, shared.client() as tg:
        host = shared.agents["g"]
        assert host.agent is not None
        agent, host.agent = host.agent, None
        shared.lines["g"].is_cut = True
        await agent.aclose()
        await asyncio.sleep(30.0)
        with pytest.raises(NodeLostError):
            await tg.run(judge, "three")


@virtual
async def test_two_nodes_with_gpus_are_refused() -> None:
    nodes = {name: [FakeGpuPool(FakeService("judge"))] for name in ("g", "h")}
    async with SharedWorld(nodes=nodes) as shared:
        with pytest.raises(ConfigurationError, match="one node"):
            await shared.client().start()


@virtual
async def test_who_has_a_seat_on_a_node_that_is_lost_is_told() -> None:
    async with world() as shared, shared.client() as tg:
        there = asyncio.ensure_future(tg.run(judge, "four", 1000.0))
        await settle(200)
        shared.lines["g"].is_cut = True
        before_s = time()
        with pytest.raises(NodeLostError):
            await there
        assert time() - before_s < 12 + 10 + 1
        shared.lines["g"].is_cut = False
        await asyncio.sleep(30.0)
        assert await tg.run(judge, "four") == 4
        await shared.check_idle()


@virtual
async def test_what_a_seated_call_has_beside_its_seat_is_its_own_until_it_has_ended_after_a_restart() -> None:
    there = most = 0

    @tangram.action(service="judge", quota={"api": 1})
    async def judged() -> None:
        nonlocal there, most
        there += 1
        most = max(most, there)
        try:
            await asyncio.sleep(1000.0)
        except asyncio.CancelledError:
            await asyncio.sleep(3.0)  # it tidies up
            raise
        finally:
            there -= 1

    @tangram.action(quota={"api": 1})
    async def search() -> str:
        nonlocal most
        most = max(most, there + 1)
        return "found"

    nodes = {"a": [FakePool(cores=2)], "g": [FakeGpuPool(FakeService("judge", on_call=len))]}
    async with SharedWorld(Quota("api", concurrency=1), nodes=nodes, lease_s=12.0) as shared, shared.client() as tg:
        seated = asyncio.ensure_future(tg.run(judged))
        await settle(200)
        waits = asyncio.ensure_future(tg.run(search))
        await asyncio.sleep(2.0)
        shared.kill_owner()
        await asyncio.sleep(0.5)
        shared.start_owner()
        with pytest.raises(InfrastructureError):
            await seated
        assert await waits == "found"
        assert most == 1
        await shared.check_idle()


@virtual
async def test_a_call_knows_its_key_whatever_number_of_gpus_it_was_granted() -> None:
    async with world() as shared, shared.client():
        told: list[Event] = []
        decider = shared.decider
        holdings = Holdings(
            "s",
            decider.dispatcher,
            shared.owner._nodes,
            told.append,
            interned=decider.interned,
            why=decider.why,
            memory=decider.memory,
        )
        keys = tuple(Demand("train", ((9, 2), (d, 1)), dimensions=1 << d, keys=(("api", d),)) for d in (0, 1))
        waits = PendingAction(1, Demand("train", (), dimensions=3, places=keys), 0.0)
        granted = waits._replace(demand=replace(keys[1], fixed=((9, 1), (1, 1))))
        holdings.granted(Held(holdings, 1, waits), RunningAction(granted, 0, 0.0, 1.0))
        assert [event.place for event in told if isinstance(event, Granted)] == [1]


@virtual
async def test_errors_of_the_users_own_are_told_in_those_of_the_library() -> None:
    class OwnError(tangram.InfeasibleError):
        pass

    async with world() as shared, shared.client() as tg:
        tg.pause()
        waits = asyncio.ensure_future(tg.run(judge, "four"))
        await settle(200)
        (held,) = next(iter(shared.owner._holdings.values())).all()
        shared.decider.dispatcher.withdraw(held.pending.id)
        held.failed(OwnError("not today"))
        with pytest.raises(InfrastructureError, match="OwnError: not today"):
            await waits
