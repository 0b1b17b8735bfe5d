"""Whatever is lost, late, doubled or killed: never two holders of one unit, every call ends, and nothing is left."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import arl_tangram as tangram
from arl_tangram import InfrastructureError, Quota, current_allocation, current_sandbox
from arl_tangram.context import runtime_var
from arl_tangram.integrations.ray.client import Shared
from arl_tangram.testing import FakePool
from lossy_lines import OWNER, random_ways, straight
from shared_world import Line, SharedWorld
from stopped import StoppableLoop
from virtual_time import run_virtually

CONCURRENCY, CORES, LEASE_S, GRACE_S = 2, {"a": 3, "b": 2}, 12.0, 10.0


class Use:
    """What bodies use at each moment."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()

    @contextmanager
    def of(self, what: str, units: int) -> Iterator[None]:
        self.now[what] += units
        self.peak[what] = max(self.peak[what], self.now[what])
        try:
            yield
        finally:
            self.now[what] -= units


USE = Use()


@tangram.action(quota={"api": 1})
async def search(for_s: float) -> str:
    with USE.of("api", 1):
        await asyncio.sleep(for_s)
    return "done"


@tangram.action(quota={"api": 1}, queue_timeout=3)
async def impatient(for_s: float) -> str:
    with USE.of("api", 1):
        await asyncio.sleep(for_s)
    return "done"


@tangram.action(quota={"api": 1}, idempotent=True, retries=2)
async def tried_again(for_s: float) -> str:
    with USE.of("api", 1):
        await asyncio.sleep(for_s)
    return "done"


@tangram.action(cpu=1)
async def work(for_s: float) -> str:
    await current_sandbox().exec(["work"])
    with USE.of(str(current_allocation().node), 1):
        await asyncio.sleep(for_s)
    return "done"


@tangram.action(cpu=1)
async def host_work(for_s: float) -> str:
    with USE.of(str(current_allocation().node), 1):
        await asyncio.sleep(for_s)
    return "done"


@tangram.action(cpu=tangram.Elastic(1, 3))
async def wide(for_s: float) -> str:
    await current_sandbox().exec(["wide"])
    with USE.of(str(current_allocation().node), int(current_allocation().cores)):
        await asyncio.sleep(for_s)
    return "done"


@tangram.action(cpu=1)
async def nested(for_s: float) -> str:
    await current_sandbox().exec(["outer"])
    told = await work(for_s)
    await asyncio.gather(search(for_s), wide(for_s))
    with USE.of(str(current_allocation().node), 1):
        await asyncio.sleep(for_s)
    return told


async def within(tg: Shared, action: Callable[..., Any], for_s: float) -> str:
    async with tg.trajectory(memory_gib=3):
        first = await tg.run(action, for_s)
        assert await tg.run(action, for_s) == first
    return str(first)


async def call(tg: Shared, kind: int, for_s: float) -> str:
    runtime_var.set(tg)  # as in a process of its own, where there is no other one
    outside = (search, impatient, tried_again, host_work)
    inside = (work, wide, nested)
    if kind < len(outside):
        return str(await tg.run(outside[kind], for_s))
    return await within(tg, inside[kind - len(outside)], for_s)


FAULTS = st.tuples(st.just("cut"), st.integers(0, 1), st.sampled_from([0.5, 5.0, 13.0, 30.0]))
STOPS = st.tuples(st.just("stop"), st.integers(0, 2), st.sampled_from([1.0, 8.0, 20.0, 40.0]))
AGENTS = st.tuples(st.just("kill agent"), st.integers(0, 1), st.sampled_from([0.5, 5.0, 30.0]))
KILLS = st.tuples(st.just("kill"), st.just(0), st.sampled_from([0.0, 1.4, 5.0, 20.0]))
STEP = st.one_of(
    st.tuples(st.just("call"), st.integers(0, 6), st.sampled_from([0.0, 0.5, 3.0, 20.0])),
    st.tuples(st.just("call"), st.integers(0, 6), st.sampled_from([0.0, 0.5, 3.0, 20.0])),
    st.tuples(st.just("cancel"), st.integers(0, 1 << 16), st.just(0.0)),
    st.tuples(st.just("wait"), st.just(0), st.sampled_from([0.0, 0.01, 0.5, 2.0, 10.0])),
    FAULTS | KILLS | AGENTS,
)
STEPS = st.lists(STEP, max_size=12)
BUSY = [("call", kind, for_s) for kind in (0, 3, 4, 5) for for_s in (8.0, 20.0, 30.0)]


async def play(
    steps: list[tuple[str, int, float]], seed: int, loss: float, clients: int = 2, *, has_nodes: bool = True
) -> None:
    """Let two clients do these steps while all that there is, is in use, over ways that lose so much."""
    random.seed(seed)  # the pauses between attempts
    USE.now.clear()
    USE.peak.clear()
    nodes = {name: [FakePool(cores=cores, memory_gib=8)] for name, cores in CORES.items() if has_nodes}
    chance = random.Random(seed)
    calls: list[asyncio.Task[str]] = []
    cancelled: set[asyncio.Task[str]] = set()
    mending: list[asyncio.Task[None]] = []
    async with SharedWorld(Quota("api", concurrency=CONCURRENCY), nodes=nodes, lease_s=LEASE_S) as world:
        tgs = [await world.client(f"client {n}", node_id="ab"[n % 2]).start() for n in range(clients)]
        lines = [*world.lines.values(), *(world.line_of(tg) for tg in tgs)]
        for line in lines:
            line.way = random_ways(chance, loss=loss)
        for what, which, how_s in [*BUSY, ("wait", 0, 1.0), *steps]:
            if what == "call":
                kind = which if has_nodes else which % 3
                calls.append(asyncio.ensure_future(call(chance.choice(tgs), kind, how_s)))
            elif what == "cancel" and calls:
                task = calls[which % len(calls)]
                task.cancel()
                cancelled.add(task)
            elif what == "wait":
                await asyncio.sleep(how_s)
            elif what == "cut":
                mending.append(asyncio.ensure_future(cut(world.line_of(tgs[which % clients]), how_s)))
                await asyncio.sleep(0)
            elif what == "kill":
                world.kill_owner()
                await asyncio.sleep(how_s)
                world.start_owner()
            elif what == "kill agent" and has_nodes:
                if await world.kill_agent("ab"[which]):
                    mending.append(asyncio.ensure_future(start_agent(world, "ab"[which], how_s)))
            elif what == "stop":
                async with world.stopped((OWNER, *CORES)[which]):
                    await asyncio.sleep(how_s)
        await asyncio.gather(*mending)
        for line in lines:
            line.way = straight
        _, left = await asyncio.wait(calls, timeout=2000) if calls else (set(), set())
        assert not left, f"some never end: {left}"
        check(calls, cancelled, is_quiet=not loss and {step[0] for step in steps} <= {"call", "cancel", "wait"})
        assert USE.now.total() == 0
        await asyncio.sleep(2 * (LEASE_S + GRACE_S) + 10)
        await world.check_idle()
        for tg in tgs:
            assert await tg.run(search, 1.0) == "done"


async def cut(line: Line, for_s: float) -> None:
    line.is_cut = True
    await asyncio.sleep(for_s)
    line.is_cut = False


async def start_agent(world: SharedWorld, name: str, after_s: float) -> None:
    await asyncio.sleep(after_s)
    await world.start_agent(name)


def check(calls: list[asyncio.Task[str]], cancelled: set[asyncio.Task[str]], *, is_quiet: bool) -> None:
    """Never more than there is; each call has its result, or an error that is not its own."""
    assert USE.peak["api"] <= CONCURRENCY
    for name, cores in CORES.items():
        assert USE.peak[name] <= cores, name
    for task in calls:
        if task.cancelled():
            assert task in cancelled
        elif (error := task.exception()) is None:
            assert task.result() == "done"
        else:
            assert isinstance(error, InfrastructureError), repr(error)
            assert not is_quiet or isinstance(error, tangram.QueueTimeout), repr(error)


@settings(max_examples=60)
@given(steps=STEPS, seed=st.integers(0, 1 << 32), loss=st.sampled_from([0.0, 0.0, 0.1, 0.3]))
def test_over_ways_that_lose_and_reorder(steps: list[tuple[str, int, float]], seed: int, loss: float) -> None:
    run_virtually(play(steps, seed, loss))


@settings(max_examples=30)
@given(steps=STEPS, kill=KILLS, seed=st.integers(0, 1 << 32))
def test_quotas_without_nodes_are_not_granted_twice(
    steps: list[tuple[str, int, float]], kill: tuple[str, int, float], seed: int
) -> None:
    run_virtually(play([kill, *steps], seed, 0.0, has_nodes=False))


@settings(max_examples=40)
@given(steps=st.lists(STOPS | STEP, min_size=2, max_size=10), seed=st.integers(0, 1 << 32))
def test_whoever_is_stopped_and_goes_on(steps: list[tuple[str, int, float]], seed: int) -> None:
    run_virtually(play(steps, seed, 0.0), StoppableLoop())
