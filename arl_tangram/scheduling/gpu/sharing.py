"""Share free devices out among several that have to be placed, so that the sum of what they take is least.

One alone takes what is best for it. Several that took, one after the other, what is best for each would leave the last
ones with nothing, or the first ones with more than it is worth. So chunks of what nobody uses are shared out by
`ChunkArrangement`, as many as fit in order of arrival.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arl_tangram.model.gpu import Chunk, Instance
from arl_tangram.scheduling.gpu.arrangement import ChunkArrangement
from arl_tangram.scheduling.gpu.places import Places
from arl_tangram.scheduling.gpu.request import SeatRequest
from arl_tangram.scheduling.gpu.residency import Residency

_MOST_PLACES = 64
"""Candidates times devices that are looked at together; in pools of more than half as many, each is placed alone."""


def shared_out(
    requests: Sequence[SeatRequest], places: Places, residency: Residency, now_s: float, upcoming: Sequence[str]
) -> dict[int, Chunk]:
    """Return the chunks for those who have to be placed, by position in `requests`; none if there are no two of them.

    Args:
        requests: who asks, in order.
        places: where they can be.
        residency: what is where.
        now_s: the time.
        upcoming: the services of those who wait behind them.
    """
    if len(requests) < 2:
        return {}
    most = _MOST_PLACES // max(1, len(residency.target))
    placed = _to_be_placed(requests, residency)[:most]
    if len(placed) < 2 or all(len(requests[position].dops) == 1 for position in placed):
        return {}
    search = places.search(upcoming)
    candidates: list[Mapping[Chunk, float]] = []
    for position in placed:
        found = search.everywhere(places.wishes(requests[position], now_s))
        candidates.append({chunk: placing.cost_s for chunk, placing in found.items()})
    arrangement = ChunkArrangement(candidates, places.chunks.free(frozenset(places.free_devices())))
    prefix = len(placed)
    while prefix and arrangement.cost_s(prefix) == float("inf"):
        prefix -= 1
    return dict(zip(placed, arrangement.chunks(prefix), strict=False)) if prefix > 1 else {}


def _to_be_placed(requests: Sequence[SeatRequest], residency: Residency) -> list[int]:
    """Return the positions of those who find no seat on what is there, or is placed for those before them."""
    seats: dict[str, int] = {}
    positions: list[int] = []
    for position, request in enumerate(requests):
        if request.service is None:
            positions.append(position)
            continue
        service = residency.services[request.service]
        if request.service not in seats:
            there = [residency.copies.get(Instance(service.name, dop)) for dop in service.dops]
            seats[request.service] = sum([copy.places - len(copy.sitting) for copy in there if copy is not None])
        if not seats[request.service]:
            positions.append(position)
            seats[request.service] = service.max_concurrency
        seats[request.service] -= 1
    return positions
