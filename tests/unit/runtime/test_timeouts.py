"""Deadlines of running and of waiting, bodies that do not listen, and what bodies raise."""

from __future__ import annotations

import asyncio
import itertools
import traceback

import pytest

import arl_tangram as tangram
from arl_tangram import BodyCancelledError, InfrastructureError, QueueTimeout, Quota, RunTimeout, Tangram
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.decisions import Decisions
from arl_tangram.testing import assert_idle
from counting_pools import CountingPool
from virtual_time import VirtualLoop, run_virtually, virtual


def now_s() -> float:
    return asyncio.get_running_loop().time()


@tangram.action(cpu=2, timeout=1.5)
async def sleep(for_s: float) -> str:
    await asyncio.sleep(for_s)
    return "done"


@tangram.action(cpu=2, timeout=0.25)
async def deaf(for_s: float) -> str:
    """Swallow every cancellation."""
    end_s = now_s() + for_s
    while now_s() < end_s:
        try:
            await asyncio.sleep(end_s - now_s())
        except asyncio.CancelledError:
            CANCELS.append(now_s())
    return "late"


CANCELS: list[float] = []


@virtual
async def test_a_body_is_ended_at_its_timeout() -> None:
    pool = CountingPool()
    async with Tangram(pool) as tg:
        assert await sleep(1.4375) == "done"
        begun_s = now_s()
        with pytest.raises(RunTimeout, match=r"sleep ran longer than its timeout of 1\.5 s") as late:
            await sleep(2)
        assert now_s() - begun_s == 1.5
        assert isinstance(late.value, TimeoutError)
        assert not isinstance(late.value, InfrastructureError)
        assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_waiting_does_not_eat_running_time() -> None:
    async with Tangram(CountingPool(cores=2)) as tg:
        assert await asyncio.gather(*(sleep(1.25) for _ in range(5))) == ["done"] * 5
        assert now_s() == 5 * 1.25
        assert_idle(tg)


@virtual
async def test_running_does_not_eat_waiting_time() -> None:
    patient = sleep.with_options(timeout=None, queue_timeout=0.5)
    async with Tangram(CountingPool(cores=2)) as tg:
        assert await patient(100) == "done"
        assert_idle(tg)


@virtual
async def test_a_call_gives_up_waiting_on_time() -> None:
    impatient = sleep.with_options(queue_timeout=0.5, timeout=None)
    async with Tangram(CountingPool(cores=2)) as tg:
        first = asyncio.create_task(impatient(1))
        second = asyncio.create_task(impatient(1))
        with pytest.raises(QueueTimeout, match=r"sleep waited 0\.5 s") as late:
            await second
        assert now_s() == 0.5
        assert isinstance(late.value, TimeoutError)
        assert isinstance(late.value, InfrastructureError)
        assert await first == "done"
        assert_idle(tg)


@virtual
async def test_units_that_come_at_the_last_moment_do_not_save_a_call_nor_harm_the_next() -> None:
    impatient = sleep.with_options(queue_timeout=1, timeout=None)
    async with Tangram(CountingPool(cores=2)) as tg:
        calls = [asyncio.create_task(impatient(1)) for _ in range(2)]
        calls.append(asyncio.create_task(sleep(1)))
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert results[0] == results[2] == "done"
        assert results[1] == "done" or isinstance(results[1], QueueTimeout)
        assert_idle(tg)


@virtual
async def test_a_timeout_in_virtual_time_that_no_float_hits_exactly() -> None:
    """0.1 + 0.2 is more than 0.3."""
    impatient = sleep.with_options(queue_timeout=0.2, timeout=None)
    async with Tangram(CountingPool(cores=2)) as tg:
        first = asyncio.create_task(sleep(1))
        await asyncio.sleep(0.1)
        with pytest.raises(QueueTimeout):
            await impatient(1)
        await first
        assert_idle(tg)


@pytest.mark.looptime
async def test_a_timeout_on_a_clock_with_a_coarse_resolution() -> None:
    """A timer that fires a little early means another look, not a loop that never gets on."""
    impatient = sleep.with_options(queue_timeout=0.2, timeout=None)
    async with Tangram(CountingPool(cores=2), Quota("api", calls=1, period_s=0.7)) as tg:
        first = asyncio.create_task(sleep(1))
        await asyncio.sleep(0.1)
        with pytest.raises(QueueTimeout):
            await impatient(1)
        await first
        for _ in range(3):
            await asyncio.sleep(0.1)
            await called()
        assert_idle(tg)


@tangram.action(quota={"api": 1})
async def called() -> None: ...


@virtual
async def test_a_deaf_body_lingers_visibly_and_is_cancelled_again() -> None:
    """Case 9."""
    CANCELS.clear()
    pool = CountingPool(cores=2)
    async with Tangram(pool, kill_grace_s=0.25) as tg:
        with pytest.raises(RunTimeout):
            await deaf(1.875)
        assert now_s() == 0.5
        state = tg.statistics()
        assert state.lingering == (deaf.spec.name,)
        assert state.running == 1
        assert state.dimensions["cpu"].used == 2
        assert pool.made.milli_free == 0
        waiting = asyncio.create_task(sleep(1))
        await asyncio.sleep(0.25)
        assert tg.statistics().waiting == 1
        assert await waiting == "done"
        assert now_s() == 2.875, "it started as soon as the body had really ended, at 1.875 s"
        assert [0.25 * (i + 1) for i in range(7)] == CANCELS
        assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_a_value_that_comes_after_the_timeout_is_not_returned() -> None:
    async with Tangram(CountingPool()) as tg:
        with pytest.raises(RunTimeout):
            await deaf(1)
        assert now_s() == 1, "within the grace time, the caller waits for the end"
        assert_idle(tg)


@virtual
async def test_an_error_that_comes_after_the_timeout_is_its_context() -> None:
    @tangram.action(timeout=1)
    async def raises_when_cancelled() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            raise ValueError("cannot stop now") from None

    async with Tangram() as tg:
        with pytest.raises(RunTimeout):
            await raises_when_cancelled()
        assert_idle(tg)


@virtual
async def test_a_caller_waits_for_a_deaf_body_only_for_the_grace_time() -> None:
    async with Tangram(CountingPool(), kill_grace_s=3) as tg:
        call = asyncio.create_task(deaf.with_options(timeout=None)(10))
        await asyncio.sleep(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert now_s() == 4
        assert tg.statistics().lingering == (deaf.spec.name,)
        await asyncio.sleep(7)
        assert_idle(tg)


@virtual
async def test_a_timeout_of_the_caller_works_as_everywhere() -> None:
    async with Tangram(CountingPool()) as tg:
        with pytest.raises(TimeoutError) as late:
            async with asyncio.timeout(0.5):
                await sleep(1)
        assert not isinstance(late.value, RunTimeout)
        assert now_s() == 0.5
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sleep(1), 0.25)
        assert_idle(tg)


@virtual
async def test_a_timeout_inside_the_body_is_the_bodys_own() -> None:
    @tangram.action(timeout=5)
    async def with_its_own_limit() -> None:
        async with asyncio.timeout(1):
            await asyncio.sleep(10)

    async with Tangram() as tg:
        with pytest.raises(TimeoutError) as late:
            await with_its_own_limit()
        assert not isinstance(late.value, tangram.TangramError)
        assert_idle(tg)


@virtual
async def test_the_callers_timeout_wins_over_the_later_one_of_the_body() -> None:
    """The caller gives up while its body is dying of its own timeout."""

    @tangram.action(timeout=1)
    async def slow_to_die() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(2)

    async with Tangram() as tg:
        with pytest.raises(TimeoutError) as late:
            async with asyncio.timeout(1.5):
                await slow_to_die()
        assert not isinstance(late.value, RunTimeout)
        assert now_s() == 3, "it waits for the end of the body"
        assert_idle(tg)


@virtual
async def test_a_cancelled_error_of_the_body_is_not_taken_for_the_callers() -> None:
    @tangram.action(cpu=1)
    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    @tangram.action(cpu=1)
    async def awaits_something_cancelled() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    @tangram.action(cpu=1)
    async def cancels_its_task() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    async with Tangram(CountingPool()) as tg:
        for action in (cancels_itself, awaits_something_cancelled, cancels_its_task):
            with pytest.raises(BodyCancelledError, match=action.__name__):
                await action()
        assert_idle(tg)


class OddError(Exception):
    def __init__(self, one: int, *, two: int) -> None:
        super().__init__(one)
        self.two = two


@pytest.mark.parametrize(
    "error",
    [
        KeyError("k"),
        OddError(1, two=2),
        TimeoutError("own"),
        asyncio.InvalidStateError("own"),
        ExceptionGroup("several", [ValueError(1), KeyError(2)]),
        StopAsyncIteration("own"),
        MemoryError(),
        RecursionError("own"),
        BaseException("plain"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_body_raises_passes_unchanged(error: BaseException) -> None:
    @tangram.action(cpu=1)
    async def raises() -> None:
        raise error

    async def main() -> None:
        async with Tangram(CountingPool()) as tg:
            with pytest.raises(type(error)) as raised:
                await raises()
            assert raised.value is error
            assert_idle(tg)

    run_virtually(main())


async def test_what_a_thread_raises_passes_unchanged() -> None:
    @tangram.action()
    def raises(error: BaseException) -> None:
        raise error

    async with Tangram() as tg:
        for error in (KeyError("k"), OddError(1, two=2), TimeoutError("own"), BaseException("plain")):
            with pytest.raises(type(error)) as raised:
                await raises(error)
            assert raised.value is error
        with pytest.raises(RuntimeError, match="StopIteration"):
            await raises(StopIteration(3))
        with pytest.raises(BodyCancelledError):
            await raises(asyncio.CancelledError())
        assert_idle(tg)


def tool_line(numbers: list[int]) -> int:
    return numbers[7]  # the line that a trainer wants to see


async def test_the_traceback_names_the_line_of_the_tool() -> None:
    @tangram.action()
    async def on_the_loop() -> int:
        return tool_line([])

    @tangram.action()
    def on_a_thread() -> int:
        return tool_line([])

    async with Tangram():
        for action in (on_the_loop, on_a_thread):
            with pytest.raises(IndexError) as raised:
                await action()
            text = "".join(traceback.format_exception(raised.value))
            assert "return numbers[7]  # the line" in text
            assert f"in {action.__name__}" in text


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_body_ends_the_program_and_leaks_nothing(kind: type[BaseException]) -> None:
    """It leaves `asyncio.run`, as everywhere; the runtime is closed on the way out."""
    pool = CountingPool(close_s=0.1)
    runtimes: list[Tangram] = []

    @tangram.action(cpu=1)
    async def interrupts() -> None:
        await asyncio.sleep(0)
        raise kind(3)

    @tangram.action(cpu=1)
    async def other() -> None:
        await asyncio.sleep(0.05)

    async def main() -> None:
        async with Tangram(pool) as tg:
            runtimes.append(tg)
            async with tangram.trajectory():
                await asyncio.gather(interrupts(), other(), other())

    with pytest.raises(kind):
        asyncio.run(main())
    assert pool.is_whole
    assert not runtimes[0].is_open
    assert runtimes[0].statistics().running == 0


@pytest.mark.parametrize("raised", [SystemExit(3), SystemExit(), KeyboardInterrupt("why")])
async def test_a_tool_on_a_thread_that_wants_to_exit_does_not_end_the_program(raised: BaseException) -> None:
    @tangram.action()
    def exits() -> None:
        raise raised

    async with Tangram() as tg:
        with pytest.raises(tangram.RemoteError) as told:
            await exits()
        assert (told.value.error, told.value.text) == (type(raised).__name__, str(raised))
        assert "in exits" in told.value.traceback
        assert told.value.__cause__ is raised
        assert_idle(tg)


@virtual
async def test_a_failed_clean_up_is_told_and_leaks_nothing() -> None:
    lost = tangram.SandboxLostError("something survived")
    pool = CountingPool(clean_s=1, clean_error=lost)

    @tangram.action(cpu=1)
    async def works(error: Exception | None = None) -> int:
        if error is not None:
            raise error
        return 3

    async with Tangram(pool) as tg:
        for error in (None, KeyError("k")):
            with pytest.raises(tangram.SandboxLostError, match="survived"):
                await works(error)
        assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_a_clean_up_longer_than_the_grace_time_is_not_done_twice_at_once() -> None:
    pool = CountingPool(clean_s=8)

    @tangram.action(cpu=1, timeout=1)
    async def works() -> None:
        await asyncio.sleep(10)

    async with Tangram(pool, kill_grace_s=2) as tg:
        with pytest.raises(RunTimeout):
            await works()
        assert now_s() == 3
        assert tg.statistics().lingering
        await asyncio.sleep(30)
        assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_a_result_that_is_ready_is_not_lost_to_a_later_deadline() -> None:
    """The clean-up is no running time."""
    pool = CountingPool(clean_s=5)

    async with Tangram(pool) as tg:
        assert await sleep(1) == "done"
        assert now_s() == 6
        assert_idle(tg)


def test_what_waits_when_the_scheduler_fails_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of the scheduler harms those who wait, and nobody waits for ever; what runs goes on."""
    decide = SchedulerCore.decide
    calls = itertools.count(1)

    def failing(core: SchedulerCore, now_s: float) -> Decisions:
        if next(calls) == 2:
            raise ZeroDivisionError("a defect")
        return decide(core, now_s)

    @tangram.action(cpu=tangram.Elastic(1, 2))
    async def elastic() -> str:
        await asyncio.sleep(1)
        return "done"

    @tangram.action(cpu=0.5)
    async def fraction() -> str:
        await asyncio.sleep(1)
        return "done"

    loop = VirtualLoop()
    pool = CountingPool()
    monkeypatch.setattr(SchedulerCore, "decide", failing)

    async def main() -> None:
        async with Tangram(pool) as tg:
            running = asyncio.create_task(elastic())
            await asyncio.sleep(0.5)
            calls = [asyncio.create_task(call) for call in (fraction(), elastic(), fraction(), elastic())]
            calls.append(asyncio.create_task(enter()))
            for result in await asyncio.gather(*calls, return_exceptions=True):
                assert type(result) is InfrastructureError, result
            assert await running == "done"
            assert await fraction() == "done"
            assert_idle(tg)
            assert pool.is_whole
        assert len(loop.errors) == 1
        assert isinstance(loop.errors[0]["exception"], ZeroDivisionError)
        loop.errors.clear()

    async def enter() -> str:
        async with tangram.trajectory(memory_gib=1):
            return "done"

    run_virtually(main(), loop)


def test_a_policy_that_is_refused_is_told_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def nonsense(group: tangram.policies.Group) -> list[int]:
        return [99] if group.arrived > 1 else [2]

    @tangram.action(cpu=tangram.Elastic(1, 2))
    async def cores() -> float:
        await asyncio.sleep(1)
        return tangram.current_allocation().cores

    @virtual
    async def main() -> None:
        async with Tangram(CountingPool(), policy=nonsense) as tg:
            assert await cores() == 2
            assert await asyncio.gather(cores(), cores()) == [1, 1]
            assert await cores() == 1
            report = tg.report()
        assert "nonsense was refused after 1.000 s: ValueError: planned 99 units" in report
        assert "since then, whoever fits starts in order, with its least units" in report

    main()
    (told,) = [record.getMessage() for record in caplog.records]
    assert "nonsense was refused: ValueError: planned 99 units for an action that admits (1, 2)" in told


def test_a_policy_that_holds_up_the_loop_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = itertools.count(0.0, 1.5)
    monkeypatch.setattr("arl_tangram.timed_policy.time.perf_counter", lambda: next(now_s))

    @tangram.action(cpu=tangram.Elastic(1, 2))
    async def cores() -> float:
        return tangram.current_allocation().cores

    @virtual
    async def main() -> None:
        async with Tangram(CountingPool(), policy=lambda group: [group.candidates[0].units[-1]]) as tg:
            assert await cores() == 1
            assert "TimeoutError: planned for 1.500 s; 1 s are the most" in tg.report()

    main()


@virtual
async def test_a_body_that_ends_while_it_is_cleaned_up_after_is_cleaned_up_after_again() -> None:
    """It may have started more in between; and being cancelled from time to time must not lose its cores."""
    pool = CountingPool(clean_s=5)
    async with Tangram(pool, kill_grace_s=1) as tg:
        with pytest.raises(RunTimeout):
            await deaf.with_options(timeout=1)(2.5)
        assert now_s() == 2
        await asyncio.sleep(1)
        assert pool.made.cleaning == 1
        assert pool.made.milli_free == 2000
        await asyncio.sleep(20)
        assert_idle(tg)
        assert pool.is_whole


async def test_a_plain_body_that_raises_stop_iteration_is_answered() -> None:
    """As in a generator (PEP 479) it becomes a `RuntimeError`: no future can hold it."""

    @tangram.action(cpu=1)
    def exhausted() -> int:
        return next(iter(()))

    async with Tangram(CountingPool()) as tg:
        with pytest.raises(RuntimeError, match="raised StopIteration") as raised:
            await exhausted()
        assert isinstance(raised.value.__cause__, StopIteration)
        assert_idle(tg)


def test_the_default_policy_is_not_refused_because_the_process_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = itertools.count(0.0, 1.5)
    monkeypatch.setattr("arl_tangram.timed_policy.time.perf_counter", lambda: next(now_s))

    @tangram.action(cpu=tangram.Elastic(1, 2))
    async def cores() -> float:
        return tangram.current_allocation().cores

    @virtual
    async def main() -> None:
        async with Tangram(CountingPool()) as tg:
            assert await cores() == 2
            assert "was refused after" not in tg.report()

    main()
