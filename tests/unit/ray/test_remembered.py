"""What an owner knows beside what is held: another one, in its place, has it back from those who were told."""

from __future__ import annotations

import asyncio

import pytest

import arl_tangram as tangram
from arl_tangram import Breaker, LeaseLostError, OwnerLostError, Quota, current_quota
from arl_tangram.integrations.ray.answers import result_of
from arl_tangram.testing import FakePool
from shared_world import SharedWorld, settle
from virtual_time import virtual

LEASE_S, GRACE_S = 12.0, 10.0
BUDGET = "quota:api/calls/total"
CALLS: list[float] = []


@pytest.fixture(autouse=True)
def _anew() -> None:
    CALLS.clear()


@tangram.action(quota={"api": 1})
async def search(for_s: float = 0.1, works: bool = True) -> str:
    CALLS.append(time())
    await asyncio.sleep(for_s)
    if not works:
        raise ConnectionError("it does not answer")
    return "found"


@tangram.action(quota={"api": 1})
async def told_to_wait(for_s: float) -> None:
    current_quota("api").retry_after(for_s)


@tangram.action(quota={"room": 1})
async def in_room(for_s: float) -> str:
    await asyncio.sleep(for_s)
    return "found"


@tangram.action(quota={"room": 1, "api": 1})
async def search_in_room() -> str:
    return "found"


@tangram.action(quota={"api": 1})
async def asks_another() -> str:
    return await search_in_room()


def world(quota: Quota, *, has_nodes: bool = True) -> SharedWorld:
    nodes = {"a": [FakePool(cores=1)]} if has_nodes else {}
    return SharedWorld(quota, nodes=nodes, lease_s=LEASE_S)


def time() -> float:
    return asyncio.get_running_loop().time()


async def restart(shared: SharedWorld) -> None:
    """Let another owner take the place of this one, and know all that is held."""
    shared.kill_owner()
    await asyncio.sleep(1.0)
    shared.start_owner()
    await asyncio.sleep(5.0)


def used(shared: SharedWorld) -> float:
    return shared.statistics().dimensions[BUDGET].used


@virtual
@pytest.mark.parametrize("has_nodes", [True, False])
async def test_a_pause_goes_on_until_somebody_ends_it(has_nodes: bool) -> None:
    async with world(Quota("api", concurrency=2), has_nodes=has_nodes) as shared:
        one, two = [await shared.client(name).start() for name in ("one", "two")]
        one.pause()
        await settle()
        await restart(shared)
        waiting = asyncio.ensure_future(two.run(search))
        await asyncio.sleep(60.0 if not has_nodes else 5.0)
        assert not CALLS
        await restart(shared)
        await asyncio.sleep(60.0 if not has_nodes else 5.0)
        assert not CALLS, "the second owner remembers it, too"
        two.resume()
        assert await waiting == "found"
        await restart(shared)
        assert await one.run(search) == "found"
        await one.aclose()
        await two.aclose()


@virtual
async def test_what_a_server_asks_for_is_obeyed_by_the_next_owner() -> None:
    async with world(Quota("api", concurrency=2)) as shared:
        one, two = [await shared.client(name).start() for name in ("one", "two")]
        before_s = time()
        await one.run(told_to_wait, 100.0)
        await settle()
        await one.aclose()
        await restart(shared)
        assert await two.run(search) == "found"
        assert [pytest.approx(before_s + 100.0, abs=0.01)] == CALLS
        await two.aclose()


@virtual
async def test_who_begins_later_is_told_how_much_of_a_pause_is_left() -> None:
    async with world(Quota("api", concurrency=2), has_nodes=False) as shared:
        one = await shared.client("one").start()
        before_s = time()
        await one.run(told_to_wait, 100.0)
        await asyncio.sleep(70.0)
        async with shared.client("late") as late:
            await one.aclose()
            await restart(shared)
            assert await late.run(search) == "found"
            assert [pytest.approx(before_s + 100.0, abs=0.1)] == CALLS


@virtual
async def test_a_breaker_that_is_open_stays_so_until_it_would_have_let_one_through() -> None:
    quota = Quota("api", concurrency=4, breaker=Breaker(failures=3, pause_s=30.0))
    async with world(quota) as shared, shared.client() as tg:
        early = asyncio.ensure_future(tg.run(search, 100.0))
        for _ in range(3):
            with pytest.raises(ConnectionError):
                await tg.run(search, works=False)
        await settle()
        opened_s = time()
        await asyncio.sleep(2.0)
        await restart(shared)
        assert tg.statistics().breakers == {"api": "open"}
        CALLS.clear()
        waiting = [asyncio.ensure_future(tg.run(search, 5.0)) for _ in range(4)]
        await asyncio.sleep(opened_s + 29.0 - time())
        assert not CALLS
        await asyncio.sleep(3.0)
        assert len(CALLS) == 1, "one is let through, beside the one that runs from before"
        await restart(shared)
        assert await asyncio.gather(*waiting) == ["found"] * 4
        assert tg.statistics().breakers == {"api": "closed"}
        assert await early == "found"
        await shared.check_idle()


@virtual
async def test_a_breaker_whose_probe_goes_on_lets_no_second_one_through() -> None:
    quota = Quota("api", concurrency=4, breaker=Breaker(failures=1, pause_s=10.0))
    async with world(quota) as shared, shared.client() as tg:
        with pytest.raises(ConnectionError):
            await tg.run(search, works=False)
        CALLS.clear()
        waiting = [asyncio.ensure_future(tg.run(search, 30.0)) for _ in range(3)]
        await asyncio.sleep(12.0)
        assert len(CALLS) == 1
        await restart(shared)
        assert tg.statistics().breakers == {"api": "probing"}
        await asyncio.sleep(10.0)
        assert len(CALLS) == 1
        assert await asyncio.gather(*waiting) == ["found"] * 3
        await shared.check_idle()


@virtual
async def test_a_call_that_a_probe_has_made_waits_on() -> None:
    quotas = Quota("api", concurrency=4, breaker=Breaker(failures=1, pause_s=10.0)), Quota("room", concurrency=1)
    async with SharedWorld(*quotas, nodes={}, lease_s=LEASE_S) as shared, shared.client() as tg:
        with pytest.raises(ConnectionError):
            await tg.run(search, works=False)
        await asyncio.sleep(9.0)
        taken = asyncio.ensure_future(tg.run(in_room, 100.0))
        probing = asyncio.ensure_future(tg.run(asks_another))
        await asyncio.sleep(2.0)
        await restart(shared)
        await asyncio.sleep(25.0)
        assert tg.statistics().breakers == {"api": "probing"}
        assert await taken == "found"
        assert await probing == "found"
        assert tg.statistics().breakers == {"api": "closed"}
        await shared.check_idle()


@virtual
@pytest.mark.parametrize("has_nodes", [True, False])
async def test_a_budget_is_not_spent_twice_when_who_spent_it_has_closed(has_nodes: bool) -> None:
    quota = Quota("api", concurrency=4, total_calls=5)
    async with world(quota, has_nodes=has_nodes) as shared, shared.client() as two:
        async with shared.client() as one:
            for _ in range(3):
                await one.run(search)
        await two.run(search)
        await asyncio.sleep(2.0)
        for _ in range(2):
            await restart(shared)
            await asyncio.sleep(60.0 if not has_nodes else 5.0)
            assert used(shared) == 4
        await two.run(search)
        with pytest.raises(tangram.InfeasibleError):
            await two.run(search)


@virtual
async def test_nor_when_who_spent_it_was_cut_off_and_each_call_counts_once() -> None:
    async with world(Quota("api", concurrency=4, total_calls=100)) as shared, shared.client() as two:
        one = await shared.client().start()
        await one.run(search)
        gone = asyncio.ensure_future(one.run(search, 1000.0))
        await settle()
        shared.line_of(one).is_cut = True
        with pytest.raises(LeaseLostError):
            await gone
        await asyncio.sleep(30.0)
        shared.line_of(one).is_cut = False
        await one.run(search)
        await two.run(search)
        await asyncio.sleep(2.0)
        assert used(shared) == 4
        for _ in range(2):
            await restart(shared)
            assert used(shared) == 4
        await one.aclose()
        await asyncio.sleep(2.0)
        await restart(shared)
        assert used(shared) == 4


@virtual
async def test_nor_when_who_spent_it_ends_while_another_owner_begins() -> None:
    async with world(Quota("api", concurrency=4, total_calls=100)) as shared:
        one, two, silent = [await shared.client(name).start() for name in ("one", "two", "silent")]
        for tg in (one, two):
            await tg.run(search)
        shared.line_of(silent).is_cut = True
        shared.kill_owner()
        await asyncio.sleep(1.0)
        shared.start_owner()
        await asyncio.sleep(3.0)
        await one.aclose()
        await asyncio.sleep(60.0)
        assert used(shared) == 2
        await restart(shared)
        assert used(shared) == 2
        shared.line_of(silent).is_cut = False
        await two.aclose()
        await silent.aclose()


@virtual
async def test_nor_when_it_ends_then_with_a_call_that_runs() -> None:
    async with world(Quota("api", concurrency=4, total_calls=100)) as shared:
        one, silent = [await shared.client(name).start() for name in ("one", "silent")]
        await one.run(search)
        going = asyncio.ensure_future(one.run(search, 1000.0))
        await settle()
        shared.line_of(silent).is_cut = True
        shared.kill_owner()
        await asyncio.sleep(1.0)
        shared.start_owner()
        await asyncio.sleep(3.0)
        await one.aclose()
        with pytest.raises(tangram.ShutdownError):
            await going
        await asyncio.sleep(60.0)
        async with shared.client() as two:
            assert used(shared) == 2
            await restart(shared)
            assert used(shared) == 2
            await two.run(search)
        shared.line_of(silent).is_cut = False
        await silent.aclose()


@virtual
async def test_nor_when_it_was_cut_off_and_comes_back_to_another_owner() -> None:
    async with world(Quota("api", concurrency=4, total_calls=100)) as shared, shared.client() as two:
        one = await shared.client().start()
        for _ in range(3):
            await one.run(search)
        shared.line_of(one).is_cut = True
        await asyncio.sleep(30.0)
        await restart(shared)
        assert used(shared) == 3
        shared.line_of(one).is_cut = False
        await one.run(search)
        await two.run(search)
        await restart(shared)
        assert used(shared) == 5
        await one.aclose()


@virtual
async def test_nodes_remember_it_when_all_clients_are_gone() -> None:
    async with world(Quota("api", concurrency=2)) as shared:
        async with shared.client() as one:
            one.pause()
        await restart(shared)
        async with shared.client() as two:
            waiting = asyncio.ensure_future(two.run(search))
            await asyncio.sleep(60.0)
            assert not CALLS
            two.resume()
            assert await waiting == "found"


@virtual
async def test_who_came_later_remembers_it_too() -> None:
    async with world(Quota("api", concurrency=2), has_nodes=False) as shared:
        one = await shared.client().start()
        one.pause()
        await settle()
        async with shared.client() as two:
            await one.aclose()
            await restart(shared)
            waiting = asyncio.ensure_future(two.run(search))
            await asyncio.sleep(60.0)
            assert not CALLS
            two.resume()
            assert await waiting == "found"


@virtual
async def test_what_was_said_last_counts_though_not_all_have_heard_it() -> None:
    async with world(Quota("api", concurrency=2)) as shared:
        one, two = [await shared.client(name).start() for name in ("one", "two")]
        for _ in range(5):
            one.pause()
            await settle()
        shared.kill_owner()
        shared.line_of(two).is_cut = True
        shared.start_owner()
        await asyncio.sleep(2.0)
        shared.line_of(one).is_cut = True  # it has resumed, and does not hear of what comes
        shared.line_of(two).is_cut = False
        await asyncio.sleep(3.0)
        two.resume()
        await settle()
        shared.kill_owner()
        shared.line_of(one).is_cut = False
        shared.start_owner()
        await asyncio.sleep(5.0)
        assert await one.run(search) == "found"
        await one.aclose()
        await two.aclose()


@virtual
async def test_a_pause_that_is_asked_for_while_an_owner_begins_is_refused_in_time_and_not_obeyed_later() -> None:
    async with world(Quota("api", concurrency=2)) as shared:
        one, silent = [await shared.client(name).start() for name in ("one", "silent")]
        shared.line_of(silent).is_cut = True
        shared.kill_owner()
        await asyncio.sleep(1.0)
        shared.start_owner()
        with pytest.raises(OwnerLostError, match="this client is still to"):
            one.pause()
        await asyncio.sleep(3.0)
        async with asyncio.timeout(4.0):
            reply = await shared.owner.ask(one._session, "halt", {"halted": True})
        with pytest.raises(OwnerLostError, match="started again"):
            result_of(reply, "halt")
        await asyncio.sleep(60.0)
        assert await one.run(search) == "found"
        shared.line_of(silent).is_cut = False
        await one.aclose()
        await silent.aclose()


async def restart_late(shared: SharedWorld) -> None:
    """Let another owner begin when all have let go what they had of this one."""
    shared.kill_owner()
    await asyncio.sleep(LEASE_S + 3.0)
    shared.start_owner()
    await asyncio.sleep(LEASE_S + GRACE_S + 3.0)


@virtual
@pytest.mark.parametrize("has_nodes", [True, False])
async def test_an_owner_that_was_away_for_long_goes_on_with_a_pause(has_nodes: bool) -> None:
    async with world(Quota("api", concurrency=2, total_calls=10), has_nodes=has_nodes) as shared:
        gone, one, two = [await shared.client(name).start() for name in ("gone", "one", "two")]
        await gone.run(search)
        await gone.run(search)
        await gone.aclose()
        await one.run(told_to_wait, 300.0)
        one.pause()
        await settle()
        began_s = time()
        CALLS.clear()
        for _ in range(2):
            await restart_late(shared)
        waiting = asyncio.ensure_future(two.run(search))
        await asyncio.sleep(50.0)
        assert used(shared) >= 2
        assert not CALLS
        one.resume()
        assert await waiting == "found"
        assert [pytest.approx(began_s + 300.0, abs=0.1)] == CALLS
        await one.aclose()
        await two.aclose()


@virtual
async def test_who_comes_to_an_owner_that_has_begun_without_it_cannot_bring_a_pause_back() -> None:
    async with world(Quota("api", concurrency=2), has_nodes=False) as shared:
        one = await shared.client("one").start()
        one.pause()
        await settle()
        shared.line_of(one).is_cut = True
        await restart_late(shared)
        new = await shared.client("new").start()
        assert await new.run(search) == "found"
        shared.line_of(one).is_cut = False
        assert await one.run(search) == "found"
        await restart_late(shared)
        assert await one.run(search) == "found"
        await one.aclose()
        await new.aclose()
