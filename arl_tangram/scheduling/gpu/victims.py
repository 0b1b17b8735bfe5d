"""Where an instance goes, and what goes for it: the chunk and the victim set that are expected to cost least.

A place costs the expected duration there, the restore, and the values of the victims (see `eviction`), which are the
least set that makes room there (see `covering`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from arl_tangram.model.gpu import Chunk, Instance
from arl_tangram.scheduling.gpu.covering import Room, everything, least
from arl_tangram.scheduling.gpu.eviction import Values


@dataclass(frozen=True, slots=True)
class Wish:
    """What could be placed, and where.

    Attributes:
        instance: a service at one dop; None for a body that wants devices for itself.
        chunks: where it could be; `victims` rules out those without room.
        more_bytes: what it takes on each device beyond what it has there already; None for all that there is.
        cost_s: expected seconds of the action there, with the restore.
    """

    instance: Instance | None
    chunks: Sequence[Chunk]
    more_bytes: int | None
    cost_s: float


class Placing(NamedTuple):
    """A wish at one chunk.

    Attributes:
        chunk: where.
        instance: what; None for a body.
        victims: what goes for it, the least valuable first.
        cost_s: expected seconds of the action with the restore, and the seconds lost by evicting if values are seconds.
        value: what the victims are worth.
    """

    chunk: Chunk
    instance: Instance | None
    victims: tuple[Instance, ...]
    cost_s: float
    value: float


class PlaceSearch:
    """Looks for places in the room that there is at one moment; values are worked out once for all wishes.

    Args:
        room: the devices; not to change during the search.
        values: what residents are worth.
        upcoming: the services of the requests that wait, as `Values.values` wants them.
    """

    __slots__ = ("_in_seconds", "_room", "_worth")

    def __init__(self, room: Room, values: Values, upcoming: Sequence[str]) -> None:
        self._room = room
        self._in_seconds = values.in_seconds
        residents = list({resident.instance: resident for on_device in room.idle for resident in on_device}.values())
        worth = values.values(residents, upcoming)
        self._worth = {resident.instance: value for resident, value in zip(residents, worth, strict=True)}

    def best(self, wishes: Iterable[Wish]) -> Placing | None:
        """Return where it costs least to fulfil one of these wishes; None if there is no room for any.

        Of places that cost the same, one with few neighbours in use is taken, and then the one with the least bytes
        free.
        """
        best: Placing | None = None
        best_key: tuple[float, float, int, int] | None = None
        for wish in sorted(wishes, key=lambda wish: wish.cost_s):
            # Places where nothing has to go come first: they show at once how little the others may cost.
            for chunk in sorted(wish.chunks, key=lambda chunk: not self._fits(wish, chunk)):
                if best is not None and not self._can_be_better(wish, chunk, best):
                    continue
                limit = inf if best is None else self._limit(wish, best)
                placing = self._place(wish, chunk, limit)
                if placing is not None:
                    key = (placing.cost_s, placing.value, *self._crowd(chunk))
                    if best_key is None or key < best_key:
                        best, best_key = placing, key
        return best

    def everywhere(self, wishes: Iterable[Wish]) -> dict[Chunk, Placing]:
        """Return, for each chunk with room, the wish that costs least there."""
        found: dict[Chunk, Placing] = {}
        for wish in wishes:
            for chunk in wish.chunks:
                placing = self._place(wish, chunk, inf)
                if placing is not None and (chunk not in found or placing.cost_s < found[chunk].cost_s):
                    found[chunk] = placing
        return found

    def _place(self, wish: Wish, chunk: Chunk, limit: float) -> Placing | None:
        if wish.more_bytes is None:
            victims = everything(chunk, self._room, self._worth)
        else:
            victims = least(chunk, wish.more_bytes, self._room, self._worth, limit)
        if victims is None:
            return None
        cost_s = wish.cost_s + victims.value if self._in_seconds else wish.cost_s
        return Placing(chunk, wish.instance, victims.instances, cost_s, victims.value)

    def _fits(self, wish: Wish, chunk: Chunk) -> bool:
        if wish.more_bytes is None:
            return False
        room, more = self._room, wish.more_bytes
        return all(room.used[device] + more <= room.capacity[device] for device in chunk.devices)

    def _can_be_better(self, wish: Wish, chunk: Chunk, best: Placing) -> bool:
        """Whether a wish may cost less at a chunk than the best place so far, or as much where nothing goes either."""
        if wish.cost_s < best.cost_s:
            return True
        return wish.cost_s == best.cost_s and (best.value > 0 or self._fits(wish, chunk))

    def _limit(self, wish: Wish, best: Placing) -> float:
        """Return the most that victims may be worth for this wish to be as good as the best place so far."""
        if self._in_seconds:
            return best.cost_s - wish.cost_s
        return best.value if wish.cost_s == best.cost_s else inf

    def _crowd(self, chunk: Chunk) -> tuple[int, int]:
        room = self._room
        devices = chunk.devices
        return max([room.held[d] for d in devices]), sum([room.capacity[d] - room.used[d] for d in devices])
