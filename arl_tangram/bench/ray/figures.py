"""What `bench ray` has measured: values, and arithmetic on them. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

BARE = "a bare actor call"
SHARED = "an action of a shared runtime"
CONTENDERS = (BARE, SHARED)


@dataclass(frozen=True, slots=True)
class Span:
    """When one client was busy, on the clock of the machine.

    Attributes:
        began_s: when its first call was made.
        ended_s: when its last one had returned.
        calls: how many there were.
    """

    began_s: float
    ended_s: float
    calls: int


@dataclass(frozen=True, slots=True)
class Round:
    """What one contender did in one round with some clients.

    Attributes:
        name: of the contender.
        clients: how many processes there were.
        p50_ms: of all calls, each client one after the other.
        p99_ms: the same.
        per_s: calls per second of all clients together, each with many in flight.
    """

    name: str
    clients: int
    p50_ms: float
    p99_ms: float
    per_s: float


class Row(NamedTuple):
    """The medians over the rounds of one contender with some clients."""

    name: str
    clients: int
    p50_ms: float
    p99_ms: float
    per_s: float


def round_of(name: str, clients: int, latencies_s: Sequence[float], spans: Sequence[Span]) -> Round:
    """Put together what the clients have measured."""
    ordered = sorted(latencies_s)
    wall_s = max(span.ended_s for span in spans) - min(span.began_s for span in spans)
    return Round(
        name, clients, share_of(ordered, 0.5) * 1e3, share_of(ordered, 0.99) * 1e3, sum(s.calls for s in spans) / wall_s
    )


def share_of(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least such a share of all is not above."""
    return ordered[max(math.ceil(len(ordered) * share) - 1, 0)]


def rows(rounds: Sequence[Round]) -> tuple[Row, ...]:
    """Return the medians, in the order in which they were measured first."""
    kinds = dict.fromkeys((one.name, one.clients) for one in rounds)
    found: list[Row] = []
    for name, clients in kinds:
        same = [one for one in rounds if (one.name, one.clients) == (name, clients)]
        p50_ms, p99_ms, per_s = (median(getattr(one, what) for one in same) for what in ("p50_ms", "p99_ms", "per_s"))
        found.append(Row(name, clients, p50_ms, p99_ms, per_s))
    return tuple(found)
