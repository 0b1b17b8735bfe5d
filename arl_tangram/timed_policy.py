"""A policy of the user's own that holds up the event loop fails, instead of going on unnoticed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from arl_tangram.model.sharing import SharePolicy, Sharer
from arl_tangram.scheduling.policies.own import Own
from arl_tangram.scheduling.policy import Plan, Policy

T = TypeVar("T")

_MOST_PLANNING_S = 1.0
_OURS = "arl_tangram.scheduling"


def watched(policy: Policy) -> Policy:
    """Return a policy that fails if it holds up the event loop; the library's own do not, and are not timed."""
    ours = type(policy).__module__.startswith(_OURS) and not isinstance(policy, Own)
    return policy if ours else Timed(policy)


def watched_share(policy: SharePolicy) -> SharePolicy:
    """Return how running actions share their cores, failing if it holds up the event loop; see `watched`."""
    return policy if type(policy).__module__.startswith(_OURS) else TimedShare(policy)


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

        return lambda group: _in_time(lambda: plan(group), self.most_s)


@dataclass(frozen=True, slots=True)
class TimedShare:
    """A policy for running actions that fails if it holds up the event loop.

    Attributes:
        policy: what decides.
        most_s: seconds that it may take to answer one question.
    """

    policy: SharePolicy
    most_s: float = _MOST_PLANNING_S

    @property
    def name(self) -> str:
        """Its name."""
        return self.policy.name

    def rank(self, sharer: Sharer) -> float:
        """Return its rank, timed."""
        return _in_time(lambda: self.policy.rank(sharer), self.most_s)

    def next_s(self, sharer: Sharer) -> float:
        """Return when that is to be asked for again, timed."""
        return _in_time(lambda: self.policy.next_s(sharer), self.most_s)

    def share(self, sharers: Sequence[Sharer], cores: int, present: int) -> Sequence[int]:
        """Return its shares, timed."""
        return _in_time(lambda: self.policy.share(sharers, cores, present), self.most_s)


def _in_time(ask: Callable[[], T], most_s: float) -> T:
    """Return what was asked for.

    Raises:
        TimeoutError: it came too late.
    """
    started_s = time.perf_counter()
    answer = ask()
    took_s = time.perf_counter() - started_s
    if took_s > most_s:
        raise TimeoutError(f"planned for {took_s:.3f} s; {most_s:g} s are the most")
    return answer
