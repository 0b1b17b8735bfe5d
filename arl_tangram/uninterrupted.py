"""Wait for bounded work however often the waiting task is cancelled; then be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


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
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        if on_cancel is not None:
            on_cancel()
        await settled(task)
        if not task.cancelled():
            task.exception()  # heard, though the cancellation goes first
        raise
    return task.result()


async def in_thread(
    work: Callable[[], T], limiter: anyio.CapacityLimiter, *, on_cancel: Callable[[], None] | None = None
) -> T:
    """Run blocking work on a thread; cancelling takes effect when it has ended, so that nothing goes on unseen."""
    return await finish_anyway(anyio.to_thread.run_sync(work, limiter=limiter), on_cancel=on_cancel)
