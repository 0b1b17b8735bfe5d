"""The processes that `bench ray` measures with: Ray actors that call an empty actor, or an empty action."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import arl_tangram as tangram
from arl_tangram.bench.ray.figures import BARE, Span
from arl_tangram.integrations.ray import Shared, connect
from arl_tangram.integrations.ray.installed import connected

SHARED_NAME = "bench"
ECHO = "bench-echo"
_QUOTA = "bench"
_NEVER_USED_UP = 1 << 30
_PAYLOAD = b"x" * 200
"""As large as what an action sends, so that the round trips are alike."""


def pools() -> tangram.Tangram:
    """Declare what is shared."""
    return tangram.Tangram(tangram.Quota(_QUOTA, concurrency=_NEVER_USED_UP))


@tangram.action(quota={_QUOTA: 1})
async def nothing() -> None:
    """Be the body of the action."""


class Echo:
    """The bare actor."""

    async def call(self, payload: bytes) -> bytes:
        """Return what came."""
        return payload


class Client:
    """A process that makes calls, in the one way and in the other."""

    def __init__(self) -> None:
        self._library = connected(start=False)
        self._shared: Shared | None = None

    async def open(self) -> None:
        """Connect to the shared runtime."""
        self._shared = await connect(SHARED_NAME).start()

    async def latencies(self, name: str, calls: int) -> list[float]:
        """Make so many calls one after the other; return the seconds that each took."""
        call = self._call(name)
        found: list[float] = []
        for _ in range(calls):
            began_s = time.perf_counter()
            await call()
            found.append(time.perf_counter() - began_s)
        return found

    async def busy(self, name: str, calls: int, in_flight: int) -> Span:
        """Make so many calls, as many at a time as may be in flight."""
        call, left = self._call(name), calls

        async def one_by_one() -> None:
            nonlocal left
            while left:
                left -= 1
                await call()

        began_s = time.monotonic()
        await asyncio.gather(*(one_by_one() for _ in range(in_flight)))
        return Span(began_s, time.monotonic(), calls)

    async def aclose(self) -> None:
        """Leave the shared runtime."""
        if self._shared is not None:
            await self._shared.aclose()

    def _call(self, name: str) -> Callable[[], Awaitable[object]]:
        if name != BARE:
            return nothing
        echo = self._library.find(ECHO)
        assert echo is not None
        return lambda: echo.call.remote(_PAYLOAD)
