"""The library's own threads for plain function bodies: kept while idle, never joined, never the loop's default ones.

They are daemons, so that a body that never returns cannot keep the process from exiting. How many
there are is bounded by the scheduler, which counts them as a dimension.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any


@dataclass(frozen=True, slots=True)
class Returned:
    """How a body on a thread ended.

    Attributes:
        value: what it returned.
        error: what it raised instead, or None.
        body_s: seconds that it ran, measured on its thread.
    """

    value: Any
    error: BaseException | None
    body_s: float

    def result(self) -> Any:
        """Return the value or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


_Job = tuple[Callable[[], Any], tuple[int, ...], "asyncio.Future[Returned]", asyncio.AbstractEventLoop]


class BodyThreads:
    """Threads that run one body at a time; used from one event loop."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[_Job | None]] = []
        self._closed = False

    def run(self, body: Callable[[], Any], core_ids: tuple[int, ...]) -> asyncio.Future[Returned]:
        """Start a body on an idle thread or a new one, pinned to cores if there are any.

        Returns:
            A future of how it ended, never an exception. Cancelling it does not stop the body.
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
            self._pin(core_ids)
            began_s = time.monotonic()
            value, error = None, None
            try:
                value = body()
            except BaseException as caught:  # noqa: BLE001 - told to whoever waits, whatever it is
                error = caught
            returned = Returned(value, error, time.monotonic() - began_s)
            self._pin(affinity)  # whatever the body has made of it
            del job, body, value, error
            try:
                loop.call_soon_threadsafe(self._deliver, inbox, result, returned)
            except RuntimeError:  # the loop was closed: nobody waits for the result any more
                return
            if self._closed:  # the loop may end before it delivers, and then nobody would end this thread
                return
            del returned, result

    @staticmethod
    def _pin(core_ids: Collection[int]) -> None:
        if core_ids:
            with suppress(OSError):  # a core may have gone offline; the body runs all the same
                os.sched_setaffinity(0, core_ids)

    def _deliver(self, inbox: SimpleQueue[_Job | None], result: asyncio.Future[Returned], returned: Returned) -> None:
        if self._closed:
            inbox.put(None)
        else:
            self._idle.append(inbox)
        if not result.done():
            result.set_result(returned)
