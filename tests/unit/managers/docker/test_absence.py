"""How long is waited for a daemon that is away, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from arl_tangram.errors import SandboxLostError
from arl_tangram.managers.docker.absence import LIMIT_S, NOTICE_S, Absence

pytestmark = pytest.mark.looptime


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def test_nobody_waits_for_a_daemon_that_is_there() -> None:
    begun_s = now_s()
    await Absence("the host").outlast()
    assert now_s() == begun_s


async def test_one_that_is_away_is_waited_for_until_it_is_back() -> None:
    absence = Absence("the host")
    absence.begin()
    asyncio.get_running_loop().call_later(7, absence.end)
    begun_s = now_s()
    await absence.outlast()
    assert now_s() - begun_s == pytest.approx(7)


async def test_one_that_stays_away_loses_what_waits() -> None:
    absence = Absence("the host")
    absence.begin()
    begun_s = now_s()
    with pytest.raises(SandboxLostError, match="the host has not answered for 30 s"):
        await absence.outlast()
    assert now_s() - begun_s == pytest.approx(LIMIT_S)


async def test_after_a_failed_request_there_is_time_for_the_news() -> None:
    absence = Absence("the host")
    loop = asyncio.get_running_loop()
    loop.call_later(NOTICE_S / 2, absence.begin)
    loop.call_later(5, absence.end)
    begun_s = now_s()
    await absence.outlast(unheard=True)
    assert now_s() - begun_s == pytest.approx(5)


async def test_a_failed_request_without_news_is_tried_again_soon() -> None:
    begun_s = now_s()
    await Absence("the host").outlast(unheard=True)
    assert now_s() - begun_s == pytest.approx(NOTICE_S)


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize("unheard", [False, True])
async def test_cancelling_is_never_lost(turns: int, is_away: bool, unheard: bool) -> None:
    absence = Absence("the host")
    if is_away:
        absence.begin()
    waiting = asyncio.ensure_future(absence.outlast(unheard=unheard))
    await asyncio.sleep(0)
    absence.end()
    for _ in range(turns):
        await asyncio.sleep(0)
    if not waiting.done():
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
