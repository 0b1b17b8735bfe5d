"""How late the event loop comes to others while many actions are submitted, wait, run and end."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from arl_tangram.action import action
from arl_tangram.managers.quota import Quota
from arl_tangram.mapping import map as map_action
from arl_tangram.runtime import Tangram

SLOTS = 2_000
"""How many bodies run at once."""

MEAN_BODY_S = 0.8
"""They last from half to one and a half of it, spread evenly, so that they do not end in step."""

EVERY_S = 0.005
LATE_S = 0.02

_QUOTA = "api"


class Crowd(StrEnum):
    """Who is in flight."""

    MAP = "actions, in tangram.map"
    GATHER = "actions, in asyncio.gather"
    ASYNCIO = "asyncio.gather around a semaphore"


@dataclass(frozen=True, slots=True)
class Collection:
    """One run of the garbage collector.

    Attributes:
        began_s: when, on the clock of the loop.
        ended_s: when it was over.
        full: whether it looked at all objects.
    """

    began_s: float
    ended_s: float
    full: bool


@dataclass(frozen=True, slots=True)
class Lag:
    """What a task noticed that asks for its turn every few milliseconds.

    Attributes:
        crowd: who was in flight.
        in_flight: how many.
        elapsed_s: from the first submission to the last answer.
        late_s: for each turn that it got, how late.
        weighted_late_s: the same for every moment at which it was due, those that it slept through included.
        full_collections: how many there were.
        longest_collection_s: the longest run of the collector.
        collected_of_longest_s: how much of the longest lag the collector took.
        late_sum_s: the sum of all lags of more than 20 ms.
        collected_of_late_s: how much of that the collector took.
    """

    crowd: Crowd
    in_flight: int
    elapsed_s: float
    late_s: tuple[float, ...]
    weighted_late_s: tuple[float, ...]
    full_collections: int
    longest_collection_s: float
    collected_of_longest_s: float
    late_sum_s: float
    collected_of_late_s: float

    def quantile_ms(self, share: float) -> float:
        """Milliseconds that a share of the turns were late at most."""
        return float(np.quantile(self.late_s, share)) * 1e3

    def weighted_quantile_ms(self, share: float) -> float:
        """Milliseconds that whoever becomes ready at any moment waits at most, with that probability."""
        return float(np.quantile(self.weighted_late_s, share)) * 1e3

    @property
    def longest_ms(self) -> float:
        """The longest lag, in milliseconds."""
        return max(self.late_s) * 1e3


@action(quota={_QUOTA: 1})
async def call(body_s: float) -> None:
    """Be a short call of an API."""
    await asyncio.sleep(body_s)


def measure_lag(crowd: Crowd, in_flight: int, mean_body_s: float = MEAN_BODY_S) -> Lag:
    """Run so many short bodies, all submitted at once, and return what a ticking task noticed."""
    return asyncio.run(_measure(crowd, in_flight, mean_body_s))


def bodies_s(count: int, mean_s: float) -> list[float]:
    """Return how long each body lasts: spread by the golden ratio, the same in every run."""
    return [mean_s * (0.5 + number * 0.6180339887498949 % 1.0) for number in range(count)]


def lag_of(
    crowd: Crowd,
    in_flight: int,
    elapsed_s: float,
    turns: Sequence[tuple[float, float]],
    collections: Sequence[Collection],
) -> Lag:
    """Return what follows from the turns of the ticking task: pairs of when one was due and when it came."""
    due_s, late_s = max(turns, key=lambda turn: turn[1] - turn[0])
    late = [(due, came) for due, came in turns if came - due > LATE_S]
    return Lag(
        crowd=crowd,
        in_flight=in_flight,
        elapsed_s=elapsed_s,
        late_s=tuple(came - due for due, came in turns),
        weighted_late_s=tuple(
            came - due - missed * EVERY_S for due, came in turns for missed in range(int((came - due) / EVERY_S) + 1)
        ),
        full_collections=sum(one.full for one in collections),
        longest_collection_s=max((one.ended_s - one.began_s for one in collections), default=0.0),
        collected_of_longest_s=_collected(due_s, late_s, collections),
        late_sum_s=sum(came - due for due, came in late),
        collected_of_late_s=sum(_collected(due, came, collections) for due, came in late),
    )


async def _measure(crowd: Crowd, in_flight: int, mean_body_s: float) -> Lag:
    lengths_s = bodies_s(in_flight, mean_body_s)
    async with Tangram(Quota(_QUOTA, concurrency=SLOTS)):
        await _run(crowd, lengths_s[:100])
        turns: list[tuple[float, float]] = []
        with _collector() as collections:
            ticking = asyncio.create_task(_tick(turns))
            await asyncio.sleep(0)
            began_s = time.monotonic()
            await _run(crowd, lengths_s)
            elapsed_s = time.monotonic() - began_s
            await asyncio.sleep(2 * EVERY_S)  # what the last answer left to do is noticed too
            ticking.cancel()
    return lag_of(crowd, in_flight, elapsed_s, turns, collections)


async def _run(crowd: Crowd, lengths_s: Sequence[float]) -> None:
    if crowd is Crowd.MAP:
        await map_action(call, lengths_s)
    elif crowd is Crowd.GATHER:
        await asyncio.gather(*[call(body_s) for body_s in lengths_s])
    else:
        semaphore = asyncio.Semaphore(SLOTS)

        async def limited(body_s: float) -> None:
            async with semaphore:
                await asyncio.sleep(body_s)

        await asyncio.gather(*[limited(body_s) for body_s in lengths_s])


async def _tick(turns: list[tuple[float, float]]) -> None:
    """Ask for a turn every few milliseconds, and note when one was due and when it came."""
    due_s = time.monotonic() + EVERY_S
    while True:
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        came_s = time.monotonic()
        if came_s >= due_s:  # a timer may fire early by the resolution of the loop's clock
            turns.append((due_s, came_s))
            due_s = came_s + EVERY_S


@contextmanager
def _collector() -> Generator[list[Collection]]:
    """Note the runs of the garbage collector."""
    collections: list[Collection] = []
    began_s = 0.0

    def note(phase: str, info: dict[str, int]) -> None:
        nonlocal began_s
        if phase == "start":
            began_s = time.monotonic()
        else:
            collections.append(Collection(began_s, time.monotonic(), info["generation"] == 2))

    gc.callbacks.append(note)
    try:
        yield collections
    finally:
        gc.callbacks.remove(note)


def _collected(since_s: float, until_s: float, collections: Sequence[Collection]) -> float:
    """Return how long the collector ran between two moments."""
    return sum(max(0.0, min(until_s, one.ended_s) - max(since_s, one.began_s)) for one in collections)
