"""Calls of one daemon: each has a deadline, is timed, and ends by nothing but that or its caller's wish."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.uninterrupted import settled

QUICK_S = 30.0  # a request that does little; on a busy machine the daemon takes seconds even for these
SLOW_S = 60.0  # creating, starting, removing
ARCHIVE_S = 600.0

T = TypeVar("T")


class Calls:
    """The calls of one daemon, for one event loop; made inside it."""

    def __init__(self, meter: LatencyMeter) -> None:
        self._meter = meter
        self._clock = asyncio.get_running_loop().time

    async def timed(
        self,
        operation: str,
        work: Coroutine[Any, Any, T],
        timeout_s: float,
        *,
        discard: Callable[[T], None] | None = None,
    ) -> T:
        """Do something by a deadline and note how long it took; works in a task that cannot be cancelled, too.

        Args:
            operation: what to note it as.
            work: what to do.
            timeout_s: the deadline.
            discard: what to do with a result that comes when nobody wants it any more.

        Raises:
            DaemonError: `late`, or what the work raised.
        """
        begun_s, ok = self._clock(), False
        call = _Call(work, loop=asyncio.get_running_loop())
        try:
            await asyncio.wait([call], timeout=timeout_s)
            if not call.done():
                await call.stop()
                raise DaemonError("late", 0, f"the daemon has not answered to {operation} within {timeout_s:g} s")
            result = call.result()
            ok = True
            return result
        except DaemonError as error:
            ok = error.kind == "refused"  # an answer, too
            raise
        except asyncio.CancelledError:
            await call.stop()
            raise
        finally:
            if not ok and call.done() and not call.cancelled() and call.exception() is None and discard is not None:
                discard(call.result())
            self._meter.add(operation, self._clock() - begun_s, ok=ok)


class _Call(asyncio.Task[T]):
    """A request under way: it ends at its deadline or when its caller is cancelled, and by nothing else.

    `asyncio.run` cancels all tasks at its end. Clean-up that goes on then needs its requests.
    """

    is_stopped = False

    def cancel(self, msg: Any | None = None) -> bool:
        return self.is_stopped and super().cancel(msg)

    async def stop(self) -> None:
        self.is_stopped = True
        self.cancel()
        await settled(self)
