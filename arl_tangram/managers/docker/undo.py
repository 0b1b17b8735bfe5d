"""Makes sure that what was begun and given up leaves no container behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.uninterrupted import settled, unstoppable

PAUSES_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
FOREGROUND_S = 10.0  # how long a cancelled caller is kept waiting; what then remains is done behind its back

T = TypeVar("T")


class Undo:
    """Removals, by name, of containers whose creation or start was given up."""

    def __init__(self, remove: Callable[[str], Coroutine[Any, Any, bool]]) -> None:
        """Take what removes a container; it tells whether there was one, and raises DaemonError if it could not."""
        self._remove = remove
        self._pending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def all_or_nothing(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Do something that makes a container or starts one; if that is cancelled or its outcome not known, remove it.

        A cancelled caller waits until the container is gone, for 10 s at most.
        """
        call = unstoppable(work)
        try:
            await asyncio.wait([call])
        except asyncio.CancelledError:
            undoing = self._begin(name, call)
            await settled(asyncio.ensure_future(asyncio.wait([undoing], timeout=FOREGROUND_S)))
            raise
        try:
            return call.result()
        except DaemonError as error:
            if error.kind != "refused":
                _ = self._begin(name, call)
            raise

    async def aclose(self, timeout_s: float) -> None:
        """Wait for the removals that are under way, for so long, and give up those that are left."""
        if self._pending:
            await asyncio.wait(set(self._pending), timeout=timeout_s)
        self._is_closed = True

    async def settled(self) -> None:
        """Wait until no removal is left, once the connection is closed."""
        while self._pending:
            await asyncio.wait(set(self._pending))

    def _begin(self, name: str, call: asyncio.Task[Any]) -> asyncio.Task[None]:
        task = unstoppable(self._undo(name, call))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    async def _undo(self, name: str, call: asyncio.Task[Any]) -> None:
        await asyncio.wait([call])  # it has a deadline; the answer tells most
        error = call.exception()
        if isinstance(error, DaemonError) and error.kind == "refused":
            return
        for pause_s in PAUSES_S:
            if self._is_closed:
                return
            if pause_s:
                await asyncio.sleep(pause_s)
            try:
                if await self._remove(name) or error is None:
                    return
            except DaemonError:
                continue  # it may be able to later
