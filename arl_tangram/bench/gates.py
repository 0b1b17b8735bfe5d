"""What the figures must keep: pure arithmetic on the medians of series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arl_tangram.bench.contenders import (
    CORES_LIMITER,
    CPU_ACTION,
    LIMITER,
    OURS,
    QUOTA_ACTION,
    RAY,
    SEMAPHORE,
    TRACED_ACTION,
)
from arl_tangram.bench.rounds import Series

MOST_OF_LIMITER = 1.5
MOST_OF_RAY = 1 / 20
MOST_GROWTH_OF_SEMAPHORE = 1.25
MOST_TRACE_US = 20.0


@dataclass(frozen=True, slots=True)
class Gate:
    """One promise and what became of it.

    Attributes:
        promise: what is promised, in words.
        limit: the most that `value` may be.
        value: the worst that was measured; None if it was not measured.
        where: which contender and size that was, or why there is none.
    """

    promise: str
    limit: float
    value: float | None
    where: str

    @property
    def passed(self) -> bool | None:
        """Whether it is kept; None if it was not measured."""
        return None if self.value is None else self.value <= self.limit


def medians(series: Sequence[Series]) -> dict[tuple[str, int], float]:
    """Return the medians by contender and size."""
    return {(one.name, one.in_flight): one.median_us for one in series}


def growth(series: Sequence[Series], name: str) -> float | None:
    """Return how much dearer an action of a contender is at the largest size than at the smallest."""
    known = {one.in_flight: one.median_us for one in series if one.name == name}
    return known[max(known)] / known[min(known)] if len(known) > 1 else None


def gates(series: Sequence[Series]) -> list[Gate]:
    """Return the promises about these series; that about the trace only if it was measured."""
    promises = [
        Gate(
            f"at most {MOST_OF_LIMITER:g} times an {LIMITER} with as many slots, in a task group",
            MOST_OF_LIMITER,
            *_worst(
                [*_ratios(series, QUOTA_ACTION, LIMITER), *_ratios(series, CPU_ACTION, CORES_LIMITER)], "not measured"
            ),
        ),
        Gate(
            f"at most 1/{1 / MOST_OF_RAY:g} of a {RAY}",
            MOST_OF_RAY,
            *_worst(_ratios(series, QUOTA_ACTION, RAY), "Ray was not measured"),
        ),
        Gate(
            f"growth at most {MOST_GROWTH_OF_SEMAPHORE:g} times that of {SEMAPHORE}",
            MOST_GROWTH_OF_SEMAPHORE,
            *_worst(_growths(series), "only one size was measured"),
        ),
    ]
    added = _added_by_trace(series)
    if added:
        promises.append(
            Gate(f"a trace adds at most {MOST_TRACE_US:g} us", MOST_TRACE_US, *_worst(added, "not measured"))
        )
    return promises


def _ratios(series: Sequence[Series], ours: str, base: str) -> list[tuple[float, str]]:
    known = medians(series)
    return [
        (us / known[base, in_flight], f"{name}, {in_flight:,} in flight")
        for (name, in_flight), us in known.items()
        if name == ours and (base, in_flight) in known
    ]


def _growths(series: Sequence[Series]) -> list[tuple[float, str]]:
    base = growth(series, SEMAPHORE)
    own = [(growth(series, name), name) for name in OURS]
    return [(value / base, name) for value, name in own if value is not None and base is not None]


def _added_by_trace(series: Sequence[Series]) -> list[tuple[float, str]]:
    known = medians(series)
    return [
        (us - known[QUOTA_ACTION, in_flight], f"{in_flight:,} in flight")
        for (name, in_flight), us in known.items()
        if name == TRACED_ACTION and (QUOTA_ACTION, in_flight) in known
    ]


def _worst(values: Sequence[tuple[float, str]], otherwise: str) -> tuple[float | None, str]:
    return max(values) if values else (None, otherwise)
