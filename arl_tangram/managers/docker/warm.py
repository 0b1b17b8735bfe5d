"""Keeps sandboxes of the pool's image ready, so that a trajectory need not wait for one to start."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from arl_tangram.errors import InfrastructureError, SandboxLostError
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.uninterrupted import unstoppable

RETRIES_S = (1.0, 5.0, 30.0)

_logger = logging.getLogger(__name__)


class WarmPool:
    """Sandboxes that nobody owns yet.

    Args:
        size: how many are kept.
        create: creates one, behind those that trajectories wait for.
        has_room: whether there may be one more sandbox now.
    """

    def __init__(
        self, size: int, *, create: Callable[[], Awaitable[DockerSandbox]], has_room: Callable[[], bool]
    ) -> None:
        self._size = size
        self._create = create
        self._has_room = has_room
        self._ready: deque[DockerSandbox] = deque()
        self._filling: asyncio.Task[None] | None = None
        self._discarding: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    def take(self) -> DockerSandbox | None:
        """Return one that is ready, if there is any; another one takes its place."""
        sandbox: DockerSandbox | None = None
        while self._ready and sandbox is None:
            first = self._ready.popleft()
            if first.is_usable:
                sandbox = first
            else:
                self._discard(first)
        self.refill()
        return sandbox

    def give_up(self) -> DockerSandbox | None:
        """Return one that is ready, if there is any, which makes room for something else."""
        return self._ready.popleft() if self._ready else None

    def on_lost(self, sandbox: DockerSandbox) -> None:
        """Remove one that has died, if it is one of these: nobody else does; what closes it has another one made."""
        if sandbox in self._ready:
            self._ready.remove(sandbox)
            self._discard(sandbox)

    def refill(self) -> None:
        """See to it that there are enough, in the background."""
        if self._closed or (self._filling is not None and not self._filling.done()):
            return
        if self._lacks():
            self._filling = asyncio.get_running_loop().create_task(self._fill())

    def _lacks(self) -> bool:
        return len(self._ready) < self._size and self._has_room()

    async def _fill(self) -> None:
        retries = iter(RETRIES_S)
        while self._lacks():
            try:
                self._keep(await self._create())
                retries = iter(RETRIES_S)
            except InfrastructureError as error:
                pause_s = next(retries, RETRIES_S[-1])
                _logger.warning("a sandbox could not be started ahead, and will be in %g s: %s", pause_s, error)
                await asyncio.sleep(pause_s)

    def _keep(self, sandbox: DockerSandbox) -> None:
        if not sandbox.is_usable:  # it died when it was not among the ready ones yet
            self._discard(sandbox)
            raise SandboxLostError(f"sandbox {sandbox.id} died as soon as it was ready")
        self._ready.append(sandbox)

    def _discard(self, sandbox: DockerSandbox) -> None:
        """Close one that is dead, in the background: until then, it counts as one of the sandboxes."""
        closing = unstoppable(sandbox.aclose())
        self._discarding.add(closing)
        closing.add_done_callback(self._discarded)

    def _discarded(self, closing: asyncio.Task[None]) -> None:
        self._discarding.discard(closing)
        if not closing.cancelled() and (error := closing.exception()) is not None:
            _logger.error("a sandbox that died before it was used could not be closed: %r", error)

    async def aclose(self) -> None:
        """Start no more; those that are ready belong to the node, which closes them."""
        self._closed = True
        if self._filling is not None:
            self._filling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._filling
        self._ready.clear()
        if self._discarding:
            await asyncio.wait(set(self._discarding))
