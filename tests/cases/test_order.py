"""Cases 52 to 62: who comes first, who waits how long, and who gets how much."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import Elastic, Measured, Quota, policies
from arl_tangram.scheduling.arrange import Arrangement
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policy import Candidate
from arl_tangram.testing import FakePool
from cases.settled import now_s, opened
from counting_pools import CountingPool
from virtual_time import turns, virtual

POLICIES = [policies.elastic(), policies.paper(), policies.paper(best_prefix=True), policies.fixed(2)]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
# `shortest` lets short ones pass for a time that depends on how long an action takes: case 54.
by_arrival = pytest.mark.parametrize("order", ["fcfs", "trajectory"])


async def _started(for_s: float = 0.0) -> float:
    begun_s = now_s()
    await asyncio.sleep(for_s)
    return begun_s


async def _called(act: Callable[[float], Awaitable[float]], for_s: float) -> float:
    return await act(for_s)


# Case 52: a big one among small ones.

BIG: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # what runs first, what needs all of it, and the small ones that keep coming
    "cores": ({"cpu": 6}, {"cpu": 8}, {"cpu": 1}),
    "elastic cores": ({"cpu": 6}, {"cpu": Elastic(8, 8)}, {"cpu": Elastic(1, 2)}),
    "cores and more": ({"cpu": 6}, {"cpu": 8}, {"cpu": 1, "memory_gib": 1}),
    "cores of theirs": ({"cpu": 6}, {"cpu": 8, "memory_gib": 1}, {"cpu": 1}),
    "fractions": ({"cpu": 6}, {"cpu": 8}, {"cpu": 0.5}),
    "memory": ({"memory_gib": 48}, {"memory_gib": 64}, {"memory_gib": 8}),
    "calls at once": ({"quota": {"api": 6}}, {"quota": {"api": 8}}, {"quota": {"api": 1}}),
    "two things": ({"cpu": 6, "memory_gib": 48}, {"cpu": 8, "memory_gib": 64}, {"cpu": 1, "memory_gib": 8}),
}
SMALL_S, LONG_S = 0.125, 5.0625  # no small one ends in the moment in which the long one does


@by_arrival
@pytest.mark.parametrize("kind", BIG)
@virtual
async def test_case_52_small_ones_do_not_starve_a_big_one_nor_does_it_stop_others(kind: str, order: Order) -> None:
    """A large part is taken for some seconds. Small ones come all the time, one every 10 ms, and then a big one.

    Those that came before it use what is idle until it is their end; it starts as soon as the rest has ended, however
    many have come since. Who needs nothing of what it waits for passes it all the time.
    """
    first, wanted, little = BIG[kind]
    long, small = tangram.action(**first)(_started), tangram.action(**little)(_started)
    big = tangram.action(**wanted)(_started)
    other = tangram.action(quota={"other": 1})(_started)
    async with opened(CountingPool(cores=8), Quota("api", concurrency=8), Quota("other", concurrency=1), order=order):
        running = asyncio.create_task(_called(long, LONG_S))
        await turns(5)
        before = [asyncio.create_task(_called(small, SMALL_S)) for _ in range(10)]
        await turns(5)
        waits = asyncio.create_task(_called(big, 0.5))
        behind: list[asyncio.Task[float]] = []
        others: list[tuple[float, float]] = []
        for _ in range(1000):
            behind.append(asyncio.create_task(_called(small, SMALL_S)))
            others.append((now_s(), await other(0.0)))
            await asyncio.sleep(0.01)
        started_before = await asyncio.gather(*before)
        assert max(started_before) < LONG_S, "those before it used what was idle"
        big_s = await waits
        assert big_s <= LONG_S + SMALL_S, "no more than one small one after it could first fit"
        assert all(asked_s == got_s for asked_s, got_s in others), "other resources are not held up"
        assert max(await asyncio.gather(*behind)) < now_s() + 1
        await running


@every_policy
@virtual
async def test_case_52_a_stream_that_never_ends_does_not_starve_it_under_any_policy(policy: policies.Policy) -> None:
    small = tangram.action(cpu=Elastic(1, 4), duration_s=0.25)(_started)
    big = tangram.action(cpu=8, duration_s=1)(_started)
    async with opened(CountingPool(cores=8), policy=policy):
        stream = [asyncio.create_task(_called(small, 0.25)) for _ in range(30)]
        await turns(5)
        asked_s = now_s()
        waits = asyncio.create_task(_called(big, 0.1))
        while not waits.done():
            assert now_s() < 60
            stream.append(asyncio.create_task(_called(small, 0.25)))
            await asyncio.sleep(0.02)
        assert await waits - asked_s <= 0.25 * 31 / 2, "those before it two at a time at worst, then it"
        await asyncio.gather(*stream)


# Case 54: an order that prefers some displaces the others by a bounded amount.


@virtual
async def test_case_54_short_ones_displace_a_long_one_for_a_bounded_time() -> None:
    """`shortest`, on one core with more short calls than it can serve: 20 times its own duration is the bound."""
    short = tangram.action(cpu=1, duration_s=0.25)(_started)
    long = tangram.action(cpu=1, duration_s=2)(_started)
    async with opened(CountingPool(cores=1), order="shortest"):
        stream = [asyncio.create_task(_called(short, 0.25)) for _ in range(4)]
        await turns(5)
        asked_s = now_s()
        waits = asyncio.create_task(_called(long, 2))
        while not waits.done():
            assert now_s() < 300
            stream.append(asyncio.create_task(_called(short, 0.25)))
            await asyncio.sleep(0.2)
        displaced_s = await waits - asked_s
        # Those that come within 20 durations go first, and they are served more slowly than they come.
        assert 20 < displaced_s <= 20 * 2 * 0.25 / 0.2 + 2
        await asyncio.gather(*stream)


@virtual
async def test_case_54_the_many_are_not_much_worse_off_for_the_one() -> None:
    """The other half: what is preferred still is. Where there is room, short ones hardly wait for a long one."""
    short = tangram.action(cpu=1, duration_s=0.25)(_started)
    long = tangram.action(cpu=1, duration_s=2)(_started)

    async def mean_wait_s(order: Order) -> float:
        async with opened(CountingPool(cores=2), order=order):
            longs = [asyncio.create_task(_called(long, 2)) for _ in range(6)]
            waits: list[float] = []
            stream: list[asyncio.Task[None]] = []

            async def one() -> None:
                asked_s = now_s()
                waits.append(await short(0.25) - asked_s)

            for _ in range(100):
                stream.append(asyncio.create_task(one()))
                await asyncio.sleep(0.25)
            await asyncio.gather(*stream, *longs)
            return sum(waits) / len(waits)

    assert await mean_wait_s("shortest") < 0.8 * await mean_wait_s("fcfs")


@virtual
async def test_case_54_old_trajectories_displace_a_new_one_for_a_bounded_time() -> None:
    """`trajectory`, with three old ones that never end and always have an action waiting: an hour is the bound."""
    act = tangram.action(cpu=1)(_started)
    done = asyncio.Event()

    async def old() -> None:
        async with tangram.trajectory():
            while not done.is_set():
                await act(20)

    async with opened(CountingPool(cores=1), order="trajectory"):
        hot = [asyncio.create_task(old()) for _ in range(3)]
        await asyncio.sleep(100)
        asked_s = now_s()
        async with tangram.trajectory():
            begun_s = await act(1)
        assert begun_s - asked_s <= 3600 + 3 * 20
        done.set()
        await asyncio.gather(*hot)


# Case 56: whoever is left out of a plan keeps its place.


@by_arrival
@pytest.mark.parametrize(
    "policy", [policies.elastic(), policies.paper(), policies.paper(best_prefix=True)], ids=lambda policy: policy.name
)
@virtual
async def test_case_56_who_is_deferred_keeps_its_place(policy: policies.Policy, order: Order) -> None:
    """A stream of newcomers that would each gain more by its cores: its wait does not depend on how many come."""
    patient = tangram.action(cpu=Elastic(1, 4, speedup=tangram.Linear()), duration_s=3)(_started)

    @tangram.action(cpu=Elastic(1, 4, speedup=tangram.Linear()), duration_s=1)
    async def quick() -> float:
        return await _started(1 / tangram.current_allocation().cores)

    async def wait(newcomers: int) -> float:
        async with opened(CountingPool(cores=4), policy=policy, order=order):
            quicks = [asyncio.create_task(_quick(quick)) for _ in range(4)]
            await turns(5)
            asked_s = now_s()
            waits = asyncio.create_task(_called(patient, 1))
            for _ in range(newcomers):
                quicks += [asyncio.create_task(_quick(quick)) for _ in range(3)]
                await asyncio.sleep(0.25)
            waited_s = await waits - asked_s
            await asyncio.gather(*quicks)
            return waited_s

    few, many = await wait(50), await wait(200)
    assert few == many
    assert few <= 2


async def _quick(act: Callable[[], Awaitable[float]]) -> float:
    return await act()


@every_policy
@virtual
async def test_case_56_equal_ones_start_in_the_order_of_their_arrival(policy: policies.Policy) -> None:
    """However often each is left out: it is overtaken by none of its kind."""
    starts: list[int] = []

    @tangram.action(cpu=Elastic(1, 4), duration_s=1)
    async def act(number: int, for_s: float) -> None:
        starts.append(number)
        await asyncio.sleep(for_s)

    chance = random.Random(3)
    async with opened(CountingPool(cores=5), policy=policy):
        calls: list[asyncio.Task[None]] = []
        for number in range(200):
            calls.append(asyncio.create_task(_numbered(act, number, chance.uniform(0.1, 2))))
            await asyncio.sleep(chance.choice([0, 0, 0.1, 0.5]))
        await asyncio.gather(*calls)
    assert starts == list(range(200))


async def _numbered(act: Callable[[int, float], Awaitable[None]], number: int, for_s: float) -> None:
    await act(number, for_s)


# Case 62: more cores for those that gain by them.

# Files of real suites differ in length, so their speed-ups flatten: (units: speed-up), the flatter one first.
FLAT = Measured({1: 1, 2: 1.9, 4: 3.4, 8: 3.5, 16: 3.5})
STEEP = Measured({1: 1, 2: 2, 4: 3.9, 8: 7.2, 12: 9.2, 16: 10.4})
OPTIONS = (1, 2, 4, 8, 12, 16)
WORK_S = 64.0


@pytest.mark.parametrize(
    "policy", [policies.elastic(), policies.paper(best_prefix=True)], ids=lambda policy: policy.name
)
@virtual
async def test_case_62_cores_go_where_they_are_worth_most(policy: policies.Policy) -> None:
    """Two suites on sixteen cores end sooner, in sum, than with eight each, or with all for one after the other."""
    ends: list[float] = []

    def suite(speedup: Measured) -> tangram.AsyncAction[[], int]:
        @tangram.action(cpu=Elastic.of(*OPTIONS, speedup=speedup), duration_s=WORK_S)
        async def run() -> int:
            cores = int(tangram.current_allocation().cores)
            await asyncio.sleep(WORK_S / speedup(cores))
            ends.append(now_s())
            return cores

        return run

    async with opened(FakePool(cores=16), policy=policy):
        flat, steep = await asyncio.gather(suite(FLAT)(), suite(STEEP)())
    equal_s = WORK_S / FLAT(8) + WORK_S / STEEP(8)
    one_by_one_s = [
        WORK_S / one(16) + (WORK_S / one(16) + WORK_S / other(16)) for one, other in ((FLAT, STEEP), (STEEP, FLAT))
    ]
    assert sum(ends) < equal_s
    assert sum(ends) < min(one_by_one_s)
    assert flat < steep


def test_case_62_the_split_is_never_worse_than_an_equal_one_or_most_for_the_first() -> None:
    """For any two curves that flatten, at any number of cores."""
    chance = random.Random(62)
    better = 0
    for _ in range(300):
        free = chance.choice([4, 8, 12, 16, 24, 32])
        units = tuple(u for u in range(1, free + 1) if u <= 8 or u % 4 == 0)
        first, second = (_flattening(chance, units) for _ in range(2))
        split = Arrangement([Candidate(units=units, durations_s=d) for d in (first, second)], free)
        half = units.index(free // 2)
        equal_s = first[half] + second[half]
        greedy = max(u for u in units if u < free)
        greedy_s = first[units.index(greedy)] + second[units.index(free - greedy)]
        assert sum(split.units(2)) <= free
        assert split.cost_s(2) <= min(equal_s, greedy_s) + 1e-9
        better += split.cost_s(2) < 0.999 * min(equal_s, greedy_s)
    assert better > 100, "and often better than both"


def _flattening(chance: random.Random, units: tuple[int, ...]) -> tuple[float, ...]:
    """Return durations that fall until a number of units and stay there."""
    work_s, parts = chance.uniform(10, 100), chance.uniform(1, 32)
    return tuple(work_s / min(u, parts) for u in units)


@virtual
async def test_case_62_what_does_not_scale_is_found_out_and_gets_less() -> None:
    """Nothing is declared: of two suites that are told apart only by their runs, one stops gaining at two cores."""

    def suite(name: str, most: int) -> tangram.AsyncAction[[], float]:
        @tangram.action(cpu=Elastic.of(1, 2, 4, 8), duration_s=8, key=lambda: name)
        async def run() -> float:
            cores = tangram.current_allocation().cores
            await asyncio.sleep(8 / min(cores, most))
            return cores

        return run

    flat, steep = suite("flat", 2), suite("steep", 8)
    granted: dict[str, list[float]] = {"flat": [], "steep": []}

    async def rollout(name: str, act: tangram.AsyncAction[[], float]) -> None:
        for _ in range(40):
            granted[name].append(await act())

    async with opened(FakePool(cores=16)):
        await asyncio.gather(
            *itertools.chain.from_iterable((rollout("flat", flat), rollout("steep", steep)) for _ in range(3))
        )
    last = {name: sum(cores[-30:]) / 30 for name, cores in granted.items()}
    assert last["steep"] > 1.5 * last["flat"], last
