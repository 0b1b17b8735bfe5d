"""What `bench ray` promises: arithmetic on its rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from arl_tangram.bench.gates import Gate
from arl_tangram.bench.ray.figures import BARE, SHARED, Row

MOST_OF_ROUND_TRIP = 1.5
LEAST_OF_ONE_BY_ONE = 3.0
ONE_CLIENT = 1
MANY_CLIENTS = 16


def gates(rows: Sequence[Row]) -> list[Gate]:
    """Return the promises; one whose clients were not measured has no value."""
    known = {(row.name, row.clients): row for row in rows}
    shared, bare = known.get((SHARED, ONE_CLIENT)), known.get((BARE, ONE_CLIENT))
    many, many_bare = known.get((SHARED, MANY_CLIENTS)), known.get((BARE, MANY_CLIENTS))
    return [
        Gate(
            f"with one client, an action takes at most {MOST_OF_ROUND_TRIP:g} times as long as {BARE}, p50",
            MOST_OF_ROUND_TRIP,
            None if shared is None or bare is None else shared.p50_ms / bare.p50_ms,
            "not measured" if shared is None or bare is None else f"{shared.p50_ms:.2f} ms beside {bare.p50_ms:.2f} ms",
        ),
        Gate(
            f"with {MANY_CLIENTS} clients, at most 1/{LEAST_OF_ONE_BY_ONE:g} of the time for each of many at once",
            1 / LEAST_OF_ONE_BY_ONE,
            None if many is None or many_bare is None else many_bare.per_s / many.per_s,
            "not measured"
            if many is None or many_bare is None
            else f"{many.per_s:,.0f} per second beside {many_bare.per_s:,.0f}",
        ),
    ]
