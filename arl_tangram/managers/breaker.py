"""Stop sending to a backend that fails again and again, and find out when it works again.

::

    closed ── `failures` in a row ──► open ── `pause_s` ──► probing ── a call succeeds ──► closed
                                                            ▲     └─── a call fails ────► down
                                                            └──────── `pause_s` ────────────┘

Closed, calls start as ever. Open, nothing starts: those who come wait. Probing, one call at a time starts, and the
others wait for how it ends. Down, nobody waits: those who do, and those who come, get `BackendDownError`.

A call that started before the last pause says nothing about the backend as it is now, so it counts for nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.quantities import seconds, whole

MOST_AT_ONCE = 1 << 30
"""Calls that a closed breaker lets start at once: more than there can be."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """When to stop sending to a backend, and for how long.

    Attributes:
        failures: failed calls in a row after which nothing is sent, from 1. A call fails if its body raises an
            `Exception`, runs into its `timeout`, or says `current_quota(name).failed()`.
        pause_s: seconds until one call is let through to see whether the backend works again, above 0.

    Raises:
        ConfigurationError: a value that is not possible.
    """

    failures: int = 5
    pause_s: float = 30.0

    def __post_init__(self) -> None:
        whole(self.failures, "Breaker: failures", ConfigurationError, least=1)
        seconds(self.pause_s, "Breaker: pause_s", ConfigurationError)


class BreakerState(StrEnum):
    """What a breaker does with calls."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"
    DOWN = "down"


class Circuit:
    """The state of one breaker, without a clock: what is counted, and what follows from it.

    Attributes:
        failed: failed calls in a row that counted.
        counts_from_s: calls that started before count for nothing.
    """

    __slots__ = ("_breaker", "_closed", "_down", "counts_from_s", "failed")

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self._closed = True
        self._down = False
        self.failed = 0
        self.counts_from_s = -math.inf

    def state(self, now_s: float) -> BreakerState:
        """Return what it does with calls now."""
        if self._closed:
            return BreakerState.CLOSED
        if now_s >= self.counts_from_s:
            return BreakerState.PROBING
        return BreakerState.DOWN if self._down else BreakerState.OPEN

    @property
    def is_closed(self) -> bool:
        """Whether all calls start."""
        return self._closed

    @property
    def is_down(self) -> bool:
        """Whether the last probe has failed."""
        return self._down

    def begin(self, failed: int, counts_from_s: float, *, down: bool) -> None:
        """Be what an earlier one was that was not closed."""
        self.failed, self.counts_from_s = failed, counts_from_s
        self._closed, self._down = False, down

    def count(self, started_at_s: float, now_s: float, *, failed: bool) -> bool:
        """Count how a call went that started then; return whether that changed the state."""
        if started_at_s < self.counts_from_s:
            return False
        if not failed:
            self.failed = 0
            was_closed, self._closed = self._closed, True
            return not was_closed
        self.failed += 1
        if self._closed and self.failed < self._breaker.failures:
            return False
        self._down = not self._closed
        self._closed = False
        self.counts_from_s = now_s + self._breaker.pause_s
        return True
