"""An event loop on a thread of its own, for programs that have none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from arl_tangram.doorway import Doorway


class LoopThread:
    """An event loop on a thread of its own.

    Args:
        closing: is awaited at the end.
    """

    def __init__(self, closing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._closing = closing
        self._doorway: concurrent.futures.Future[Doorway] = concurrent.futures.Future()
        self._stop: concurrent.futures.Future[None] = concurrent.futures.Future()
        # A daemon, so that a program which is forced to leave does not wait for it.
        self._thread = threading.Thread(target=self._run, name="arl_tangram loop", daemon=True)

    def start(self) -> Doorway:
        """Start it, and return the way onto it."""
        self._thread.start()
        return self._doorway.result()

    def stop(self, limit_s: float | None = None) -> None:
        """End it, and wait for its end, for at most so many seconds."""
        if not self._stop.done():
            self._stop.set_result(None)
        if self._thread.ident is not None:
            self._thread.join(limit_s)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        doorway = Doorway(asyncio.get_running_loop())
        self._doorway.set_result(doorway)
        await asyncio.wrap_future(self._stop)
        with suppress(Exception):  # told to whoever has closed it before
            await self._closing()
        await doorway.aclose()
