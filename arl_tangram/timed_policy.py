"""A policy of the user's own that holds up the event loop fails, instead of going on unnoticed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from arl_tangram.scheduling.policies.own import Own
from arl_tangram.scheduling.policy import Group, Plan, Policy

_MOST_PLANNING_S = 1.0


def watched(policy: Policy) -> Policy:
    """Return a policy that fails if it holds up the event loop; the library's own do not, and are not timed."""
    ours = type(policy).__module__.startswith("arl_tangram.scheduling") and not isinstance(policy, Own)
    return policy if ours else Timed(policy)


@dataclass(frozen=True, slots=True)
class Timed:
    """A policy that fails if it holds up the event loop: nothing else runs while it plans.

    Attributes:
        policy: what plans.
        most_s: seconds that one plan may take.
    """

    policy: Policy
    most_s: float = _MOST_PLANNING_S

    @property
    def name(self) -> str:
        """Its name."""
        return self.policy.name

    @property
    def reserved_cores(self) -> int:
        """What it reserves."""
        return self.policy.reserved_cores

    def planner(self) -> Plan:
        """Return its planner, timed."""
        plan = self.policy.planner()

        def timed(group: Group) -> Sequence[int]:
            started_s = time.perf_counter()
            planned = plan(group)
            took_s = time.perf_counter() - started_s
            if took_s > self.most_s:
                raise TimeoutError(f"planned for {took_s:.3f} s; {self.most_s:g} s are the most")
            return planned

        return timed
