"""What a server takes of its devices, and whether all of that is free again when it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Sequence

from arl_tangram.model.quantities import GIB
from arl_tangram.services.servers.memory import MemoryOf, Meter, enough, turn

_logger = logging.getLogger(__name__)

_DRIVER_S = 60.0  # after so long a driver has taken back all of a process that is gone


class ServerMemory:
    """The memory of one server, measured from outside; nothing is done where it cannot be.

    What others take meanwhile cannot be told apart from what it keeps. So no more is asked for than it was given, and
    not for ever.

    Args:
        devices: the names of its devices.
        memory_of: what is free on one of them; None if it cannot be measured.
        most: bytes of each device that it was given.
    """

    def __init__(self, devices: Sequence[str], memory_of: MemoryOf | None, *, most: int) -> None:
        self._devices = tuple(devices)
        self._most = most
        self._meter = Meter(devices, memory_of)
        self._before: tuple[int, ...] | None = None
        self._taken: int | None = None
        self._at_end: tuple[int, ...] | None = None
        self._is_lost = False
        self._is_over = False
        self._gone_at_s: float | None = None

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
                if self._is_over:
                    self._meter.ended()

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
        """Wait for its memory, now that all its processes are gone; say what is missing if it does not become free.

        In the turn in which it has ended, or later. What is missing long after is not its own: a warning is logged.

        Args:
            limit_s: how long a driver may take for it since the processes were found gone.
        """
        missing = await self._still_missing(self._taken, limit_s) if self._taken else None
        self._is_over = missing is None
        return missing

    async def lost(self, limit_s: float) -> str | None:
        """It has died between its turns, and all its processes are gone; as `left`, measured from before it began."""
        self._is_lost = True
        missing = await self.left(limit_s)
        if missing is None:
            self._meter.ended()
        return missing

    async def _still_missing(self, taken: int, limit_s: float) -> str | None:
        loop = asyncio.get_running_loop()
        if self._gone_at_s is None:
            self._gone_at_s = loop.time()
        missing = await self._missing(taken, max(0.0, self._gone_at_s + limit_s - loop.time()))
        if missing is None or loop.time() - self._gone_at_s < _DRIVER_S:
            return missing
        _logger.warning("%s; its room is given away, as others must have taken that", missing)
        return None

    async def _missing(self, taken: int, limit_s: float) -> str | None:
        where = ", ".join(self._devices)
        if self._is_lost:  # nobody knows what was free when it ended
            more = await self._meter.freed(self._before, enough(taken) - taken, limit_s)
            if more is None or more[0] >= enough(taken) - taken:
                return None
            return (
                f"its server has died, and {-more[0] / GIB:.2f} GiB of {where} are not free that were before it began"
            )
        freed = await self._meter.freed(self._at_end, taken, limit_s)
        if freed is None or freed[0] >= enough(taken):
            return None
        # It may have given up some by itself, or have died long before; then all is as it was before it began.
        more = await self._meter.freed(self._before, 0, 0.0)
        if more is None or more[0] >= enough(taken) - taken:
            return None
        return f"its server has ended, and {freed[0] / GIB:.2f} GiB of {where} became free instead of {taken / GIB:.2f}"

    async def _taken_by_now(self) -> int | None:
        now = await self._meter.free()
        if now is None or self._before is None:
            return None
        return min(self._most, max(0, min([was - free for was, free in zip(self._before, now, strict=True)])))
