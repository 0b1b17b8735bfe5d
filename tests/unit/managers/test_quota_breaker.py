"""Breakers: what is not sent any more to what fails again and again, and when it is sent again."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import arl_tangram as tangram
from arl_tangram import (
    BackendDownError,
    Breaker,
    ConfigurationError,
    InfrastructureError,
    NestedActionError,
    NoActionError,
    QueueTimeout,
    Quota,
    RunTimeout,
    ShutdownError,
    Tangram,
    current_quota,
)
from arl_tangram.managers.breaker import BreakerState, Circuit
from arl_tangram.managers.quota import QuotaHandle
from arl_tangram.retrying import Retrying
from arl_tangram.testing import assert_idle
from injection import Scene, at_every_step
from virtual_time import turns, until, virtual


def now_s() -> float:
    return asyncio.get_running_loop().time()


# The state machine by itself.


@pytest.mark.parametrize(
    "options",
    [{"failures": 0}, {"failures": 1.5}, {"failures": True}, {"pause_s": 0}, {"pause_s": math.inf}, {"pause_s": "3"}],
)
def test_what_cannot_be_a_breaker_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"Breaker: {next(iter(options))}"):
        Breaker(**options)
    with pytest.raises(ConfigurationError, match="breaker= takes a Breaker, not 5"):
        Quota("api", concurrency=1, breaker=5)  # type: ignore[arg-type]


def test_a_breaker_alone_makes_a_quota() -> None:
    assert [d.name for d in Quota("api", breaker=Breaker()).dimensions()] == ["quota:api/breaker"]


Call = tuple[int, int, bool]
"""Ticks until it starts, ticks that it runs, whether it fails."""


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9), st.booleans()), max_size=40),
    st.integers(1, 4),
    st.integers(1, 5),
)
def test_a_circuit_keeps_its_laws(calls: list[Call], failures: int, pause_s: int) -> None:
    """It closes only by a success, opens only by so many failures, and what is old changes nothing."""
    ends: list[tuple[int, int, bool]] = []
    start_s = 0
    for gap_s, lasts_s, failed in calls:
        start_s += gap_s
        ends.append((start_s + lasts_s, start_s, failed))
    circuit = Circuit(Breaker(failures, pause_s))
    in_a_row = 0
    for end_s, began_s, failed in sorted(ends):
        before, counts_from_s = circuit.state(end_s), circuit.counts_from_s
        changed = circuit.count(began_s, end_s, failed=failed)
        after = circuit.state(end_s)
        if began_s < counts_from_s:
            assert not changed
            assert after == before
            continue
        in_a_row = in_a_row + 1 if failed else 0
        assert circuit.failed == in_a_row
        match before:
            case BreakerState.CLOSED:
                expected = BreakerState.OPEN if in_a_row >= failures else BreakerState.CLOSED
            case BreakerState.PROBING:
                expected = BreakerState.DOWN if failed else BreakerState.CLOSED
            case _:
                raise AssertionError("nothing that counts can have started before the pause is over")
        assert after == expected
        assert changed == (after != before)
        if after in {BreakerState.OPEN, BreakerState.DOWN}:
            assert circuit.counts_from_s == end_s + pause_s
            assert circuit.state(end_s + pause_s) is BreakerState.PROBING


# In a runtime.


class Backend:
    """What is behind the quota `api`.

    Attributes:
        works: whether it answers.
        at_s: when it was called, with what key.
        lasts_s: how long an answer takes.
    """

    def __init__(self) -> None:
        self.works = False
        self.lasts_s = 1.0
        self.at_s: list[float] = []
        self.keys: list[str | None] = []
        self.broken: set[str] = set()

    async def call(self) -> float:
        self.at_s.append(now_s())
        key = current_quota("api").key
        self.keys.append(key)
        await asyncio.sleep(self.lasts_s)
        if not self.works or key in self.broken:
            raise ConnectionError("no answer")
        return now_s()

    def action(self, **options: Any) -> Callable[[], Awaitable[float]]:
        return tangram.action(quota={"api": 1}, **options)(self.call)


async def fails(call: Callable[[], Awaitable[Any]], error: type[Exception] = ConnectionError) -> None:
    with pytest.raises(error):
        await call()


def state(tg: Tangram, name: str = "api") -> str:
    return tg.statistics().breakers[name]


@virtual
async def test_it_opens_probes_and_closes(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend()
    call = backend.action()
    async with Tangram(Quota("api", concurrency=10, breaker=Breaker(3, 30))) as tg:
        for _ in range(3):
            assert state(tg) == "closed"
            await fails(call)
        assert (now_s(), state(tg)) == (3, "open")
        assert "note: api: open, next probe in 30 s" in tg.report()
        waiting = [asyncio.create_task(call()) for _ in range(8)]
        await asyncio.sleep(29)
        assert tg.statistics().waiting == 8
        backend.works = True
        assert await asyncio.gather(*waiting) == [34] + [35] * 7, "one is let through; when it is back, all the others"
        assert state(tg) == "closed"
        assert "note:" not in tg.report()
        assert "quota:api/concurrency" in tg.report()
        assert "quota:api/breaker" not in tg.report()
        assert "quota:api/breaker" not in tg.statistics().dimensions
        assert_idle(tg)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "what is behind the quota api has failed 3 times in a row (ConnectionError): nothing is sent for 30 s",
        "what is behind the quota api works again",
    ]


@virtual
async def test_when_it_is_down_everybody_is_told_until_the_next_probe(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend()
    call = backend.action()
    async with Tangram(Quota("api", concurrency=10, breaker=Breaker(2, 30))) as tg:
        await asyncio.gather(*(fails(call) for _ in range(2)))
        waiting = [asyncio.create_task(call()) for _ in range(5)]
        await asyncio.sleep(31.5)
        assert (now_s(), state(tg), backend.at_s) == (32.5, "down", [0, 0, 31])
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in errors] == [ConnectionError] + [BackendDownError] * 4
        assert isinstance(errors[1], InfrastructureError)
        assert isinstance(errors[1], OSError)
        assert str(errors[1]) == (
            "what is behind the quota 'api' is down: its last 3 calls failed (ConnectionError); next probe in 30 s"
        )
        await fails(call, BackendDownError)
        assert now_s() == 32.5, "at once"
        assert "5 infrastructure" in tg.report()
        await asyncio.sleep(62 - now_s())
        assert state(tg) == "probing"
        probe, waits = asyncio.create_task(call()), asyncio.create_task(call())
        await turns(5)
        assert (tg.statistics().running, tg.statistics().waiting) == (1, 1)
        backend.works = True
        assert (await probe, await waits) == (63, 64)
        assert_idle(tg)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 2


@virtual
async def test_a_success_in_between_starts_the_count_anew() -> None:
    backend = Backend()
    call = backend.action()
    async with Tangram(Quota("api", breaker=Breaker(2, 30))) as tg:
        for works in (False, True, False, True, False):
            backend.works = works
            await asyncio.gather(call(), return_exceptions=True)
        assert state(tg) == "closed"
        assert now_s() == 5


@virtual
async def test_calls_that_were_under_way_neither_close_it_nor_hold_up_the_probe() -> None:
    """One that hangs from before the pause: without a concurrency, nothing says that others have to wait for it."""
    backend = Backend()
    call = backend.action()

    @tangram.action(quota={"api": 1})
    async def slow(lasts_s: float, error: Exception | None = None) -> None:
        await asyncio.sleep(lasts_s)
        if error is not None:
            raise error

    async with Tangram(Quota("api", breaker=Breaker(2, 30))) as tg:
        hanging = asyncio.create_task(slow(1000))
        early = [asyncio.create_task(slow(10)), asyncio.create_task(slow(31.5, ValueError()))]
        await fails(call)
        await fails(call)
        await asyncio.sleep(20)
        assert state(tg) == "open", "the success of an earlier call says nothing"
        waiting = [asyncio.create_task(call()) for _ in range(3)]
        backend.works = True
        backend.lasts_s = 4
        await asyncio.sleep(12.5)
        assert (now_s(), backend.at_s[2:]) == (34.5, [32]), "one at a time, though an earlier call has ended meanwhile"
        assert await asyncio.gather(*waiting) == [36, 40, 40]
        assert state(tg) == "closed", "nor does the failure of an earlier one"
        hanging.cancel()
        await asyncio.wait([hanging, *early])
        assert isinstance(early[1].exception(), ValueError)
        assert_idle(tg)


@virtual
async def test_a_probe_that_says_nothing_is_followed_by_another() -> None:
    backend = Backend()
    call = backend.action()
    async with Tangram(Quota("api", breaker=Breaker(1, 30))) as tg:
        await fails(call)
        probe, second = asyncio.create_task(call()), asyncio.create_task(call())
        await asyncio.sleep(30.5)
        backend.works = True
        probe.cancel()
        assert await second == 32.5
        assert backend.at_s == [0, 31, 31.5]
        assert state(tg) == "closed"
        assert_idle(tg)


@virtual
async def test_a_key_that_is_down_is_passed_over() -> None:
    backend = Backend()
    backend.works = True
    backend.broken = {"k1"}
    call = backend.action()
    quota = Quota("api", calls=100, period_s=1000, concurrency=2, keys=["k1", "k2"], breaker=Breaker(2, 30))
    async with Tangram(quota) as tg:
        while state(tg, "api#1") == "closed":
            await asyncio.gather(call(), call(), return_exceptions=True)
        opened_s, before = now_s(), len(backend.keys)
        await asyncio.gather(*(call() for _ in range(6)))
        assert backend.keys[before:] == ["k2"] * 6
        assert tg.statistics().breakers == {"api#1": "open", "api#2": "closed"}
        await asyncio.sleep(opened_s + 30 - now_s())
        before = len(backend.keys)
        results = await asyncio.gather(*(call() for _ in range(6)), return_exceptions=True)
        assert backend.keys[before:].count("k1") == 1, "one call is the probe, and the others go where it works"
        assert [type(result) for result in results].count(ConnectionError) == 1
        assert state(tg, "api#1") == "down"
        await call()
        assert backend.keys[-1] == "k2"
        backend.broken = {"k1", "k2"}
        while state(tg, "api#2") != "down":
            await asyncio.gather(call(), return_exceptions=True)
        if state(tg, "api#1") == "down":
            await fails(call, BackendDownError)
        assert_idle(tg)


@virtual
async def test_with_all_keys_down_everybody_is_told() -> None:
    backend = Backend()
    call = backend.action()
    async with Tangram(Quota("api", concurrency=1, keys=["k1", "k2"], breaker=Breaker(1, 30))) as tg:
        await asyncio.gather(call(), call(), return_exceptions=True)
        assert tg.statistics().breakers == {"api#1": "open", "api#2": "open"}
        results = await asyncio.gather(*(call() for _ in range(5)), return_exceptions=True)
        assert now_s() == 32
        assert [type(result) for result in results] == [ConnectionError] * 2 + [BackendDownError] * 3
        await fails(call, BackendDownError)
        assert_idle(tg)


@virtual
async def test_others_of_the_runtime_go_on() -> None:
    backend = Backend()
    call = backend.action()

    @tangram.action(quota={"other": 1})
    async def other() -> float:
        return now_s()

    @tangram.action(quota={"api": 1, "other": 1})
    async def both() -> None: ...

    async with Tangram(Quota("api", breaker=Breaker(1, 30)), Quota("other", concurrency=1)) as tg:
        await fails(call)
        waiting = [asyncio.create_task(call()), asyncio.create_task(both())]
        await turns(3)
        assert await other() == 1
        await asyncio.sleep(31)
        for task, error in zip(waiting, (ConnectionError, BackendDownError), strict=True):
            with pytest.raises(error):
                await task
        await fails(both, BackendDownError)
        assert await other() == 32
        assert_idle(tg)


# What counts.


@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        NestedActionError("a → b"),
        QueueTimeout("of a child"),
        ShutdownError(""),
        tangram.ConfigurationError("settle(tokens=) must be a finite number from 0, not -1"),
        tangram.DefinitionError("a plain function that returned an awaitable"),
        tangram.SandboxPathError("../"),
    ],
)
@virtual
async def test_what_the_backend_has_no_part_in_does_not_count(error: BaseException) -> None:
    @tangram.action(quota={"api": 1})
    async def call() -> None:
        raise error

    async with Tangram(Quota("api", breaker=Breaker(1, 30))) as tg:
        with pytest.raises((type(error), tangram.BodyCancelledError)):
            await call()
        assert state(tg) == "closed"


@virtual
async def test_cancelled_and_expired_calls_do_not_count() -> None:
    backend = Backend()
    call = backend.action(queue_timeout=0.5)
    async with Tangram(Quota("api", concurrency=1, breaker=Breaker(1, 30))) as tg:
        first = asyncio.create_task(call())
        await turns(2)
        await fails(call, QueueTimeout)
        first.cancel()
        await asyncio.wait([first])
        assert state(tg) == "closed"


@virtual
async def test_a_timeout_counts() -> None:
    backend = Backend()
    call = backend.action(timeout=0.5)
    async with Tangram(Quota("api", breaker=Breaker(2, 30))) as tg:
        await asyncio.gather(*(fails(call, RunTimeout) for _ in range(2)))
        assert (now_s(), state(tg)) == (0.5, "open")


@virtual
async def test_a_body_may_say_itself_how_it_went() -> None:
    handles: list[Any] = []

    @tangram.action(quota={"api": 1})
    async def call(*says: str) -> None:
        handle = current_quota("api")
        handles.append(handle)
        for say in says:
            getattr(handle, say)()
        if says[-1:] == ("succeeded",):
            raise ValueError("what came back is no number")

    async with Tangram(Quota("api", breaker=Breaker(3, 30))) as tg:
        for _ in range(5):
            await fails(lambda: call("succeeded"), ValueError)
        await call("failed", "failed")
        await call()
        await call("failed", "failed")
        assert state(tg) == "closed"
        await call("failed")
        assert state(tg) == "open", "the way in which such a call ends does not count"
        with pytest.raises(NoActionError, match=r"failed\(\) was called after the action had ended"):
            handles[0].failed()
        with pytest.raises(NoActionError, match=r"succeeded\(\) was called after"):
            handles[0].succeeded()


@virtual
async def test_a_probe_that_says_that_it_fails_is_believed_at_once() -> None:
    @tangram.action(quota={"api": 1})
    async def call() -> None:
        current_quota("api").failed()
        await asyncio.sleep(5)

    async with Tangram(Quota("api", breaker=Breaker(1, 30))) as tg:
        await call()
        probe, waiting = asyncio.create_task(call()), asyncio.create_task(call())
        await fails(lambda: waiting, BackendDownError)
        assert now_s() == 30
        await probe
        assert tg.statistics().breakers == {"api": "down"}
        await asyncio.sleep(60 - now_s())
        third = asyncio.create_task(call())
        await turns(4)
        assert tg.statistics().running == 1
        await third
        assert_idle(tg)


@virtual
async def test_who_was_asked_to_wait_has_not_failed() -> None:
    @tangram.action(quota={"api": 1})
    async def call() -> None:
        current_quota("api").retry_after(10)
        raise ConnectionError("429")

    async with Tangram(Quota("api", concurrency=1, breaker=Breaker(1, 30))) as tg:
        await fails(call)
        assert state(tg) == "closed"
        await fails(call)
        assert now_s() == 10


@virtual
async def test_a_pause_that_the_server_asks_for_holds_up_the_probe() -> None:
    backend = Backend()
    call = backend.action()

    @tangram.action(quota={"api": 1})
    async def refused() -> None:
        current_quota("api").retry_after(100)
        current_quota("api").failed()

    async with Tangram(Quota("api", breaker=Breaker(1, 30))) as tg:
        await refused()
        backend.works = True
        assert await call() == 101
        assert_idle(tg)


async def test_a_thread_may_say_that_it_failed() -> None:
    @tangram.action(quota={"api": 1})
    def call() -> None:
        current_quota("api").failed()

    async with Tangram(Quota("api", breaker=Breaker(2, 30))) as tg:
        await call()
        assert state(tg) == "closed"
        await call()
        assert state(tg) == "open"


async def test_a_thread_that_hangs_counts_when_its_caller_is_answered() -> None:
    go_on = threading.Event()

    @tangram.action(quota={"api": 1}, timeout=0.01)
    def call() -> None:
        go_on.wait()

    async with Tangram(Quota("api", breaker=Breaker(1, 0.05))) as tg:
        try:
            await fails(call, RunTimeout)
            assert state(tg) == "open"
            await fails(call, RunTimeout)
            assert state(tg) == "down", "the probe was let through though the first still holds a thread"
        finally:
            go_on.set()
        await until(lambda: not tg.statistics().lingering)
        await until(lambda: state(tg) == "probing")
        await asyncio.wait_for(call(), 10)
        assert state(tg) == "closed"
        assert_idle(tg)


@pytest.mark.parametrize("depth", [1, 3])
@virtual
async def test_a_probe_that_calls_others_of_the_same_quota_is_not_in_their_way(depth: int) -> None:
    """Else the only call that is let through would wait for one that is not."""
    backend = Backend()
    call = backend.action()

    @tangram.action(quota={"api": 1})
    async def outer(more: int) -> float:
        return await (outer(more - 1) if more else call())

    async with Tangram(Quota("api", breaker=Breaker(1, 30))) as tg:
        await fails(call)
        calls = [asyncio.create_task(outer(depth)) for _ in range(3)]
        await asyncio.sleep(30.5)
        assert tg.statistics().running == depth + 2
        for task, error in zip(calls, (ConnectionError, BackendDownError, BackendDownError), strict=True):
            with pytest.raises(error):
                await task
        assert now_s() == 32
        backend.works = True
        await asyncio.sleep(30)
        assert await asyncio.gather(*(outer(depth) for _ in range(3))) == [63, 64, 64]
        assert state(tg) == "closed"
        assert_idle(tg)


@virtual
async def test_closing_ends_those_that_wait_for_a_probe() -> None:
    backend = Backend()
    call = backend.action()
    async with Tangram(Quota("api", breaker=Breaker(1, 30))):
        await fails(call)
        waiting = asyncio.create_task(call())
        await turns(3)
    with pytest.raises(ShutdownError):
        await waiting
    assert now_s() == 1


def test_a_handle_by_itself_says_nothing() -> None:
    with pytest.raises(NoActionError):
        QuotaHandle(print).failed()


# Whatever happens.


PAUSE_S = 10.0


class Model:
    """What a breaker promises, held against what really starts, for random calls of an API with two keys."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.works = {"k1": True, "k2": True}
        self.in_flight: dict[str, set[float]] = {"k1": set(), "k2": set()}
        self.outcomes: Counter[str] = Counter()
        self.seen: set[str] = set()

    def check_start(self, tg: Tangram, key: str, at_s: float) -> None:
        breakers = tg._workshop.breakers  # pyright: ignore[reportPrivateUsage]
        assert breakers is not None
        gate = breakers._gates["api"][int(key[1]) - 1]  # pyright: ignore[reportPrivateUsage]
        what = gate.circuit.state(at_s)
        self.seen.add(what)
        opened_just_now = gate.circuit.counts_from_s == at_s + PAUSE_S  # after this one had been granted
        assert what in {BreakerState.CLOSED, BreakerState.PROBING} or opened_just_now
        if what is BreakerState.PROBING:
            assert not [begun_s for begun_s in self.in_flight[key] if begun_s >= gate.circuit.counts_from_s]

    async def call(self, tg: Tangram) -> None:
        quota, key, begun_s = current_quota("api"), current_quota("api").key, now_s() + self.chance.random() * 1e-9
        assert key is not None
        self.check_start(tg, key, now_s())
        self.in_flight[key].add(begun_s)
        try:
            await asyncio.sleep(self.chance.choice((0, 0.5, 3, 40)))
            match self.chance.randrange(8):
                case 0:
                    quota.failed()
                case 1:
                    quota.succeeded()
                case 2:
                    quota.retry_after(1)
                case _:
                    if not self.works[key]:
                        raise ConnectionError
        finally:
            self.in_flight[key].discard(begun_s)

    async def one(self, tg: Tangram, call: Callable[[Tangram], Awaitable[None]]) -> None:
        await asyncio.sleep(self.chance.random() * 300)
        task = asyncio.ensure_future(call(tg))
        if self.chance.random() < 0.1:
            await asyncio.sleep(self.chance.random() * 5)
            task.cancel()
        await asyncio.wait([task])
        self.outcomes["cancelled" if task.cancelled() else type(task.exception()).__name__] += 1

    async def weather(self) -> None:
        for _ in range(15):
            await asyncio.sleep(20)
            self.works = {key: self.chance.random() < 0.5 for key in self.works}


@pytest.mark.parametrize("seed", range(10))
@virtual
async def test_nothing_starts_that_must_not_and_everybody_is_answered(seed: int) -> None:
    model = Model(seed)
    call = tangram.action(
        quota={"api": 1}, timeout=30, queue_timeout=100, idempotent=True, retries=1, retry_on=ConnectionError
    )(model.call)
    quota = Quota("api", calls=5, period_s=2, concurrency=8, keys=["k1", "k2"], breaker=Breaker(2, PAUSE_S))
    async with Tangram(quota) as tg:
        tg._workshop.retrying = Retrying(random.Random(seed))  # pyright: ignore[reportPrivateUsage]
        weather = asyncio.create_task(model.weather())
        await asyncio.gather(*(model.one(tg, call) for _ in range(400)))
        await weather
        assert sum(model.outcomes.values()) == 400
        assert set(model.outcomes) <= {
            "cancelled", "NoneType", "ConnectionError", "BackendDownError", "RunTimeout", "QueueTimeout",
        }  # fmt: skip
        assert model.outcomes["NoneType"] > 50
        assert BreakerState.PROBING in model.seen
        assert_idle(tg)


def test_struck_at_every_step_nothing_is_left() -> None:
    async def scenario(scene: Scene) -> None:
        backend = Backend()
        call = tangram.action(cpu=1, quota={"api": 1})(backend.call)
        await asyncio.wait([scene.victim(call()) for _ in range(4)])
        backend.works = True
        for _ in range(20):
            if await _succeeds(call):
                break
            await asyncio.sleep(5)
        else:
            raise AssertionError("the breaker stays open though the backend works")

    quota = Quota("api", concurrency=2, breaker=Breaker(2, 30))
    assert at_every_step(scenario, quotas=[quota], again_after=(1, 3)) > 30


async def _succeeds(call: Callable[[], Awaitable[Any]]) -> bool:
    try:
        await call()
    except InfrastructureError:
        return False
    return True


@virtual
async def test_a_probe_is_not_in_the_way_of_what_it_calls_however_deep() -> None:
    @tangram.action(quota={"api": 1})
    async def fails() -> None:
        raise ConnectionError

    @tangram.action(quota={"api": 1})
    async def deepest() -> str:
        return "deep"

    @tangram.action()
    async def between() -> str:
        return await deepest()

    @tangram.action(quota={"api": 1})
    async def probe() -> str:
        return await between()

    async with Tangram(Quota("api", concurrency=10, breaker=Breaker(failures=1, pause_s=5))) as tg:
        with pytest.raises(ConnectionError):
            await fails()
        assert await probe() == "deep"
        assert_idle(tg)
