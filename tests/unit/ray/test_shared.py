"""Clients, an owner and nodes, over lines that only copy: calls run as in a runtime of their own, on one pool."""

from __future__ import annotations

import asyncio

import pytest

import arl_tangram as tangram
from arl_tangram import (
    GroupCancelledError,
    InfeasibleError,
    NoTrajectoryError,
    QueueTimeout,
    Quota,
    ShutdownError,
    current_allocation,
    current_quota,
    current_sandbox,
)
from arl_tangram.integrations.ray.client.shared import Shared
from arl_tangram.testing import FakePool
from shared_world import SharedWorld, settle
from virtual_time import virtual


@tangram.action(cpu=1)
async def work(for_s: float = 1.0) -> tuple[str | None, float]:
    box = current_sandbox()
    await box.exec(["work"])
    await asyncio.sleep(for_s)
    return current_allocation().node, current_allocation().cores


@tangram.action(cpu=tangram.Elastic(1, 4))
async def wide() -> float:
    await asyncio.sleep(1)
    return current_allocation().cores


@tangram.action(quota={"api": 1})
async def search(for_s: float = 1.0) -> str:
    await asyncio.sleep(for_s)
    return "found"


@tangram.action(quota={"api": 1}, queue_timeout=2)
async def impatient() -> None:
    await asyncio.sleep(1)


@tangram.action(cpu=64)
async def too_wide() -> None:
    raise AssertionError("nowhere")


@tangram.action(cpu=1)
async def calls_another(for_s: float) -> str:
    await current_sandbox().exec(["before"])
    told = await inner(for_s)
    await current_sandbox().exec(["after"])
    return told


@tangram.action(cpu=1)
async def inner(for_s: float) -> str:
    await current_sandbox().exec(["inner"])
    await asyncio.sleep(for_s)
    return "inner"


@tangram.action(cpu=1)
async def fails() -> None:
    raise ValueError("my own")


def world(**options: object) -> SharedWorld:
    nodes = {"a": [FakePool(cores=4, memory_gib=16)], "b": [FakePool(cores=2, memory_gib=16)]}
    return SharedWorld(Quota("api", concurrency=2), nodes=nodes, **options)  # type: ignore[arg-type]


def time() -> float:
    return asyncio.get_running_loop().time()


@virtual
async def test_calls_of_several_clients_share_what_there_is() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        before_s = time()
        told = await asyncio.gather(*(tg.run(search) for tg in (one, two) for _ in range(4)))
        assert told == ["found"] * 8
        assert time() - before_s == pytest.approx(4.0, abs=0.01), "two at a time, of all processes"
        await shared.check_idle()


@virtual
async def test_trajectories_are_on_nodes_and_their_files_stay() -> None:
    async def rollout(tg: Shared, number: int) -> str | None:
        async with tg.trajectory(memory_gib=4):
            first, _ = await tg.run(work, 0.5)
            again, cores = await tg.run(work, 0.5)
            assert first == again
            assert cores == 1
            return first

    async with world() as shared, shared.client() as one, shared.client() as two:
        nodes = await asyncio.gather(*(rollout(tg, n) for n, tg in enumerate([one, two] * 4)))
        assert set(nodes) == {"a", "b"}
        await shared.check_idle()


@virtual
async def test_elastic_cores_are_those_of_a_node() -> None:
    async with world() as shared, shared.client() as tg:
        async with tg.trajectory():
            cores = await wide()
        assert cores in {2, 4}
        assert tg.statistics().running == 0
        assert "wide" in tg.report()


@virtual
async def test_a_nested_call_takes_the_turn_and_gives_it_back() -> None:
    async with world() as shared, shared.client() as tg:
        async with tg.trajectory():
            assert await calls_another(1.0) == "inner"
        await shared.check_idle()


@virtual
async def test_figures_are_those_of_all_clients_and_stay_with_the_owner() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        before = one.figures()
        assert (before.total.calls, before.actions) == (0, ())
        await asyncio.gather(*(tg.run(search, 2.0) for tg in (one, two) for _ in range(2)))
        async with two.trajectory():
            with pytest.raises(ValueError, match="my own"):
                await two.run(fails)
        figures = two.figures()  # with what its owner had not heard yet
        assert figures == one.figures()
        rows = {action.name.rpartition(":")[2]: action for action in figures.actions}
        assert (rows["search"].calls, rows["search"].failures) == (4, {})
        assert rows["search"].queueing_mean_s == pytest.approx(1.0, abs=0.01)
        assert sum(rows["fails"].failures.values()) == 1
        assert figures.elapsed_s == pytest.approx(4.0, abs=0.1)
        (api,) = [d for d in figures.dimensions if d.name == "quota:api/concurrency"]
        assert api.held_share == pytest.approx(1.0, abs=0.02)


@virtual
async def test_what_a_body_raises_passes_unchanged() -> None:
    async with world() as shared, shared.client() as tg:
        async with tg.trajectory():
            with pytest.raises(ValueError, match="my own"):
                await fails()
            await work()
        await shared.check_idle()


@virtual
async def test_a_wait_ends_at_its_deadline() -> None:
    async with world() as shared, shared.client() as tg:
        busy = [asyncio.ensure_future(tg.run(search, 10.0)) for _ in range(2)]
        await settle()
        before_s = time()
        with pytest.raises(QueueTimeout):
            await tg.run(impatient)
        assert time() - before_s == pytest.approx(2.0, abs=0.01)
        await asyncio.gather(*busy)
        await shared.check_idle()


@virtual
async def test_what_fits_nowhere_is_refused_at_once() -> None:
    async with world() as shared, shared.client() as tg:
        async with tg.trajectory():
            with pytest.raises(InfeasibleError):
                await too_wide()
        with pytest.raises(InfeasibleError):
            tg.trajectory(memory_gib=1000)
        assert tg.statistics().waiting == 0


@virtual
async def test_a_cancelled_caller_withdraws_and_a_running_one_gives_back() -> None:
    async with world() as shared, shared.client() as tg:
        tasks = [asyncio.ensure_future(tg.run(search, 10.0)) for _ in range(4)]
        await settle()
        assert (tg.statistics().running, tg.statistics().waiting) == (2, 2)
        tasks[3].cancel()
        tasks[0].cancel()
        await settle()
        assert (tg.statistics().running, tg.statistics().waiting) == (2, 0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await shared.check_idle()


@virtual
async def test_a_cancelled_group_ends_in_all_processes() -> None:
    async def rollout(tg: Shared) -> None:
        async with tg.trajectory(group="g"):
            await tg.run(work, 100.0)

    async with world() as shared, shared.client() as one, shared.client() as two:
        tasks = [asyncio.ensure_future(rollout(tg)) for tg in (one, two)]
        await settle(200)
        assert await one.cancel_group("g") == 2
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in told] == [GroupCancelledError] * 2
        await shared.check_idle()


@virtual
async def test_draining_waits_for_all_processes() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        running = asyncio.ensure_future(two.run(search, 5.0))
        await settle()
        before_s = time()
        await one.drain()
        assert time() - before_s == pytest.approx(5.0, abs=0.01)
        waiting = asyncio.ensure_future(two.run(search, 1.0))
        await settle()
        assert one.statistics().waiting == 1
        one.resume()
        await asyncio.gather(running, waiting)


@virtual
async def test_closing_ends_what_waits_and_runs_and_others_go_on() -> None:
    async with world() as shared, shared.client() as one:
        two = await shared.client().start()
        gone = [asyncio.ensure_future(two.run(search, 100.0)) for _ in range(4)]
        await settle()
        stays = asyncio.ensure_future(one.run(search, 1.0))
        await settle()
        await two.aclose()
        told = await asyncio.gather(*gone, return_exceptions=True)
        assert [type(error) for error in told] == [ShutdownError] * 4
        assert await stays == "found"
        await shared.check_idle()


@virtual
async def test_a_client_that_is_gone_is_ended_on_its_nodes_within_its_lease() -> None:
    async with world(lease_s=12.0) as shared, shared.client() as one, shared.client() as two:
        entered = asyncio.Event()

        async def rollout() -> None:
            async with one.trajectory(memory_gib=8):
                entered.set()
                await one.run(work, 1000.0)

        task = asyncio.ensure_future(rollout())
        quota = asyncio.ensure_future(one.run(search, 1000.0))
        await entered.wait()
        await settle(200)
        shared.line_of(one).is_cut = True
        await asyncio.sleep(12.0 + 10.0 + 1.0)
        await shared.check_idle()
        for error in await asyncio.gather(task, quota, return_exceptions=True):
            assert isinstance(error, tangram.LeaseLostError)
        assert await two.run(search, 1.0) == "found"
        shared.line_of(one).is_cut = False
        await asyncio.sleep(15.0)
        assert await one.run(search, 1.0) == "found", "in a session of its own again"
        async with one.trajectory():
            assert await one.run(work, 1.0)
        await shared.check_idle()


@virtual
async def test_a_quota_can_be_settled_and_paused_from_a_client() -> None:
    @tangram.action(quota={"slow": 1})
    async def told_to_wait() -> float:
        current_quota("slow").retry_after(5)
        return time()

    nodes = {"a": [FakePool(cores=1)]}
    async with SharedWorld(Quota("slow", calls=10, period_s=60), nodes=nodes) as shared, shared.client() as tg:
        first = await tg.run(told_to_wait)
        second = await tg.run(told_to_wait)
        assert second - first == pytest.approx(5.0, abs=0.01)


@virtual
async def test_calls_after_a_trajectory_are_refused() -> None:
    async with world() as shared, shared.client() as tg:
        trajectory = tg.trajectory()
        async with trajectory:
            pass
        with pytest.raises(NoTrajectoryError):
            trajectory.check_open("late")


@virtual
async def test_capacities_are_changed_for_all_processes() -> None:
    async with world() as shared, shared.client() as one, shared.client() as two:
        one.set_capacity("quota:api/concurrency", 1)
        before_s = time()
        await asyncio.gather(two.run(search), two.run(search))
        assert time() - before_s == pytest.approx(2.0, abs=0.01)
        one.set_capacity("cpu@a", 1)
        one.set_capacity("cpu@b", 1)
        await settle()
        assert two.statistics().dimensions["cpu@a"].capacity == 1
        async with two.trajectory():
            assert await two.run(wide) == 1, "at the client, too, which resolves costs by it"
        for name, capacity in (("cpu@c", 1), ("cpu@a", 0.5), ("cpu@a", 0), ("quota:api/concurrency", -1)):
            with pytest.raises(tangram.ConfigurationError):
                one.set_capacity(name, capacity)


@virtual
async def test_who_looks_sees_what_it_has_said_before_though_no_frame_has_gone() -> None:
    async with world() as shared, shared.client() as tg:
        line = shared.line_of(tg)
        for _ in range(3):
            assert await tg.run(search, 1.0) == "found"
            sent = line.frames
            assert tg.statistics().running == 0
            assert line.frames == sent, "its end was said with the look"
            waits = asyncio.ensure_future(tg.run(search, 1.0))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            before = line.frames
            state = tg.statistics()
            assert (line.frames, state.waiting + state.running) == (before, 1)
            assert await waits == "found"
        await shared.check_idle()
