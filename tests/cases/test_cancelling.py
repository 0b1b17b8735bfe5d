"""Cases 1 to 9: capacity that is lost, given twice or never handed on when somebody gives up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import QueueTimeout, Quota, RunTimeout
from cases.settled import now_s, opened, watch_at_rest
from counting_pools import CountingPool
from injection import Scene, at_every_step
from virtual_time import run_virtually, turns, until, virtual, virtual_loop


@tangram.action(cpu=4)
async def whole(for_s: float = 1.0) -> float:
    begun_s = now_s()
    await asyncio.sleep(for_s)
    return begun_s


@tangram.action(cpu=1)
async def single(for_s: float = 1.0) -> float:
    return await whole.body(for_s)


@tangram.action(memory_gib=64)
async def all_memory(for_s: float = 1.0) -> float:
    return await whole.body(for_s)


@tangram.action(quota={"api": 1})
async def called(for_s: float = 1.0) -> float:
    return await whole.body(for_s)


@tangram.action(cpu=tangram.Elastic(1, 4), quota={"api": 1}, memory_gib=40)
async def of_everything(for_s: float = 1.0) -> float:
    return await whole.body(for_s)


async def in_a_trajectory(for_s: float = 1.0) -> float:
    async with tangram.trajectory(memory_gib=64):
        return await single(for_s)


Use = Callable[[], Awaitable[float]]
API = Quota("api", concurrency=1)

# What is used, and what of it those who wait need.
ONE_AT_A_TIME: list[tuple[Use, str, float]] = [
    (whole, "cpu", 4),
    (all_memory, "memory", 64),
    (called, "quota:api/concurrency", 1),
    (of_everything, "memory", 40),
    (in_a_trajectory, "memory", 64),
]
EACH = pytest.mark.parametrize(
    ("use", "dimension", "wanted"), ONE_AT_A_TIME, ids=["cpu", "memory", "quota", "all", "trajectory"]
)


# Case 1: cancelled between the promise and the first step.


@EACH
@pytest.mark.parametrize("struck", [1, 3])
def test_case_01_who_is_cancelled_in_the_hand_over_passes_it_on(
    use: Use, dimension: str, wanted: float, struck: int
) -> None:
    """The end of the first grants the next, which is cancelled at any step around that; the last starts."""

    async def scenario(scene: Scene) -> None:
        watch_at_rest(scene.tg, dimension, wanted)
        first = asyncio.create_task(_call(use))
        await turns(2)
        for _ in range(struck):
            scene.victim(_call(use))
        await turns(2)
        last = asyncio.create_task(_call(use))
        await asyncio.wait([first, *scene.victims, last])
        assert last.result() <= 1 + struck, "at the latest when all before it have had their second"
        virtual_loop().when_quiet = lambda: None

    runs = at_every_step(scenario, quotas=[API], again_after=(1, 2, 3))
    assert runs > 4 * 21


@pytest.mark.parametrize("turn", range(21))
@pytest.mark.parametrize("struck", [1, 2, 4])
@virtual
async def test_case_01_several_are_cancelled_while_they_are_being_handed_theirs(turn: int, struck: int) -> None:
    """One end promises its four cores to four; `struck` of these are cancelled a number of turns later."""
    pool = CountingPool()
    async with opened(pool) as tg:
        watch_at_rest(tg, "cpu", 1)
        strikes: list[float] = []
        first = asyncio.create_task(whole(1))
        await turns(3)
        promised = [asyncio.create_task(single(1)) for _ in range(4)]
        behind = [asyncio.create_task(single(1)) for _ in range(struck)]

        async def strike() -> None:
            await asyncio.sleep(1 - now_s())  # in the very turn of the release
            await turns(turn)
            strikes.append(now_s())
            for task in promised[:struck]:
                task.cancel()

        await asyncio.gather(first, strike())
        assert strikes == [1]
        assert await asyncio.gather(*behind) == [1] * struck, "they start in that same moment"
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*promised, return_exceptions=True)
        virtual_loop().when_quiet = lambda: None


async def _call(use: Use) -> float:
    return await use()


# Case 3: those that are dead and still in the queue.


async def _by_cancelling() -> None:
    await whole(1)


async def _by_a_deadline_of_the_call() -> None:
    await whole.with_options(queue_timeout=1.0)(1)


async def _by_a_deadline_of_the_caller() -> None:
    async with asyncio.timeout_at(1.0):
        await whole(1)


@pytest.mark.parametrize("dead", [1, 2, 100])
@pytest.mark.parametrize("die_first", [True, False])
@pytest.mark.parametrize("way", [_by_cancelling, _by_a_deadline_of_the_call, _by_a_deadline_of_the_caller])
@virtual
async def test_case_03_a_release_looks_past_those_who_gave_up_at_that_moment(
    way: Callable[[], Awaitable[None]], die_first: bool, dead: int
) -> None:
    loop = virtual_loop()
    async with opened(CountingPool()) as tg:
        watch_at_rest(tg, "cpu", 4)
        gone: list[asyncio.Task[Any]] = []

        def give_up() -> None:
            for task in gone:
                task.cancel()

        if die_first and way is _by_cancelling:
            loop.call_at(1, give_up)
        first = asyncio.create_task(whole(1))
        await turns(3)
        assert now_s() == 0
        gone += [asyncio.create_task(_awaited(way)) for _ in range(dead)]
        await turns(3)
        if not die_first and way is _by_cancelling:
            loop.call_at(1, give_up)
        live = asyncio.create_task(whole(1))
        assert await live == 1, "it starts at the release, as if nobody had been before it"
        assert tg.statistics().waiting == 0
        results = await asyncio.gather(*gone, return_exceptions=True)
        assert all(isinstance(result, (asyncio.CancelledError, TimeoutError)) for result in results), results
        await first
        loop.when_quiet = lambda: None


@virtual
async def test_case_03_a_group_that_is_cancelled_does_not_keep_others_waiting() -> None:
    async def rollout() -> float:
        async with tangram.trajectory(group="g"):
            return await whole(1)

    async with opened(CountingPool()) as tg:
        watch_at_rest(tg, "cpu", 4)
        first = asyncio.create_task(whole(1))
        await turns(3)
        gone = [asyncio.create_task(rollout()) for _ in range(5)]
        await turns(9)
        live = asyncio.create_task(whole(1))
        await asyncio.sleep(1)
        assert await tg.cancel_group("g") == 5
        results = await asyncio.gather(*gone, return_exceptions=True)
        assert all(isinstance(result, tangram.GroupCancelledError) for result in results), results
        assert await live == 1, "the one of them that had just begun gave its cores back in that instant"
        await first
        virtual_loop().when_quiet = lambda: None


@pytest.mark.parametrize("way", [_by_cancelling, _by_a_deadline_of_the_call, _by_a_deadline_of_the_caller])
@virtual
async def test_case_03_a_big_one_that_gives_up_holds_up_nobody_any_more(way: Callable[[], Awaitable[None]]) -> None:
    """Nothing else happens at that moment that could make anybody look again."""
    narrow = tangram.action(cpu=1, memory_gib=1)(whole.body)
    async with opened(CountingPool()) as tg:
        watch_at_rest(tg, "cpu", 4)
        first = asyncio.create_task(single(5))
        await turns(3)
        big = asyncio.create_task(_awaited(way))
        await turns(3)
        small = [asyncio.create_task(single(1)), asyncio.create_task(_call(narrow))]
        await asyncio.sleep(1)
        big.cancel()
        assert await asyncio.gather(*small) == [1, 1]
        assert isinstance(
            (await asyncio.gather(big, return_exceptions=True))[0], (asyncio.CancelledError, TimeoutError)
        )
        await first
        virtual_loop().when_quiet = lambda: None


async def _awaited(way: Callable[[], Awaitable[None]]) -> None:
    await way()


@virtual
async def test_case_03_calls_of_a_trajectory_that_ends_do_not_keep_others_waiting() -> None:
    """Its calls wait for the turn, and for cores, when it is closed in the moment of the release."""
    async with opened(CountingPool()) as tg:
        first = asyncio.create_task(whole(1))
        await turns(3)
        trajectory = tg.trajectory()
        async with trajectory:
            gone = [asyncio.create_task(whole(1)) for _ in range(3)]
            await turns(3)
            live = asyncio.create_task(_outside(tg))
            await asyncio.sleep(1)
        results = await asyncio.gather(*gone, return_exceptions=True)
        assert all(isinstance(result, tangram.NoTrajectoryError) for result in results), results
        assert await live == 1
        await first


async def _outside(tg: tangram.Tangram) -> float:
    from arl_tangram.trajectories import trajectory_var

    trajectory_var.set(None)
    return await tg.run(whole, 1)


# Case 5: a newcomer and what was promised to somebody else.


@EACH
def test_case_05_a_newcomer_does_not_get_what_is_promised_to_another(use: Use, dimension: str, wanted: float) -> None:
    """Somebody new asks at every step around the release; `at_every_step` sees that `free` is never below 0."""
    starts: list[tuple[float, str]] = []

    async def called_by(who: str) -> None:
        starts.append((await use(), who))

    def newcomer(scene: Scene) -> None:
        scene.victims.append(asyncio.get_running_loop().create_task(called_by("new")))

    async def scenario(scene: Scene) -> None:
        starts.clear()
        first = asyncio.create_task(called_by("first"))
        await turns(3)
        waits = asyncio.create_task(called_by("waits"))
        await turns(3)
        there_before = bool(scene.victims)
        await asyncio.wait([first, waits])
        if scene.victims:
            await asyncio.wait(scene.victims)
        starts.sort()
        assert [at_s for at_s, _ in starts] == list(range(len(starts))), "each when the one before it has ended"
        assert there_before or [who for _, who in starts][:2] == ["first", "waits"]

    assert at_every_step(scenario, quotas=[API], strike=newcomer) > 15


@virtual
async def test_case_05_a_promise_counts_as_used_before_the_body_has_begun() -> None:
    """From the decision to the first step of the body, and for whoever only wants it at once."""
    pool = CountingPool()
    begun: list[float] = []

    @tangram.action(cpu=4)
    async def takes() -> None:
        begun.append(now_s())
        await asyncio.sleep(1)

    async with opened(pool) as tg:
        seen: list[float] = []

        def look(step: int) -> None:
            cpu = tg.statistics().dimensions["cpu"]
            assert 0 <= cpu.free <= cpu.capacity
            assert cpu.free + cpu.used == cpu.capacity
            if tg.statistics().running and not begun:
                seen.append(cpu.used)

        virtual_loop().before_step = look
        call = asyncio.create_task(takes())
        await until_promised(tg)
        impatient = asyncio.create_task(whole.with_options(queue_timeout=0.5)())
        with pytest.raises(QueueTimeout):
            await impatient
        await call
        virtual_loop().before_step = lambda step: None
        assert seen, "promised to a body that has not begun"
        assert set(seen) == {4}


async def until_promised(tg: tangram.Tangram) -> None:
    while not tg.statistics().running:  # noqa: ASYNC110 - the promise sets no event
        await asyncio.sleep(0)


# Case 7: callers that give up, by the thousand.


async def _holds_everything(for_s: float) -> None:
    async with tangram.trajectory(memory_gib=64):
        await whole(for_s)


async def _deadline_of_the_call() -> None:
    await whole.with_options(queue_timeout=0.01)()


async def _deadline_of_the_caller() -> None:
    async with asyncio.timeout(0.01):
        await whole()


async def _wait_for() -> None:
    await asyncio.wait_for(whole(), 0.01)


async def _cancelled() -> None:
    call = asyncio.create_task(_call(whole))
    await asyncio.sleep(0.01)
    call.cancel()
    await call


async def _waits_to_be_admitted() -> None:
    async with asyncio.timeout(0.01), tangram.trajectory(memory_gib=64):
        pass


WAYS = [_deadline_of_the_call, _deadline_of_the_caller, _wait_for, _cancelled, _waits_to_be_admitted]


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_case_07_callers_that_give_up_leave_nothing_in_the_queue(way: Callable[[], Awaitable[None]]) -> None:
    async with opened(CountingPool()) as tg:
        first = asyncio.create_task(_holds_everything(5))
        await turns(9)
        for _ in range(3):
            given_up = [asyncio.create_task(_awaited(way)) for _ in range(1000)]
            await turns(4)
            assert tg.statistics().waiting >= 1000
            results = await asyncio.gather(*given_up, return_exceptions=True)
            assert all(isinstance(r, (TimeoutError, asyncio.CancelledError)) for r in results), results[:3]
            assert tg.statistics().waiting == 0
        assert now_s() == pytest.approx(0.03)
        lanes = [len(lane.actions) for lane in tg._core._queue._lanes.values()]
        assert sum(lanes) < 200, "nor does anything of them stay in the queue"
        assert len(tg._core._deadlines) < 200
        fresh = asyncio.create_task(whole(1))
        await first
        assert await fresh == 5, "whoever asks now is served as soon as there is something"


@virtual
async def test_case_07_a_release_is_not_held_up_by_those_who_ask() -> None:
    """A thousand more ask in the very turn in which it is released, and give up; the one who waited has started."""
    async with opened(CountingPool()) as tg:
        watch_at_rest(tg, "cpu", 4)
        first = asyncio.create_task(whole(1))
        await turns(3)
        waits = asyncio.create_task(whole(1))
        await asyncio.sleep(1)
        crowd = [asyncio.create_task(_awaited(_deadline_of_the_call)) for _ in range(1000)]
        assert await waits == 1
        assert all(isinstance(r, QueueTimeout) for r in await asyncio.gather(*crowd, return_exceptions=True))
        await first
        virtual_loop().when_quiet = lambda: None


def test_case_07_callers_on_other_loops_and_threads_that_give_up_leave_nothing() -> None:
    """They are as far away as callers can be: what they gave up is withdrawn, and never granted to nobody."""
    impatient = whole.with_options(queue_timeout=0.01)

    async def elsewhere() -> list[BaseException | float]:
        ways = [impatient() if number % 2 else asyncio.wait_for(whole(), 0.01) for number in range(100)]
        return await asyncio.gather(*ways, return_exceptions=True)

    def without_a_loop(tg: tangram.Tangram) -> list[BaseException | float]:
        found: list[BaseException | float] = []
        for _ in range(10):
            try:
                found.append(tg.run_sync(impatient))
            except TimeoutError as late:
                found.append(late)
        return found

    async def main() -> None:
        release = threading.Event()

        @tangram.action(cpu=4)
        def holds() -> None:
            release.wait()

        async with opened(CountingPool()) as tg:
            held = asyncio.create_task(_awaited(holds))
            await until(lambda: tg.statistics().running == 1)
            try:
                many = [asyncio.to_thread(asyncio.run, elsewhere()) for _ in range(3)]
                several = [asyncio.to_thread(without_a_loop, tg) for _ in range(3)]
                results = await asyncio.gather(*many, *several)
                assert [len(result) for result in results] == [100] * 3 + [10] * 3
                assert all(isinstance(late, TimeoutError) for result in results for late in result), results
                assert tg.statistics().waiting == 0
            finally:
                release.set()
            await held
            asked_s = now_s()
            await single(0)
            assert now_s() - asked_s < 1
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(main())


# Case 9: a body that does not listen.

LIMIT_S, GRACE_S = 0.25, 0.375


@tangram.action(cpu=2, timeout=LIMIT_S)
async def deaf(for_s: float) -> None:
    end_s = now_s() + for_s
    while now_s() < end_s:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(end_s - now_s())


@tangram.action(cpu=2, timeout=LIMIT_S)
async def slow_to_end(for_s: float) -> None:
    begun_s = now_s()
    try:
        await asyncio.sleep(100)
    finally:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(begun_s + for_s - now_s())


@tangram.action(cpu=2, timeout=LIMIT_S)
async def starts_over(for_s: float) -> None:
    """A loop of retries that takes its cancellation for an error of the tool."""
    end_s = now_s() + for_s
    while now_s() < end_s:
        try:
            await asyncio.sleep(end_s - now_s())
        except BaseException:  # noqa: BLE001 - what such loops do
            continue


@pytest.mark.parametrize("body", [deaf, slow_to_end, starts_over])
@pytest.mark.parametrize("for_s", [0.5, 2.0])
@virtual
async def test_case_09_the_caller_is_answered_and_the_units_stay_until_the_end(body: Any, for_s: float) -> None:
    pool = CountingPool()
    async with opened(pool, kill_grace_s=GRACE_S) as tg:
        begun_s = now_s()
        with pytest.raises(RunTimeout):
            await body(for_s)
        assert LIMIT_S <= now_s() - begun_s <= LIMIT_S + GRACE_S
        ended_in_time = for_s <= LIMIT_S + GRACE_S
        state = tg.statistics()
        assert state.lingering == (() if ended_in_time else (body.spec.name,))
        assert state.dimensions["cpu"].used == (0 if ended_in_time else 2)
        assert pool.made.milli_free == (4000 if ended_in_time else 2000)
        if ended_in_time or body is slow_to_end:
            # The second one does not listen only once: when it is cancelled again, it ends.
            await asyncio.sleep(2)
            return
        small, big = asyncio.create_task(single(0.125)), asyncio.create_task(whole(0.125))
        assert await small == begun_s + LIMIT_S + GRACE_S, "the rest is usable"
        assert await big >= begun_s + for_s, "and what lingers is not given to anybody before it has ended"
        assert now_s() <= begun_s + for_s + 0.125 + 1e-9, "but then at once"


@virtual
async def test_case_09_clean_up_that_takes_too_long_is_bounded_for_the_caller() -> None:
    """The body ends at once; killing what it started does not."""
    pool = CountingPool(clean_s=2.0)
    async with opened(pool, kill_grace_s=GRACE_S) as tg:
        with pytest.raises(RunTimeout):
            await slow_to_end(0)
        assert now_s() <= LIMIT_S + GRACE_S
        assert tg.statistics().lingering == (slow_to_end.spec.name,)
        assert tg.statistics().dimensions["cpu"].used == 2
        await asyncio.sleep(5)


@virtual
async def test_case_09_a_caller_that_cancels_is_not_kept_either() -> None:
    async with opened(CountingPool(), kill_grace_s=GRACE_S) as tg:
        call = asyncio.create_task(deaf.with_options(timeout=None)(2))
        await asyncio.sleep(0.125)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert now_s() == 0.125 + GRACE_S
        assert tg.statistics().lingering == (deaf.spec.name,)
        await asyncio.sleep(3)


async def test_case_09_a_thread_lingers_until_it_returns() -> None:
    release = threading.Event()

    @tangram.action(cpu=2, timeout=0.05)
    def stuck() -> None:
        release.wait()

    async with opened(CountingPool()) as tg:
        try:
            begun_s = now_s()
            with pytest.raises(RunTimeout):
                await stuck()
            assert now_s() - begun_s < 2
            assert tg.statistics().lingering == (stuck.spec.name,)
            assert tg.statistics().dimensions["cpu"].used == 2
            assert tg.statistics().dimensions["threads"].used == 1
        finally:
            release.set()
        await until(lambda: tg.statistics().running == 0)


def test_case_09_the_end_of_a_program_is_not_kept_by_a_deaf_body() -> None:
    """The runtime is closed while one lingers: bounded as well."""

    async def main() -> float:
        async with tangram.Tangram(CountingPool(), kill_grace_s=GRACE_S):
            with pytest.raises(RunTimeout):
                await deaf(60)
            closing_s = now_s()
        left_s = now_s() - closing_s
        await asyncio.sleep(61)  # the body's own task ends by itself
        return left_s

    assert run_virtually(main()) <= GRACE_S + 7
