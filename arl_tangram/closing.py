"""What an open runtime consists of, and its end: in reverse order, all of it, in bounded time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from arl_tangram.workshop import Workshop

CLEAN_S = 5.0  # for what a body leaves behind to be killed, beyond the grace time
_MOMENT_S = 0.05

_logger = logging.getLogger("arl_tangram")


class Opened:
    """What an open runtime consists of.

    Attributes:
        workshop: what all calls share.
        reserved_cores: whole cores that each trajectory holds for its actions, or 0.
    """

    def __init__(self, workshop: Workshop, reserved_cores: int = 0) -> None:
        self.workshop = workshop
        self.reserved_cores = reserved_cores
        self._to_close = AsyncExitStack()

    def closes(self, stack: AsyncExitStack) -> None:
        """Close what is on a stack at the end."""
        self._to_close = stack

    async def close(self) -> None:
        """End what waits and runs, then close everything."""
        async with self._to_close:
            try:
                for waiter in self.workshop.dispatcher.waiters():
                    waiter.shut_down()
                for live in list(self.workshop.live.values()):
                    live.shut_down()
                for call in self.workshop.retrying.waiting():
                    call.shut_down()
                await self._end_bodies()
                # All at once: while one takes its time, another that is being opened must not begin.
                closing = (trajectory.aclose() for trajectory in list(self.workshop.trajectories))
                await asyncio.gather(*closing, return_exceptions=True)  # who left a trajectory is told by its own exit
            finally:  # whoever ends the loop may have cancelled this
                self.workshop.dispatcher.stop()
                self.workshop.watch.close()
                self.workshop.threads.close()
                await self.workshop.processes.aclose()

    def loop_closed(self) -> None:
        """Let go of threads: the loop was closed before this, so that nothing else can be done."""
        self.workshop.watch.close()
        self.workshop.threads.close()

    def end_now(self) -> None:
        """End all bodies for good; the process is forced to leave."""
        for live in list(self.workshop.live.values()):
            live.end_now()

    async def _end_bodies(self) -> None:
        """Wait for interrupted bodies, the grace time and a little for their clean-up; then let go of them."""
        for limit_s in (self.workshop.kill_grace_s + _MOMENT_S, CLEAN_S):
            tasks = [i.task for i in self.workshop.live.values() if i.task is not None and not i.lingering]
            if tasks:
                await asyncio.wait(tasks, timeout=limit_s)
        outliving = list(self.workshop.live.values())
        for live in outliving:
            _logger.warning("%s outlives the runtime; what it runs was not ended", live.name)
            live.detach()
        detached = [live.task for live in outliving if live.task is not None]
        if detached:
            await asyncio.wait(detached, timeout=1)
