"""How long a daemon takes for what it is asked: one histogram per operation, of bounded size."""

from __future__ import annotations

import math
from collections.abc import Mapping

from arl_tangram.model.statistics import LatencyStatistics

LEAST_S = 1e-5
STEPS_PER_DOUBLING = 8  # a quantile is wrong by less than a twentieth
BUCKETS = 32 * STEPS_PER_DOUBLING  # up to 12 hours
OPERATIONS = 64  # names of operations are our own: a limit that is only there to be one


class LatencyMeter:
    """Collects the durations of the operations of one daemon."""

    def __init__(self) -> None:
        self._operations: dict[str, _Histogram] = {}

    def add(self, operation: str, seconds: float, *, ok: bool) -> None:
        """Count one operation that has ended, well or not."""
        histogram = self._operations.get(operation)
        if histogram is None:
            if len(self._operations) >= OPERATIONS:
                return
            histogram = self._operations[operation] = _Histogram()
        histogram.add(seconds, ok=ok)

    def read(self) -> Mapping[str, LatencyStatistics]:
        """Return what there was until now, by operation."""
        return {operation: histogram.read() for operation, histogram in sorted(self._operations.items())}


class _Histogram:
    """Durations in buckets whose bounds grow by a constant factor."""

    def __init__(self) -> None:
        self._buckets = [0] * BUCKETS
        self._count = 0
        self._failures = 0
        self._sum_s = 0.0
        self._max_s = 0.0

    def add(self, seconds: float, *, ok: bool) -> None:
        seconds = max(0.0, seconds)
        doublings = math.log2(seconds / LEAST_S) if seconds > LEAST_S else 0.0
        self._buckets[min(BUCKETS - 1, int(doublings * STEPS_PER_DOUBLING))] += 1
        self._count += 1
        self._failures += not ok
        self._sum_s += seconds
        self._max_s = max(self._max_s, seconds)

    def read(self) -> LatencyStatistics:
        return LatencyStatistics(
            count=self._count,
            failures=self._failures,
            mean_s=self._sum_s / self._count if self._count else 0.0,
            p50_s=self._quantile(0.5),
            p99_s=self._quantile(0.99),
            max_s=self._max_s,
        )

    def _quantile(self, share: float) -> float:
        left = math.ceil(share * self._count)
        for index, n in enumerate(self._buckets):
            left -= n
            if n and left <= 0:  # the middle of the bucket, but never beyond what there was
                return min(self._max_s, LEAST_S * 2 ** ((index + 0.5) / STEPS_PER_DOUBLING))
        return 0.0
