"""How long a command is said to have run."""

from __future__ import annotations

import asyncio
import time

from arl_tangram.managers.capture import Capture
from arl_tangram.managers.docker.exchange import Exchange


def sent_before(seconds: float) -> Exchange:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    return Exchange(Capture(1), Capture(1), time.monotonic() - seconds, done, {"E"})


async def test_reports_that_arrive_together_took_as_long_as_the_text_and_they_at_most() -> None:
    exchange = sent_before(0.006)
    exchange.begin(100.0)
    exchange.end(0, 100.0, 0.0)
    assert 0.006 <= exchange.duration_s < 0.01


async def test_the_machines_clock_bounds_it() -> None:
    for told_s, expected in ((0.0, 0.01), (0.5, 0.51)):
        exchange = sent_before(5.0)
        exchange.begin(100.0)
        exchange.end(0, 100.0 + told_s, 0.0)
        assert abs(exchange.duration_s - expected) < 1e-9
    exchange = sent_before(0.0)
    exchange.begin(100.0)
    await asyncio.sleep(0)
    exchange.end(0, 99.0, 0.0)  # a clock that was set back
    assert exchange.duration_s == 0.0


async def test_reports_that_arrive_apart_tell_it_themselves() -> None:
    exchange = sent_before(5.0)
    exchange.begin(100.0)
    await asyncio.sleep(0.05)
    exchange.end(0, 100.05, 0.0)
    assert 0.04 <= exchange.duration_s <= 0.06
