"""Suites of tests: how the durations of single tests make the speed-up of a whole suite."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from arl_tangram.model.elasticity import Measured


def suite_speedup(tests_s: Sequence[float], cores: Iterable[int]) -> Measured:
    """Return how a suite speeds up whose tests go to whichever core is free, the longest first."""
    in_order = sorted(tests_s, reverse=True)
    total_s = sum(in_order)
    return Measured({count: total_s / _makespan_s(in_order, count) for count in cores})


def _makespan_s(tests_s: Iterable[float], cores: int) -> float:
    ends = [0.0] * cores
    for test_s in tests_s:
        heapq.heapreplace(ends, ends[0] + test_s)
    return max(ends)
