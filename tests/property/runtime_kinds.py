"""What the calls of the model-based test ask for, how they are declared, and what their bodies do.

All amounts and times are multiples of 1/8, so that sums of floats are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from arl_tangram import Amdahl, Breaker, Elastic, Quota, RunTimeout

SLOW_S = 0.5
"""Seconds that a slow body takes to end after it was cancelled."""


BREAKER = "shaky"
"""The quota that has a breaker."""
FAILURES = 3
PAUSE_S = 2.0


class OwnError(Exception):
    """What a body raises."""


@dataclass(frozen=True)
class Limit:
    """One limit of a quota, and of each of its keys.

    Attributes:
        dimension: its name in the statistics, with `{key}` where the key goes.
        most: units.
        window_s: None for concurrency, infinite for a total.
        counts: "calls" or "tokens".
    """

    dimension: str
    most: float
    window_s: float | None
    counts: str = "calls"


LIMITS = {
    "windows": (
        Limit("quota:windows/calls/1s", 3, 1.0),
        Limit("quota:windows/calls/4s", 8, 4.0),
        Limit("quota:windows/concurrency", 2, None),
    ),
    "tokens": (Limit("quota:tokens/tokens", 100, 2.0, "tokens"), Limit("quota:tokens/calls/total", 400, math.inf)),
    "keys": (Limit("quota:keys{key}/calls", 4, 0.5), Limit("quota:keys{key}/concurrency", 2, None)),
    "total": (Limit("quota:total/calls/total", 30, math.inf), Limit("quota:total/concurrency", 3, None)),
    BREAKER: (Limit(f"quota:{BREAKER}/concurrency", 3, None),),
}
KEYS = ("one", "two")


def quotas() -> tuple[Quota, ...]:
    """Return quotas with those limits."""
    return (
        Quota("windows", calls=[(3, 1.0), (8, 4.0)], concurrency=2),
        Quota("tokens", tokens=100, period_s=2.0, total_calls=400),
        Quota("keys", calls=4, period_s=0.5, concurrency=2, keys=KEYS),
        Quota("total", total_calls=30, concurrency=3),
        Quota(BREAKER, concurrency=3, breaker=Breaker(failures=FAILURES, pause_s=PAUSE_S)),
    )


@dataclass(frozen=True)
class Kind:
    """A cost, and how the body runs.

    Attributes:
        cpu: cores.
        memory_gib: GiB.
        quota: calls and tokens by quota.
        thread: whether the body runs on a thread.
    """

    cpu: float | Elastic = 0
    memory_gib: float = 0
    quota: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    thread: bool = False

    @property
    def options(self) -> tuple[float, ...]:
        """The numbers of cores that it may get."""
        if isinstance(self.cpu, Elastic):
            return tuple(map(float, self.cpu.options))
        return (float(self.cpu),) if self.cpu else ()


KINDS = (
    Kind(),
    Kind(cpu=1),
    Kind(cpu=3),
    Kind(cpu=0.25),
    Kind(cpu=Elastic(1, 4)),
    Kind(cpu=Elastic.of(2, 4, speedup=Amdahl(0.5))),
    Kind(cpu=1, memory_gib=1.5),
    Kind(memory_gib=0.5),
    Kind(thread=True),
    Kind(thread=True, cpu=1),
    Kind(thread=True, cpu=0.5, memory_gib=0.25, quota={"total": (1, 0)}),
    Kind(quota={"windows": (1, 0)}),
    Kind(cpu=Elastic(1, 8), memory_gib=0.25, quota={"windows": (1, 0)}),
    Kind(quota={"tokens": (1, 30)}),
    Kind(cpu=1, quota={"tokens": (1, 10), "keys": (1, 0)}),
    Kind(quota={"keys": (1, 0)}),
    Kind(quota={"total": (1, 0)}),
    Kind(quota={"total": (0.5, 0), "windows": (0.5, 0)}),
    Kind(quota={BREAKER: (1, 0)}),
    Kind(quota={BREAKER: (1, 0), "windows": (0.5, 0)}),
)
CHILDREN = [number for number, kind in enumerate(KINDS) if BREAKER not in kind.quota]
"""Those that bodies call. For a call of a body, the account could not tell the order in which calls of it end."""


@dataclass(frozen=True)
class Options:
    """How a call is declared, besides its cost."""

    priority: int = 0
    timeout: float | None = None
    queue_timeout: float | None = None
    retries: int = 0
    retry_on: tuple[type[Exception], ...] = (OwnError, RunTimeout)


@dataclass(frozen=True)
class Script:
    """What a body does.

    Attributes:
        for_s: how long it works.
        end: "return"; "raise"; "rude", which raises `CancelledError` by itself; or what it does when it is cancelled:
            "slow" takes its time, "deaf" goes on, "swallow" returns.
        retry_after_s: what it says to its quotas when it begins, or None.
        settle: calls and tokens that it used in truth, each as a part of what it was granted, or None.
        children: what it calls after its work.
        together: whether it calls them all at once.
        fails: how many attempts raise, before one does what `end` says.
    """

    for_s: float = 0.0
    end: str = "return"
    retry_after_s: float | None = None
    settle: tuple[float, float] | None = None
    children: tuple[tuple[int, Options, Script], ...] = ()
    together: bool = False
    fails: int = 0
