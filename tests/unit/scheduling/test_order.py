"""Who comes first among those of one priority, and that nobody starves whatever the order."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

import arl_tangram as tangram
from arl_tangram.errors import ConfigurationError
from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.policies import fixed
from counting_pools import CountingPool
from virtual_time import virtual

TOPOLOGY = Topology([Dimension("cpu", 1)])


def demand(duration_s: float, priority: int = 0) -> Demand:
    return Demand(
        f"{duration_s:g} s",
        fixed=(),
        elastic=0,
        options=(1,),
        relative=(1.0,),
        dimensions=1,
        duration_s=duration_s,
        priority=priority,
    )


def served(core: SchedulerCore, now_s: float = 0.0, *, each_s: float = 1.0, most: int = 1000) -> list[int]:
    """Let everybody run, one after the other, and return their ids."""
    order: list[int] = []
    while core.waiting and len(order) < most:
        (running,) = core.decide(now_s).started
        order.append(running.pending.id)
        now_s += each_s
        core.finish(running.pending.id, now_s, None)
    return order


def core_of(order: Literal["fcfs", "shortest", "trajectory"]) -> SchedulerCore:
    return SchedulerCore(TOPOLOGY, fixed(1), order=order)


def test_arrival_is_the_order_by_default() -> None:
    core = core_of("fcfs")
    for i, duration_s in enumerate([3.0, 1.0, 2.0]):
        core.submit(PendingAction(i, demand(duration_s), 0.0))
    assert served(core) == [0, 1, 2]


def test_the_shortest_expected_comes_first_within_its_priority() -> None:
    core = core_of("shortest")
    for i, (duration_s, priority) in enumerate([(3.0, 0), (1.0, 0), (2.0, 0), (9.0, -1), (0.1, 1), (1.0, 0)]):
        core.submit(PendingAction(i, demand(duration_s, priority), 0.0))
    assert served(core) == [3, 1, 5, 2, 0, 4]


def test_a_long_one_is_overtaken_for_a_bounded_time_only() -> None:
    core = core_of("shortest")
    core.submit(PendingAction(0, demand(2.0), 0.0))
    started: list[int] = []
    for i in range(1, 200):  # each lasts a second and expects to, and always another one has come
        core.submit(PendingAction(i, demand(1.0), float(i - 1)))
        started += served(core, float(i - 1), most=1)
    assert started.index(0) == 20, "20 times its own duration, less that of the others"


def test_the_oldest_trajectory_comes_first_and_of_those_alike_the_one_that_has_taken_longest() -> None:
    core = core_of("trajectory")
    holds_nothing = Demand("trajectory", fixed=())
    for trajectory, at_s in ((1, 0.0), (2, 0.0), (3, 5.0)):
        core.open(PendingAction(trajectory, holds_nothing, at_s))
        assert core.decide(at_s).opened == [trajectory]
    core.submit(PendingAction(4, demand(1.0), 5.0, trajectory=2))
    assert served(core, 5.0, each_s=3.0) == [4]
    for i, trajectory in ((5, 3), (6, 1), (7, 2), (8, None)):
        core.submit(PendingAction(i, demand(1.0), 9.0, trajectory=trajectory))
    assert served(core, 9.0) == [7, 6, 5, 8]


def test_who_takes_a_turn_is_ranked_when_the_turn_comes() -> None:
    core = core_of("trajectory")
    for trajectory in (1, 2):
        core.open(PendingAction(trajectory, Demand("trajectory", fixed=()), 0.0))
    core.decide(0.0)
    for i, trajectory in ((3, 1), (4, 1), (5, 2), (6, 2)):
        core.submit(PendingAction(i, demand(1.0), 1.0, trajectory=trajectory, turn=True))
    assert served(core, 1.0, each_s=2.0) == [3, 4, 5, 6]


def test_withdrawing_and_deferring_keep_the_order() -> None:
    core = core_of("shortest")
    for i in range(10):
        core.submit(PendingAction(i, demand(float(1 + i * 7 % 10)), 0.0))
    for i in (0, 3, 9):
        core.withdraw(i)
    assert served(core) == sorted({1, 2, 4, 5, 6, 7, 8}, key=lambda i: i * 7 % 10)


def test_an_order_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="order= takes one of 'fcfs', 'shortest', 'trajectory', not 'lifo'"):
        tangram.Tangram(order="lifo")  # type: ignore[arg-type]


@virtual
async def test_a_runtime_serves_in_its_order() -> None:
    done: list[float] = []

    @tangram.action(cpu=2, key=lambda for_s: f"{for_s:g} s")
    async def sleep(for_s: float) -> None:
        await asyncio.sleep(for_s)
        done.append(for_s)

    async with tangram.Tangram(CountingPool(), order="shortest"):
        for for_s in (3.0, 1.0, 2.0):  # learned from
            await sleep(for_s)
        done.clear()
        await asyncio.gather(sleep(3.0), sleep(2.0), sleep(1.0))
    assert done == [1.0, 2.0, 3.0]
