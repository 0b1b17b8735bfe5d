"""The published algorithm: greedy eviction over the optimal split.

Start all candidates, split optimally; then defer the last one and split anew, as long as the
approximate objective improves: expected durations of those that start plus the expected completion
of all who wait.

Source: ARL-Tangram (arXiv 2603.13019). The paper stops at the first deferral that does not help;
with `best_prefix=True` that is not the end of the search: one deferral may free too little for the
next option of anybody, two may free enough.
"""

from __future__ import annotations

from dataclasses import dataclass

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.quantities import whole
from arl_tangram.scheduling.arrange import Arrangement
from arl_tangram.scheduling.lookahead import waiting_cost_s
from arl_tangram.scheduling.policy import Group, Plan

_MOST_PREFIXES = 24
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Paper:
    """Greedy eviction with look-ahead; see `paper`."""

    best_prefix: bool
    depth: int

    @property
    def name(self) -> str:
        """How reports call it."""
        return f"paper(best_prefix={self.best_prefix}, depth={self.depth})"

    @property
    def reserved_cores(self) -> int:
        """Nothing is reserved."""
        return 0

    def planner(self) -> Plan:
        """Return `plan`: nothing is remembered."""
        return self.plan

    def plan(self, group: Group) -> tuple[int, ...]:
        """Return the units for the candidates that start; the first one always does."""
        arrangement = Arrangement(group.candidates, group.free)
        best_cost, best = float("inf"), arrangement.units(1)
        for prefix in self._prefixes(len(group.candidates)):
            units = arrangement.units(prefix)
            cost = arrangement.cost_s(prefix) + self._waiting(group, units)
            if cost < best_cost - _TOLERANCE * max(1.0, cost):
                best_cost, best = cost, units
            elif not self.best_prefix:
                break
        return best

    def _prefixes(self, candidates: int) -> list[int]:
        """Lengths to try, longest first: all, or a bounded number that is dense at the tail."""
        if not self.best_prefix or candidates <= _MOST_PREFIXES:
            return list(range(candidates, 0, -1))
        dense = _MOST_PREFIXES // 2
        sparse = _MOST_PREFIXES - dense
        top = candidates - dense
        return [*range(candidates, top, -1), *(max(1, top * (sparse - i) // sparse) for i in range(sparse))]

    def _waiting(self, group: Group, units: tuple[int, ...]) -> float:
        started = len(units)
        completions = [*group.running]
        for candidate, granted in zip(group.candidates, units, strict=False):
            duration_s = candidate.durations_s[candidate.units.index(granted)]
            completions.append((group.now_s + duration_s, granted))
        rest = (*group.candidates[started:], *group.waiting[: self.depth])
        return waiting_cost_s(rest, group.free - sum(units), completions, group.now_s)


def paper(*, best_prefix: bool = False, depth: int = 64) -> Paper:
    """Return the published policy.

    Args:
        best_prefix: try deferring any number of candidates instead of stopping at the first that does not help.
        depth: how many of those who wait behind the candidates are estimated, from 0 to 64; with 0, too
            much goes to the first.

    Raises:
        ConfigurationError: a depth that is not possible.
    """
    return Paper(best_prefix, whole(depth, "paper(depth=)", ConfigurationError, least=0, most=64))
