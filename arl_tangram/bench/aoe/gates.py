"""What `bench aoe` promises: arithmetic on its figures. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from arl_tangram.bench.aoe.grants import GrantTimes
from arl_tangram.bench.aoe.overhead import Pooled
from arl_tangram.bench.aoe.plan import DEFAULT, MEDIUM_S, SHORT_S
from arl_tangram.bench.gates import Gate

MOST_SHARE = ((MEDIUM_S, 0.03), (SHORT_S, 0.10))
MOST_OF_API = 1 / 100


def gates(cells: Sequence[Pooled], times: Sequence[GrantTimes]) -> list[Gate]:
    """Return the promises; those that could not be measured here say so."""
    found = [_share(cells, command_s, most) for command_s, most in MOST_SHARE]
    return [*found, _grant(times)]


def _share(cells: Iterable[Pooled], command_s: float, most: float) -> Gate:
    """Judge by the overhead as it is defined; the clock beside it counts the start of the program, too."""
    own = [
        (one.share, f"{one.cell.live} live")
        for one in cells
        if one.cell.mode == DEFAULT and one.cell.command_s == command_s
    ]
    return Gate(
        f"overhead share of {DEFAULT.name} at most {most:.0%} for commands of {command_s:g} s",
        most,
        *(max(own) if own else (None, "direct grants are not possible here")),
    )


def _grant(times: Iterable[GrantTimes]) -> Gate:
    medians = {one.grants: one.median_s for one in times}
    promise = f"a direct grant costs at most 1/{1 / MOST_OF_API:g} of one through the API"
    if len(medians) < 2:
        return Gate(promise, MOST_OF_API, None, "one of the two is not possible here")
    ratio = medians["direct"] / medians["api"]
    return Gate(promise, MOST_OF_API, ratio, f"medians, {1 / ratio:,.0f} times cheaper")
