"""What somebody elsewhere wants to be done on an event loop, in a copy of the context of who wants it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Errand(Generic[T]):
    """What somebody elsewhere wants to be done on the loop.

    Attributes:
        outcome: what came of it.
        task: does it, once it has begun.
        closes: whether it waits for the runtime to be closed.
    """

    __slots__ = ("__weakref__", "_context", "_work", "closes", "outcome", "task")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._context = copy_context()
        self.outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.task: asyncio.Task[tuple[T | None, BaseException | None]] | None = None
        self.closes = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[tuple[T | None, BaseException | None]]:
        """Begin it on the loop."""
        self.task = loop.create_task(self._perform(), context=self._context)
        return self.task

    def end(self, value: Any, error: BaseException | None) -> None:
        """Tell what came of it."""
        if error is None:
            self.outcome.set_result(value)
        else:
            self.outcome.set_exception(error)

    def let_go(self) -> None:
        """Let nothing be said of a task that its loop has dropped: the sender is told, so that all is well."""
        if self.task is None:
            return
        task: Any = self.task  # what is set is no public attribute
        task._log_destroy_pending = False  # as asyncio.gather does
        steps = task.get_coro()
        if self.task.get_loop().is_closed() and inspect.getcoroutinestate(steps) == inspect.CORO_CREATED:
            steps.close()  # else it would be said not to have been awaited

    async def _perform(self) -> tuple[T | None, BaseException | None]:
        errand_var.set(self)
        try:
            return await self._work(), None
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - told to the sender, whatever it is
            return None, error


class Glance(Errand[T]):
    """Something short, to be done in one step."""

    __slots__ = ("_look",)

    def __init__(self, look: Callable[[], T]) -> None:
        super().__init__(_nothing)
        self._look = look

    def perform(self) -> None:
        """Do it, in the context of its sender."""
        try:
            value = self._context.run(self._look)
        except BaseException as error:  # noqa: BLE001 - as above
            self.end(None, error)
        else:
            self.end(value, None)


async def _nothing() -> Any:
    """Do nothing."""


errand_var: ContextVar[Errand[Any] | None] = ContextVar("arl_tangram_errand", default=None)
