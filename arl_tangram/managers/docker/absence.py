"""Whether a daemon is away, and waiting until it is back."""

from __future__ import annotations

import asyncio
import contextlib

from arl_tangram.errors import SandboxLostError

LIMIT_S = 30.0  # how long an action waits for a daemon that is being restarted
NOTICE_S = 0.5  # between the first request that fails and the news that the daemon is gone


class DaemonAwayError(SandboxLostError):
    """A daemon could not be reached, which says nothing of the sandbox yet."""


class Absence:
    """The absence of one daemon, as its watch tells it; made inside the event loop.

    Args:
        said: what the daemon is called in messages.
    """

    def __init__(self, said: str) -> None:
        self._said = said
        self._away = asyncio.Event()
        self._back = asyncio.Event()
        self._back.set()

    def begin(self) -> None:
        """Take note that the daemon is gone."""
        self._back.clear()
        self._away.set()

    def end(self) -> None:
        """Take note that the daemon is back."""
        self._away.clear()
        self._back.set()

    async def outlast(self, *, unheard: bool = False) -> None:
        """Wait while the daemon is away.

        Args:
            unheard: a request has just failed as if it were, so that its watch may be about to tell.

        Raises:
            SandboxLostError: it did not come back within `LIMIT_S`.
        """
        # `asyncio.wait_for` would lose a cancellation that meets the event (Python 3.11).
        if unheard:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(NOTICE_S):
                    await self._away.wait()
        if self._back.is_set():
            return
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._back.wait()
        except TimeoutError as error:
            raise SandboxLostError(f"{self._said} has not answered for {LIMIT_S:g} s") from error
