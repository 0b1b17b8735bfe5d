"""Open what a runtime consists of, and close it: in reverse order, all of it, in bounded time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

from arl_tangram.dispatch import Dispatcher
from arl_tangram.doorway import Doorway
from arl_tangram.execution import refuse
from arl_tangram.managers.breakers import Breakers
from arl_tangram.managers.gpu.manager import GpuManager
from arl_tangram.managers.processes import BodyProcesses
from arl_tangram.managers.threads import BodyThreads
from arl_tangram.model.events import Event
from arl_tangram.model.gpu import Instance
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.setup import Setup, cores_of, seats_of
from arl_tangram.timed_policy import watched
from arl_tangram.trace.jsonl import JsonlSink
from arl_tangram.trace.sink import Sink
from arl_tangram.trace.summary import Summary
from arl_tangram.workshop import Workshop

CLEAN_S = 5.0  # for what a body leaves behind to be killed, beyond the grace time
_MOMENT_S = 0.05

_logger = logging.getLogger("arl_tangram")


class Opened:
    """What an open runtime consists of; made by `opened`.

    Attributes:
        summary: what happened so far.
        dispatcher: the scheduler on the loop.
        workshop: what all calls share.
    """

    def __init__(self, setup: Setup, workshop: Workshop, summary: Summary) -> None:
        self.summary = summary
        self.dispatcher = workshop.dispatcher
        self.workshop = workshop
        self._kill_grace_s = setup.kill_grace_s
        self._to_close = AsyncExitStack()

    def closes(self, stack: AsyncExitStack) -> None:
        """Close what is on a stack at the end."""
        self._to_close = stack

    async def close(self) -> None:
        """End what waits and runs, then close everything."""
        async with self._to_close:
            try:
                for waiter in self.dispatcher.waiters():
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
                self.dispatcher.stop()
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
        for limit_s in (self._kill_grace_s + _MOMENT_S, CLEAN_S):
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


class _Events:
    """Hands what happens to the summary and to the sink of the trace."""

    def __init__(self, summary: Summary, sink: Sink | None) -> None:
        self._summary = summary
        self._sink = sink

    def tell(self, events: Sequence[Event]) -> None:
        """Hand events over, in their order."""
        self._summary.add_all(events)
        if self._sink is None:
            return
        try:
            for event in events:
                self._sink.write(event)
        except Exception:
            # One that is the user's own must not be able to keep a caller from its answer.
            _logger.exception("%r does not take events; the trace ends here", self._sink)
            self._sink = None


async def opened(setup: Setup, doorway: Doorway, on_closed: Callable[[], None]) -> Opened:
    """Open what a runtime consists of, on the running loop; if that fails, all of it is closed again.

    Args:
        setup: what to open.
        doorway: the way onto this loop.
        on_closed: called when everything is closed.
    """
    async with AsyncExitStack() as stack:
        stack.callback(on_closed)
        stack.push_async_callback(doorway.aclose)
        cpu = None if setup.pool is None else setup.pool.manager()
        if cpu is not None:
            stack.push_async_callback(cpu.aclose)
            await cpu.prepare()
        gpu = None if setup.gpus is None else setup.gpus.manager()
        if gpu is not None:
            stack.push_async_callback(gpu.aclose)
            await gpu.start()
        seats = None if gpu is None else seats_of(gpu)
        topology = setup.topology(cpu, seats, () if gpu is None else [service.name for service in gpu.services])
        sink = _sink(setup, topology)
        if sink is not None:
            stack.push_async_callback(sink.aclose)
        if cpu is not None:
            await cpu.start()
        summary = Summary(topology)
        core = SchedulerCore(
            topology, watched(setup.policy), order=setup.order, record=True, submissions=sink is not None, seats=seats
        )
        dispatcher = Dispatcher(core, _Events(summary, sink).tell)
        if gpu is not None:
            dispatcher.gpus.on_evicted = partial(_evict, gpu)
            gpu.listen(dispatcher.gpus)
        workshop = Workshop(
            dispatcher,
            cpu,
            BodyThreads(),
            BodyProcesses(most_idle=cores_of(cpu)),
            setup.kill_grace_s,
            asyncio.get_running_loop(),
            {quota.name: quota for quota in setup.quotas},
        )
        workshop.gpu = gpu
        stack.callback(workshop.watch.close)
        breakers = {quota.name: quota.breaker for quota in setup.quotas if quota.breaker is not None}
        if breakers:
            workshop.breakers = Breakers(breakers, topology, dispatcher, partial(refuse, workshop))
        summary.opened(dispatcher.time())
        parts = Opened(setup, workshop, summary)
        parts.closes(stack.pop_all())
    return parts


def _evict(gpu: GpuManager, instances: Sequence[Instance]) -> None:
    for instance in instances:
        gpu.evict(instance)


def _sink(setup: Setup, topology: Topology) -> Sink | None:
    if setup.trace is None or isinstance(setup.trace, Sink):
        return setup.trace
    return JsonlSink(setup.trace, topology=topology, policy=setup.policy.name)
