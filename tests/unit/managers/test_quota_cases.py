"""Faults of others with rate limits, as scenarios: each test is named after the case that it re-tells.

Cases 22, 58 and 68 are in tests/unit/runtime/test_cases.py, too, and 38 is in test_retries.py; 38, 68 and 104 are told
with real requests in tests/integration/test_httpx_transport.py.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from contextvars import Context
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import Quota, QuotaUse, Tangram, current_quota
from arl_tangram.managers.retry_after import asked_to_wait_s
from arl_tangram.model.events import ActionStarted, Event
from arl_tangram.testing import assert_idle
from virtual_time import virtual


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def test_case_22_the_loop_ticks_while_calls_wait_for_a_quota() -> None:
    """In real time: a limiter that slept, or waited for a lock, would hold the loop for most of every 0.3 s."""

    @tangram.action(quota={"api": 1})
    async def call() -> None: ...

    ticks: list[float] = []

    async def ticker() -> None:
        while True:
            ticks.append(now_s())
            await asyncio.sleep(0.005)

    async with Tangram(Quota("api", calls=3, period_s=0.3)):
        ticking = asyncio.create_task(ticker())
        begun_s = now_s()
        await asyncio.gather(*(call() for _ in range(10)))
        assert now_s() - begun_s >= 0.9
        ticking.cancel()
    assert max(later - earlier for earlier, later in itertools.pairwise(ticks)) < 0.15


@tangram.action(quota={"llm": QuotaUse(tokens=100)})
async def complete(used: float | None, sent: bool = True) -> float:
    begun_s = now_s()
    await asyncio.sleep(1)
    if not sent:
        current_quota("llm").settle(tokens=0)
        raise ConnectionRefusedError
    if used is not None:
        current_quota("llm").settle(tokens=used)
    return begun_s


@virtual
async def test_case_94_tokens_in_flight_count_and_the_difference_is_settled() -> None:
    """Five calls of 58 to 175 tokens, estimated at 100, with 100 a minute: one at a time, and never all at once."""
    async with Tangram(Quota("llm", tokens=100, period_s=60)) as tg:
        first = asyncio.create_task(complete(58))
        await asyncio.sleep(1.5)
        assert (await first, tg.statistics().dimensions["quota:llm/tokens"].free) == (0, 42)
        begun = await asyncio.gather(*(complete(used) for used in (175, 100, 60, None)))
        assert begun == [60, 121, 181, 241], "75 too many hold up the next until 61 + 60"
        with pytest.raises(ConnectionRefusedError):
            await complete(None, sent=False)
        assert tg.statistics().dimensions["quota:llm/tokens"].free == 100, "what was never sent is not charged"
        assert_idle(tg)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "3"}, 3),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT", "date": "Wed, 21 Oct 2026 07:27:00 GMT"}, 60),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({}, None),
        ({"retry-after-ms": "1500"}, 1.5),
    ],
    ids=str,
)
def test_case_96_retry_after_is_read_or_left(headers: dict[str, str], wait_s: float | None) -> None:
    assert asked_to_wait_s(headers) == wait_s


@virtual
async def test_case_98_keys_and_apis_have_allowances_of_their_own() -> None:
    """Two keys and two APIs: what one is out of, the others are not, and it comes back by itself."""

    @tangram.action(quota={"search": 1})
    async def search() -> tuple[str | None, float]:
        return current_quota("search").key, now_s()

    @tangram.action(quota={"retrieve": 1})
    async def retrieve() -> tuple[str | None, float]:
        return current_quota("retrieve").key, now_s()

    keys = ["k1", "k2"]
    quotas = [Quota(name, calls=1, period_s=86_400, keys=keys) for name in ("search", "retrieve")]
    async with Tangram(*quotas) as tg:
        assert await search() == ("k1", 0)
        assert await retrieve() == ("k1", 0)
        await asyncio.sleep(100)
        assert await search() == ("k2", 100)
        assert await search() == ("k1", 86_400)
        assert await search() == ("k2", 86_500)
        assert_idle(tg)


@virtual
async def test_case_100_a_slow_rate_that_is_looked_at_all_the_time_does_not_drift() -> None:
    @tangram.action(quota={"slow": 1})
    async def slow() -> float:
        return now_s()

    @tangram.action(quota={"other": 1})
    async def other() -> None:
        pass

    async def polls() -> None:
        while now_s() < 60.5:
            await other()
            await asyncio.sleep(0.001)

    async with Tangram(Quota("slow", calls=1, period_s=60), Quota("other", concurrency=1)):
        polling = asyncio.create_task(polls())
        assert [await slow(), await slow()] == [0, 60]
        await polling


class EarlyLoop(asyncio.SelectorEventLoop):
    """A loop whose timers fire up to 20 ms early."""

    def __init__(self) -> None:
        super().__init__()
        self._chance = random.Random(1)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when - 0.02 * self._chance.random(), callback, *args, context=context)


class Grants:
    """A sink that notes when each grant counts from, and when it was really there."""

    def __init__(self) -> None:
        self.counted_s: list[float] = []
        self.told_s: list[float] = []

    def write(self, event: Event) -> None:
        if isinstance(event, ActionStarted):
            self.counted_s.append(event.action.started_at_s)
            self.told_s.append(now_s())

    async def aclose(self) -> None:
        pass


def test_case_102_a_timer_that_fires_early_grants_nothing_early() -> None:
    """Being late is no fault, so each grant is held against the moment from which the one before it counts."""

    @tangram.action(quota={"api": 1})
    async def call() -> None:
        pass

    async def main() -> None:
        grants = Grants()
        async with Tangram(Quota("api", calls=2, period_s=0.1), trace=grants) as tg:
            await asyncio.gather(*(call() for _ in range(12)))
            assert len(grants.told_s) == 12
            windows = zip(grants.counted_s, grants.told_s[2:], strict=False)
            assert all(told_s >= counted_s + 0.1 - 0.001 for counted_s, told_s in windows)
            assert_idle(tg)

    with asyncio.Runner(loop_factory=EarlyLoop) as runner:
        runner.run(main())
