"""`map`: run an action over many items, with failures as an exception or as values."""

from __future__ import annotations

import asyncio
import traceback as tracebacks
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

from arl_tangram.errors import UsageError

R = TypeVar("R")
T = TypeVar("T")


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
        UsageError: another `on_error`.
    """
    if on_error not in ("raise", "return"):
        raise UsageError(f"map(on_error=) takes 'raise' or 'return', not {on_error!r}")
    tasks: list[asyncio.Task[R]] = []
    failed = asyncio.get_running_loop().create_future()
    failed.add_done_callback(lambda _: [task.cancel() for task in tasks] if on_error == "raise" else None)
    try:
        async for item in _each(items):
            if on_error == "raise" and failed.done():
                break
            task = asyncio.create_task(_call(action, item))
            task.add_done_callback(lambda done: _note_failure(done, failed))
            tasks.append(task)
        if tasks:
            await asyncio.wait(tasks)
    finally:
        await _end(tasks)
        if not failed.done():
            failed.cancel()
    if on_error == "raise" and not failed.cancelled():
        raise failed.result()
    return [_outcome(task) for task in tasks]


async def _call(action: Callable[[T], Coroutine[Any, Any, R]], item: T) -> R:
    return await action(item)


async def _each(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


def _note_failure(task: asyncio.Task[Any], failed: asyncio.Future[BaseException]) -> None:
    if failed.done() or task.cancelled():
        return
    error = task.exception()
    if error is not None:
        failed.set_result(error)


async def _end(tasks: list[asyncio.Task[R]]) -> None:
    """Cancel what still runs and wait for its end, so that nothing outlives the call."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)


def _outcome(task: asyncio.Task[R]) -> R | Failure:
    error = task.exception()
    if error is None:
        return task.result()
    if not isinstance(error, Exception):
        raise error
    return Failure(error)
