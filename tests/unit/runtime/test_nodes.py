"""A pool of several nodes: trajectories stay on one of them, and so do the cores and memory of their actions."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

import arl_tangram as tangram
from arl_tangram import ConfigurationError, InfeasibleError, Tangram, current_allocation, current_sandbox, policies
from arl_tangram.model.events import ActionEnded, ActionStarted, TrajectoryOpened
from arl_tangram.testing import FakeNode, FakePool, FakeSandbox, assert_idle
from arl_tangram.trace.encode import EventEncoder, header_line
from arl_tangram.trace.format import Header
from arl_tangram.trace.reader import read_trace
from arl_tangram.trace.report import render
from arl_tangram.trace.sink import MemorySink
from arl_tangram.trace.summary import Summary
from counting_pools import CountingPool
from virtual_time import virtual

BIG = FakeNode("big", cores=8, memory_gib=64)
SMALL = FakeNode("small", cores=2, memory_gib=16)


def sandbox_node() -> int:
    box = current_sandbox()
    assert isinstance(box, FakeSandbox)
    return box.node


@tangram.action(cpu=1)
async def work(for_s: float = 1.0) -> tuple[int, str | None]:
    await current_sandbox().exec(["work"])
    await asyncio.sleep(for_s)
    return sandbox_node(), current_allocation().node


@tangram.action(cpu=tangram.Elastic(1, 8))
async def widest() -> tuple[float, str | None]:
    return current_allocation().cores, current_allocation().node


@tangram.action(cpu=4)
async def four_cores() -> None:
    raise AssertionError("it cannot run on a node of two cores")


@tangram.action(cpu=1, memory_gib=2)
async def on_the_host(for_s: float = 1.0) -> str | None:
    await asyncio.sleep(for_s)
    return current_allocation().node


@tangram.action(memory_gib=2)
async def no_cores() -> str | None:
    await asyncio.sleep(1)
    return current_allocation().node


def used(tg: Tangram, name: str) -> float:
    return tg.statistics().dimensions[name].used


@virtual
async def test_two_thousand_trajectories_wait_for_two_hundred_sandboxes() -> None:
    pool = CountingPool(cores=64, sandboxes=200, create_s=0.5, close_s=0.1)

    async def rollout() -> None:
        async with tangram.trajectory():
            await work(3)

    async with Tangram(pool) as tg:
        await asyncio.gather(*(rollout() for _ in range(2000)))
        assert_idle(tg)
        assert tg.statistics().dimensions["sandboxes"].capacity == 200
    assert (pool.made.created, pool.made.most_alive) == (2000, 200)
    assert pool.is_whole


@virtual
async def test_two_thousand_trajectories_fill_the_sandboxes_of_all_nodes() -> None:
    nodes = (FakeNode("a", 64, 512, sandboxes=150), FakeNode("b", 16, 128, sandboxes=50))
    pool = CountingPool(nodes=nodes, create_s=0.5, close_s=0.1)
    alive: Counter[int] = Counter()
    most: Counter[int] = Counter()

    async def rollout() -> None:
        async with tangram.trajectory(memory_gib=1) as trajectory:
            alive[trajectory.node] += 1
            most[trajectory.node] = max(most[trajectory.node], alive[trajectory.node])
            assert (await work(3))[0] == trajectory.node
            alive[trajectory.node] -= 1

    async with Tangram(pool) as tg:
        await asyncio.gather(*(rollout() for _ in range(2000)))
        assert_idle(tg)
    assert most == {0: 150, 1: 50}
    assert pool.made.most_alive <= 200
    assert pool.is_whole


@virtual
async def test_what_is_refused_and_cancelled_while_it_waits_for_a_sandbox_leaves_nothing() -> None:
    pool = CountingPool(nodes=[FakeNode("a", sandboxes=1), FakeNode("b", sandboxes=1)], create_s=1)

    async def rollout() -> None:
        async with tangram.trajectory():
            await asyncio.sleep(10)

    async with Tangram(pool) as tg:
        rollouts = [asyncio.ensure_future(rollout()) for _ in range(6)]
        await asyncio.sleep(5)
        assert (tg.statistics().trajectories, tg.statistics().waiting) == (2, 4)
        for task in rollouts[1:4]:
            task.cancel()
        assert [isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*rollouts, return_exceptions=True)
                ] == [False, True, True, True, False, False]  # fmt: skip
        assert_idle(tg)
    assert pool.made.most_alive <= 2
    assert pool.is_whole


@virtual
async def test_actions_of_a_trajectory_take_the_cores_of_its_node() -> None:
    async with Tangram(FakePool(nodes=[BIG, SMALL])) as tg:
        async with tangram.trajectory() as first, tangram.trajectory() as second:
            assert [first.node, second.node] == [0, 0], "the big one has room for four times as many"
        trajectories = [tangram.trajectory() for _ in range(5)]
        for trajectory in trajectories:
            await trajectory.__aenter__()
        assert Counter(t.node for t in trajectories) == {0: 4, 1: 1}
        last = next(t for t in trajectories if t.node == 1)

        async def inside(trajectory: tangram.runtime.Trajectory) -> tuple[int, str | None]:
            tangram.trajectories.trajectory_var.set(trajectory)
            return await work()

        running = [asyncio.ensure_future(inside(t)) for t in trajectories]
        await asyncio.sleep(0.5)
        assert (used(tg, "cpu@big"), used(tg, "cpu@small")) == (4, 1)
        assert sorted(await asyncio.gather(*running)) == [*[(0, "big")] * 4, (1, "small")]
        tangram.trajectories.trajectory_var.set(last)
        assert await widest() == (2, "small"), "a grant is never more than the node has"
        with pytest.raises(InfeasibleError, match=r"asks for 4 cores; cpu@small has 2 in all"):
            await four_cores()
        for trajectory in reversed(trajectories):
            await trajectory.__aexit__(None, None, None)
        assert_idle(tg)


@virtual
async def test_bodies_without_a_sandbox_run_on_the_node_that_is_this_machine() -> None:
    async with Tangram(FakePool(nodes=[BIG, SMALL], host=1)) as tg:
        running = asyncio.ensure_future(on_the_host())
        await asyncio.sleep(0.5)
        assert (used(tg, "cpu@big"), used(tg, "cpu@small"), used(tg, "memory@small")) == (0, 1, 2)
        assert await running == "small"
        async with tangram.trajectory() as trajectory:
            assert trajectory.node == 0
            running = asyncio.ensure_future(no_cores())
            await asyncio.sleep(0.5)
            assert (used(tg, "memory@big"), used(tg, "memory@small")) == (0, 2), "it does not run in the sandbox"
            assert await running == "small"
        async with tangram.trajectory(memory_gib=3):
            assert await no_cores() is None, "its memory is part of what the trajectory holds"
        assert_idle(tg)


@virtual
async def test_without_a_node_that_is_this_machine_there_are_sandboxes_only() -> None:
    for pool in (FakePool(nodes=[BIG, SMALL], host=None), FakePool(host=None)):
        async with Tangram(pool) as tg:
            with pytest.raises(InfeasibleError, match="1 core, and runs on this machine, which is no node"):
                await work()
            with pytest.raises(InfeasibleError, match="2 GiB of memory, and runs on this machine"):
                await no_cores()
            async with tangram.trajectory():
                assert (await work())[0] == 0
                with pytest.raises(InfeasibleError, match="runs on this machine"):
                    await no_cores()
            async with tangram.trajectory(memory_gib=3):
                await no_cores()
            assert_idle(tg)


async def test_a_body_on_a_thread_takes_cores_of_this_machine_wherever_its_trajectory_is() -> None:
    @tangram.action(cpu=1)
    def plain() -> str | None:
        time.sleep(0.05)
        return current_allocation().node

    @tangram.action(cpu=2)
    async def calls_it() -> tuple[str | None, str | None, str | None]:
        before, called = current_allocation().node, await plain()
        return before, called, current_allocation().node

    for policy in (policies.elastic(), policies.reserved(2)):
        pool = CountingPool(nodes=[FakeNode("remote", 8, 64), FakeNode("here", 2, 16)], host=1)
        async with Tangram(pool, policy=policy) as tg:
            async with tangram.trajectory() as trajectory:
                assert trajectory.node == 0
                assert await plain() == "here"
                assert await calls_it() == ("remote", "here", "remote")
            assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_lent_cores_come_back_on_their_own_node() -> None:
    @tangram.action(cpu=2)
    async def outer() -> int:
        await work(1)
        return sandbox_node()

    nodes = [FakeNode("a", 2, 8, sandboxes=2), FakeNode("b", 2, 8, sandboxes=2)]
    pool = CountingPool(nodes=nodes)

    async def rollout() -> None:
        async with tangram.trajectory() as trajectory:
            for _ in range(3):
                assert await outer() == trajectory.node

    async with Tangram(pool) as tg:
        await asyncio.gather(*(rollout() for _ in range(12)))
        assert_idle(tg)
    assert pool.is_whole
    assert pool.made.least_free == 0


@virtual
async def test_capacity_is_set_by_node() -> None:
    pool = CountingPool(nodes=[FakeNode("a", 4, sandboxes=3), FakeNode("b", 5, sandboxes=3)], host=1)
    async with Tangram(pool) as tg:
        tg.set_capacity("cpu@a", 6)
        tg.set_capacity("sandboxes@b", 1)
        assert pool.made.milli_free_on(0) == 6000
        assert tg.statistics().dimensions["cpu@a"].capacity == 6
        assert tg.statistics().dimensions["processes"].capacity == 10  # twice the cores of this machine
        opened = [tangram.trajectory() for _ in range(4)]
        for trajectory in opened:
            await trajectory.__aenter__()
        assert Counter(t.node for t in opened) == {0: 3, 1: 1}
        with pytest.raises(ConfigurationError, match=r"there is no resource 'cpu'; there are 'cpu@a', 'memory@a', "):
            tg.set_capacity("cpu", 6)
        with pytest.raises(ConfigurationError, match=r"cpu@b: a FakePool has whole cores from 1, not 0.5"):
            tg.set_capacity("cpu@b", 0.5)
        for trajectory in reversed(opened):
            await trajectory.__aexit__(None, None, None)
        waiting = asyncio.ensure_future(tangram.trajectory(memory_gib=60).__aenter__())
        both = [tangram.trajectory(memory_gib=40) for _ in range(1)]
        await waiting
        await both[0].__aenter__()
        third = asyncio.ensure_future(tangram.trajectory(memory_gib=60).__aenter__())
        await asyncio.sleep(1)
        tg.set_capacity("memory@a", 30)
        await asyncio.sleep(1)
        assert not third.done(), "the other one can still hold it"
        tg.set_capacity("memory@b", 30)
        with pytest.raises(InfeasibleError, match="trajectory asks for 60 of memory@"):
            await third


@virtual
async def test_more_than_any_node_has_is_refused_at_once() -> None:
    async with Tangram(FakePool(nodes=[BIG, SMALL])):
        async with tangram.trajectory(memory_gib=64) as trajectory:
            assert trajectory.node == 0
        with pytest.raises(InfeasibleError, match="65 GiB of memory, and no host has so much: the most is 64 at 'big'"):
            tangram.trajectory(memory_gib=65)
    async with Tangram(FakePool(nodes=[BIG, SMALL]), policy=policies.reserved(4)) as tg:
        both = [tangram.trajectory() for _ in range(2)]
        for trajectory in both:
            await trajectory.__aenter__()
        assert [t.node for t in both] == [0, 0], "the small one can never hold four cores"
        assert used(tg, "cpu@big") == 8


@virtual
async def test_report_and_trace_tell_the_nodes_apart(tmp_path: Path) -> None:
    sink = MemorySink()
    async with Tangram(FakePool(nodes=[BIG, SMALL]), trace=sink) as tg:
        opened = [tangram.trajectory(memory_gib=1) for _ in range(5)]
        for trajectory in opened:
            await trajectory.__aenter__()
            await work(2)
        for trajectory in reversed(opened):
            await trajectory.__aexit__(None, None, None)
        report, topology = tg.report(), tg._core.topology
    assert [e.node for e in sink.events if isinstance(e, TrajectoryOpened)].count(1) == 1
    assert Counter(e.action.pending.demand.node for e in sink.events if isinstance(e, ActionStarted)) == {0: 4, 1: 1}
    assert Counter(e.action.node for e in sink.events if isinstance(e, ActionEnded)) == {0: 4, 1: 1}
    lines = {line.split()[0]: line.split() for line in report.splitlines() if line}
    assert lines["cpu@big"][1:3] == ["8", "cores"]
    assert lines["memory@small"][1:3] == ["16.0", "GiB"]
    assert (lines["cpu@big"][3], lines["cpu@small"][3]) == ("10.0", "10.0"), "8 of 80 and 2 of 20 core-seconds"
    path = tmp_path / "run.jsonl"
    encoder = EventEncoder(topology)
    header = header_line(Header("1", "elastic", "monotonic", 0.0, topology))
    path.write_text(header + "".join(map(encoder.line, sink.events)), encoding="ascii")
    read = read_trace(path)
    assert [node.name for node in read.header.topology.nodes] == ["big", "small"]
    assert Counter(e.action.node for e in read.events if isinstance(e, ActionEnded)) == {0: 4, 1: 1}
    summary = Summary(read.header.topology)
    summary.add_all(read.events)
    again = {line.split()[0]: line.split() for line in render(summary).splitlines() if line}
    assert [again["cpu@small"], again["memory@big"]] == [lines["cpu@small"], lines["memory@big"]]


@virtual
async def test_use_is_told_by_node() -> None:
    sink = MemorySink()
    async with Tangram(FakePool(nodes=[BIG, SMALL]), trace=sink) as tg:
        async with tangram.trajectory():
            await work(10)
        summary = Summary(tg._core.topology)
        for event in sink.events:
            ended = isinstance(event, ActionEnded)
            summary.add_all([event._replace(action=event.action._replace(cpu_s=4.0)) if ended else event])
        dimensions = {d.name: d for d in summary.figures(tg._loop.time()).dimensions}
        assert dimensions["cpu@big"].used_share == pytest.approx(4 / 80)
        assert dimensions["cpu@small"].used_share == 0
        assert dimensions["memory@big"].used_share is None


@virtual
async def test_the_pool_is_prepared_before_it_is_asked_what_there_is() -> None:
    calls: list[str] = []

    class Late(CountingPool):
        def manager(self):  # type: ignore[no-untyped-def]
            manager = super().manager()
            for name in ("prepare", "dimensions", "start", "aclose"):
                setattr(manager, name, _told(getattr(manager, name), calls))
            manager.notes = lambda: ("the daemon has a cold",)
            return manager

    async with Tangram(Late()) as tg:
        assert [call for call in calls if call != "dimensions"] == ["prepare", "start"]
        assert calls[0] == "prepare"
        assert "note: the daemon has a cold" in tg.report()
    assert calls[-1] == "aclose"


def _told(method, calls: list[str]):  # type: ignore[no-untyped-def]
    def told(*args, **kwargs):  # type: ignore[no-untyped-def]
        calls.append(method.__name__)
        return method(*args, **kwargs)

    return told


@virtual
async def test_a_pool_that_cannot_be_prepared_is_closed_again() -> None:
    class Broken(CountingPool):
        def manager(self):  # type: ignore[no-untyped-def]
            manager = super().manager()

            async def prepare() -> None:
                await asyncio.sleep(1)
                raise ConfigurationError("no daemon answers")

            manager.prepare = prepare  # type: ignore[method-assign]
            return manager

    pool = Broken()
    tg = Tangram(pool)
    with pytest.raises(ConfigurationError, match="no daemon answers"):
        await tg.start()
    assert not tg.is_open
    assert pool.made.closed
    pool = Broken()
    opening = asyncio.ensure_future(Tangram(pool).start())
    await asyncio.sleep(0.5)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert pool.made.closed
