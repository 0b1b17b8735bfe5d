"""Trajectories: turns in the sandbox, admission, what they own, and how they end."""

from __future__ import annotations

import asyncio

import pytest

import arl_tangram as tangram
from arl_tangram import (
    ConfigurationError,
    InfeasibleError,
    NoActionError,
    NoSandboxError,
    NoTrajectoryError,
    Quota,
    RuntimeClosedError,
    SandboxStartError,
    ShutdownError,
    Tangram,
    UsageError,
    current_sandbox,
    policies,
)
from arl_tangram.model.events import TrajectoryClosed, TrajectoryOpened
from arl_tangram.testing import FakePool, assert_idle
from arl_tangram.trace.sink import MemorySink
from counting_pools import CountingPool
from virtual_time import turns, virtual


def now_s() -> float:
    return asyncio.get_running_loop().time()


@tangram.action(cpu=1)
async def in_sandbox(log: list[str], name: str, for_s: float = 1.0) -> str:
    log.append(f"+{name}")
    box = current_sandbox()
    await box.exec(["work", name])
    await asyncio.sleep(for_s)
    log.append(f"-{name}")
    return box.id


@tangram.action(quota={"api": 1})
async def call_api(for_s: float = 1.0) -> float:
    await asyncio.sleep(for_s)
    return now_s()


@tangram.action(cpu=1)
async def ask_for_sandbox() -> None:
    current_sandbox()


@virtual
async def test_sandbox_actions_take_turns_in_the_order_of_their_calls() -> None:
    pool = CountingPool(cores=8)
    async with Tangram(pool) as tg:
        log: list[str] = []
        async with tangram.trajectory():
            boxes = await asyncio.gather(*(in_sandbox(log, name, 2 if name == "a" else 1) for name in "abcd"))
        assert log == ["+a", "-a", "+b", "-b", "+c", "-c", "+d", "-d"]
        assert len(set(boxes)) == 1
        assert now_s() == 5
        assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_two_trajectories_run_side_by_side_each_in_its_own_sandbox() -> None:
    async with Tangram(CountingPool(cores=8)) as tg:

        async def rollout() -> set[str]:
            async with tangram.trajectory():
                return {await in_sandbox([], "x") for _ in range(3)}

        first, second = await asyncio.gather(rollout(), rollout())
        assert len(first) == len(second) == 1
        assert first != second
        assert now_s() == 3
        assert_idle(tg)


@virtual
async def test_other_actions_of_a_trajectory_run_freely() -> None:
    @tangram.action(cpu=1)
    async def outside() -> float:
        await asyncio.sleep(1)
        return now_s()

    async with Tangram(CountingPool(cores=8), Quota("api", concurrency=8)) as tg:
        async with tangram.trajectory():
            slow = asyncio.create_task(in_sandbox([], "slow", 10))
            assert await asyncio.gather(call_api(), call_api(), call_api()) == [1, 1, 1]
            await slow
        assert_idle(tg)


@virtual
async def test_a_withdrawn_turn_is_passed_on() -> None:
    async with Tangram(CountingPool()) as tg:
        log: list[str] = []
        async with tangram.trajectory():
            calls = [asyncio.create_task(in_sandbox(log, name)) for name in "abcd"]
            impatient = asyncio.create_task(in_sandbox.with_options(queue_timeout=0.5)(log, "e"))
            await asyncio.sleep(0.25)
            calls[1].cancel()
            with pytest.raises(tangram.QueueTimeout):
                await impatient
            await asyncio.sleep(0.75)
            calls[2].cancel()
            await asyncio.wait(calls)
        assert [name for name in log if name[0] == "+"] in (["+a", "+c", "+d"], ["+a", "+d"])
        assert calls[3].result()
        assert_idle(tg)


@virtual
async def test_admission_waits_for_memory() -> None:
    pool = CountingPool(memory_gib=4)
    sink = MemorySink()
    async with Tangram(pool, trace=sink) as tg:
        entered: list[float] = []

        async def rollout() -> None:
            async with tangram.trajectory(memory_gib=2):
                entered.append(now_s())
                await asyncio.sleep(3)

        async def big() -> None:
            await asyncio.sleep(1)
            async with tangram.trajectory(memory_gib=3.5):
                entered.append(now_s())

        rollouts = [asyncio.create_task(rollout()) for _ in range(3)]
        waits = asyncio.create_task(big())
        await asyncio.sleep(2)
        state = tg.statistics()
        assert (state.trajectories, state.waiting) == (2, 2)
        assert state.dimensions["memory"].free == 0
        await asyncio.gather(waits, *rollouts)
        assert entered == [0, 0, 3, 6], "in the order of arrival, the big one too"
        assert_idle(tg)
        assert pool.is_whole
    waited = [event.waited_s for event in sink.events if isinstance(event, TrajectoryOpened)]
    assert waited == [0, 0, 3, 5]
    assert sum(isinstance(event, TrajectoryClosed) for event in sink.events) == 4


@virtual
async def test_a_trajectory_with_more_memory_than_there_is_fails_at_once() -> None:
    async with Tangram(CountingPool(memory_gib=4)) as tg:
        with pytest.raises(InfeasibleError, match=r"4\.5 GiB.*4 in all"):
            tangram.trajectory(memory_gib=4.5)
        for wrong in (-1, float("nan"), float("inf"), "2", None, True):
            with pytest.raises(ConfigurationError, match="memory_gib"):
                tangram.trajectory(memory_gib=wrong)  # type: ignore[arg-type]
        assert_idle(tg)
    async with Tangram():
        with pytest.raises(InfeasibleError, match="no pool that offers memory"):
            tangram.trajectory(memory_gib=1)


@virtual
async def test_where_there_is_no_sandbox_the_error_says_why() -> None:
    @tangram.action()
    async def without_cpu() -> None:
        current_sandbox()

    async with Tangram(FakePool()) as tg:
        with pytest.raises(NoActionError, match="outside the body"):
            current_sandbox()
        with pytest.raises(NoSandboxError, match="ask_for_sandbox has no sandbox: it was called outside of a traj"):
            await ask_for_sandbox()
        async with tangram.trajectory():
            with pytest.raises(NoActionError, match="outside the body"):
                current_sandbox()
            with pytest.raises(NoSandboxError, match="no sandbox: it declares no cores, and only actions with cpu="):
                await without_cpu()
            await ask_for_sandbox()
        assert_idle(tg)
    async with Tangram(), tangram.trajectory():
        with pytest.raises(NoSandboxError, match="no sandbox: it declares no cores"):
            await without_cpu()


async def test_a_body_on_a_thread_has_no_sandbox() -> None:
    @tangram.action(cpu=1)
    def on_a_thread() -> None:
        current_sandbox()

    async with Tangram(FakePool()) as tg:
        async with tangram.trajectory():
            with pytest.raises(NoSandboxError, match=r"no sandbox: its body is a plain function, .*`async def`"):
                await on_a_thread()
        assert_idle(tg)


@virtual
async def test_an_image_needs_a_pool_that_has_images() -> None:
    async with Tangram() as tg:
        with pytest.raises(ConfigurationError, match=r"image='python:3\.12'"):
            tangram.trajectory(image="python:3.12")
        assert_idle(tg)
    async with Tangram(FakePool()), tangram.trajectory(image="python:3.12"):
        await ask_for_sandbox()


@virtual
async def test_a_closed_trajectory_takes_no_calls() -> None:
    async with Tangram(CountingPool()) as tg:
        resume = asyncio.Event()

        async def left_behind() -> str:
            await resume.wait()
            return await in_sandbox([], "late")

        async with tangram.trajectory() as trajectory:
            late = asyncio.create_task(left_behind())
            assert trajectory.is_open
        assert not trajectory.is_open
        resume.set()
        with pytest.raises(NoTrajectoryError, match="in_sandbox"):
            await late
        with pytest.raises(UsageError, match="entered once"):
            await trajectory.__aenter__()
        await trajectory.aclose()
        assert_idle(tg)


@virtual
async def test_leaving_ends_the_actions_that_were_left_behind() -> None:
    pool = CountingPool(clean_s=0.5)
    async with Tangram(pool, Quota("api", concurrency=1)) as tg:
        async with tangram.trajectory():
            left = [
                asyncio.create_task(call) for call in (in_sandbox([], "a", 100), in_sandbox([], "b"), call_api(100))
            ]
            other = asyncio.create_task(call_api(1))
            await asyncio.sleep(1)
        assert now_s() == 1.5
        for call in (*left, other):
            with pytest.raises(NoTrajectoryError, match="the trajectory ended while"):
                await call
        assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_leaving_by_an_exception_passes_it_on() -> None:
    pool = CountingPool(close_s=1)
    async with Tangram(pool) as tg:

        async def fails() -> None:
            async with tangram.trajectory():
                await in_sandbox([], "a")
                raise KeyError("own")

        with pytest.raises(KeyError, match="own"):
            await fails()
        assert pool.is_whole
        assert_idle(tg)


@virtual
async def test_a_deaf_body_does_not_keep_a_trajectory_open() -> None:
    @tangram.action(cpu=1)
    async def deaf() -> None:
        end_s = now_s() + 20
        while now_s() < end_s:
            try:
                await asyncio.sleep(end_s - now_s())
            except asyncio.CancelledError:
                continue

    pool = CountingPool(memory_gib=4)
    async with Tangram(pool, kill_grace_s=2) as tg:
        async with tangram.trajectory(memory_gib=4):
            call = asyncio.create_task(deaf())
            await asyncio.sleep(1)
        assert now_s() == 3
        with pytest.raises(NoTrajectoryError):
            await call
        assert tg.statistics().lingering == (deaf.spec.name,)
        assert tg.statistics().dimensions["memory"].used == 4, "it may still use it"
        async with tangram.trajectory(memory_gib=4):
            assert now_s() == 20, "the memory is there when the body has really ended"
        assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_a_sandbox_that_cannot_be_created_leaves_nothing() -> None:
    pool = CountingPool(memory_gib=4, broken=True, create_s=1)
    async with Tangram(pool) as tg:
        for _ in range(3):
            with pytest.raises(SandboxStartError, match="no sandbox today"):
                await tangram.trajectory(memory_gib=4).__aenter__()
        assert_idle(tg)
        assert pool.made.created == 3
        with pytest.raises(tangram.InfeasibleError):
            await call_api()


@virtual
async def test_a_trajectory_that_is_entered_after_the_end_of_its_runtime_is_refused() -> None:
    async with Tangram(CountingPool()) as tg:
        saved = tg.trajectory()
    with pytest.raises(RuntimeClosedError):
        await saved.__aenter__()


@virtual
async def test_closing_the_runtime_ends_trajectories_in_all_their_states() -> None:
    pool = CountingPool(memory_gib=4, create_s=2, close_s=1)
    async with Tangram(pool) as tg:

        async def rollout(after_s: float, memory_gib: float) -> None:
            await asyncio.sleep(after_s)
            async with tangram.trajectory(memory_gib=memory_gib):
                await in_sandbox([], "x", 100)

        is_open, is_opening, waits = (asyncio.create_task(rollout(*at)) for at in ((0, 1), (2, 1), (2, 3)))
        await asyncio.sleep(3)
        assert tg.statistics().trajectories == 2
        assert tg.statistics().waiting == 1
    for task in (is_open, is_opening, waits):
        with pytest.raises(ShutdownError):
            await task
    assert pool.is_whole


@virtual
async def test_trajectories_can_be_nested_and_the_outer_one_returns() -> None:
    async with Tangram(CountingPool()) as tg:
        async with tangram.trajectory():
            outer = await in_sandbox([], "a")
            async with tangram.trajectory():
                assert await in_sandbox([], "b") != outer
            assert await in_sandbox([], "c") == outer
        with pytest.raises(NoSandboxError):
            await ask_for_sandbox()
        assert_idle(tg)


@virtual
async def test_a_trajectory_of_another_runtime_does_not_count() -> None:
    async with Tangram(CountingPool()) as one, tangram.trajectory(), Tangram(CountingPool()) as other:
        with pytest.raises(NoSandboxError):
            await other.run(ask_for_sandbox)
        await one.run(ask_for_sandbox)


@virtual
async def test_the_group_is_recorded() -> None:
    sink = MemorySink()
    async with Tangram(CountingPool(), trace=sink):
        async with tangram.trajectory(group="prompt 7") as trajectory:
            assert trajectory.group == "prompt 7"
        async with tangram.trajectory() as ungrouped:
            assert ungrouped.group is None
    opened = [event for event in sink.events if isinstance(event, TrajectoryOpened)]
    assert [event.group for event in opened] == ["prompt 7", None]
    assert [event.id for event in opened] == [trajectory.id, ungrouped.id]


@virtual
async def test_reserved_cores_are_held_from_entry_to_exit() -> None:
    """The baseline: the second trajectory waits, actions run at the dop of the reservation, one at a time."""

    @tangram.action(cpu=tangram.Elastic(1, 8))
    async def elastic(names: list[float]) -> None:
        names.append(tangram.current_allocation().cores)
        current_sandbox()
        await asyncio.sleep(1)

    sink = MemorySink()
    pool = CountingPool(cores=3)
    async with Tangram(pool, Quota("api", concurrency=4), policy=policies.reserved(2), trace=sink) as tg:
        cores: list[float] = []
        entered: list[float] = []

        async def rollout() -> None:
            async with tangram.trajectory():
                entered.append(now_s())
                await asyncio.sleep(1)
                assert tg.statistics().dimensions["cpu"].used == 2, "held though nothing runs"
                await asyncio.gather(*(elastic(cores) for _ in range(3)), call_api(3))
                assert now_s() == entered[-1] + 4, "one at a time, the API beside them"

        second = asyncio.create_task(rollout())
        await rollout()
        await second
        assert entered == [0, 4]
        assert cores == [2] * 6
        assert pool.made.least_free == 1000
        assert_idle(tg)
        assert pool.is_whole
    assert [event.reserved for event in sink.events if isinstance(event, TrajectoryOpened)] == [2000, 2000]


@virtual
async def test_under_reservation_actions_outside_of_trajectories_share_the_rest() -> None:
    async with Tangram(CountingPool(cores=3), policy=policies.reserved(2)) as tg:
        async with tangram.trajectory():
            with pytest.raises(NoSandboxError):
                await asyncio.get_running_loop().create_task(outside(tg))
        assert_idle(tg)
    async with Tangram(CountingPool(cores=1), policy=policies.reserved(2)):
        with pytest.raises(InfeasibleError, match="2 reserved cores; cpu has 1"):
            tangram.trajectory()


async def outside(tg: Tangram) -> None:
    from arl_tangram.trajectories import trajectory_var

    trajectory_var.set(None)
    await tg.run(ask_for_sandbox)


@virtual
async def test_a_trajectory_waits_for_nothing_when_it_holds_nothing() -> None:
    async with Tangram(CountingPool()) as tg:
        async with tangram.trajectory():
            assert now_s() == 0
            await turns(1)
        assert now_s() == 0
        assert_idle(tg)


@tangram.action(cpu=1, memory_gib=1)
async def with_memory() -> float:
    await asyncio.sleep(1)
    return now_s()


@virtual
async def test_the_memory_of_an_action_is_part_of_what_its_trajectory_holds() -> None:
    async def rollout() -> float:
        async with tangram.trajectory(memory_gib=32):
            return await with_memory()

    async with Tangram(FakePool(memory_gib=64)) as tg:
        assert await asyncio.gather(rollout(), rollout()) == [1, 1], "together they hold all there is"
        async with tangram.trajectory(memory_gib=0.5):
            with pytest.raises(InfeasibleError, match=r"asks for 1 GiB of memory; its trajectory holds 0\.5"):
                await with_memory()
        async with tangram.trajectory():
            taken = asyncio.create_task(with_memory())
            await turns(3)
            assert tg.statistics().dimensions["memory"].used == 1, "a trajectory that holds none leaves it to the pool"
            await taken
        assert_idle(tg)
