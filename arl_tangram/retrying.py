"""Try a call again that failed, where its action is declared `idempotent=True` with `retries=`.

Between two attempts there is a pause, in which nothing is held: up to `FIRST_PAUSE_S` before the second, then twice as
much each time, up to `LONGEST_PAUSE_S`; how much of that is chance ("full jitter"), so that those who failed together
do not come back together. The next attempt has the id of the first, and with it its place among those who wait.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol

from arl_tangram.errors import (
    BackendDownError,
    BodyCancelledError,
    GroupCancelledError,
    InfeasibleError,
    QueueTimeout,
    ShutdownError,
    UsageError,
)
from arl_tangram.model.lifecycle import ActionSpec, PendingAction

FIRST_PAUSE_S = 0.5
"""The longest pause before the second attempt."""
LONGEST_PAUSE_S = 30.0
"""The longest pause before any attempt."""
NEVER: tuple[type[Exception], ...] = (
    BackendDownError,
    BodyCancelledError,
    GroupCancelledError,
    InfeasibleError,
    QueueTimeout,
    ShutdownError,
    UsageError,
)
"""After these a call is not tried again: it would be in vain, or against what was asked for."""


class Attempt(Protocol):
    """One invocation of an action."""

    @property
    def over(self) -> bool:
        """Whether nothing of it goes on: its body never began, or has ended."""
        ...


class Nest(Protocol):
    """What the body of an action has called."""

    def begin(self, called: Retried, /, *, in_same_sandbox: bool) -> None:
        """The body calls an action."""
        ...

    def end(self, called: Retried, /) -> None:
        """A call has ended."""
        ...

    async def until_back(self) -> None:
        """Wait until its caller has back what it had lent."""
        ...


class Retried:
    """A call with all its attempts, as others see it who may end it.

    Attributes:
        name: of the action.
        pending: the latest attempt.
        ended: whether it has been ended.
    """

    lingering = False
    task = None

    def __init__(self, name: str, pending: PendingAction) -> None:
        self.name = name
        self.pending = pending
        self._error: BaseException | None = None
        self._over: asyncio.Future[None] | None = None

    @property
    def ended(self) -> bool:
        """Whether its caller gets an error instead of another attempt."""
        return self._error is not None

    def check(self) -> None:
        """Raise the error with which it was ended."""
        if self._error is not None:
            raise self._error

    def call_off(self, error: BaseException) -> None:
        """Let the caller have an error instead of another attempt, at once if it waits for that."""
        if self._error is None:
            self._error = error
            self._end()

    def shut_down(self) -> None:
        """End it because the runtime closes."""
        self.call_off(closed_meanwhile(self.name))

    async def wait(self, pause_s: float) -> None:
        """Wait, unless it is ended; cancelling ends the wait at once."""
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        timer = loop.call_later(pause_s, self._end, context=Context())
        try:
            await self._over
        finally:
            timer.cancel()
            self._over = None

    def _end(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)


class Retrying:
    """Tries calls again, for one runtime.

    Args:
        chance: where the length of pauses comes from.
    """

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = random.Random() if chance is None else chance
        self._waiting: dict[int, Retried] = {}

    def waiting(self) -> list[Retried]:
        """Return the calls that wait for their next attempt."""
        return list(self._waiting.values())

    def pause_s(self, failed: int) -> float:
        """Return how long to wait after so many attempts have failed."""
        return self._chance.uniform(0, min(FIRST_PAUSE_S * 2.0 ** min(failed - 1, 32), LONGEST_PAUSE_S))

    async def result(
        self,
        spec: ActionSpec,
        pending: PendingAction,
        attempt: Callable[[PendingAction], tuple[Attempt, Coroutine[Any, Any, Any]]],
        check: Callable[[], None],
        nest: Nest | None,
    ) -> Any:
        """Return or raise what a call does, tried as often as its action allows.

        Args:
            spec: the action.
            pending: the call.
            attempt: makes an attempt; awaiting what comes with it submits it, and returns or raises what its body did.
            check: raises what the caller gets if there can be no other attempt.
            nest: of the action whose body makes the call; what that lends, it gets back after the last attempt.
        """
        call = Retried(spec.name, pending)
        if nest is None:
            return await self._attempts(spec, call, attempt, check)
        try:
            nest.begin(call, in_same_sandbox=False)
            return await self._attempts(spec, call, attempt, check)
        finally:
            nest.end(call)
            await nest.until_back()

    async def _attempts(
        self,
        spec: ActionSpec,
        call: Retried,
        attempt: Callable[[PendingAction], tuple[Attempt, Coroutine[Any, Any, Any]]],
        check: Callable[[], None],
    ) -> Any:
        since_s = call.pending.submitted_at_s
        failed = 0
        while True:
            current, result = attempt(call.pending)
            try:
                return await result
            except Exception as error:
                failed += 1
                if failed > spec.retries or not current.over or call.ended or not _is_worth_it(spec, error):
                    raise
                check()
                await self._wait(call, self.pause_s(failed))
                call.check()
                check()
            now_s = asyncio.get_running_loop().time()
            call.pending = call.pending._replace(submitted_at_s=now_s, since_s=since_s)

    async def _wait(self, call: Retried, pause_s: float) -> None:
        self._waiting[call.pending.id] = call
        try:
            await call.wait(pause_s)
        finally:
            del self._waiting[call.pending.id]


def closed_meanwhile(name: str) -> ShutdownError:
    """Return the error of a call whose runtime closes between two attempts."""
    return ShutdownError(f"the runtime was closed while {name} waited to be tried again")


def _is_worth_it(spec: ActionSpec, error: Exception) -> bool:
    return isinstance(error, spec.retry_on) and not isinstance(error, NEVER)
