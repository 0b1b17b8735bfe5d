"""Services and GPUs in a runtime, in virtual time: seats, restores, failures, nesting, devices that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import Tangram
from arl_tangram.errors import (
    ConfigurationError,
    DefinitionError,
    InfeasibleError,
    NestedActionError,
    NoActionError,
    NoServiceError,
    QueueTimeout,
    RestoreError,
    RunTimeout,
)
from arl_tangram.testing import FakeGpuPool, FakePool, FakeService, assert_idle
from virtual_time import turns, virtual, virtual_loop


def use(service: str, *, seconds: float = 1.0, **options: Any) -> Callable[..., Any]:
    """Return an action that uses a service for some seconds, and returns what it answers."""

    @tangram.action(service=service, **options)
    async def used(*args: Any) -> Any:
        found = tangram.current_service()
        await asyncio.sleep(seconds)
        return await found.call(*args)

    return used


def now_s() -> float:
    return virtual_loop().time()


# What a body sees.


@virtual
async def test_a_body_sees_its_service_and_where_it_is() -> None:
    @tangram.action(service="judge")
    async def judge(answer: str) -> tuple[Any, ...]:
        service, allocation = tangram.current_service(), tangram.current_allocation()
        answer = await service.call(answer)
        return service.name, service.dop, service.devices, answer, allocation.service, allocation.devices

    pool = FakeGpuPool(FakeService("judge", on_call=len))
    async with Tangram(pool) as tg:
        assert await judge("four") == ("judge", 1, ("fake:0",), 4, "judge", ("fake:0",))
        assert_idle(tg)


@virtual
async def test_who_uses_no_service_has_none() -> None:
    @tangram.action()
    async def plain() -> None:
        tangram.current_service()

    async with Tangram(FakeGpuPool(FakeService("judge"))):
        with pytest.raises(NoServiceError, match="uses no service; declare it"):
            await plain()
    with pytest.raises(NoActionError, match=r"current_service\(\) was called outside"):
        tangram.current_service()


@virtual
async def test_a_service_is_of_no_use_after_its_action() -> None:
    kept: list[tangram.Service] = []

    @tangram.action(service="judge")
    async def keep() -> None:
        kept.append(tangram.current_service())

    async with Tangram(FakeGpuPool(FakeService("judge"))):
        await keep()
        with pytest.raises(tangram.UsageError):
            await kept[0].call()


# Restores.


@virtual
async def test_a_restore_is_overhead_and_eats_nothing_of_the_timeout() -> None:
    async with Tangram(FakeGpuPool(FakeService("slow", restore_s=50))) as tg:
        await use("slow", seconds=2, timeout=3)()
        with pytest.raises(RunTimeout):
            await use("slow", seconds=4, timeout=3)()
        rows = {row.name: row for row in tg._opened.summary.figures().actions}
    row = next(iter(rows.values()))
    assert row.execution_mean_s == pytest.approx((2 + 3) / 2)
    assert row.overhead_mean_s == pytest.approx(50 / 2)


@virtual
async def test_what_is_resident_is_not_restored_again() -> None:
    async with Tangram(FakeGpuPool(FakeService("a", gib=60), FakeService("b", gib=20))) as tg:
        for _ in range(3):
            await use("a")()
            await use("b")()
        statistics = tg.statistics().services
        assert [(name, s.uses, s.restores, s.evictions) for name, s in statistics.items()] == [
            ("a", 3, 1, 0),
            ("b", 3, 1, 0),
        ]
        assert statistics["a"].hit_rate == pytest.approx(2 / 3)
        assert now_s() == 3 * 2 + 2


async def test_what_a_pool_of_gpus_has_is_not_set_by_hand() -> None:
    """It would be told, and not be there; and lending sets it anew."""
    async with Tangram(FakeGpuPool(FakeService("a", gib=60))) as tg:
        for name in ("gpu", "service:a"):
            for units in (1, 4):
                with pytest.raises(ConfigurationError, match=rf"set_capacity\('{name}'\).*lend\(\).*max_concurrency"):
                    tg.set_capacity(name, units)
            assert tg.statistics().dimensions[name].capacity == 1
        tg.set_capacity("threads", 4)


@virtual
async def test_more_services_than_fit_take_turns() -> None:
    names = [f"s{n}" for n in range(6)]
    pool = FakeGpuPool(*(FakeService(name, gib=40, on_call=lambda *a, n=name: n) for name in names))
    async with Tangram(pool) as tg:
        calls = [use(names[n % 6]) for n in range(30)]
        assert await asyncio.gather(*(call() for call in calls)) == [names[n % 6] for n in range(30)]
        assert_idle(tg)
        restores = sum(s.restores for s in tg.statistics().services.values())
        assert 6 <= restores <= 30


@virtual
async def test_a_long_line_for_one_service_does_not_starve_another() -> None:
    ended: list[tuple[str, float]] = []

    async def call(service: str) -> None:
        await use(service)()
        ended.append((service, now_s()))

    pool = FakeGpuPool(FakeService("big", gib=80, restore_s=3), FakeService("other", gib=50, max_concurrency=2))
    async with Tangram(pool):
        first = [asyncio.create_task(call("other")) for _ in range(4)]
        await asyncio.sleep(1.5)
        late = asyncio.create_task(call("big"))
        await turns(3)
        more = [asyncio.create_task(call("other")) for _ in range(200)]
        await asyncio.gather(*first, late, *more)
    at_s = dict(ended)["big"]
    assert at_s < 20, "it is placed in bounded time, though others could go on joining"


# Cancelling.


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.5])
def test_a_cancelled_call_leaves_nothing(after_s: float) -> None:
    @virtual
    async def run() -> None:
        async with Tangram(FakeGpuPool(FakeService("a"))) as tg:
            task = asyncio.create_task(use("a", seconds=5)())
            await asyncio.sleep(after_s)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(2)
            assert_idle(tg)
            began_s = now_s()
            await use("a")()
            assert now_s() == began_s + 1, "the restore went on without who asked"

    run()


@virtual
async def test_who_waits_too_long_gives_up_and_bars_nobody() -> None:
    pool = FakeGpuPool(FakeService("a", gib=80), FakeService("b", gib=80), FakeService("c", gib=80))
    async with Tangram(pool) as tg:
        first = asyncio.create_task(use("a", seconds=100)())
        await asyncio.sleep(1)
        with pytest.raises(QueueTimeout):
            await use("b", queue_timeout=10)()
        await first
        await use("c")()
        assert_idle(tg)


# Failures.


def failing(times: int) -> tuple[Callable[[int], None], list[int]]:
    """Return what fails so many restores, and the list of all."""
    tried: list[int] = []

    def fail(dop: int) -> None:
        tried.append(dop)
        if len(tried) <= times:
            raise RestoreError(f"attempt {len(tried)} has failed")

    return fail, tried


@virtual
async def test_a_failed_restore_is_tried_on_another_gpu() -> None:
    fail, tried = failing(1)
    async with Tangram(FakeGpuPool(FakeService("a", on_restore=fail, on_call=lambda: "done"), gpus=2)) as tg:
        assert await use("a")() == "done"
        assert len(tried) == 2
        assert_idle(tg)


@virtual
async def test_all_who_wait_for_a_failed_restore_are_served_by_the_next() -> None:
    fail, tried = failing(1)
    service = FakeService("a", on_restore=fail, max_concurrency=8, on_call=lambda: "done")
    async with Tangram(FakeGpuPool(service, gpus=2)) as tg:
        assert await asyncio.gather(*(use("a")() for _ in range(8))) == ["done"] * 8
        assert len(tried) == 2
        assert_idle(tg)


@virtual
async def test_a_service_that_cannot_be_restored_anywhere_is_a_typed_error_with_the_reason() -> None:
    fail, _ = failing(1000)
    pool = FakeGpuPool(FakeService("a", on_restore=fail), FakeService("b", on_call=lambda: "fine"), gpus=2)
    async with Tangram(pool) as tg:
        with pytest.raises(RestoreError, match=r"could not be restored on.*has failed") as caught:
            await use("a")()
        assert caught.value.__cause__ is not None
        assert await use("b")() == "fine"
        assert_idle(tg)


@virtual
async def test_after_three_failed_restores_a_call_gives_up_though_there_are_gpus_left() -> None:
    fail, tried = failing(1000)
    async with Tangram(FakeGpuPool(FakeService("a", on_restore=fail), gpus=8)) as tg:
        with pytest.raises(RestoreError, match="attempt 3 has failed"):
            await use("a")()
        assert len(tried) == 3
        assert_idle(tg)


@virtual
async def test_a_broken_service_holds_up_nobody_else() -> None:
    fail, _ = failing(10**9)
    pool = FakeGpuPool(FakeService("broken", gib=80, on_restore=fail), FakeService("fine", gib=50), gpus=1)
    async with Tangram(pool) as tg:
        broken = [asyncio.create_task(use("broken")()) for _ in range(10)]
        fine = [asyncio.create_task(use("fine")()) for _ in range(20)]
        await asyncio.wait_for(asyncio.gather(*fine), timeout=200)
        outcomes = await asyncio.wait_for(asyncio.gather(*broken, return_exceptions=True), timeout=2000)
        assert all(isinstance(outcome, RestoreError) for outcome in outcomes)
        assert_idle(tg)


@virtual
async def test_who_uses_a_service_that_dies_goes_on_and_the_next_has_it_restored() -> None:
    service = FakeService("a", on_call=lambda: "answer")
    backends = []

    class Watched(FakeService):
        def backend(self) -> Any:
            backends.append(super().backend())
            return backends[-1]

    async with Tangram(FakeGpuPool(Watched("a", on_call=service.on_call))) as tg:
        first = asyncio.create_task(use("a", seconds=10)())
        await asyncio.sleep(2)
        backends[0].die(1, tangram.ServiceLostError("it crashed"))
        assert tg.statistics().services["a"].losses == 1
        with pytest.raises(tangram.ServiceLostError):
            await first
        assert await use("a")() == "answer"
        assert_idle(tg)


@virtual
async def test_a_service_that_dies_before_a_body_begins_is_restored_for_it() -> None:
    backends = []

    class Watched(FakeService):
        def backend(self) -> Any:
            backends.append(super().backend())
            return backends[-1]

    async with Tangram(FakeGpuPool(Watched("a", on_call=lambda: "answer"))) as tg:
        assert await use("a")() == "answer"
        call = asyncio.create_task(use("a")())
        while not tg.statistics().running:
            await turns(1)
        backends[0].die(1, tangram.ServiceLostError("it crashed"))
        assert await call == "answer"
        assert tg.statistics().services["a"].restores == 2
        assert_idle(tg)


@virtual
async def test_draining_ends_when_the_last_call_waits_again() -> None:
    fail, _ = failing(1)
    service = FakeService("a", restore_s=4, on_restore=fail, on_call=lambda: "done")
    async with Tangram(FakeGpuPool(service, gpus=2)) as tg:
        call = asyncio.create_task(use("a")())
        await asyncio.sleep(1)
        await asyncio.wait_for(tg.drain(), timeout=10)
        assert not call.done()
        tg.resume()
        assert await call == "done"
        assert_idle(tg)


@pytest.mark.parametrize("failures", [0, 1, 2, 3])
@pytest.mark.parametrize("limit", [{"total_calls": 3}, {"calls": 3, "period_s": 1000}])
def test_a_quota_counts_bodies_and_not_restores_that_failed(failures: int, limit: dict[str, Any]) -> None:
    @virtual
    async def run() -> None:
        fail, _ = failing(failures)
        quota = tangram.Quota("api", **limit)
        (name,) = (dimension.name for dimension in quota.dimensions())
        service = FakeService("a", on_restore=fail, on_call=lambda: "done")
        async with Tangram(FakeGpuPool(service, gpus=4), quota) as tg:
            call = use("a", quota={"api": 1})
            if failures < 3:
                assert await call() == "done"
            else:
                with pytest.raises(RestoreError):
                    await call()
            assert tg.statistics().dimensions[name].used == (1 if failures < 3 else 0)
            if failures < 3:
                assert [await call() for _ in range(2)] == ["done"] * 2, "what was not used can be used"
            assert_idle(tg)

    run()


@virtual
async def test_a_call_that_is_cancelled_before_its_body_began_has_used_nothing_of_a_quota() -> None:
    async with Tangram(FakeGpuPool(FakeService("a", restore_s=9)), tangram.Quota("api", total_calls=1)) as tg:
        call = asyncio.create_task(use("a", quota={"api": 1})())
        await asyncio.sleep(1)
        assert tg.statistics().dimensions["quota:api/calls/total"].used == 1
        call.cancel()
        await asyncio.wait([call])
        assert tg.statistics().dimensions["quota:api/calls/total"].used == 0
        await use("a", quota={"api": 1})()
        assert tg.statistics().dimensions["quota:api/calls/total"].used == 1


@pytest.mark.parametrize("gpus", [1, 4])
def test_a_service_that_could_not_be_restored_is_an_error_to_retry_whoever_says_so(gpus: int) -> None:
    """With one GPU the scheduler refuses the call, with several its third failure is the answer."""

    @virtual
    async def run() -> None:
        tries = 1 if gpus == 1 else 3
        fail, tried = failing(tries)
        async with Tangram(FakeGpuPool(FakeService("a", on_restore=fail, on_call=lambda: "done"), gpus=gpus)) as tg:
            assert await use("a", idempotent=True, retries=1)() == "done"
            assert len(tried) == tries + 1
            assert_idle(tg)
        fail, tried = failing(10**9)
        async with Tangram(FakeGpuPool(FakeService("a", on_restore=fail), gpus=gpus)) as tg:
            with pytest.raises(RestoreError):
                await use("a", idempotent=True, retries=1)()
            assert len(tried) == 2 * tries, "each attempt begins to count anew"
            assert_idle(tg)

    run()


@virtual
async def test_the_report_says_once_what_was_swapped() -> None:
    pool = FakeGpuPool(FakeService("judge", gib=50), FakeService("coder", gib=50))
    async with Tangram(pool) as tg:
        await asyncio.gather(*(use("judge")() for _ in range(4)), *(use("coder")() for _ in range(2)))
        report = tg.report()
        assert [line.split()[0] for line in report.splitlines() if "judge" in line] == ["service:judge", "judge"]
        shares = {service.name: service.hit_share for service in tg._opened.summary.figures().services}
        assert {name: of.hit_rate for name, of in tg.statistics().services.items()} == shares


def test_the_fake_pool_checks_what_the_real_one_does() -> None:
    with pytest.raises(ConfigurationError, match=r"FakeGpuPool\(\): two services have the name 'a'"):
        FakeGpuPool(FakeService("a"), FakeService("a"))
    with pytest.raises(ConfigurationError, match="policy='fifo'"):
        FakeGpuPool(policy="fifo")  # type: ignore[arg-type]


# GPUs of its own.


def plain_body() -> None:
    """Run in a worker in other tests."""


def test_declarations_that_cannot_work() -> None:
    async def body() -> None: ...

    with pytest.raises(DefinitionError, match="for `async def` bodies"):
        tangram.action(service="a")(plain_body)
    with pytest.raises(DefinitionError, match="isolate='process'"):
        tangram.action(gpu=1)(plain_body)
    with pytest.raises(DefinitionError, match="takes 1, 2, 4 or 8, not 3"):
        tangram.action(gpu=3, isolate="process")(plain_body)
    with pytest.raises(DefinitionError, match="exclude each other"):
        tangram.action(service="a", gpu=1, isolate="process")(plain_body)
    with pytest.raises(DefinitionError, match="not an Elastic"):
        tangram.action(service="a", cpu=tangram.Elastic(1, 4))(body)
    with pytest.raises(DefinitionError, match="name of a service"):
        tangram.action(service="a/b")(body)
    with pytest.raises(DefinitionError, match="gpu"):
        tangram.action(gpu=1.5, isolate="process")(plain_body)  # type: ignore[arg-type]


@virtual
async def test_what_there_is_not_is_refused_at_once() -> None:
    async with Tangram(FakeGpuPool(FakeService("a"), FakeService("b"))):
        with pytest.raises(InfeasibleError, match="asks for the service 'c'; this runtime has only 'a', 'b'"):
            await use("c")()
        with pytest.raises(InfeasibleError, match="asks for 2 GPUs of its own; gpu has 1 in all"):
            await tangram.action(gpu=2, isolate="process")(plain_body)()
    async with Tangram(FakePool()):
        with pytest.raises(InfeasibleError, match="has no services"):
            await use("a")()
        with pytest.raises(InfeasibleError, match="no pool that offers gpu"):
            await tangram.action(gpu=1, isolate="process")(plain_body)()


def test_two_pools_of_gpus_are_one_too_many() -> None:
    with pytest.raises(ConfigurationError, match="one pool of GPUs, not 2"):
        Tangram(FakeGpuPool(), FakeGpuPool())


@virtual
async def test_a_service_that_fits_nowhere_is_refused_when_the_runtime_is_opened() -> None:
    with pytest.raises(ConfigurationError, match="big"):
        async with Tangram(FakeGpuPool(FakeService("big", gib=100), gib=80)):
            pass


# With other pools.


@virtual
async def test_cores_and_quotas_are_held_with_the_seat_or_not_at_all() -> None:
    @tangram.action(service="a", cpu=3)
    async def on_cores() -> float:
        await asyncio.sleep(1)
        return tangram.current_allocation().cores

    @tangram.action(cpu=2)
    async def two_cores() -> float:
        return now_s()

    async with Tangram(FakePool(cores=4), FakeGpuPool(FakeService("a", gib=80), FakeService("b", gib=80))) as tg:
        holder = asyncio.create_task(use("b", seconds=10)())
        await asyncio.sleep(2)
        waiting = asyncio.create_task(on_cores())
        await turns(3)
        assert await two_cores() == 2.0, "who waits for a seat holds no cores"
        assert await waiting == 3
        await holder
        assert_idle(tg)


@virtual
async def test_a_service_in_a_trajectory_with_a_sandbox() -> None:
    @tangram.action(service="a", cpu=1)
    async def both() -> tuple[int, Any]:
        done = await tangram.current_sandbox().exec(["true"])
        return done.exit_code, await tangram.current_service().call()

    async with Tangram(FakePool(), FakeGpuPool(FakeService("a", on_call=lambda: 7))) as tg:
        async with tangram.trajectory(memory_gib=1):
            assert await both() == (0, 7)
        assert_idle(tg)


# Calls within calls.


@virtual
async def test_a_caller_keeps_its_service_while_it_waits() -> None:
    inner = use("b")

    @tangram.action(service="a")
    async def outer() -> Any:
        await inner()
        return await tangram.current_service().call()

    pool = FakeGpuPool(
        FakeService("a", gib=40, on_call=lambda: "a"), FakeService("b", gib=40), FakeService("c", gib=60)
    )
    async with Tangram(pool) as tg:
        one = asyncio.create_task(outer())
        await asyncio.sleep(0.1)
        other = asyncio.create_task(use("c")())
        assert await one == "a"
        await other
        assert_idle(tg)


@virtual
async def test_a_call_for_which_the_caller_leaves_no_room_is_refused_with_the_chain() -> None:
    inner = use("b")

    @tangram.action(service="a")
    async def outer() -> Any:
        return await inner()

    async with Tangram(FakeGpuPool(FakeService("a", gib=50), FakeService("b", gib=50))) as tg:
        with pytest.raises(NestedActionError, match=r"outer.*→.*used.*no room for the service b"):
            await outer()
        assert_idle(tg)


@virtual
async def test_calls_whose_callers_keep_what_the_others_need_are_not_all_left_waiting() -> None:
    def both(mine: str, other: str) -> Callable[..., Any]:
        inner = use(other)

        @tangram.action(service=mine)
        async def outer() -> str:
            await asyncio.sleep(1)
            await inner()
            return mine

        return outer

    services = [FakeService(name, gib=50) for name in "abcd"]
    async with Tangram(FakeGpuPool(*services, gpus=2)) as tg:
        outcomes = await asyncio.gather(both("a", "c")(), both("b", "d")(), return_exceptions=True)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NestedActionError", "str"]
        assert_idle(tg)


@virtual
async def test_rollouts_that_are_actions_do_not_keep_each_other_from_a_restore() -> None:
    """All that uses a service is called by actions that use none; the judge is never idle."""
    judge, teacher = use("judge", seconds=3), use("teacher")

    @tangram.action()
    async def rollout(call: Callable[..., Any]) -> float:
        await call()
        return now_s()

    pool = FakeGpuPool(FakeService("judge", gib=60, max_concurrency=4), FakeService("teacher", gib=60, restore_s=2))
    async with Tangram(pool) as tg, asyncio.TaskGroup() as tasks:
        _ = tasks.create_task(rollout(judge))
        await asyncio.sleep(1)
        teaching = tasks.create_task(rollout(teacher))
        for _ in range(100):
            await asyncio.sleep(1)
            _ = tasks.create_task(rollout(judge))
        assert teaching.done()
        assert teaching.result() < 40
    assert_idle(tg)


# Devices that are lent.


@virtual
async def test_lent_devices_are_used_and_come_back_empty() -> None:
    seen: list[tuple[str, ...]] = []

    @tangram.action(service="a")
    async def look() -> None:
        seen.append(tangram.current_service().devices)
        await asyncio.sleep(10)

    async with Tangram(FakeGpuPool(FakeService("a", gib=60), FakeService("b", gib=60))) as tg:
        assert tg.statistics().dimensions["gpu"].capacity == 1
        async with tg.lend(["mine:0"]):
            assert tg.statistics().dimensions["gpu"].capacity == 2
            b = asyncio.create_task(use("b", seconds=5)())
            await asyncio.sleep(0.5)
            a = asyncio.create_task(look())
            await asyncio.sleep(2)
            assert seen == [("mine:0",)] or b.done()
            left_s = now_s()
        assert now_s() > left_s, "leaving waits for who uses them"
        assert tg.statistics().dimensions["gpu"].capacity == 1
        await asyncio.gather(a, b)
        await use("a")()
        assert_idle(tg)
        async with tg.lend(["mine:0"]):
            await use("a")()
        with pytest.raises(ConfigurationError, match=r"fake:0.*already"):
            async with tg.lend(["fake:0"]):
                pass


@virtual
async def test_lending_needs_a_pool_and_is_done_once() -> None:
    async with Tangram(FakePool()) as tg:
        with pytest.raises(ConfigurationError, match="needs a pool of GPUs"):
            tg.lend(["cuda:0"])
    async with Tangram(FakeGpuPool(FakeService("a"))) as tg:
        lent = tg.lend(["mine:0"])
        async with lent:
            pass
        with pytest.raises(tangram.UsageError, match="lent before"):
            async with lent:
                pass


@virtual
async def test_closing_while_devices_are_given_back() -> None:
    tg = await Tangram(FakeGpuPool(FakeService("a", gib=60)), kill_grace_s=1).start()
    lent = tg.lend(["mine:0"])
    await lent.__aenter__()
    use_it = [asyncio.create_task(use("a", seconds=100)()) for _ in range(2)]
    await asyncio.sleep(3)
    leaving = asyncio.create_task(lent.__aexit__(None, None, None))
    await asyncio.sleep(1)
    await tg.aclose()
    with pytest.raises(tangram.ShutdownError):
        await use_it[0]
    await asyncio.gather(*use_it, leaving, return_exceptions=True)
