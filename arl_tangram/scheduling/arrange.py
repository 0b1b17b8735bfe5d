"""DPArrange: split free units among candidates so that the sum of their durations is least.

One table answers for every prefix of the candidates at once, so that trying to defer the last
candidate costs a look-up and not another run:

    best[i][r] = min over units u of candidate i of  best[i-1][r-u] + duration_i(u)

is the least sum for the first i candidates on at most r units. Each row is computed for all r
together; the table costs candidates × options × free units. It is exact for any durations,
falling or not: nothing is assumed about their shape.

Source: the dynamic programme of ARL-Tangram (arXiv 2603.13019), which is the classical
resource-allocation recursion of Bellman (1957).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from arl_tangram.scheduling.policy import Candidate


class Arrangement:
    """The best split of `free` units for every prefix of the candidates.

    Args:
        candidates: n candidates with whole units and finite durations in seconds.
        free: whole units to split, from 0.
    """

    def __init__(self, candidates: Sequence[Candidate], free: int) -> None:
        self._candidates = candidates
        self._free = free
        self._costs: list[float] = [0.0]
        self._choices: list[NDArray[np.int16]] = []
        row = np.zeros(free + 1)
        for candidate in candidates:
            row, choice = _next_row(row, candidate)
            self._choices.append(choice)
            self._costs.append(float(row[free]))

    def cost_s(self, prefix: int) -> float:
        """Least sum of durations of the first `prefix` candidates; infinite if they do not fit."""
        return self._costs[prefix]

    def units(self, prefix: int) -> tuple[int, ...]:
        """Units of each of the first `prefix` candidates at that least sum.

        Raises:
            ValueError: they do not fit together.
        """
        left = self._free
        units: list[int] = []
        for i in range(prefix - 1, -1, -1):
            chosen = int(self._choices[i][left])
            if chosen < 0:
                raise ValueError(f"{prefix} candidates do not fit in {self._free} units")
            units.append(self._candidates[i].units[chosen])
            left -= units[-1]
        return tuple(reversed(units))


def _next_row(row: NDArray[np.float64], candidate: Candidate) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    new = np.full_like(row, np.inf)
    choice = np.full(row.shape, -1, dtype=np.int16)
    for option, (units, duration_s) in enumerate(zip(candidate.units, candidate.durations_s, strict=True)):
        if units >= len(row):
            break
        total = row[: len(row) - units] + duration_s
        better = total < new[units:]
        new[units:][better] = total[better]
        choice[units:][better] = option
    return new, choice
