"""Hide what is free for sharers from the walk over the queue, as long as any of them has no cores."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from arl_tangram.scheduling.sharing.aside import QueueAside
from arl_tangram.scheduling.sharing.room import Room


class Hiding:
    """Keeps free cores from those that do not share them, but for what these are to find.

    Args:
        rooms: those of the nodes of one core object, by dimension.
        free: what is free of each dimension; less while it is hidden.
        queue: who waits.
        scale: integer units in a core.
    """

    def __init__(self, rooms: Mapping[int, Room], free: list[int], queue: QueueAside, scale: int) -> None:
        self._rooms = rooms
        self._free = free
        self._queue = queue
        self._scale = scale
        self._hidden: dict[int, int] = {}

    def units(self, cpu: int) -> int:
        """Return the units of a node that sharers have, and those that are hidden for them now."""
        return self._rooms[cpu].cores * self._scale + self._hidden.get(cpu, 0)

    @contextmanager
    def kept_from_others(self) -> Generator[None]:
        """Hide what is free for sharers."""
        if not self._queue.lanes:  # nobody looks
            yield
            return
        free, hidden = self._free, dict[int, int]()
        for room in self._rooms.values():
            if room.idle or self._queue.log:
                found = sum([units for action_id, units in room.made.items() if action_id in self._queue])
                hidden[room.cpu] = max(0, free[room.cpu] - found)
        seen = {cpu: free[cpu] for cpu in hidden}
        try:
            self._hidden = hidden
            for cpu, units in hidden.items():
                free[cpu] = seen[cpu] - units
            yield
        finally:
            self._hidden = {}
            for cpu, units in hidden.items():
                free[cpu] += units
