"""Makes sure that what was begun and given up leaves no container behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.uninterrupted import settled, unstoppable

PAUSES_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # before each attempt
FOREGROUND_S = 10.0  # how long a cancelled caller is kept waiting; what then remains is done behind its back

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class Undo:
    """Removals, by name, of containers whose creation or start was given up."""

    def __init__(self, remove: Callable[[str], Coroutine[Any, Any, bool]]) -> None:
        """Take what removes a container; it tells whether there was one, and raises DaemonError if it could not."""
        self._remove = remove
        self._pending: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Future[None] | None = None

    async def all_or_nothing(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Do something that makes a container or starts one; unless it succeeds or is refused, remove the container.

        A cancelled caller waits until the container is gone, for 10 s at most.

        Args:
            name: name or id of the container, which nobody else uses.
            work: what to do; it ends by a deadline of its own.
        """
        call = unstoppable(work)
        try:
            await asyncio.wait([call])
        except asyncio.CancelledError:
            undoing = self._begin(name, call)
            await settled(asyncio.ensure_future(asyncio.wait([undoing], timeout=FOREGROUND_S)))
            raise
        if _must_undo(call):
            _ = self._begin(name, call)
        return call.result()

    async def aclose(self, timeout_s: float) -> None:
        """Let the removals that are left try a last time, and wait for them, but not longer than this."""
        if not self._closed().done():
            self._closed().set_result(None)
        if self._pending:
            await asyncio.wait(set(self._pending), timeout=timeout_s)

    async def settled(self) -> None:
        """Wait until no removal is under way, which the end of the connection brings about."""
        while self._pending:
            await asyncio.wait(set(self._pending))

    def _begin(self, name: str, call: asyncio.Task[Any]) -> asyncio.Task[None]:
        task = unstoppable(self._undo(name, call))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    async def _undo(self, name: str, call: asyncio.Task[Any]) -> None:
        await asyncio.wait([call])
        is_known = call.exception() is None
        if not is_known and not _must_undo(call):
            return
        reason = ""
        for pause_s in PAUSES_S:
            is_last = self._closing is not None and self._closing.done()
            if not is_last and pause_s:
                await asyncio.wait([self._closed()], timeout=pause_s)
            try:
                if await self._remove(name) or is_known:
                    return
                reason = ""
            except DaemonError as error:
                reason = str(error)
            if is_last:
                break
        if reason:
            _logger.warning("container %s, which was given up, may be left behind: %s", name, reason)

    def _closed(self) -> asyncio.Future[None]:
        """Return what is done when this is being closed."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
        return self._closing


def _must_undo(call: asyncio.Task[Any]) -> bool:
    """Whether a call that has ended may have left a container."""
    error = call.exception()
    return error is not None and not (isinstance(error, DaemonError) and error.kind == "refused")
