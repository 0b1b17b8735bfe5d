"""The thread of one plain function body: waited for, let go of, and moved with the cores of its action.

No thread is ended by cancelling: who waits for one lets go of it, and the thread goes on until its body returns.
"""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
from collections.abc import Callable, Collection
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from arl_tangram.errors import RemoteError
from arl_tangram.managers.threads import BodyThreads, Returned


class BodyThread:
    """Where one body runs."""

    __slots__ = ("_id",)

    def __init__(self) -> None:
        self._id: int | None = None

    async def run(
        self,
        threads: BodyThreads,
        body: Callable[[], Any],
        core_ids: tuple[int, ...],
        let_go: Callable[[asyncio.Future[Returned]], None],
    ) -> Returned:
        """Run the body, which sees the context of the task that waits here, and return how it ended.

        Args:
            threads: has a thread for it.
            body: called there.
            core_ids: where it may run; none for anywhere.
            let_go: called with a future of how the body ends, when the task is cancelled before that.
        """
        context = copy_context()

        def call() -> Any:
            self._id = threading.get_native_id()
            try:
                return context.run(body)
            except (KeyboardInterrupt, SystemExit) as caught:  # a tool's own: signals go to the main thread
                raise _not_to_be_raised(caught) from caught

        done = threads.run(call, core_ids)
        while not done.done():
            try:
                await asyncio.shield(done)
            except asyncio.CancelledError:
                if done.done():
                    break
                let_go(done)
                raise
        self._id = None
        return done.result()

    def move(self, core_ids: Collection[int]) -> None:
        """Let the body run on these cores from now on, if it runs."""
        if self._id is not None:
            with suppress(OSError):  # it has ended, or a core has gone offline
                os.sched_setaffinity(self._id, core_ids)


def _not_to_be_raised(caught: BaseException) -> RemoteError:
    """Return the error of a tool that wants to end the program, which is not for it to decide."""
    return RemoteError(type(caught).__name__, str(caught), "".join(traceback.format_exception(caught)))
