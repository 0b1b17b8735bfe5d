"""Measure contenders in interleaved rounds, so that what else happens on the machine meets all of them alike."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from arl_tangram.bench.contenders import Contender

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Series:
    """The samples of one contender at one size.

    Attributes:
        name: the contender.
        in_flight: how many actions were in flight at once.
        samples_us: microseconds per action, one per round.
    """

    name: str
    in_flight: int
    samples_us: tuple[float, ...]

    @property
    def median_us(self) -> float:
        """The middle of the samples."""
        return median(self.samples_us)


def measure(
    contenders: Sequence[Contender],
    sizes: Sequence[int],
    rounds: int,
    on_round: Callable[[int, int], None],
    *,
    least_actions: int,
) -> list[Series]:
    """Run all contenders in turn, round by round, and return their series by size and contender.

    Each round starts with another contender. A first round is not counted: it loads code, starts
    worker processes and makes the heap as large as it will be. Before each run, what the runs before
    left behind is collected, so that nobody pays for another's garbage; while it runs, the collector
    comes as it does by default. A sample is the mean over at least `least_actions`, in as many runs as that takes.

    Args:
        contenders: who is measured.
        sizes: with how many actions in flight.
        rounds: how many count, from 1.
        on_round: is told the size and the number of each round before it begins; 0 does not count.
        least_actions: of one contender in one round.
    """
    series: list[Series] = []
    for in_flight in sizes:
        present = [contender for contender in contenders if in_flight in contender.sizes]
        samples: dict[str, list[float]] = {contender.name: [] for contender in present}
        for round_ in range(rounds + 1):
            on_round(in_flight, round_)
            for contender in rotated(present, round_):
                sample_us = _sample_us(contender, in_flight, least_actions)
                if round_:
                    samples[contender.name].append(sample_us)
        series += [Series(name, in_flight, tuple(values)) for name, values in samples.items()]
    return series


def _sample_us(contender: Contender, in_flight: int, least_actions: int) -> float:
    """Return the mean over as many runs as the least number of actions takes."""
    runs = max(1, -(-least_actions // in_flight))
    elapsed_s = 0.0
    for _ in range(runs):
        gc.collect()
        elapsed_s += contender.run(in_flight)
    return elapsed_s / (runs * in_flight) * 1e6


def rotated(items: Sequence[T], by: int) -> list[T]:
    """Return the items from number `by` on, then those before it."""
    start = by % len(items) if items else 0
    return [*items[start:], *items[:start]]
