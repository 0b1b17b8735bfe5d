"""What a server takes of its devices, and whether all of that is free again when it has ended."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence

from arl_tangram.model.quantities import GIB
from arl_tangram.services.servers.memory import MemoryOf, Meter, enough, turn


class ServerMemory:
    """The memory of one server, measured from outside; nothing is done where it cannot be.

    Args:
        devices: the names of its devices.
        memory_of: what is free on one of them; None if it cannot be measured.
    """

    def __init__(self, devices: Sequence[str], memory_of: MemoryOf | None) -> None:
        self._devices = tuple(devices)
        self._meter = Meter(devices, memory_of)
        self._before: tuple[int, ...] | None = None
        self._taken: int | None = None
        self._at_end: tuple[int, ...] | None = None

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Wait until no other server changes what it holds on these devices, and keep for others what this one does."""
        if not self._meter.measures:
            yield
            return
        async with turn(self._devices):
            before = await self._meter.free()
            if self._before is None:
                self._before = before
            try:
                yield
            finally:
                await self._meter.changed(before)

    async def is_up(self) -> None:
        """It has started, in its first turn: what it has taken by now is what has to be free after its end."""
        self._taken = await self._taken_by_now()

    async def ends(self) -> None:
        """It is to be ended, in its turn."""
        if self._at_end is None:
            self._at_end = await self._meter.free()
        if self._taken is None:
            self._taken = await self._taken_by_now()

    async def left(self, limit_s: float) -> str | None:
        """Wait for its memory, in the turn in which it has ended; say what is missing if it does not become free.

        Args:
            limit_s: how long to wait; a driver may take back memory later than the process goes.
        """
        if self._taken is None:
            return None
        freed = await self._meter.freed(self._at_end, self._taken, limit_s)
        if freed is None or freed[0] >= enough(self._taken):
            return None
        # It may have given up some by itself, or have died long before; then all is as it was before it began.
        more = await self._meter.freed(self._before, 0, 0.0)
        if more is None or more[0] >= enough(self._taken) - self._taken:
            return None
        return (
            f"its server has ended, and {freed[0] / GIB:.2f} GiB of {', '.join(self._devices)} became free "
            f"instead of {self._taken / GIB:.2f}"
        )

    def lost(self) -> None:
        """It has died between its turns."""
        self._meter.ended()

    async def _taken_by_now(self) -> int | None:
        now = await self._meter.free()
        if now is None or self._before is None:
            return None
        return max(0, min([was - free for was, free in zip(self._before, now, strict=True)]))
