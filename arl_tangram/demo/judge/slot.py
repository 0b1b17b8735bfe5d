"""A slot of the static placement: one service at a time, another only when nobody has or wants the first any more."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Slot:
    """Lets in those who use the service that the slot has, and the others when that one's queue is empty.

    Then the slot goes to the service that somebody has waited for longest, and all who wait for that one are let in.
    """

    def __init__(self) -> None:
        self._service: str | None = None
        self._inside = 0
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def turn(self, service: str) -> AsyncGenerator[None]:
        """Wait until the slot has the service, and keep it there; cancelling gives up the turn."""
        await self._enter(service)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, service: str) -> None:
        if not self._inside or service == self._service:
            self._service = service
            self._inside += 1
            return
        let_in: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((service, let_in))
        try:
            await let_in
        except asyncio.CancelledError:
            if not let_in.cancelled():  # it was let in, and cancelled before it could go on
                self._leave()
            raise

    def _leave(self) -> None:
        self._inside -= 1
        waiting = [(service, let_in) for service, let_in in self._waiting if not let_in.done()]
        if self._inside or not waiting:
            return
        self._service = waiting[0][0]
        for service, let_in in waiting:
            if service == self._service:
                self._inside += 1
                let_in.set_result(None)
        self._waiting = deque((service, let_in) for service, let_in in waiting if not let_in.done())
