"""How much memory of its devices a server has given up, measured from outside: what it says is not enough.

Only the memory of a whole device can be measured everywhere (process numbers inside a container are not those of the
driver), so that engines which share a device take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

MemoryOf = Callable[[str], int]  # the bytes that are free on the device with this name

_logger = logging.getLogger(__name__)

_STEP_S = 0.05
# Drivers round, and other processes allocate a little: what is missing of the expectation without being a lie.
_TOLERATED = 0.1

# What engines have taken of devices since they were first measured, each in its turns.
_taken: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, WeakKeyDictionary[Meter, int]]] = WeakKeyDictionary()
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]] = WeakKeyDictionary()


@contextlib.asynccontextmanager
async def turn(devices: Sequence[str]) -> AsyncGenerator[None]:
    """Wait until no other engine changes what it holds on these devices."""
    locks = _turns.setdefault(asyncio.get_running_loop(), {})
    async with contextlib.AsyncExitStack() as stack:
        for name in sorted(devices):  # all in one order, so that no two wait for each other
            await stack.enter_async_context(locks.setdefault(name, asyncio.Lock()))
        yield


class Meter:
    """Measures what an engine gives up on each of its devices, whatever others do there between its turns.

    Args:
        devices: their names.
        memory_of: what is free on one; may block. While it raises, nothing can be measured: without a word if it raises
            `OSError`, else a warning is logged, once. None if nothing can be measured.
    """

    def __init__(self, devices: Sequence[str], memory_of: MemoryOf | None) -> None:
        self._devices = tuple(devices)
        self._memory_of = memory_of
        self._limiter = anyio.CapacityLimiter(1)
        self._has_warned = False

    @property
    def measures(self) -> bool:
        """Whether anything can be measured."""
        return self._memory_of is not None

    async def free(self) -> tuple[int, ...] | None:
        """Return what would be free on each device, had no other engine changed what it has there.

        So what is measured now can be compared with what was measured in another turn. None if it cannot be measured.
        """
        measured = await self._measured()
        if measured is None:
            return None
        return tuple(free + self._of_others(name) for name, free in zip(self._devices, measured, strict=True))

    async def changed(self, before: tuple[int, ...] | None) -> None:
        """Keep, for others, what this engine has taken of its devices, or given up, in its turn that ends.

        Args:
            before: what was free when the turn began.
        """
        now = await self.free()
        if before is None or now is None:
            return
        for name, was, free in zip(self._devices, before, now, strict=True):
            taken = self._books(name)
            taken[self] = taken.get(self, 0) + was - free

    def ended(self) -> None:
        """All of this engine has ended between its turns, and it was first measured before it began."""
        for name in self._devices:
            self._books(name).pop(self, None)

    def _of_others(self, name: str) -> int:
        return sum(size for meter, size in self._books(name).items() if meter is not self)

    def _books(self, name: str) -> WeakKeyDictionary[Meter, int]:
        return _taken.setdefault(asyncio.get_running_loop(), {}).setdefault(name, WeakKeyDictionary())

    async def _measured(self) -> tuple[int, ...] | None:
        memory_of = self._memory_of
        if memory_of is None:
            return None

        def measured() -> tuple[int, ...] | None:
            try:
                return tuple(int(memory_of(name)) for name in self._devices)
            except OSError:
                return None
            except Exception as error:
                if not self._has_warned:
                    self._has_warned = True
                    _logger.warning("the memory of %s cannot be measured", ", ".join(self._devices), exc_info=error)
                return None

        return await anyio.to_thread.run_sync(measured, limiter=self._limiter)

    async def freed(self, before: tuple[int, ...] | None, expected: int, limit_s: float) -> tuple[int, int] | None:
        """Wait until as much has become free as was expected of each device, or the time is up.

        Args:
            before: what was free.
            expected: bytes of each device.
            limit_s: how long to wait; servers answer before the driver has all of it.

        Returns:
            The least and the most that a device has now more than before; None if it could not be measured.
        """
        if before is None:
            return None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        while True:
            now = await self.free()
            if now is None:
                return None
            more = [b - a for a, b in zip(before, now, strict=True)]
            if min(more) >= enough(expected) or loop.time() >= deadline:
                return min(more), max(more)
            await asyncio.sleep(_STEP_S)  # there is no event for memory that becomes free


def enough(expected: int) -> int:
    """Return what must have become free of what was expected, for the expectation to count as met."""
    return expected - int(expected * _TOLERATED)
