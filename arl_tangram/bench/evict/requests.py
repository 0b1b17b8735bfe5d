"""Streams of requests for `bench evict`: four kinds that are drawn from a seed, and files of real ones."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SERVICES = 40
ZIPF = 1.0
"""Popularity falls with the rank to this power."""

DRIFT_EVERY, DRIFT_SHARE = 250, 0.5
"""After so many requests, so many of the services exchange their popularity."""

BURST_MEAN, STEP_REQUESTS = 12.0, 4
COLUMNS = ("service", "model")
"""Where a file says which service a request is for: the first of these columns that it has."""


def names() -> tuple[str, ...]:
    """Return the names of the services that are asked for."""
    return tuple(f"s{number:02}" for number in range(SERVICES))


def zipf(count: int, rng: np.random.Generator) -> list[str]:
    """Draw requests that do not depend on each other; some services are popular, most are not."""
    return _named(rng.choice(SERVICES, size=count, p=_popularity(rng)))


def drifting(count: int, rng: np.random.Generator) -> list[str]:
    """Draw the same with a popularity that changes: tasks of another kind are trained on."""
    popularity = _popularity(rng)
    drawn: list[str] = []
    while len(drawn) < count:
        drawn += _named(rng.choice(SERVICES, size=min(DRIFT_EVERY, count - len(drawn)), p=popularity))
        some = np.flatnonzero(rng.random(SERVICES) < DRIFT_SHARE)
        popularity[some] = popularity[rng.permutation(some)]
    return drawn


def bursty(count: int, rng: np.random.Generator) -> list[str]:
    """Draw runs of requests for the same service: a batch is judged, then another."""
    popularity = _popularity(rng)
    drawn: list[str] = []
    while len(drawn) < count:
        drawn += _named(rng.choice(SERVICES, size=1, p=popularity)) * int(rng.geometric(1 / BURST_MEAN))
    return drawn[:count]


def cyclic(count: int, rng: np.random.Generator) -> list[str]:
    """Draw the same sweep over and over: each step of the training asks for all services in about the same order."""
    order = rng.permutation(SERVICES)
    drawn: list[str] = []
    while len(drawn) < count:
        shifted = np.argsort(np.arange(SERVICES) + rng.normal(0, 1.5, SERVICES))
        for number in order[shifted]:
            drawn += [f"s{number:02}"] * int(rng.integers(1, STEP_REQUESTS + 1))
    return drawn[:count]


STREAMS: Mapping[str, Callable[[int, np.random.Generator], list[str]]] = {
    "zipf": zipf,
    "bursty": bursty,
    "drifting": drifting,
    "cyclic": cyclic,
}
"""What draws each kind of stream: from how many requests, and a generator."""


def read(path: Path) -> list[str]:
    """Read for which services requests were made, from a file of comma-separated values, in the order of its rows.

    Raises:
        ValueError: no column says it; the message names those that are looked for, and those that there are.
        OSError: the file cannot be read.
    """
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        there = list(reader.fieldnames or ())
        column = next((column for column in COLUMNS if column in there), None)
        if column is None:
            raise ValueError(f"{path} has no column {' or '.join(COLUMNS)}; it has {', '.join(there) or 'none'}")
        return [row[column] for row in reader if row[column]]


def _popularity(rng: np.random.Generator) -> NDArray[np.float64]:
    weights = np.arange(1, SERVICES + 1, dtype=np.float64) ** -ZIPF
    weights /= weights.sum()
    rng.shuffle(weights)
    return weights


def _named(numbers: Iterable[int]) -> list[str]:
    return [f"s{number:02}" for number in numbers]
