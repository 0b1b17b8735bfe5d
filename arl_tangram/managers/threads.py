"""The library's own threads for plain function bodies: kept while idle, never joined, never the loop's default ones.

They are daemons, so that a body that never returns cannot keep the process from exiting. How many
there are is bounded by the scheduler, which counts them as a dimension.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

_Job = tuple[Callable[[], Any], tuple[int, ...], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class BodyThreads:
    """Threads that run one body at a time; used from one event loop."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[_Job | None]] = []
        self._closed = False

    def run(self, body: Callable[[], Any], core_ids: tuple[int, ...]) -> asyncio.Future[Any]:
        """Start a body on an idle thread or a new one, pinned to cores if there are any.

        Returns:
            A future of its result. Cancelling it does not stop the body.
        """
        loop = asyncio.get_running_loop()
        result = loop.create_future()
        inbox = self._idle.pop() if self._idle else self._spawn()
        inbox.put((body, core_ids, result, loop))
        return result

    def close(self) -> None:
        """End the idle threads, and each other one when its body returns."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _spawn(self) -> SimpleQueue[_Job | None]:
        inbox: SimpleQueue[_Job | None] = SimpleQueue()
        threading.Thread(target=self._serve, args=(inbox,), name="arl_tangram body", daemon=True).start()
        return inbox

    def _serve(self, inbox: SimpleQueue[_Job | None]) -> None:
        affinity = os.sched_getaffinity(0)
        while (job := inbox.get()) is not None:
            body, core_ids, result, loop = job
            if core_ids:
                with suppress(OSError):  # a core may have gone offline; the body runs all the same
                    os.sched_setaffinity(0, core_ids)
            try:
                value, error = body(), None
            except BaseException as caught:  # noqa: BLE001 - told to whoever waits, whatever it is
                value, error = None, caught
            if core_ids:
                with suppress(OSError):
                    os.sched_setaffinity(0, affinity)
            del job, body
            try:
                loop.call_soon_threadsafe(self._deliver, inbox, result, value, error)
            except RuntimeError:  # the loop was closed: nobody waits for the result any more
                return
            del value, error, result

    def _deliver(
        self, inbox: SimpleQueue[_Job | None], result: asyncio.Future[Any], value: Any, error: BaseException | None
    ) -> None:
        if self._closed:
            inbox.put(None)
        else:
            self._idle.append(inbox)
        if result.done():
            return
        if isinstance(error, StopIteration):  # a future cannot hold one
            error = RuntimeError(f"the body raised {error!r}")
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)
