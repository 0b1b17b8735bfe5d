"""Quotas as users declare and use them: windows, tokens, budgets, keys, and what servers ask for."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import (
    ConfigurationError,
    DefinitionError,
    InfeasibleError,
    NoActionError,
    Quota,
    QuotaUse,
    Tangram,
    current_quota,
)
from arl_tangram.managers.quota import QuotaHandle
from arl_tangram.managers.retry_after import asked_to_wait_s, parse_retry_after
from arl_tangram.testing import assert_idle
from virtual_time import virtual


def now_s() -> float:
    return asyncio.get_running_loop().time()


def names(quota: Quota) -> list[tuple[str, float, float | None]]:
    return [(d.name, d.capacity / d.scale, d.window_s) for d in quota.dimensions()]


# Declarations.


def test_each_limit_is_counted_by_itself() -> None:
    assert names(Quota("q", 300, 60, 20)) == [("quota:q/calls", 300, 60), ("quota:q/concurrency", 20, None)]
    assert names(Quota("q", calls=[(300, 60), (10, 1), (5000, 86400), (3, 0.5)], tokens=9000, period_s=60)) == [
        ("quota:q/calls/0.5s", 3, 0.5),
        ("quota:q/calls/1s", 10, 1),
        ("quota:q/calls/60s", 300, 60),
        ("quota:q/calls/86400s", 5000, 86400),
        ("quota:q/tokens", 9000, 60),
    ]
    assert names(Quota("q", total_calls=7, total_tokens=8)) == [
        ("quota:q/calls/total", 7, math.inf),
        ("quota:q/tokens/total", 8, math.inf),
    ]
    assert [name for name, _, _ in names(Quota("q", calls=1, period_s=1, concurrency=1, keys=["a", "b"]))] == [
        "quota:q#1/calls",
        "quota:q#1/concurrency",
        "quota:q#2/calls",
        "quota:q#2/concurrency",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a limit"),
        ({"keys": ["a"]}, "needs a limit"),
        ({"calls": 3}, "calls= and period_s= go together"),
        ({"tokens": 3}, "tokens= and period_s= go together"),
        ({"period_s": 3}, "period_s= goes with"),
        ({"calls": [(3, 1)], "period_s": 3}, "period_s= goes with"),
        ({"calls": []}, "from 1 to 16 pairs"),
        ({"calls": [(3, 1), (4, 1.0)]}, "two limits per 1 s"),
        ({"calls": [3, 1]}, "pairs of a number and seconds"),
        ({"calls": [(3, 1, 1)]}, "pairs of a number and seconds"),
        ({"calls": ["31"]}, "pairs of a number and seconds"),
        ({"calls": "300/60", "period_s": 1}, "calls takes a whole number"),
        ({"calls": [(0, 1)]}, "calls takes a whole number from 1"),
        ({"calls": [(1.5, 1)]}, "calls takes a whole number from 1"),
        ({"calls": [(1, 0)]}, "seconds takes finite seconds above 0"),
        ({"calls": [(1, math.inf)]}, "seconds takes finite seconds above 0"),
        ({"tokens": [(-1, 1)]}, "tokens takes a whole number from 1"),
        ({"total_calls": 0}, "total_calls takes a whole number from 1"),
        ({"total_tokens": 1.5}, "total_tokens takes a whole number from 1"),
        ({"concurrency": 1, "longest_pause_s": 0}, "longest_pause_s takes finite seconds"),
        ({"concurrency": 1, "keys": "sk-secret"}, "a sequence of strings, not one str"),
        ({"concurrency": 1, "keys": {"sk-secret"}}, "a sequence of strings, not one set"),
        ({"concurrency": 1, "keys": ["sk-secret", ""]}, "strings that are not empty"),
        ({"concurrency": 1, "keys": [b"sk-secret"]}, "strings that are not empty"),
        ({"concurrency": 1, "keys": ["sk-secret", "sk-secret"]}, "two of its 2 keys are the same"),
        ({"concurrency": 1, "keys": [f"sk-secret-{i}" for i in range(65)]}, "65 keys; 64 are the most"),
    ],
)
def test_what_cannot_be_a_quota_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        Quota("api", **options)
    assert "'api'" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_keys_are_not_shown() -> None:
    quota = Quota("api", concurrency=1, keys=["sk-secret"])
    assert "secret" not in repr(quota) + repr(quota.dimensions())
    assert "secret" not in repr(QuotaHandle(print, key="sk-secret"))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (QuotaUse(calls=0), r"quota\['api'\] must be more than 0"),
        (QuotaUse(calls=-1), r"quota\['api'\] must be a finite number from 0"),
        (QuotaUse(tokens=-1), r"quota\['api'\]: tokens must be a finite number from 0"),
        (QuotaUse(tokens=math.nan), "tokens must be a finite number"),
        (QuotaUse(tokens=1e-9), "finer than a thousandth"),
        (QuotaUse("3"), "takes a number"),  # type: ignore[arg-type]
        ((1, 2000), "takes a number"),
    ],
)
def test_what_no_call_can_take_is_refused(use: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        tangram.action(quota={"api": use})(nothing)


async def nothing() -> None:
    pass


@virtual
async def test_more_than_there_is_is_refused_at_the_call() -> None:
    async with Tangram(
        Quota("llm", tokens=[(1000, 60)], total_tokens=5000), Quota("keyed", calls=[(9, 1), (3, 2)], keys=["a", "b"])
    ) as tg:
        with pytest.raises(InfeasibleError, match="nothing asks for 1001 tokens; quota:llm/tokens/60s has 1000 in all"):
            await tangram.action(quota={"llm": QuotaUse(tokens=1001)})(nothing)()
        with pytest.raises(InfeasibleError, match="nothing asks for 4 calls; quota:keyed#1/calls/2s has 3 in all"):
            await tangram.action(quota={"keyed": 4})(nothing)()
        with pytest.raises(InfeasibleError, match="'other'; this runtime has only 'keyed', 'llm'"):
            await tangram.action(quota={"other": 1})(nothing)()
        assert_idle(tg)


# Tokens.


@tangram.action(quota={"llm": QuotaUse(tokens=100)})
async def ask(used: float | None = None, lasts_s: float = 0) -> float:
    begun_s = now_s()
    await asyncio.sleep(lasts_s)
    if used is not None:
        current_quota("llm").settle(tokens=used)
    return begun_s


@virtual
async def test_tokens_are_reserved_before_the_call_and_settled_after_it() -> None:
    async with Tangram(Quota("llm", tokens=150, period_s=60)) as tg:
        begun = await asyncio.gather(*(ask(used, 1) for used in (50, 120, 20, None)))
        assert begun == [0, 1, 61, 62], "100 more fit when 50 are settled; the 120 after that are back by 61 and 62"
        tokens = tg.statistics().dimensions["quota:llm/tokens"]
        assert (tokens.used, tokens.free) == (120, 30)
        assert_idle(tg)


@virtual
async def test_more_than_reserved_is_charged_from_then_on() -> None:
    async with Tangram(Quota("llm", tokens=100, period_s=60)) as tg:
        await ask(260, 5)
        assert tg.statistics().dimensions["quota:llm/tokens"].free == -160
        assert await ask() == 65
        assert_idle(tg)


@virtual
async def test_a_call_that_was_never_made_is_settled_at_nothing() -> None:
    @tangram.action(quota={"llm": QuotaUse(tokens=100)})
    async def fails() -> None:
        current_quota("llm").settle(calls=0, tokens=0)
        raise ConnectionRefusedError

    async with Tangram(Quota("llm", calls=1, tokens=100, period_s=60)) as tg:
        for _ in range(3):
            with pytest.raises(ConnectionRefusedError):
                await fails()
        assert now_s() == 0
        assert_idle(tg)


@virtual
async def test_a_call_that_fails_without_a_word_is_charged_what_it_reserved() -> None:
    @tangram.action(quota={"llm": QuotaUse(tokens=100)})
    async def fails() -> None:
        raise ConnectionResetError

    async with Tangram(Quota("llm", tokens=100, period_s=60)):
        with pytest.raises(ConnectionResetError):
            await fails()
        assert await ask() == 60


@virtual
async def test_settling_wakes_up_who_waits() -> None:
    @tangram.action(quota={"llm": QuotaUse(tokens=100)})
    async def streams() -> None:
        await asyncio.sleep(3)
        current_quota("llm").settle(tokens=0)
        await asyncio.sleep(3)

    async with Tangram(Quota("llm", tokens=100, period_s=60)):
        first = asyncio.create_task(streams())
        await asyncio.sleep(1)
        assert await ask() == 3
        await first


@virtual
@pytest.mark.parametrize("amounts", [{}, {"tokens": -1}, {"tokens": math.nan}, {"calls": "3"}, {"tokens": 1e-9}])
async def test_what_cannot_be_settled_is_refused(amounts: dict[str, Any]) -> None:
    @tangram.action(quota={"llm": 1})
    async def settles() -> None:
        with pytest.raises(ValueError, match="settle"):
            current_quota("llm").settle(**amounts)

    async with Tangram(Quota("llm", calls=5, tokens=100, period_s=60)) as tg:
        await settles()
        dimensions = tg.statistics().dimensions
        assert (dimensions["quota:llm/calls"].used, dimensions["quota:llm/tokens"].used) == (1, 0)


@virtual
async def test_a_handle_that_outlives_its_action_settles_nothing() -> None:
    @tangram.action(quota={"llm": QuotaUse(tokens=100)})
    async def leaks() -> Any:
        return current_quota("llm")

    async with Tangram(Quota("llm", tokens=100, period_s=60)) as tg:
        handle = await leaks()
        with pytest.raises(NoActionError, match="after the action had ended"):
            handle.settle(tokens=0)
        assert tg.statistics().dimensions["quota:llm/tokens"].used == 100


async def test_settling_works_from_threads() -> None:
    @tangram.action(quota={"llm": QuotaUse(tokens=100)})
    def on_a_thread() -> None:
        current_quota("llm").settle(tokens=10)

    async with Tangram(Quota("llm", tokens=100, period_s=600)) as tg:
        await asyncio.wait_for(asyncio.gather(*(on_a_thread() for _ in range(1))), 10)
        await asyncio.sleep(0)
        assert tg.statistics().dimensions["quota:llm/tokens"].used == 10
        assert_idle(tg)


# Budgets.


@virtual
async def test_a_budget_is_spent_and_says_so() -> None:
    async with Tangram(Quota("llm", total_calls=5, total_tokens=250)) as tg:
        both = await asyncio.gather(ask(50, 1), ask(50, 1), ask(100, 2), ask(), return_exceptions=True)
        assert both[:3] == [0, 0, 1]
        assert isinstance(both[3], InfeasibleError)
        assert "ask asks for more of quota:llm/tokens/total than is left for good: 50 of 250" in str(both[3])
        assert now_s() == 3, "it was told when nothing could come back any more"
        with pytest.raises(InfeasibleError):
            await ask()
        assert now_s() == 3
        assert_idle(tg)


# Keys.


@tangram.action(quota={"search": 1})
async def search(refused: str | None = None, lasts_s: float = 0) -> tuple[float, str | None]:
    begun_s = now_s()
    await asyncio.sleep(lasts_s)
    quota = current_quota("search")
    if refused is not None:
        quota.retry_after(refused)
    return begun_s, quota.key


@virtual
async def test_a_call_knows_its_key_and_a_pause_is_for_that_key_only() -> None:
    async with Tangram(Quota("search", calls=100, period_s=1, keys=["a", "b"])) as tg:
        assert await search("30") == (0, "a")
        assert [await search(lasts_s=1) for _ in range(3)] == [(0, "b"), (1, "b"), (2, "b")]
        assert await search("5") == (3, "b")
        assert await search() == (8, "b"), "whichever comes back first"
        await asyncio.sleep(22)
        assert (await search())[1] == "a"
        assert_idle(tg)


@virtual
async def test_concurrency_is_that_of_each_key() -> None:
    async with Tangram(Quota("search", concurrency=2, keys=["a", "b"])):
        ends = await asyncio.gather(*(search(lasts_s=1) for _ in range(6)))
        assert ends == [(0, "a"), (0, "b"), (0, "a"), (0, "b"), (1, "a"), (1, "b")]


@virtual
async def test_a_quota_without_keys_has_none() -> None:
    async with Tangram(Quota("search", concurrency=2)):
        assert await search() == (0, None)


@virtual
async def test_one_key_is_told_too() -> None:
    async with Tangram(Quota("search", concurrency=2, keys=["only"])):
        assert await search() == (0, "only")


# Retry-After.

NOW = datetime(2026, 10, 21, 7, 28, 0, tzinfo=UTC)
DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        (4, 4),
        (0.25, 0.25),
        ("3", 3),
        (" 3 ", 3),
        ("0", 0),
        ("1.5", 1.5),
        (DATE, 0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30),
        ("Wed, 21 Oct 2026 09:28:30 +0200", 30),
        ("Wednesday, 21-Oct-26 07:29:00 GMT", 60),
        ("Wed Oct 21 07:30:00 2026", 120),
        ("Tue, 20 Oct 2026 07:28:00 GMT", 0),
    ],
)
def test_seconds_and_dates_are_read(value: Any, wait_s: float) -> None:
    assert parse_retry_after(value, date=DATE) == wait_s


def test_a_date_counts_from_this_clock_if_the_server_does_not_tell_its_own() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    for date in (None, "nonsense"):
        assert 97 <= parse_retry_after(soon, date=date) <= 101
    assert parse_retry_after(DATE, date="Wed, 21 Oct 2026 07:27:00 GMT") == 60


@pytest.mark.parametrize(
    "value",
    [-5, "-5", "nan", math.nan, "inf", "soon", "", None, True, b"3", [3], "Wed, 99 Oct 2026 07:28:00 GMT", "1" * 400],
    ids=lambda value: repr(value)[:20],
)
def test_nonsense_is_a_value_error(value: Any) -> None:
    with pytest.raises(ValueError, match="Retry-After takes finite seconds from 0 or an HTTP date"):
        parse_retry_after(value)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7),
        ({"retry-after-ms": "nan", "retry-after": "7"}, 7),
        ({"retry-after-ms": "-1"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:09 GMT", "date": DATE}, 9),
    ],
)
def test_what_the_headers_of_an_answer_ask_for(headers: dict[str, str], wait_s: float | None) -> None:
    assert asked_to_wait_s(headers) == wait_s


@virtual
async def test_a_pause_is_capped_as_the_quota_says() -> None:
    async with Tangram(Quota("search", calls=100, period_s=1, longest_pause_s=90)):
        await search("1000000000")
        assert await search() == (90, None)


@virtual
async def test_a_date_pauses_the_quota() -> None:
    async with Tangram(Quota("search", concurrency=1)):
        await search(format_datetime(datetime.now(UTC) + timedelta(days=10), usegmt=True))
        assert await search() == (3600, None)
        await search(DATE if datetime.now(UTC) > NOW else "Tue, 01 Jan 2019 00:00:00 GMT")
        assert await search() == (3600, None), "a date that is past means now"
