"""Wait for bounded work however often the waiting task is cancelled; then be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


class _Unstoppable(asyncio.Task[T]):
    """A task of bounded work that nobody can cancel, not even `asyncio.run` at its end, which then waits for it."""

    def cancel(self, msg: Any | None = None) -> bool:
        return False


def unstoppable(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begin bounded work that must not be left half done, whoever cancels all tasks of the loop.

    It must not cancel itself: no `asyncio.timeout` and no cancel scope with a deadline in it.
    """
    return _Unstoppable(work, loop=asyncio.get_running_loop())


class _SureToBegin(asyncio.Task[T]):
    """A task that cannot be cancelled before its first step, which would leave all of its work undone."""

    has_begun = False

    def cancel(self, msg: Any | None = None) -> bool:
        return self.has_begun and super().cancel(msg)


def sure_to_begin(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begin work that does in its `finally` what must be done, and may be cancelled for the rest."""

    async def begin() -> T:
        task.has_begun = True
        return await work

    task = _SureToBegin(begin(), loop=asyncio.get_running_loop())
    return task


async def settled(future: asyncio.Future[Any]) -> None:
    """Wait until a future is done; cancelling the waiting task takes effect only then."""
    cancelled: asyncio.CancelledError | None = None
    # Without the shield, a cancelled anyio scope around would cancel again in every turn of the loop.
    with anyio.CancelScope(shield=True):
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as caught:
                cancelled = caught
    if cancelled is not None:
        raise cancelled


async def finish_anyway(work: Coroutine[Any, Any, T], *, on_cancel: Callable[[], None] | None = None) -> T:
    """Run bounded work to its end and return its result; cancelling takes effect only then.

    Args:
        work: what must not be left half done.
        on_cancel: called when the waiting task is cancelled; may make the work end early.
    """
    task = unstoppable(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        try:
            if on_cancel is not None:
                on_cancel()
        finally:
            try:
                await settled(task)
            finally:
                if task.done() and not task.cancelled():  # as it is when the work itself raises CancelledError
                    task.exception()  # heard, though the cancellation goes first
        raise
    return task.result()


async def in_thread(
    work: Callable[[], T], limiter: anyio.CapacityLimiter, *, on_cancel: Callable[[], None] | None = None
) -> T:
    """Run blocking work on a thread; cancelling takes effect when it has ended, so that nothing goes on unseen."""
    return await finish_anyway(anyio.to_thread.run_sync(work, limiter=limiter), on_cancel=on_cancel)
