"""Parts of a test that can be stopped as processes are by SIGSTOP: time goes on, and nothing of them runs meanwhile."""

from __future__ import annotations

import asyncio
import functools
from asyncio.tasks import _PyTask  # type: ignore[attr-defined]
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context
from typing import Any
from weakref import WeakKeyDictionary

from virtual_time import VirtualLoop, run_virtually


class StoppableLoop(VirtualLoop):
    """A loop on which what a part has begun, and what that has begun, belongs to the part.

    What becomes due while its part is stopped runs when that goes on, in the order in which it became due. What is
    called when a future is done belongs to the part that has done it, unless a task awaits it: that much may run of a
    part that is stopped.
    """

    def __init__(self) -> None:
        super().__init__()
        self._part = ""
        self._stopped: dict[str, deque[asyncio.Handle]] = {}
        self._tasks: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self.set_task_factory(self._task)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Let what is begun here belong to a part."""
        before, self._part = self._part, name
        try:
            yield
        finally:
            self._part = before

    def is_stopped(self, name: str) -> bool:
        """Whether a part is stopped."""
        return name in self._stopped

    def stop_part(self, name: str) -> None:
        """Let nothing of a part run."""
        self._stopped.setdefault(name, deque())

    def let_go_on(self, name: str) -> None:
        """Let a part run again."""
        self._ready.extend(self._stopped.pop(name, ()))

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        return super().call_soon(self._of(callback), *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when, self._of(callback), *args, context=context)

    def _run_once(self) -> None:
        self._set_aside()
        super()._run_once()

    def _move_due_timers(self) -> None:
        super()._move_due_timers()
        self._set_aside()
        while not self._ready:
            self._jump()
            super()._move_due_timers()
            self._set_aside()

    def _set_aside(self) -> None:
        """Keep what is due and belongs to a part that is stopped."""
        if not self._stopped:
            return
        ready = [handle for handle in self._ready if not handle.cancelled()]
        self._ready.clear()
        for handle in ready:
            self._stopped.get(handle._callback.name, self._ready).append(handle)

    def _of(self, callback: Callable[..., object]) -> _Of:
        task = getattr(callback, "__self__", None)
        name = self._tasks.get(task, self._part) if isinstance(task, _PyTask) else self._part
        return _Of(self, name, callback)

    def _task(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> Any:
        task = _PyTask(work, loop=loop, **options)
        self._tasks[task] = self._part
        return task


class _Of:
    """A callback of a part."""

    def __init__(self, loop: StoppableLoop, name: str, callback: Callable[..., object]) -> None:
        self.loop, self.name, self.callback = loop, name, callback

    def __call__(self, *args: Any) -> object:
        with self.loop.part(self.name):
            return self.callback(*args)


def part(name: str) -> AbstractContextManager[None]:
    """Let what is begun here belong to a part, if parts of this loop can be stopped."""
    loop = asyncio.get_running_loop()
    return loop.part(name) if isinstance(loop, StoppableLoop) else nullcontext()


def is_stopped(name: str) -> bool:
    """Whether a part is stopped."""
    loop = asyncio.get_running_loop()
    return isinstance(loop, StoppableLoop) and loop.is_stopped(name)


def stoppable(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of a coroutine function; it runs in virtual time, and its parts can be stopped."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtually(test(*args, **kwargs), StoppableLoop())

    return run
