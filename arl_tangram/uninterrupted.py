"""Wait for a bounded clean-up however often the waiting task is cancelled; then be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio

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


async def finish_anyway(work: Coroutine[Any, Any, T]) -> T:
    """Run bounded work to its end and return its result; cancelling takes effect only then."""
    task = asyncio.ensure_future(work)
    try:
        await settled(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            task.exception()  # heard, though the cancellation goes first
        raise
    return task.result()
