"""Estimate what a decision means for those who keep waiting, with a heap of completion times.

Who waits is served in order, each at its least units, as soon as enough units are back. Alternatives
are comparable only if each of them estimates the same actions: the caller passes the deferred
candidates and the same rest of the queue for all of them.

Source: the approximate objective of ARL-Tangram (arXiv 2603.13019).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from arl_tangram.scheduling.policy import Candidate


def waiting_cost_s(
    waiting: Iterable[Candidate],
    free: int,
    completions: Sequence[tuple[float, int]],
    now_s: float,
) -> float:
    """Return the expected sum of waiting and running seconds of those who wait, counted from now.

    Args:
        waiting: in the order in which they will be served.
        free: whole units that are free once the decision is carried out.
        completions: (expected end, units) of everything that then runs; an end that has passed counts as now.
        now_s: the time.
    """
    heap = list(completions)
    heapq.heapify(heap)
    at_s, total = now_s, 0.0
    for action in waiting:
        units, duration_s = action.units[0], action.durations_s[0]
        while free < units and heap:
            end_s, back = heapq.heappop(heap)
            at_s = max(at_s, end_s)
            free += back
        total += at_s - now_s + duration_s
        free -= units
        heapq.heappush(heap, (at_s + duration_s, units))
    return total
