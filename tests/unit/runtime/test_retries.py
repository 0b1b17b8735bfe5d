"""Calls that are tried again: after which errors, how often, what is held meanwhile, and how that ends early."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import (
    BackendDownError,
    Breaker,
    DefinitionError,
    GroupCancelledError,
    InfeasibleError,
    InfrastructureError,
    NoActionError,
    NoTrajectoryError,
    QueueTimeout,
    Quota,
    RunTimeout,
    SandboxLostError,
    ShutdownError,
    Tangram,
)
from arl_tangram.model.events import ActionEnded, ActionStarted, ActionSubmitted, Event
from arl_tangram.model.lifecycle import Outcome
from arl_tangram.retrying import FIRST_PAUSE_S, LONGEST_PAUSE_S, Retrying
from arl_tangram.scheduling.deadlines import Deadlines
from arl_tangram.testing import assert_idle
from counting_pools import CountingPool
from injection import Scene, at_every_step
from virtual_time import turns, until, virtual


def now_s() -> float:
    return asyncio.get_running_loop().time()


class Flaky:
    """A body that fails a number of times.

    Attributes:
        errors: what it raises, in order; then it returns the time.
        at_s: when it was called.
    """

    def __init__(self, *errors: BaseException, lasts_s: float = 1.0) -> None:
        self.errors = list(errors)
        self.at_s: list[float] = []
        self.lasts_s = lasts_s

    async def body(self) -> float:
        self.at_s.append(now_s())
        await asyncio.sleep(self.lasts_s)
        if self.errors:
            raise self.errors.pop(0)
        return now_s()

    def action(self, **options: Any) -> Callable[[], Any]:
        return tangram.action(**{"idempotent": True, "retries": 2, "cpu": 1, **options})(self.body)


class Events:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, event: Event) -> None:
        self.events.append(event)

    async def aclose(self) -> None:
        pass


async def between_attempts(tg: Tangram) -> None:
    """Go on to the middle of the longest pause after the first attempt, which takes a second."""
    await asyncio.sleep(1 + FIRST_PAUSE_S / 2)
    assert (tg.statistics().running, tg.statistics().waiting) == (0, 1)


LOST = SandboxLostError("it is gone")


async def nothing() -> None: ...


# Declaring.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retries": 1}, r"retries=1 needs idempotent=True"),
        ({"retries": -1, "idempotent": True}, "retries takes a whole number from 0 to 100"),
        ({"retries": 101, "idempotent": True}, "retries takes a whole number from 0 to 100"),
        ({"retries": 1.5, "idempotent": True}, "retries takes a whole number"),
        ({"idempotent": 1}, "idempotent= takes True or False"),
        ({"retry_on": "OSError"}, "retry_on= takes subclasses of Exception"),
        ({"retry_on": (OSError, 3)}, "retry_on= takes subclasses of Exception"),
        ({"retry_on": asyncio.CancelledError}, "retry_on= takes subclasses of Exception"),
        ({"retry_on": QueueTimeout}, "never tried again after QueueTimeout"),
        ({"retry_on": (OSError, NoActionError)}, "never tried again after NoActionError"),
    ],
)
def test_what_cannot_be_tried_again_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        tangram.action(**options)(nothing)
    with pytest.raises(DefinitionError, match=message):
        tangram.action()(nothing).with_options(**options)


def test_options_are_kept_and_overridden() -> None:
    declared = tangram.action(idempotent=True, retries=2, retry_on=OSError)(nothing)
    assert (declared.spec.retries, declared.spec.retry_on) == (2, (OSError,))
    other = declared.with_options(retries=0, retry_on=(ValueError, KeyError))
    assert (other.spec.idempotent, other.spec.retries, other.spec.retry_on) == (True, 0, (ValueError, KeyError))
    assert tangram.action()(nothing).spec.retry_on == (InfrastructureError,)
    with pytest.raises(DefinitionError, match="needs idempotent=True"):
        declared.with_options(idempotent=False)


# Trying again.


@virtual
async def test_it_is_tried_until_it_succeeds() -> None:
    flaky = Flaky(LOST, LOST)
    async with Tangram(CountingPool()) as tg:
        done_s = await flaky.action()()
        assert len(flaky.at_s) == 3
        assert done_s == flaky.at_s[2] + 1
        assert 0 <= flaky.at_s[1] - 1 <= FIRST_PAUSE_S
        assert 0 <= flaky.at_s[2] - flaky.at_s[1] - 1 <= 2 * FIRST_PAUSE_S
        assert_idle(tg)


@virtual
async def test_the_last_error_stands() -> None:
    last = SandboxLostError("the third")
    flaky = Flaky(LOST, LOST, last)
    async with Tangram(CountingPool()) as tg:
        with pytest.raises(SandboxLostError) as caught:
            await flaky.action()()
        assert caught.value is last
        assert last.__context__ is None
        assert len(flaky.at_s) == 3
        assert_idle(tg)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("not in retry_on"),
        QueueTimeout("of a child"),
        ShutdownError(""),
        GroupCancelledError(""),
        BackendDownError(""),
        InfeasibleError(""),
        NoActionError(""),
        asyncio.CancelledError(),
    ],
    ids=lambda error: type(error).__name__,
)
@virtual
async def test_after_these_it_is_not_tried_again(error: BaseException) -> None:
    flaky = Flaky(error)
    async with Tangram(CountingPool()) as tg:
        with pytest.raises((type(error), tangram.BodyCancelledError)):
            await flaky.action(retry_on=tangram.TangramError)()
        assert len(flaky.at_s) == 1
        assert_idle(tg)


@virtual
async def test_case_38_nothing_is_sent_twice_unless_it_is_declared_idempotent() -> None:
    """The command ran and the reply was lost: what was done may not be done again without being asked for."""
    done = Flaky(ConnectionResetError("502"))
    async with Tangram(CountingPool()) as tg:
        with pytest.raises(ConnectionResetError):
            await tangram.action(cpu=1)(done.body)()
        lost = Flaky(LOST)
        with pytest.raises(SandboxLostError):
            await tangram.action(cpu=1, idempotent=True)(lost.body)()
        assert (len(done.at_s), len(lost.at_s)) == (1, 1)
        assert_idle(tg)


@virtual
async def test_other_errors_can_be_named() -> None:
    flaky = Flaky(ConnectionError(), RunTimeout("another's"), lasts_s=0)
    async with Tangram(CountingPool()):
        await flaky.action(retry_on=OSError)()  # a TimeoutError is an OSError
        assert len(flaky.at_s) == 3


@virtual
async def test_a_timeout_is_for_each_attempt() -> None:
    flaky = Flaky(lasts_s=10)
    async with Tangram(CountingPool()) as tg:
        with pytest.raises(RunTimeout):
            await flaky.action(timeout=2, retry_on=RunTimeout)()
        assert len(flaky.at_s) == 3
        assert 6 <= now_s() <= 6 + 3 * FIRST_PAUSE_S
        assert_idle(tg)


@pytest.mark.parametrize("order", ["fcfs", "shortest"])
@virtual
async def test_the_deadline_of_an_earlier_attempt_does_not_end_a_later_one(order: Any) -> None:
    flaky = Flaky(LOST, lasts_s=50)
    blocker = Flaky(lasts_s=55)
    async with Tangram(CountingPool(cores=1), order=order) as tg:
        call = asyncio.create_task(flaky.action(queue_timeout=60)())
        await asyncio.sleep(50 - 1e-9)
        other = asyncio.create_task(tangram.action(cpu=1)(blocker.body)())
        await asyncio.sleep(12)
        assert tg.statistics().waiting == 1, "60 s after the first submission it still waits"
        assert await call == 155
        await other
        again = asyncio.create_task(Flaky(LOST, lasts_s=1).action(queue_timeout=5)())
        await asyncio.sleep(1 - 1e-9)
        other = asyncio.create_task(blocker.action(retries=0)())
        with pytest.raises(QueueTimeout):
            await again
        await other
        assert_idle(tg)


@pytest.mark.parametrize("order", ["fcfs", "shortest", "trajectory"])
@virtual
async def test_a_call_keeps_its_place(order: Any) -> None:
    done: list[str] = []

    def named(name: str, *errors: BaseException) -> Callable[[], Any]:
        flaky = Flaky(*errors)

        async def body() -> None:
            await flaky.body()
            done.append(name)

        body.__qualname__ = "same"
        return tangram.action(cpu=1, idempotent=True, retries=1)(body)

    async with Tangram(CountingPool(cores=1), order=order) as tg:
        calls = [asyncio.create_task(named("first", LOST)())]
        for number in range(4):
            await asyncio.sleep(0.1)
            calls.append(asyncio.create_task(named(f"later {number}")()))
        await asyncio.gather(*calls)
        assert done == ["later 0", "first", "later 1", "later 2", "later 3"]
        assert_idle(tg)


@virtual
async def test_a_call_keeps_its_turn_in_the_sandbox() -> None:
    done: list[int] = []
    first = Flaky(LOST)

    async def body(number: int) -> None:
        await (first.body() if number == 0 else asyncio.sleep(1))
        done.append(number)

    call = tangram.action(cpu=1, idempotent=True, retries=1)(body)
    async with Tangram(CountingPool(cores=2)) as tg, tangram.trajectory():
        await asyncio.gather(*(call(number) for number in range(4)))
        assert done == [1, 0, 2, 3]
        assert tg.statistics().dimensions["cpu"].used == 0


@virtual
async def test_nothing_is_held_between_attempts() -> None:
    flaky = Flaky(LOST)
    pool = CountingPool(cores=1)
    async with Tangram(pool, Quota("api", concurrency=1)) as tg:
        slowly(tg)
        call = asyncio.create_task(flaky.action(quota={"api": 1})())
        await between_attempts(tg)
        with pytest.raises(AssertionError, match="not idle"):
            assert_idle(tg)
        assert {name: d.used for name, d in tg.statistics().dimensions.items() if d.used} == {}
        assert pool.made.milli_free == 1000
        await call
        assert_idle(tg)


@virtual
async def test_each_attempt_is_measured_by_itself_under_the_same_id() -> None:
    events = Events()
    async with Tangram(CountingPool(), trace=events) as tg:
        flaky = Flaky(LOST)
        await flaky.action()()
        assert "2" in tg.report()
    submitted = [e.action for e in events.events if isinstance(e, ActionSubmitted)]
    started = [e.action for e in events.events if isinstance(e, ActionStarted)]
    ended = [e.action for e in events.events if isinstance(e, ActionEnded)]
    assert {a.id for a in submitted} == {a.pending.id for a in started} == {a.id for a in ended}
    assert [a.outcome for a in ended] == [Outcome.INFRASTRUCTURE, Outcome.OK]
    assert [a.submitted_at_s for a in ended] == [a.submitted_at_s for a in submitted] == flaky.at_s
    assert [a.act_s for a in ended] == [pytest.approx(1), pytest.approx(1)]


async def test_one_whose_body_still_runs_is_not_tried_again() -> None:
    go_on = threading.Event()
    begun: list[float] = []

    @tangram.action(idempotent=True, retries=3, retry_on=RunTimeout, timeout=0.01)
    def stuck() -> None:
        begun.append(time.monotonic())
        go_on.wait()

    async with Tangram() as tg:
        try:
            with pytest.raises(RunTimeout):
                await stuck()
            await asyncio.sleep(0.1)
            assert len(begun) == 1
        finally:
            go_on.set()
        await until(lambda: not tg.statistics().lingering)


async def test_a_body_on_a_thread_is_tried_again() -> None:
    tries: list[int] = []

    @tangram.action(idempotent=True, retries=1)
    def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise InfrastructureError("once")
        return "done"

    async with Tangram() as tg:
        assert await flaky() == "done"
        assert_idle(tg)


# Ending it in between.


class Slow(random.Random):
    """Chance that takes the longest pause every time."""

    def uniform(self, a: float, b: float) -> float:
        return b


def slowly(tg: Tangram) -> None:
    tg._workshop.retrying = Retrying(Slow())  # pyright: ignore[reportPrivateUsage]


@virtual
async def test_pauses_double_up_to_a_limit() -> None:
    flaky = Flaky(*[LOST] * 9, lasts_s=0)
    async with Tangram(CountingPool()) as tg:
        slowly(tg)
        await flaky.action(retries=9)()
    pauses = [later - earlier for earlier, later in zip(flaky.at_s, flaky.at_s[1:], strict=False)]
    assert pauses == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30, LONGEST_PAUSE_S])


def test_pauses_are_spread() -> None:
    chance = Retrying(random.Random(1))
    pauses = sorted(chance.pause_s(3) for _ in range(1000))
    assert 0 <= pauses[0] < 0.05
    assert 0.9 < pauses[500] < 1.1
    assert 1.95 < pauses[-1] <= 2


@virtual
async def test_a_cancelled_caller_is_gone_at_once() -> None:
    flaky = Flaky(LOST)
    async with Tangram(CountingPool()) as tg:
        slowly(tg)
        call = asyncio.create_task(flaky.action()())
        await between_attempts(tg)
        at_s = now_s()
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert now_s() == at_s
        assert_idle(tg)


@virtual
async def test_closing_the_runtime_ends_the_wait_at_once() -> None:
    flaky = Flaky(LOST)
    async with Tangram(CountingPool()) as tg:
        slowly(tg)
        call = asyncio.create_task(flaky.action()())
        await between_attempts(tg)
        at_s = now_s()
    with pytest.raises(ShutdownError, match=r"closed while .*body waited to be tried again"):
        await call
    assert now_s() == at_s
    assert len(flaky.at_s) == 1


@virtual
async def test_the_end_of_the_trajectory_ends_the_wait_at_once() -> None:
    flaky = Flaky(LOST)
    async with Tangram(CountingPool()) as tg:
        slowly(tg)
        async with tangram.trajectory():
            call = asyncio.create_task(flaky.action()())
            await between_attempts(tg)
            at_s = now_s()
        with pytest.raises(NoTrajectoryError):
            await call
        assert now_s() == at_s
        assert len(flaky.at_s) == 1
        assert_idle(tg)


@virtual
async def test_cancelling_the_group_ends_the_wait_at_once() -> None:
    flaky = Flaky(LOST)
    async with Tangram(CountingPool()) as tg:
        slowly(tg)
        async with tangram.trajectory(group="g"):
            call = asyncio.create_task(flaky.action()())
            await between_attempts(tg)
            at_s = now_s()
            assert await tg.cancel_group("g") == 1
            with pytest.raises(GroupCancelledError):
                await call
            assert now_s() == at_s
            assert len(flaky.at_s) == 1
        assert_idle(tg)


@pytest.mark.parametrize("steps", range(12))
@virtual
async def test_what_ends_around_the_very_turn_of_the_failure_is_noticed(steps: int) -> None:
    """The answer may be there before the caller has run: it must not wait for what cannot come."""
    for runtime in (False, True):
        flaky = Flaky(LOST)
        begun_s = now_s()
        async with Tangram(CountingPool()) as tg:
            slowly(tg)
            scope = tangram.trajectory()
            await scope.__aenter__()
            call = asyncio.create_task(flaky.action()())
            await asyncio.sleep(1)
            await turns(steps)
            if runtime:
                await tg.aclose()
            else:
                await scope.__aexit__(None, None, None)
                assert_idle(tg)
            with pytest.raises((ShutdownError, SandboxLostError) if runtime else NoTrajectoryError):
                await call
            assert now_s() == begun_s + 1
            assert len(flaky.at_s) == 1
            if runtime:
                await scope.__aexit__(None, None, None)


def test_struck_at_every_step_nothing_is_left() -> None:
    async def scenario(scene: Scene) -> None:
        flaky = Flaky(LOST, LOST)
        call = scene.victim(flaky.action(quota={"api": 1})())
        other = asyncio.ensure_future(tangram.action(cpu=1)(Flaky().body)())
        await asyncio.wait([call, other])
        assert call.cancelled() or call.result()

    assert at_every_step(scenario, quotas=[Quota("api", concurrency=1)], again_after=(1, 3)) > 30


# With a breaker, and in an action.


@virtual
async def test_a_breaker_that_opens_holds_up_the_next_attempt() -> None:
    flaky = Flaky(ConnectionError(), lasts_s=0)
    async with Tangram(Quota("api", breaker=Breaker(1, 30))) as tg:
        assert await flaky.action(cpu=0, quota={"api": 1}, retry_on=OSError)() == 30
        assert_idle(tg)


@virtual
async def test_once_the_backend_is_down_it_is_not_tried_again() -> None:
    flaky = Flaky(*[ConnectionError()] * 10, lasts_s=0)
    async with Tangram(Quota("api", breaker=Breaker(1, 30))) as tg:
        with pytest.raises(BackendDownError):
            await flaky.action(cpu=0, quota={"api": 1}, retries=9, retry_on=OSError)()
        assert flaky.at_s == [0, 30]
        assert 30 <= now_s() < 32
        assert_idle(tg)


@virtual
async def test_who_calls_it_has_lent_its_cores_until_the_last_attempt() -> None:
    flaky = Flaky(LOST)
    child = flaky.action()

    @tangram.action(cpu=1)
    async def parent() -> float:
        return await child()

    async with Tangram(CountingPool(cores=1)) as tg:
        slowly(tg)
        call = asyncio.create_task(parent())
        await asyncio.sleep(1.2)
        assert tg.statistics().dimensions["cpu"].used == 0
        assert await call == 2.5
        assert_idle(tg)


@tangram.action(isolate="process", idempotent=True, retries=2)
def dies_once(marker: str) -> int:
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return os.getpid()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not reached")


async def test_a_call_whose_worker_was_killed_is_tried_again_in_another(tmp_path: Path) -> None:
    async with Tangram() as tg:
        assert await dies_once(str(tmp_path / "marker")) != os.getpid()
        assert "1 infrastructure" in tg.report()
        assert_idle(tg)


def test_a_later_deadline_of_the_same_call_replaces_the_earlier() -> None:
    waiting = {1, 2}
    deadlines = Deadlines(waiting.__contains__, lambda: len(waiting))
    deadlines.add(60, 1)
    deadlines.add(70, 2)
    deadlines.add(110, 1)
    assert deadlines.next_s() == 70
    assert [deadlines.pop_due(200), deadlines.pop_due(200), deadlines.pop_due(200)] == [2, 1, None]
    deadlines.add(300, 1)
    waiting.remove(1)
    assert deadlines.next_s() is None
    for number in range(3, 1000):  # memory follows those who wait
        deadlines.add(number, number % 5)
    assert len(deadlines) < 80
