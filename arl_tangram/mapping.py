"""`map`: run an action over many items, with failures as an exception or as values."""

from __future__ import annotations

import asyncio
import traceback as tracebacks
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

from arl_tangram.errors import UsageError
from arl_tangram.uninterrupted import settled

R = TypeVar("R")
T = TypeVar("T")

_AT_ONCE = 64
"""Calls that are made in one turn of the loop: one or two milliseconds, then others have theirs."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What `map(..., on_error="return")` puts in the place of a result.

    Attributes:
        error: what the action raised.
    """

    error: Exception

    @property
    def traceback(self) -> str:
        """The error with its traceback, as text."""
        return "".join(tracebacks.format_exception(self.error))


@overload
async def map(  # noqa: A001 - what everybody calls it
    action: Callable[[T], Coroutine[Any, Any, R]],
    items: Iterable[T] | AsyncIterable[T],
    /,
    *,
    on_error: Literal["raise"] = ...,
) -> list[R]: ...
@overload
async def map(  # noqa: A001
    action: Callable[[T], Coroutine[Any, Any, R]],
    items: Iterable[T] | AsyncIterable[T],
    /,
    *,
    on_error: Literal["return"],
) -> list[R | Failure]: ...
async def map(  # noqa: A001
    action: Callable[[T], Coroutine[Any, Any, R]],
    items: Iterable[T] | AsyncIterable[T],
    /,
    *,
    on_error: Literal["raise", "return"] = "raise",
) -> Any:
    """Call an action once for each item, all at once as far as the scheduler lets them, and return results in order.

    Args:
        action: an action, or any coroutine function, of one argument.
        items: the arguments; an asynchronous iterable is consumed as its items come.
        on_error: `"raise"` raises the first error, after the other calls were cancelled and have
            ended; `"return"` puts a `Failure` in the place of each failed call.

    Cancelling cancels all calls and waits for their end.

    Raises:
        UsageError: another `on_error`, or what is called returns nothing to await.
    """
    if on_error not in ("raise", "return"):
        raise UsageError(f"map(on_error=) takes 'raise' or 'return', not {on_error!r}")
    calls: list[asyncio.Task[R]] = []
    failures: list[BaseException] = []
    running = 1  # the feeding, and the calls that have not ended
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    context = copy_context()  # one for all callbacks: each would have a copy of its own

    def call(item: T) -> None:
        nonlocal running
        running += 1
        calls.append(asyncio.create_task(_call(action, item)))
        calls[-1].add_done_callback(note, context=context)

    def note(done: asyncio.Task[Any]) -> None:
        nonlocal running
        error = None if done.cancelled() else done.exception()
        if error is not None and (done is feeding or on_error == "raise"):
            failures.append(error)
            end()
        running -= 1
        if not running:
            ended.set_result(None)

    def end() -> None:
        for task in (feeding, *calls):
            task.cancel()

    # Fed by a task of its own, so that a failure need not wait for the next item.
    feeding = asyncio.create_task(_feed(items, call))
    feeding.add_done_callback(note, context=context)
    try:
        await asyncio.wait([ended])
    except asyncio.CancelledError:
        end()
        await settled(ended)
        raise
    if failures:
        raise failures[0]
    return [_outcome(task) for task in calls]


async def _call(action: Callable[[T], Coroutine[Any, Any, R]], item: T) -> R:
    called = action(item)
    if not hasattr(called, "__await__"):
        raise UsageError(f"map() takes an action or another coroutine function; {action!r} returned {called!r}")
    return await called


async def _feed(items: Iterable[T] | AsyncIterable[T], call: Callable[[T], None]) -> None:
    if not isinstance(items, AsyncIterable):
        for number, item in enumerate(items, 1):
            call(item)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return
    try:
        async for item in items:
            call(item)
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()


def _outcome(task: asyncio.Task[R]) -> R | Failure:
    error = task.exception()
    if error is None:
        return task.result()
    if not isinstance(error, Exception):
        raise error
    return Failure(error)
